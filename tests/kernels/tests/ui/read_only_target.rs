use cuda_std::launch::DeviceSlice;
use test_kernels::copies::copy_f32;

fn launch(source: DeviceSlice<'_, f32>, target: DeviceSlice<'_, f32>) {
    let _ = copy_f32::launch(source, target, 1.0);
}

fn main() {}
