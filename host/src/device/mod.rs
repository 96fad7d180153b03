//! A device that runs kernels: one small interface over two backends, a CUDA GPU and the CPU.
//!
//! Everything made on a device shares its ownership, so the device outlives its memory, modules, streams and graphs
//! whatever order they are dropped in.

mod buffer;
mod cpu;
mod cuda;
mod launch;
mod matmul;
mod module;
mod pinned;
mod replay;
mod stored;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use cuda_std::cpu::ExecutorOptions;
use cuda_std::shape::LaunchShape;

pub use buffer::{Buffer, Part};
pub use cpu::memory_info as host_memory_info;
pub use cuda_driver::ledger;
pub use matmul::{Bf16Kernels, Matmul, Output};
pub use module::Module;
pub use pinned::{HostAtomic, Pinned};
pub use stored::{Stored, dtype_of};
pub use stream::{Event, Stream};

use crate::error::DeviceError;
use crate::images::Images;
use cpu::CpuDevice;
use cuda::{CudaDevice, CudaModule, CudaStream};
pub(crate) use replay::{Executable, Recorded, ShapedLaunch};

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The GPU if there is one that can be used, else the CPU. A driver or an index that the environment names and that
    /// will not do is an error.
    #[default]
    Auto,
    /// The GPU or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

/// Whether the environment names the driver or the GPU that failed, so that it is meant to be used.
pub fn is_named(error: &DeviceError) -> bool {
    let driver_is_named = matches!(error, DeviceError::Driver(_)) && cuda_driver::is_named();
    driver_is_named || std::env::var_os("ONEGRAPH_DEVICE_INDEX").is_some()
}

/// A device. Cloning it shares it.
#[derive(Clone)]
pub struct Device {
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Cpu(Arc<CpuDevice>),
    Cuda(Arc<CudaDevice>),
}

/// What a device is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor; none on the CPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Multiprocessors; on the CPU, processors that this program may use.
    pub n_multiprocessors: u32,
    /// Memory in all, bytes.
    pub memory_bytes: usize,
}

impl Device {
    /// Opens the device that `choice` names. Which GPU it is, `ONEGRAPH_DEVICE_INDEX` says (0 if unset), counted among
    /// those that `CUDA_VISIBLE_DEVICES` leaves visible.
    pub fn open(choice: DeviceChoice) -> Result<Self, DeviceError> {
        match choice {
            DeviceChoice::Cpu => Ok(Self::cpu_with(ExecutorOptions::default())),
            DeviceChoice::Cuda => Self::cuda(),
            DeviceChoice::Auto => match Self::cuda() {
                Err(error) if is_named(&error) => Err(error),
                Err(reason) => {
                    use cuda_driver::DriverError::NotFound;
                    match reason {
                        DeviceError::Driver(NotFound { .. }) | DeviceError::NoDevice { found: 0, .. } => {
                            tracing::info!("working on the CPU: {reason}");
                        }
                        // There is one, and it is not used.
                        _ => tracing::warn!("working on the CPU: {reason}"),
                    }
                    Ok(Self::cpu_with(ExecutorOptions::default()))
                }
                opened => opened,
            },
        }
    }

    /// The CPU, with an executor of these options.
    pub fn cpu_with(options: ExecutorOptions) -> Self {
        Self { backend: Backend::Cpu(CpuDevice::new(options)) }
    }

    fn cuda() -> Result<Self, DeviceError> {
        let index = match std::env::var("ONEGRAPH_DEVICE_INDEX") {
            Ok(text) => text.trim().parse().map_err(|_| DeviceError::BadIndex(text))?,
            Err(_) => 0,
        };
        Ok(Self { backend: Backend::Cuda(CudaDevice::open(index)?) })
    }

