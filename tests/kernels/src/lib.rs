//! Kernels that exercise the toolchain, one for each feature of `cuda_std`. What they must compute is in
//! `tests/device_api`, as plain loops.

pub mod atomics;
pub mod copies;
pub mod indices;
pub mod math;
pub mod output;
pub mod policy;
pub mod readme;
pub mod reexports;
pub mod shared;
pub mod small;
pub mod tensor;
pub mod warp;

use cuda_std::view::GlobalSliceMut;

/// Writes result r at `first + r * stride`.
#[inline(always)]
pub(crate) fn put_rows<T: Copy, const N: usize>(out: &GlobalSliceMut<T>, first: usize, stride: usize, results: [T; N]) {
    // A loop over the array would put it into local memory; this is unrolled.
    let _: [(); N] = core::array::from_fn(|row| out.set(first + row * stride, results[row]));
}
