//! What can go wrong on a device. Every message says what failed, where, why, and what to do.

use cuda_std::shape::LaunchShape;

/// An error of a device, of a launch on it, or of a graph of launches.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No CUDA driver that can be used.
    #[error(transparent)]
    Driver(#[from] cuda_driver::DriverError),
    /// A driver, but no such GPU.
    #[error(
        "there is no GPU {index}: the driver shows {found}; check `nvidia-smi` and CUDA_VISIBLE_DEVICES, choose another \
         by ONEGRAPH_DEVICE_INDEX, or use `--device cpu`"
    )]
    NoDevice {
        /// The index asked for.
        index: u32,
        /// GPUs that the driver shows.
        found: u32,
    },
    /// `ONEGRAPH_DEVICE_INDEX` is not an index.
    #[error("ONEGRAPH_DEVICE_INDEX is `{0}`, which is not the number of a GPU; write 0 for the first, or unset it")]
    BadIndex(String),
    /// No image of the kernels that the device runs.
    #[error("cannot run `{module}` on {device} (compute capability {}.{}): {reason}", .cc.0, .cc.1)]
    NoImage {
        /// The kernel crate.
        module: &'static str,
        /// The device's name.
        device: String,
        /// Its compute capability.
        cc: (u32, u32),
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// A launch through a module that has no such kernel.
    #[error("module `{module}` has no kernel `{kernel}`; launch it through the module of its own crate")]
    NoKernel {
        /// The kernel.
        kernel: &'static str,
        /// The module's crate.
        module: &'static str,
    },
    /// A driver call that failed.
    #[error("{call} failed with {name} ({status}) while {purpose}: {text}{}", hint(*.status))]
    Call {
        /// The driver's function.
        call: &'static str,
        /// What it returned.
        status: u32,
        /// The status by name.
        name: String,
        /// The driver's own explanation.
        text: String,
        /// What the call was for, with the kernel and the launch's shape where there is one.
        purpose: String,
    },
    /// Something failed while it was being dropped, and this is the first call since.
    #[error("an earlier operation failed when it could not report it: {0}")]
    Earlier(#[source] Box<DeviceError>),
    /// A graph that cannot be built.
    #[error("cannot build the graph: {0}")]
    Graph(String),
    /// A graph that was launched into a stream of another device.
    #[error(
        "cannot launch the graph: the stream is of another device, or of another opening of this one; take a stream of \
         the device that the graph was composed on"
    )]
    OtherStream,
    /// Something in a child graph's capture.
    #[error("while capturing child graph `{child}`: {source}")]
    Capture {
        /// The child.
        child: String,
        /// What happened.
        source: Box<DeviceError>,
    },
    /// A buffer larger than an address space.
    #[error("{len} elements of {element_bytes} bytes are more than can be addressed")]
    TooLarge {
        /// Elements asked for.
        len: usize,
        /// Size of one, bytes.
        element_bytes: usize,
    },
    /// A launch that cannot run as it was asked for.
    #[error("cannot launch kernel `{kernel}` with {}: {reason}", ShapeText(.shape))]
    Launch {
        /// The kernel.
        kernel: &'static str,
        /// The shape that was asked for.
        shape: LaunchShape,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A kernel that failed on the CPU.
    #[error(transparent)]
    Fault(Box<cuda_std::cpu::Fault>),
    /// A copy between slices of unequal length.
    #[error("cannot {action} {got} elements: the buffer has {expected}; the two lengths must be equal")]
    Length {
        /// What was asked for.
        action: &'static str,
        /// The buffer's length.
        expected: usize,
        /// The length that was given.
        got: usize,
    },
    /// More memory than there is.
    #[error(
        "out of memory on {device}: {requested} bytes asked for, {free} of {total} bytes free; \
         take a smaller preset, or free the device of other programs"
    )]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Bytes free.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
}

impl DeviceError {
    /// Whether it is of what was asked for, or of the machine as it was found, and nothing that failed at work: a device that
    /// is not there or cannot run the kernels.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Driver(_) | Self::NoDevice { .. } | Self::BadIndex(_) | Self::NoImage { .. })
    }
}

impl From<cuda_std::cpu::Fault> for DeviceError {
    fn from(fault: cuda_std::cpu::Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

/// What to do about a status, where there is more to say than its name does.
fn hint(status: u32) -> &'static str {
    match status {
        // CUDA_ERROR_ILLEGAL_ADDRESS, _MISALIGNED_ADDRESS, _INVALID_ADDRESS_SPACE, _INVALID_PC, _LAUNCH_FAILED, _ASSERT,
        // _ILLEGAL_INSTRUCTION
        700 | 710 | 714..=719 => {
            "; a kernel faulted and the device must be opened anew: run the same with `--device cpu` and \
             ONEGRAPH_CHECK=1, or under compute-sanitizer, to find the kernel and the line"
        }
        // CUDA_ERROR_INVALID_PTX
        218 => {
            "; an `asm!` of a kernel may be no PTX, which scripts/ptxas-check shows, or the driver may be older than the image"
        }
        // CUDA_ERROR_UNSUPPORTED_PTX_VERSION, _NO_BINARY_FOR_GPU
        222 | 209 => "; the driver may be older than the image: update the NVIDIA driver",
        // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, _SYSTEM_NOT_READY
        803 | 802 => "; the user-space driver and the kernel module disagree: reboot, or reinstall the NVIDIA driver",
        _ => "",
    }
}

/// A launch shape as an error tells it.
pub(crate) struct ShapeText<'a>(pub &'a LaunchShape);

impl std::fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LaunchShape { grid, block, shared_bytes, .. } = self.0;
        write!(f, "grid {}x{}x{}, block {}x{}x{}", grid.x, grid.y, grid.z, block.x, block.y, block.z)?;
        if *shared_bytes > 0 {
            write!(f, ", {shared_bytes} bytes of shared memory")?;
        }
        Ok(())
    }
}
