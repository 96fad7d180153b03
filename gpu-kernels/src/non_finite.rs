//! NaNs and infinities, found by their bits and noted in the step's words of [`nan_flags`](shared_types::nan_flags).
//!
//! The words are clear when a step begins: the buffer is made so, and `publish`, which tells the host, clears them again.

use cuda_std::prelude::*;
use cuda_std::warp::{self, WarpReductionOp};
use shared_types::nan_flags::{INFINITE, NAN};

use crate::lanes::N_LANES;

const N_THREADS: u32 = 256;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;

/// Launch of [`flag_non_finite()`] for `n` elements: four a thread.
pub const fn flag_non_finite_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n.div_ceil(VECTOR), N_THREADS)
}

/// Adds what `values` hold besides numbers to the word of `stage`: a word or of bits, one atomic for a warp that found some.
/// Shapes: values `[n]`, from a multiple of 16 bytes; flags `[7]`. Launch: [`flag_non_finite_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn flag_non_finite(values: GlobalSlice<f32>, flags: GlobalSliceMut<u32>, stage: u32) {
    let at = thread::index_1d() as usize * VECTOR;
    let mut found = 0;
    if at + VECTOR <= values.len() {
        found = of_vector(values.load(at));
    } else {
        for index in at..values.len() {
            found |= of_number(values.get(index));
        }
    }
    let found = of_warp(found);
    if found != 0 && (thread::thread_idx_x() as usize).is_multiple_of(N_LANES) {
        flags.fetch_or(stage as usize, found);
    }
}

/// Bits of what `x` is: [`NAN`], [`INFINITE`], or 0 for a number.
#[inline(always)]
pub fn of_number(x: f32) -> u32 {
    const INFINITY: u32 = f32::INFINITY.to_bits();
    let magnitude = x.to_bits() & !(1 << 31);
    if magnitude < INFINITY {
        0
    } else if magnitude == INFINITY {
        INFINITE
    } else {
        NAN
    }
}

/// Bits of what four numbers are.
#[inline(always)]
pub(crate) fn of_vector([a, b, c, d]: [f32; VECTOR]) -> u32 {
    of_number(a) | of_number(b) | of_number(c) | of_number(d)
}

/// The bits that any lane of the warp found. All 32 lanes call it together.
#[inline(always)]
pub(crate) fn of_warp(found: u32) -> u32 {
    // SAFETY: all lanes of the warp take part, as the caller promises.
    unsafe { warp::warp_reduce(u32::MAX, found, WarpReductionOp::Or) }
}
