//! Loaded kernels.

use std::collections::HashSet;
use std::sync::Arc;

use super::cuda::CudaModule;
use crate::error::DeviceError;
use crate::images::Images;

/// A crate's kernels on a device.
pub struct Module {
    pub(super) backend: Backend,
}

pub(super) enum Backend {
    Cpu(CpuModule),
    Cuda(Arc<CudaModule>),
}

/// On the CPU the kernels are part of the program. What is kept is which of them the crate's image holds, so that a launch
/// through the wrong module fails here as it does on a GPU.
pub(crate) struct CpuModule {
    /// The opening of the CPU that it was loaded on.
    device: u64,
    name: &'static str,
    kernels: HashSet<&'static str>,
}

impl CpuModule {
    pub(super) fn new(device: u64, images: &Images) -> Self {
        let entry = |line: &'static str| line.split_once(".entry ")?.1.split('(').next();
        let lines = images.sm_80.lines().chain(images.sm_90a.lines());
        Self { device, name: images.name, kernels: lines.filter_map(entry).map(str::trim).collect() }
    }

    /// Refuses a kernel that the crate's image does not hold.
    pub(super) fn check(&self, kernel: &'static str) -> Result<(), DeviceError> {
        if self.kernels.contains(kernel) {
            return Ok(());
        }
        Err(DeviceError::NoKernel { kernel, module: self.name })
    }
}

impl Module {
    pub(super) fn cpu(device: u64, images: &Images) -> Self {
        Self { backend: Backend::Cpu(CpuModule::new(device, images)) }
    }

    pub(super) fn cuda(module: CudaModule) -> Self {
        Self { backend: Backend::Cuda(Arc::new(module)) }
    }

    /// Loads every kernel now, which makes a driver compile it, and nothing on the CPU.
    #[track_caller]
    pub fn load_all(&self) -> Result<(), DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(module) => module.load_all(),
        }
    }

    /// The opening of a device that the module was loaded on.
    pub(super) fn device_id(&self) -> u64 {
        match &self.backend {
            Backend::Cpu(module) => module.device,
            Backend::Cuda(module) => module.device_id(),
        }
    }

    /// The kernel crate's name.
    pub fn name(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu(module) => module.name,
            Backend::Cuda(module) => module.name(),
        }
    }

    /// Which image it is of: `sm_80`, `sm_90a`, or `cpu`.
    pub fn image(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu(_) => "cpu",
            Backend::Cuda(module) => module.image(),
        }
    }
}
