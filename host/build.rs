//! Compiles the kernels into both images, which `src/images.rs` takes in.

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() {
    CudaBuilder::new("../gpu-kernels").build_images_or_exit(&[NvvmArch::Compute80, NvvmArch::Compute90a]);
}
