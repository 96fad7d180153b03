//! Loaded kernels.

use std::sync::Arc;

use super::cuda::CudaModule;

/// One loading of a crate's kernels.
pub struct Module {
    pub(super) backend: Backend,
}

pub(super) enum Backend {
    Cpu { name: &'static str },
    Cuda(Arc<CudaModule>),
}

impl Module {
    /// On the CPU the kernels are part of the program, so there is nothing to load.
    pub(super) fn cpu(name: &'static str) -> Self {
        Self { backend: Backend::Cpu { name } }
    }

    pub(super) fn cuda(module: CudaModule) -> Self {
        Self { backend: Backend::Cuda(Arc::new(module)) }
    }

    /// The kernel crate's name.
    pub fn name(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu { name } => name,
            Backend::Cuda(module) => module.name(),
        }
    }

    /// Which image was loaded: `sm_80`, `sm_90a`, or `cpu`.
    pub fn image(&self) -> &'static str {
        match &self.backend {
            Backend::Cpu { .. } => "cpu",
            Backend::Cuda(module) => module.image(),
        }
    }
}
