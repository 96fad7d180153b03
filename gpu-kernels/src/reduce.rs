//! Sums and maxima in a fixed order, without floating-point atomics: the same numbers give the same bits, run after run.
//!
//! Two stages. [`reduce_sum_partials()`] leaves one number a block, [`reduce_sum()`] combines at most [`N_PARTIALS_MAX`] of them;
//! the maxima likewise. Order of a sum: a thread adds its vectors of four, each component on its own, from the first tile of
//! its block's stretch to the last, then ((v0 + v1) + (v2 + v3)); a warp adds by halves (lane distance 16, 8, ..., 1), and so
//! do the warps' sums. The order depends on n alone.
//!
//! Error of a sum of n numbers: with h = ceil(n / (partials * 1,024)) additions one after the other in a thread and 24
//! levels above it, at most (h + 24) 2^-24 sum |x|.

use cuda_std::prelude::*;

use crate::lanes::{self, N_LANES};

const N_THREADS: u32 = 256;
const N_WARPS: usize = N_THREADS as usize / N_LANES;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;
/// f32 that a block takes in one sweep of its threads.
const TILE: usize = N_THREADS as usize * VECTOR;

/// Blocks of the first stage at most: as many as the second stage's block takes at four a thread.
pub const N_PARTIALS_MAX: usize = TILE;

/// Partial results that `n` elements leave: a block for each 1,024 elements, until there are 1,024 blocks.
pub const fn n_partials(n: usize) -> usize {
    let n_tiles = n.div_ceil(TILE);
    if n_tiles == 0 {
        1
    } else if n_tiles > N_PARTIALS_MAX {
        N_PARTIALS_MAX
    } else {
        n_tiles
    }
}

/// Launch of [`reduce_sum_partials()`] and [`reduce_max_partials()`] for `n` elements.
pub const fn reduce_partials_shape(n: usize) -> LaunchShape {
    LaunchShape::linear(n_partials(n) as u32, N_THREADS)
}

/// Launch of [`reduce_sum()`] and [`reduce_max()`]: one block.
pub const fn reduce_shape() -> LaunchShape {
    LaunchShape::linear(1, N_THREADS)
}

/// First stage of a sum. Shapes: values `[n]`, from a multiple of 16 bytes; partials [[`n_partials`] (n)]. Launch:
/// [`reduce_partials_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn reduce_sum_partials(values: GlobalSlice<f32>, partials: GlobalSliceMut<f32>) {
    reduce_block_stretch(&values, &partials, partials.len(), 0.0, |a, b| a + b);
}

/// Second stage of a sum, or all of it for n <= 1,024; 0 for no value. Shapes: values `[n]`, result \[1\]. Launch:
/// [`reduce_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn reduce_sum(values: GlobalSlice<f32>, result: GlobalSliceMut<f32>) {
    reduce_block_stretch(&values, &result, 1, 0.0, |a, b| a + b);
}

/// First stage of a maximum; NaNs are passed over. Shapes and launch as [`reduce_sum_partials()`].
#[kernel(cooperative, max_threads = 256)]
pub fn reduce_max_partials(values: GlobalSlice<f32>, partials: GlobalSliceMut<f32>) {
    reduce_block_stretch(&values, &partials, partials.len(), f32::NEG_INFINITY, f32::max);
}

/// Second stage of a maximum; -inf for no value but NaNs. Shapes and launch as [`reduce_sum()`].
#[kernel(cooperative, max_threads = 256)]
pub fn reduce_max(values: GlobalSlice<f32>, result: GlobalSliceMut<f32>) {
    reduce_block_stretch(&values, &result, 1, f32::NEG_INFINITY, f32::max);
}

/// Combines this block's stretch of `values`, one of `n_stretches` of whole tiles, into its element of `results`.
#[inline(always)]
fn reduce_block_stretch(
    values: &GlobalSlice<f32>,
    results: &GlobalSliceMut<f32>,
    n_stretches: usize,
    neutral: f32,
    combine: impl Fn(f32, f32) -> f32 + Copy,
) {
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let stretch = values.len().div_ceil(TILE).div_ceil(n_stretches) * TILE;
    let end = values.len().min((block + 1) * stretch);
    let mut at = block * stretch + thread * VECTOR;
    let mut mine = [neutral; VECTOR];
    while at + VECTOR <= end {
        let vector: [f32; VECTOR] = values.load(at);
        mine = core::array::from_fn(|part| combine(mine[part], vector[part]));
        at += TILE;
    }
    for (part, sum) in mine.iter_mut().enumerate() {
        if at + part < end {
            *sum = combine(*sum, values.get(at + part));
        }
    }
    let total = reduce_block(combine(combine(mine[0], mine[1]), combine(mine[2], mine[3])), neutral, combine);
    if thread == 0 {
        results.set(block, total);
    }
}

/// Combines one value of each thread of a 256-thread block; the first warp gets the result.
#[inline(always)]
fn reduce_block(value: f32, neutral: f32, combine: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let warp_results = shared_slice![f32; N_WARPS];
    let thread = thread::thread_idx_x() as usize;
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let warp_result = lanes::all(value, combine);
    if lane == 0 {
        warp_results.set(warp, warp_result);
    }
    // Between each warp's write of its result and the first warp's reads of all.
    thread::sync_threads();
    if warp != 0 {
        return neutral;
    }
    lanes::all(if lane < N_WARPS { warp_results.get(lane) } else { neutral }, combine)
}
