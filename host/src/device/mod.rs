//! A device that runs kernels: one small interface over two backends, a CUDA GPU and the CPU.
//!
//! Everything made on a device shares its ownership, so the device outlives its memory, modules, streams and graphs
//! whatever order they are dropped in.

mod buffer;
mod cpu;
mod launch;
mod module;
mod pinned;
mod stream;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

pub use buffer::{Buffer, Part};
pub use module::Module;
pub use pinned::{HostAtomic, Pinned};
pub use stream::{Event, Stream};

use crate::error::DeviceError;
use crate::images::Images;
use cpu::CpuDevice;

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The GPU if there is one that can be used, else the CPU.
    #[default]
    Auto,
    /// The GPU or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

/// A device. Cloning it shares it.
#[derive(Clone)]
pub struct Device {
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Cpu(Arc<CpuDevice>),
}

impl Device {
    /// Opens the device that `choice` names.
    pub fn open(_choice: DeviceChoice) -> Result<Self, DeviceError> {
        Ok(Self { backend: Backend::Cpu(CpuDevice::new()) })
    }

    /// `"cpu"` or `"cuda"`.
    pub fn backend_name(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu(_) => "cpu",
        }
    }

    /// A buffer of `len` elements whose contents are undefined.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let bytes = byte_count::<T>(len)?;
        let memory = match &self.backend {
            Backend::Cpu(cpu) => cpu.allocate(bytes)?,
        };
        Ok(Buffer::new(self.clone(), memory, len))
    }

    /// A buffer of `len` zeroes.
    pub fn alloc_zeroed<T: Pod + Zeroable>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let buffer = self.alloc(len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// A buffer with a copy of `values`.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, DeviceError> {
        let buffer = self.alloc(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// `len` zeroes in pinned host memory that kernels reach too.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, DeviceError> {
        let bytes = byte_count::<T>(len)?;
        match &self.backend {
            Backend::Cpu(cpu) => {
                let memory = cpu.allocate_zeroed(bytes)?;
                Ok(Pinned::new(memory.address() as *mut T, memory, len))
            }
        }
    }

    /// Loads the best of `images` that this device runs, as a module of its own.
    pub fn module(&self, images: &Images) -> Result<Module, DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => Ok(Module::cpu(images.name)),
        }
    }

    /// A new stream: what is launched into it runs in order.
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        match &self.backend {
            Backend::Cpu(cpu) => Ok(Stream::cpu(cpu.clone())),
        }
    }
}

/// Bytes of `len` elements.
fn byte_count<T>(len: usize) -> Result<usize, DeviceError> {
    size_of::<T>().checked_mul(len).filter(|&bytes| bytes <= isize::MAX as usize).ok_or(DeviceError::OutOfMemory {
        device: "any device".into(),
        requested: usize::MAX,
        free: 0,
        total: 0,
    })
}
