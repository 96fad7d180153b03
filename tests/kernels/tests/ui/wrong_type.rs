use cuda_std::launch::{DeviceSlice, DeviceSliceMut};
use test_kernels::copies::copy_f32;

fn launch(source: DeviceSlice<'_, f64>, target: DeviceSliceMut<'_, f32>) {
    let _ = copy_f32::launch(source, target, 1u32);
}

fn main() {}
