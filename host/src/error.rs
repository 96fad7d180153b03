//! What can go wrong on a device. Every message says what failed, where, why, and what to do.

use cuda_std::shape::LaunchShape;

/// An error of a device, of a launch on it, or of a graph of launches.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
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
