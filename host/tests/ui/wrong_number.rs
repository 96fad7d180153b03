use gpu_kernels::copy::copy_f32;
use host::device::Buffer;

fn launch(source: &Buffer<f32>, target: &Buffer<f32>) {
    let _ = copy_f32::launch(source.view(), target.view_mut());
}

fn main() {}
