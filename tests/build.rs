//! Compiles the test kernels into both images, which `lib.rs` takes in.

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() {
    CudaBuilder::new("kernels").build_images_or_exit(&[NvvmArch::Compute80, NvvmArch::Compute90a]);
}
