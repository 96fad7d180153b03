//! Streams and events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_driver::ledger;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use super::cpu::CpuDevice;
use super::cuda::{CudaEvent, CudaStream};
use super::{Module, module};
use crate::error::DeviceError;

/// An order in which launches run. On the CPU each launch has ended when `launch` returns.
pub struct Stream {
    pub(super) backend: Backend,
}

pub(super) enum Backend {
    Cpu(Arc<CpuDevice>),
    Cuda(CudaStream),
}

/// A point in a stream's order, with the time when the device passed it.
pub struct Event {
    backend: EventBackend,
}

enum EventBackend {
    Cpu(Instant),
    Cuda(CudaEvent),
}

impl Stream {
    pub(super) fn cpu(device: Arc<CpuDevice>) -> Self {
        Self { backend: Backend::Cpu(device) }
    }

    pub(super) fn cuda(stream: CudaStream) -> Self {
        Self { backend: Backend::Cuda(stream) }
    }

    /// The opening of a device that the stream is of.
    pub(super) fn device_id(&self) -> u64 {
        match &self.backend {
            Backend::Cpu(device) => device.id(),
            Backend::Cuda(stream) => stream.device_id(),
        }
    }

    /// Launches a kernel of `module`. It has run when `synchronize`, or a later `Buffer::read`, returns. The module, and all
    /// memory that the launch reaches, must be of the opening of a device that this stream is of.
    #[track_caller]
    pub fn launch(&self, module: &Module, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        self.launch_again(module, shape, &launch)
    }

    /// The same for a launch that is kept, to be launched several times.
    #[track_caller]
    pub fn launch_again(&self, module: &Module, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        super::launch::check_module(self.device_id(), module, shape, launch)?;
        super::launch::check(self.device_id(), shape, launch)?;
        match (&self.backend, &module.backend) {
            (Backend::Cpu(device), module::Backend::Cpu(module)) => {
                module.check(launch.info().name)?;
                ledger::record("cpu:cuLaunchKernel", 0);
                device.run(shape, launch)
            }
            (Backend::Cuda(stream), module::Backend::Cuda(module)) => stream.launch(module, shape, launch),
            _ => unreachable!("a module and a stream of one opening are of one kind of device"),
        }
    }

    /// Waits until everything launched into this stream has run; reports an error of theirs.
    #[track_caller]
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => {
                ledger::record("cpu:cuStreamSynchronize", 0);
                Ok(())
            }
            Backend::Cuda(stream) => stream.synchronize(),
        }
    }

    /// Marks this point of the stream.
    #[track_caller]
    pub fn record(&self) -> Result<Event, DeviceError> {
        let backend = match &self.backend {
            Backend::Cpu(_) => {
                ledger::record("cpu:cuEventRecord", 0);
                EventBackend::Cpu(Instant::now())
            }
            Backend::Cuda(stream) => EventBackend::Cuda(stream.record()?),
        };
        Ok(Event { backend })
    }
}

impl Event {
    /// The device's time between `start` and this event, both of one stream; waits for this event.
    ///
    /// # Panics
    /// If the events are of different kinds of device.
    #[track_caller]
    pub fn since(&self, start: &Event) -> Result<Duration, DeviceError> {
        match (&self.backend, &start.backend) {
            (EventBackend::Cpu(end), EventBackend::Cpu(start)) => {
                ledger::record("cpu:cuEventSynchronize", 0);
                Ok(end.duration_since(*start))
            }
            (EventBackend::Cuda(end), EventBackend::Cuda(start)) => end.since(start),
            _ => panic!("two events of different kinds of device"),
        }
    }
}
