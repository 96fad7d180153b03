//! What kernels import.
//!
//! One source serves two targets: `nvptx64-nvidia-cuda`, where everything here becomes the GPU's own instructions, and
//! the CPU, where the same calls go to the executor in [`cpu`].

#![cfg_attr(target_os = "cuda", no_std)]
#![cfg_attr(target_os = "cuda", feature(link_llvm_intrinsics, asm_experimental_arch, core_float_math))]
#![cfg_attr(target_os = "cuda", allow(internal_features))]

pub mod atomic;
#[cfg(not(target_os = "cuda"))]
pub mod cpu;
pub mod flag;
#[cfg(not(target_os = "cuda"))]
pub mod launch;
pub mod param;
pub mod ptr;
pub mod shape;
pub mod shared;
mod target;
pub mod thread;
pub mod view;
pub mod warp;

pub use cuda_std_macros::kernel;

/// What a kernel file imports.
pub mod prelude {
    pub use crate::shape::LaunchShape;
    pub use crate::view::{GlobalSlice, GlobalSliceMut, SharedSlice};
    pub use crate::{kernel, shared_slice, thread};
}
