//! Medians of times that the device takes.

use bytemuck::Pod;
use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use gpu_kernels::philox::{philox_shape, philox_uniform};
use host::device::{Buffer, Device, DeviceChoice, Module, Stream};
use host::error::DeviceError;
use host::graph::{ChildGraph, ParentGraph};
use host::images::KERNELS;

/// Lanes that a GPU gives a row.
pub const LANES: u32 = 32;
/// Launches in a graph, and sets of buffers that they rotate over.
pub const N_SETS: usize = 20;
const N_WARM: usize = 3;
const N_TIMED: usize = 21;

/// Launches of one pass over one set of buffers.
pub type Pass = Vec<(LaunchShape, Launch)>;

/// A row's times, microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub graph_us: f64,
    pub single_us: f64,
}

/// A GPU and what is needed to time launches on it.
pub struct Timer {
    device: Device,
    module: Module,
    stream: Stream,
}

impl Timer {
    pub fn new() -> Result<Self, DeviceError> {
        let device = Device::open(DeviceChoice::Cuda)?;
        let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
        Ok(Self { device, module, stream })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, DeviceError> {
        self.device.upload(values)
    }

    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        self.device.alloc_zeroed(len)
    }

    /// Uniforms in [0, 1).
    pub fn random(&self, len: usize) -> Result<Buffer<f32>, DeviceError> {
        let values = self.device.alloc(len)?;
        self.run(vec![(philox_shape(len), philox_uniform::launch([1, 2], 0, 0, values.view_mut()))])?;
        Ok(values)
    }

    pub fn run(&self, pass: Pass) -> Result<(), DeviceError> {
        pass.into_iter().try_for_each(|(shape, launch)| self.stream.launch(&self.module, shape, launch))
    }

    /// Times `pass`, which gives the launches over set `0..N_SETS`.
    pub fn time(&self, pass: impl Fn(usize) -> Pass) -> Result<Times, DeviceError> {
        let child = ChildGraph::capture(&self.device, "passes", &KERNELS, |recorder| {
            (0..N_SETS).flat_map(&pass).try_for_each(|(shape, launch)| recorder.launch(shape, launch))
        })?;
        let graph = ParentGraph::compose(&self.device, vec![child])?;
        let graph_us = self.median(|_| graph.launch(&self.stream))? / N_SETS as f64;
        let single_us = self.median(|round| self.run(pass(round % N_SETS)))?;
        Ok(Times { graph_us, single_us })
    }

    /// The median of the times between events around `work`, after some rounds to warm up.
    fn median(&self, work: impl Fn(usize) -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        (0..N_WARM).try_for_each(&work)?;
        let mut times = Vec::with_capacity(N_TIMED);
        for round in 0..N_TIMED {
            let start = self.stream.record()?;
            work(round)?;
            times.push(self.stream.record()?.since(&start)?.as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[N_TIMED / 2])
    }
}
