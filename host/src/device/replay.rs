//! Recording launches and replaying them, on both backends.

use std::sync::Arc;

use cuda_driver::ledger;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use super::cpu::CpuDevice;
use super::cuda::{Capture, CapturedGraph, ExecutableGraph};
use super::module::CpuModule;
use super::{Backend, Device, Module, Stream, module, stream};
use crate::error::DeviceError;

/// A kernel with its arguments and the shape of its launch.
pub(crate) type ShapedLaunch = (LaunchShape, Launch);

/// Where a launch is recorded.
pub(crate) enum Recording<'a> {
    /// Nothing but the caller's list: this CPU replays launches. The kernels are of this module.
    Cpu(&'a CpuDevice, &'a CpuModule),
    /// A capture of the driver's.
    Cuda(&'a Capture),
}

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

    /// Lets `record` record launches of `module`'s kernels.
    #[track_caller]
    pub(crate) fn record(
        &self,
        module: &Module,
        record: impl FnOnce(Recording<'_>) -> Result<(), DeviceError>,
    ) -> Result<Recorded, DeviceError> {
        match (&self.backend, &module.backend) {
            (Backend::Cuda(device), module::Backend::Cuda(module)) => {
                let capture = |capture: &Capture| record(Recording::Cuda(capture));
                Ok(Recorded::Cuda(CapturedGraph::capture(device, module.clone(), capture)?))
            }
            (Backend::Cpu(device), module::Backend::Cpu(module)) => {
                ledger::record("cpu:cuStreamBeginCapture_v2", 0);
                record(Recording::Cpu(device, module)).map(|()| Recorded::Cpu)
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

impl Recording<'_> {
    /// Checks a launch and records it.
    #[track_caller]
    pub(crate) fn launch(&self, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        let device = match self {
            Self::Cpu(device, _) => device.id(),
            Self::Cuda(capture) => capture.device_id(),
        };
        super::launch::check(device, shape, launch)?;
        match self {
            Self::Cpu(_, module) => module.check(launch.info().name),
            Self::Cuda(capture) => capture.launch(shape, launch),
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

    /// For each recording the module that it was recorded with, and the module of each of its kernels as the driver
    /// tells it; nothing on the CPU, where there are no modules.
    #[track_caller]
    pub(crate) fn modules(&self) -> Result<Vec<(usize, Vec<usize>)>, DeviceError> {
        match self {
            Self::Cpu(_) => Ok(Vec::new()),
            Self::Cuda(graph) => graph.modules(),
        }
    }
}
