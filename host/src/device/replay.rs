//! Recording launches and replaying them, on both backends.

use std::sync::Arc;

use cuda_driver::ledger;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use super::cpu::CpuDevice;
use super::cuda::{CapturedGraph, ExecutableGraph};
use super::{Backend, Device, Module, Stream, module, stream};
use crate::error::DeviceError;

/// A kernel with its arguments and the shape of its launch.
pub(crate) type ShapedLaunch = (LaunchShape, Launch);

/// What a recording left behind.
pub(crate) enum Recorded {
    /// Nothing but the caller's list.
    Cpu,
    /// A graph of the driver's.
    Cuda(CapturedGraph),
}

/// Recorded launches, ready to be replayed.
pub(crate) enum Executable {
    /// The launches are run one after the other.
    Cpu(Arc<CpuDevice>),
    /// One graph of the driver's.
    Cuda(ExecutableGraph),
}

impl Device {
    /// Whether both are the same opening of a device.
    pub(crate) fn is(&self, other: &Device) -> bool {
        match (&self.backend, &other.backend) {
            (Backend::Cpu(this), Backend::Cpu(other)) => Arc::ptr_eq(this, other),
            (Backend::Cuda(this), Backend::Cuda(other)) => Arc::ptr_eq(this, other),
            _ => false,
        }
    }

    /// Refuses a launch that cannot run on this device as it is.
    pub(crate) fn check(&self, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        let id = match &self.backend {
            Backend::Cpu(device) => device.id(),
            Backend::Cuda(device) => device.id(),
        };
        super::launch::check(id, shape, launch)
    }

    /// Records launches of `module`'s kernels, each of which `check` has passed.
    #[track_caller]
    pub(crate) fn record(&self, module: &Module, launches: &[ShapedLaunch]) -> Result<Recorded, DeviceError> {
        match (&self.backend, &module.backend) {
            (Backend::Cuda(device), module::Backend::Cuda(module)) => {
                Ok(Recorded::Cuda(CapturedGraph::capture(device, module.clone(), launches)?))
            }
            (Backend::Cpu(_), module::Backend::Cpu(module)) => {
                ledger::record("cpu:cuStreamBeginCapture_v2", 0);
                launches.iter().try_for_each(|(_, launch)| module.check(launch.info().name))?;
                Ok(Recorded::Cpu)
            }
            _ => Err(DeviceError::Graph(format!("module `{}` is of another kind of device", module.name()))),
        }
    }

    /// Makes one executable of recordings, of which each runs after the earlier ones that `dependencies` lists for it.
    #[track_caller]
    pub(crate) fn executable(
        &self,
        recordings: Vec<Recorded>,
        dependencies: &[Vec<usize>],
    ) -> Result<Executable, DeviceError> {
        match &self.backend {
            Backend::Cpu(device) => {
                ledger::record("cpu:cuGraphInstantiateWithFlags", 0);
                Ok(Executable::Cpu(device.clone()))
            }
            Backend::Cuda(device) => {
                let graph = |recording| match recording {
                    Recorded::Cuda(graph) => Some(graph),
                    Recorded::Cpu => None,
                };
                let graphs: Vec<CapturedGraph> = recordings.into_iter().filter_map(graph).collect();
                Ok(Executable::Cuda(ExecutableGraph::compose(device, &graphs, dependencies)?))
            }
        }
    }
}

impl Executable {
    /// Replays everything into `stream`. `launches` are those that were recorded, in an order that respects the
    /// dependencies.
    #[track_caller]
    pub(crate) fn launch<'a>(
        &self,
        stream: &Stream,
        mut launches: impl Iterator<Item = &'a ShapedLaunch>,
    ) -> Result<(), DeviceError> {
        let device = match self {
            Self::Cpu(device) => device.id(),
            Self::Cuda(graph) => graph.device_id(),
        };
        if device != stream.device_id() {
            return Err(DeviceError::OtherStream);
        }
        match (self, &stream.backend) {
            (Self::Cpu(device), stream::Backend::Cpu(_)) => {
                ledger::record("cpu:cuGraphLaunch", 0);
                launches.try_for_each(|(shape, launch)| device.run(*shape, launch))
            }
            (Self::Cuda(graph), stream::Backend::Cuda(stream)) => graph.launch(stream),
            _ => Err(DeviceError::OtherStream),
        }
    }

    /// For each recording the module that was loaded for it, and the module of each of its kernels as the driver tells it;
    /// nothing on the CPU, where there are no modules.
    #[track_caller]
    pub(crate) fn modules(&self) -> Result<Vec<(usize, Vec<usize>)>, DeviceError> {
        match self {
            Self::Cpu(_) => Ok(Vec::new()),
            Self::Cuda(graph) => graph.modules(),
        }
    }
}