    /// `"cpu"` or `"cuda"`.
    pub fn backend_name(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu(_) => "cpu",
            Backend::Cuda(_) => "cuda",
        }
    }

    /// Lanes that share a row in kernels that work row by row (`gpu_kernels::lanes::row_shape`): a warp on a GPU; 1 on the
    /// CPU, where lanes are coroutines.
    pub fn row_lanes(&self) -> u32 {
        match &self.backend {
            Backend::Cpu(_) => 1,
            Backend::Cuda(_) => 32,
        }
    }

    /// Whether the device runs the kernels' sm_90a image, and so has `wgmma`. The CPU runs its kernels too, by emulation, but
    /// none is launched there but by tests.
    pub fn runs_sm_90a(&self) -> bool {
        match &self.backend {
            Backend::Cpu(_) => false,
            Backend::Cuda(cuda) => cuda.runs_sm_90a(),
        }
    }

    /// Whether a block of these launches gets the shared memory that it asks for.
    pub fn fits(&self, shapes: &[LaunchShape]) -> bool {
        match &self.backend {
            Backend::Cpu(_) => true,
            Backend::Cuda(cuda) => shapes.iter().all(|shape| shape.shared_bytes <= cuda.shared_bytes()),
        }
    }

    /// What the device is.
    pub fn info(&self) -> DeviceInfo {
        match &self.backend {
            Backend::Cpu(_) => cpu::info(),
            Backend::Cuda(cuda) => cuda.info().clone(),
        }
    }

    /// Whether it is the host itself, whose memory it shares.
    pub fn is_host(&self) -> bool {
        matches!(self.backend, Backend::Cpu(_))
    }

    /// Memory of the device, bytes: free, and in all.
    #[track_caller]
    pub fn memory_info(&self) -> Result<(usize, usize), DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => {
                ledger::record("cpu:cuMemGetInfo_v2", 0);
                Ok(cpu::memory_info())
            }
            Backend::Cuda(cuda) => cuda.memory_info(),
        }
    }

    /// A buffer of `len` elements whose contents are undefined.
    #[track_caller]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let bytes = byte_count::<T>(len)?;
        let memory = match &self.backend {
            Backend::Cpu(cpu) => cpu.allocate(bytes)?,
            Backend::Cuda(cuda) => cuda.allocate(bytes)?,
        };
        Ok(Buffer::new(self.clone(), memory, len))
    }

    /// A buffer of `len` elements of zero bytes.
    #[track_caller]
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let buffer = self.alloc(len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// A buffer with a copy of `values`.
    #[track_caller]
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, DeviceError> {
        let buffer = self.alloc(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// `len` elements of zero bytes in pinned host memory that kernels reach too.
    #[track_caller]
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, DeviceError> {
        let bytes = byte_count::<T>(len)?;
        let (host, memory) = match &self.backend {
            Backend::Cpu(cpu) => {
                let memory = cpu.allocate_pinned(bytes)?;
                (memory.address() as *mut T, memory)
            }
            Backend::Cuda(cuda) => {
                let (host, memory) = cuda.allocate_pinned(bytes)?;
                (host.as_ptr().cast(), memory)
            }
        };
        Ok(Pinned::new(host, memory, len))
    }

    /// The best of `images` that this device runs, as a module of its own. Its kernels are loaded when they are first launched or
    /// captured.
    #[track_caller]
    pub fn module(&self, images: &Images) -> Result<Module, DeviceError> {
        match &self.backend {
            Backend::Cpu(cpu) => {
                ledger::record("cpu:cuModuleLoadDataEx", 0);
                Ok(Module::cpu(cpu.id(), images))
            }
            Backend::Cuda(cuda) => Ok(Module::cuda(CudaModule::new(cuda.clone(), images)?)),
        }
    }

    /// A new stream: what is launched into it runs in order.
    #[track_caller]
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        match &self.backend {
            Backend::Cpu(cpu) => {
                ledger::record("cpu:cuStreamCreate", 0);
                Ok(Stream::cpu(cpu.clone()))
            }
            Backend::Cuda(cuda) => Ok(Stream::cuda(CudaStream::new(cuda.clone())?)),
        }
    }
}

/// A number for an opening of a device, never 0 and never given twice; memory and modules carry it.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Bytes of `len` elements.
fn byte_count<T>(len: usize) -> Result<usize, DeviceError> {
    size_of::<T>()
        .checked_mul(len)
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or(DeviceError::TooLarge { len, element_bytes: size_of::<T>() })
}
