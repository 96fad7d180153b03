//! What kernels import.
//!
//! One source serves two targets: `nvptx64-nvidia-cuda`, where everything here becomes the GPU's own instructions, and
//! the CPU, where the same calls go to the executor in [`cpu`].
//!
//! The interface is that of rust-cuda's `cuda_std`: the published 0.2.2, and of its main branch the warp operations and
//! `half` 2. What mirrors what, how it lowers, and which case of `tests/device_api` shows it:
//!
//! | rust-cuda | here | in PTX | case |
//! |---|---|---|---|
//! | `#[kernel]` | [`kernel`] | `.entry`, a slice as pointer and length | all |
//! | `#[gpu_only]`, `#[externally_visible]` | the same | - | `tests/compat/gemm` |
//! | `thread` | [`thread`] | special registers, `bar.sync`, `bar.red`, `membar` | `indices_and_barriers`, `counting_barriers` |
//! | `warp` (main) | [`warp`]; reductions of every type | `shfl`, `vote`, `match`, `redux` | `case_v_*` |
//! | `shared_array!`, `#[address_space(shared)]`, `dynamic_shared_mem` | [`shared`] | `ld.shared`, `st.shared` | `case_w_shared_stores`, `case_w_arrays_of_arrays`, `shared_*` |
//! | `atomic`, its `mid` and `intrinsics` | [`atomic`]; integers, 8 and 16 bits too | `atom.sem.scope`, `red` | `case_w_float_atomics`, `atomic*` |
//! | `GpuFloat`, `FloatExt` | [`GpuFloat`], [`FloatExt`] | single instructions, or the crate `libm` | `float_math`, `float_ext` |
//! | `io`: `print!`, `println!`, `assert_eq!`, `assert_ne!` | [`io`], and `assert!` | `vprintf`, `__assertfail` | `assertions` |
//! | `mem`, the allocator of `alloc` | [`mem`] | `malloc`, `free` | `heap` |
//! | `ptr` | [`ptr`] | `isspacep`, `cvta` | `case_w_shared_stores` |
//! | `cfg`, `misc` | [`cfg`](mod@cfg), [`misc`] | constants; `%clock64`, `brkpt` | `clocks`, and `capability`, `trap` in `tests/suites/device_api.rs` |
//! | `vek`, `glam`, `half` | re-exported | - | `glam_and_vek`, `halves`, `tests/compat/gemm` |
//!
//! Beyond it:
//!
//! | here | in PTX | case |
//! |---|---|---|
//! | [`view`] | `ld.global.nc`, `ld.global`, `ld.shared` and their stores | all |
//! | [`fast`] | `ex2`, `lg2`, `rsqrt`, `rcp`, `tanh`, `sin`, `cos` `.approx`; `cvt.rn.bf16x2.f32` | `fast_math`, `packed_halves` |
//! | [`vector`] | 8 and 16 bytes at once, `.nc`, `.cs`; `prefetch` | `vectors` |
//! | [`flag`] | `st.release.sys`, `ld.acquire.sys` | `stamp` |
//! | [`mma`], [`matrix`] | `mma.sync`, `ldmatrix`, `stmatrix` | `mma_*`, `ldmatrix_stmatrix` |
//! | [`cp_async`] | `cp.async` | `cp_async` |
//! | [`mbarrier`], [`bulk`] | `mbarrier`, `cp.async.bulk` (sm_90) | `mbarrier`, `bulk` |
//! | [`wgmma`] | `wgmma.mma_async` (sm_90a) | `wgmma` |
//!
//! Differs from rust-cuda: `SystemAtomicF32` and `SystemAtomicF64` have system scope (published: device scope); floats match
//! and shuffle by their bits; [`warp::warp_shuffle_up`] stops at its segment's start for every width;
//! [`cfg::ComputeCapability::from_cuda_arch_env`] asks the compiler's target. `intrinsics`, bindings of libdevice, is not
//! there. `thread::index_2d` and its like give `vek` vectors, as published. The prelude leaves out `assert_eq` and `assert_ne`: a
//! glob import beside the standard library's of the same name would be an ambiguous name.
//!
//! Operations that a whole warp or block must reach are never marked `pure` in `asm!`, so that the compiler neither removes
//! nor merges them; where LLVM has an intrinsic, that is used.

#![cfg_attr(target_os = "cuda", no_std)]
#![cfg_attr(target_os = "cuda", feature(link_llvm_intrinsics, asm_experimental_arch, core_float_math))]
#![cfg_attr(target_os = "cuda", allow(internal_features, reason = "LLVM's intrinsics are linked by name"))]

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
