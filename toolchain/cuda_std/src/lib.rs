//! What kernels import.
//!
//! One source serves two targets: `nvptx64-nvidia-cuda`, where everything here becomes the GPU's own instructions, and
//! the CPU, where the same calls go to the executor in [`cpu`].

#![cfg_attr(target_os = "cuda", no_std)]
#![cfg_attr(target_os = "cuda", feature(link_llvm_intrinsics, asm_experimental_arch, core_float_math))]
#![cfg_attr(target_os = "cuda", allow(internal_features))]

extern crate alloc;

pub mod atomic;
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90"))]
pub mod bulk;
pub mod cfg;
pub mod cp_async;
#[cfg(not(target_os = "cuda"))]
pub mod cpu;
pub mod fast;
pub mod flag;
pub mod float;
mod float_ext;
pub mod io;
#[cfg(not(target_os = "cuda"))]
pub mod launch;
pub mod matrix;
pub mod mbarrier;
pub mod mem;
pub mod misc;
pub mod mma;
pub mod param;
pub mod ptr;
pub mod shape;
pub mod shared;
mod target;
pub mod thread;
pub mod vector;
pub mod view;
pub mod warp;
#[cfg(any(not(target_os = "cuda"), target_feature = "sm_90a"))]
pub mod wgmma;

pub use cuda_std_macros::{address_space, externally_visible, gpu_only, kernel, print, print_line};
pub use float::GpuFloat;
pub use float_ext::FloatExt;
pub use half::{bf16, f16};
pub use {glam, half, vek};

/// What a kernel file imports.
pub mod prelude {
    pub use crate::shape::LaunchShape;
    pub use crate::view::{GlobalSlice, GlobalSliceMut, SharedSlice};
    pub use crate::{GpuFloat, bf16, f16, kernel, shared_array, shared_slice, thread};
    // Only where the standard library's are not in scope: a glob import beside them is an ambiguous name. Elsewhere, and
    // for the assertions, `use cuda_std::{assert_eq, println};` says which is meant.
    #[cfg(target_os = "cuda")]
    pub use crate::{print, println};
    pub use alloc::borrow::ToOwned;
    pub use alloc::boxed::Box;
    pub use alloc::format;
    pub use alloc::rc::Rc;
    pub use alloc::string::{String, ToString};
    pub use alloc::vec::Vec;
}

/// Reached only in an image built with `-Cpanic=abort`; the usual ones trap where they would panic.
#[cfg(target_os = "cuda")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    misc::trap()
}
