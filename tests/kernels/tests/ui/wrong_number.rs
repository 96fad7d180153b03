use cuda_std::launch::{DeviceSlice, DeviceSliceMut};
use test_kernels::copies::copy_f32;

fn launch(source: DeviceSlice<'_, f32>, target: DeviceSliceMut<'_, f32>) {
    let _ = copy_f32::launch(source, target);
}

fn main() {}
