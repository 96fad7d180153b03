//! NaNs and infinities, found by their bits and noted in the step's words of [`nan_flags`](shared_types::nan_flags).
//!
//! The words are clear when a step begins: the buffer is made so, and `publish`, which tells the host, clears them again.

use cuda_std::prelude::*;
use cuda_std::warp::{self, WarpReductionOp};
use shared_types::nan_flags::{INFINITE, NAN};

use crate::lanes::{self, N_LANES};

const N_THREADS: u32 = 256;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;

/// Elements of a block of one thread.
const TILE_ALONE: usize = 8192;
/// Elements that such a block tests at once.
const GROUP: usize = 4 * VECTOR;

/// Launch of [`flag_non_finite()`] for `n` elements: four a thread, or 8,192 for a block of one thread.
pub const fn flag_non_finite_shape(n: usize, lanes: u32) -> LaunchShape {
    if lanes == 1 {
        LaunchShape::cover(n.div_ceil(TILE_ALONE), 1)
    } else {
        LaunchShape::cover(n.div_ceil(VECTOR), N_THREADS)
    }
}

/// Adds what `values` hold besides numbers to the word of `stage`: a word or of bits, one atomic for a warp or a lone thread that
/// found some.
/// Shapes: values `[n]`, from a multiple of 16 bytes; flags `[7]`. Launch: [`flag_non_finite_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn flag_non_finite(values: GlobalSlice<f32>, flags: GlobalSliceMut<u32>, stage: u32) {
    if lanes::of_block(N_THREADS) == 1 {
        let start = thread::block_idx_x() as usize * TILE_ALONE;
        let found = of_range(&values, start, values.len().min(start + TILE_ALONE));
        if found != 0 {
            flags.fetch_or(stage as usize, found);
        }
        return;
    }
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

/// Bits of what elements `start..end` are, `start` a multiple of 4, by one thread.
#[inline(always)]
pub(crate) fn of_range(values: &GlobalSlice<f32>, start: usize, end: usize) -> u32 {
    let (mut found, mut at) = (0, start);
    while at + GROUP <= end {
        let vectors: [[f32; VECTOR]; 4] = core::array::from_fn(|i| values.load(at + i * VECTOR));
        if !are_numbers(&vectors) {
            found |= vectors.into_iter().fold(0, |found, vector| found | of_vector(vector));
        }
        at += GROUP;
    }
    for index in at..end {
        found |= of_number(values.get(index));
    }
    found
}

/// Whether all of these are numbers: 0 times a number is 0, which the CPU finds for four at once.
#[inline(always)]
pub(crate) fn are_numbers<const N: usize>(vectors: &[[f32; VECTOR]; N]) -> bool {
    let mut sums = [0.0; VECTOR];
    for vector in vectors {
        sums = core::array::from_fn(|i| sums[i] + 0.0 * vector[i]);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) == 0.0
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
