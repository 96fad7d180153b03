use gpu_kernels::copy::copy_f32;
use host::device::Buffer;

fn launch(source: &Buffer<f32>, target: &Buffer<f32>) {
    let _ = copy_f32::launch(target.view_mut(), source.view(), 1.0);
}

fn main() {}
