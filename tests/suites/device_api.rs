//! `cuda_std`'s device API: each kernel of `test-kernels` against plain loops.

#[path = "../device_api/mod.rs"]
mod device_api;

use bytemuck::Pod;
use cuda_std::launch::{DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, Launch};
use cuda_std::shape::LaunchShape;
use device_api::Backend;
use host::device::{Buffer, Device, Module, Stream};
use onegraph_tests::{Case, Outcome, TEST_KERNELS, case, run};

fn main() {
    let cases = device_api::cases::<OnDevice>().into_iter().map(|(name, test)| -> Case {
        case(name, move |device: &Device| -> Outcome {
            test(&OnDevice { device: device.clone(), module: device.module(&TEST_KERNELS)?, stream: device.stream()? });
            Ok(())
        })
    });
    run(cases.collect())
}

/// A device with the test kernels loaded. What fails here fails the case.
struct OnDevice {
    device: Device,
    module: Module,
    stream: Stream,
}

impl Backend for OnDevice {
    type Buffer<T: Pod + Send + Sync> = Buffer<T>;

    fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Buffer<T> {
        self.device.upload(values).unwrap()
    }

    fn view<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSlice<'a, T> {
        buffer.view()
    }

    fn view_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSliceMut<'a, T> {
        buffer.view_mut()
    }

    fn ptr<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtr<'a, T> {
        buffer.ptr()
    }

    fn ptr_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtrMut<'a, T> {
        buffer.ptr_mut()
    }

    fn read<T: Pod + Send + Sync>(&self, buffer: &Buffer<T>) -> Vec<T> {
        buffer.read().unwrap()
    }

    fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), String> {
        let launched = self.stream.launch(&self.module, shape, launch);
        launched.and_then(|()| self.stream.synchronize()).map_err(|error| error.to_string())
    }

    fn has_sm_90(&self) -> bool {
        matches!(self.module.image(), "cpu" | "sm_90a")
    }
}
