//! Streams and events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;

use super::Module;
use super::cpu::CpuDevice;
use crate::error::DeviceError;

/// An order in which launches run. On the CPU each launch has ended when `launch` returns.
pub struct Stream {
    backend: Backend,
}

enum Backend {
    Cpu(Arc<CpuDevice>),
}

/// A point in a stream's order, with the time when the device passed it.
pub struct Event {
    at: Instant,
}

impl Stream {
    pub(super) fn cpu(device: Arc<CpuDevice>) -> Self {
        Self { backend: Backend::Cpu(device) }
    }

    /// Launches a kernel of `module`. It has run when `synchronize`, or a later `Buffer::read`, returns.
    pub fn launch(&self, _module: &Module, shape: LaunchShape, launch: Launch) -> Result<(), DeviceError> {
        super::launch::check(shape, &launch)?;
        match &self.backend {
            Backend::Cpu(device) => device.run(shape, &launch),
        }
    }

    /// Waits until everything launched into this stream has run; reports an error of theirs.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => Ok(()),
        }
    }

    /// Marks this point of the stream.
    pub fn record(&self) -> Result<Event, DeviceError> {
        match &self.backend {
            Backend::Cpu(_) => Ok(Event { at: Instant::now() }),
        }
    }
}

impl Event {
    /// The device's time between `start` and this event, both of one stream; waits for this event.
    pub fn since(&self, start: &Event) -> Result<Duration, DeviceError> {
        Ok(self.at.duration_since(start.at))
    }
}
