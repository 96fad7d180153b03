//! Compiles the test kernels, and those written for rust-cuda, into both images, which `lib.rs` takes in.

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() {
    for kernels in ["kernels", "compat/vecadd", "compat/gemm", "compat/sha2_crates_io", "compat/i128"] {
        CudaBuilder::new(kernels).build_images_or_exit(&[NvvmArch::Compute80, NvvmArch::Compute90a]);
    }
}
