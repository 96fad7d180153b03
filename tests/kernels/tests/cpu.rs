//! The cases of `tests/device_api` on the CPU target's executor.

#[path = "../../device_api/mod.rs"]
mod device_api;

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_std::cpu::{Executor, ExecutorOptions, Shadow};
use cuda_std::launch::{DeviceMemory, DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, Launch, MemoryRange};
use cuda_std::shape::LaunchShape;
use device_api::Backend;

/// The executor, checking or not.
struct Cpu {
    executor: Executor,
    check: bool,
}

/// Memory of the host.
struct Buffer<T> {
    memory: Arc<DeviceMemory>,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Buffer<T> {
    fn range(&self) -> MemoryRange {
        MemoryRange::new(self.memory.clone(), 0..self.memory.bytes())
    }
}

impl Backend for Cpu {
    type Buffer<T: Pod + Send + Sync> = Buffer<T>;

    fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Buffer<T> {
        let bytes = size_of_val(values);
        // Of 16 bytes each, so that vector accesses are aligned as on a device.
        let mut words = vec![0u128; bytes.div_ceil(16)];
        // SAFETY: the words are at least as large and as aligned as the values, which are plain data.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), words.as_mut_ptr().cast::<T>(), values.len()) };
        let shadow = self.check.then(|| {
            let shadow = Shadow::new(bytes);
            shadow.mark_initialised(0..bytes);
            Box::new(shadow)
        });
        let memory = DeviceMemory::new(0, words.as_mut_ptr() as u64, bytes, shadow, Box::new(words));
        Buffer { memory: Arc::new(memory), len: values.len(), element: PhantomData }
    }

    fn view<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSlice<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSlice::new(buffer.range()) }
    }

    fn view_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DeviceSliceMut<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DeviceSliceMut::new(buffer.range()) }
    }

    fn ptr<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtr<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtr::new(buffer.range()) }
    }

    fn ptr_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Buffer<T>) -> DevicePtrMut<'a, T> {
        // SAFETY: `T: Pod`, so any bytes are values of it.
        unsafe { DevicePtrMut::new(buffer.range()) }
    }

    fn read<T: Pod + Send + Sync>(&self, buffer: &Buffer<T>) -> Vec<T> {
        // SAFETY: the memory holds this many values of this type, and no launch is under way.
        unsafe { std::slice::from_raw_parts(buffer.memory.address() as *const T, buffer.len) }.to_vec()
    }

    fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), String> {
        self.executor.run(shape, &launch).map_err(|fault| fault.to_string())
    }
}

fn run_all(check: bool, seed: u64) {
    let backend =
        Cpu { executor: Executor::new(ExecutorOptions { threads: 2, check, seed, ..Default::default() }), check };
    for (name, case) in device_api::cases::<Cpu>().into_iter().chain(device_api::cases_of_sm_90()) {
        println!("{name}");
        case(&backend);
    }
}

#[test]
fn every_case_holds() {
    run_all(false, 1);
}

#[test]
fn every_case_holds_under_the_checker() {
    run_all(true, 2);
}

#[test]
fn a_failed_assertion_names_its_place_and_values() {
    let backend = Cpu { executor: Executor::new(ExecutorOptions::default()), check: false };
    let fault = |launch| backend.run(LaunchShape::linear(1, 8), launch).unwrap_err();
    let message = fault(test_kernels::output::assert_equal::launch(4, 5));
    for part in ["left == right", "left 4, right 5", "output.rs"] {
        assert!(message.contains(part), "{message}");
    }
    let message = fault(test_kernels::output::assert_below::launch(7));
    assert!(message.contains("index < limit"), "{message}");
}
