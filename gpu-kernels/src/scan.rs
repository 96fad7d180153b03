//! Prefix sums, and the sampler that searches them: what the tree sampler does, from sorted running sums.
//!
//! Running sums of f32 in any floating point would round differently from place to place, and where they fall by one unit a slot
//! of priority 0 could be drawn. So priorities are first made whole numbers of a unit, max_priority 2^-(62 - k) rounded up to a
//! power of two for N = 2^k slots, rounded up so that a positive priority stays positive. Integer sums are exact whatever their
//! order; the total stays under 2^63. At 2^20 slots the unit is 2^-42 of the highest priority.
//!
//! Launches: [`scan_block_sums()`], [`scan_offsets()`], [`scan_prefix()`], then [`scan_sample()`] and [`i64_to_u32()`].

use cuda_std::prelude::*;
use shared_types::{Counters, stream};

use crate::lanes::{self, N_LANES};
use crate::philox;

const N_THREADS: u32 = 1024;
pub(crate) const N_WARPS: usize = N_THREADS as usize / N_LANES;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;
/// Elements of a block.
const TILE: usize = N_THREADS as usize * VECTOR;
/// The total of all elements stays at or under 2^62.
const LOG_TOTAL: i32 = 62;

/// Blocks for `n` elements: one for each 4,096.
pub const fn n_scan_blocks(n: usize) -> usize {
    if n == 0 { 1 } else { n.div_ceil(TILE) }
}

/// Launch of [`scan_block_sums()`] and [`scan_prefix()`] for `n` elements.
pub const fn scan_shape(n: usize) -> LaunchShape {
    LaunchShape::linear(n_scan_blocks(n) as u32, N_THREADS)
}

/// Launch of [`scan_offsets()`]: one block.
pub const fn scan_offsets_shape() -> LaunchShape {
    LaunchShape::linear(1, N_THREADS)
}

/// Launch of [`scan_sample()`] and [`i64_to_u32()`] for a batch of `n`: a thread a draw.
pub const fn scan_sample_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 64)
}

/// Sum of each block's elements, in units. Shapes: priorities `[n]`, from a multiple of 16 bytes, none above max_priority \[1\];
/// block_sums [[`n_scan_blocks`]]. Launch: [`scan_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn scan_block_sums(priorities: GlobalSlice<f32>, max_priority: GlobalSlice<f32>, block_sums: GlobalSliceMut<u64>) {
    let elements = load_units(&priorities, max_priority.get(0));
    let (_, total) = scan_block(elements.iter().sum(), shared_slice![u64; N_WARPS]);
    if thread::thread_idx_x() == 0 {
        block_sums.set(thread::block_idx_x() as usize, total);
    }
}

/// Replaces each block's sum by the sum of all blocks before it. Shapes: block_sums `[any]`. Launch: [`scan_offsets_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn scan_offsets(block_sums: GlobalSliceMut<u64>) {
    let warp_sums = shared_slice![u64; N_WARPS];
    let thread = thread::thread_idx_x() as usize;
    let mut carried = 0;
    let mut start = 0;
    // The same number of rounds for every thread: each round holds barriers.
    while start < block_sums.len() {
        let block = start + thread;
        let sum = if block < block_sums.len() { block_sums.get(block) } else { 0 };
        let (before, total) = scan_block(sum, warp_sums);
        if block < block_sums.len() {
            block_sums.set(block, carried + before);
        }
        carried += total;
        start += N_THREADS as usize;
    }
}

/// Running sums: prefix\[i\] = sum of elements 0 to i, in units. Shapes: priorities, max_priority as [`scan_block_sums()`];
/// offsets [[`n_scan_blocks`]] from [`scan_offsets()`]; prefix `[n]`, from a multiple of 16
/// bytes. Launch: [`scan_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn scan_prefix(
    priorities: GlobalSlice<f32>,
    max_priority: GlobalSlice<f32>,
    offsets: GlobalSlice<u64>,
    prefix: GlobalSliceMut<u64>,
) {
    let elements = load_units(&priorities, max_priority.get(0));
    let (before, _) = scan_block(elements.iter().sum(), shared_slice![u64; N_WARPS]);
    let block = thread::block_idx_x() as usize;
    let at = first_element();
    let mut sum = offsets.get(block) + before;
    let running = elements.map(|element| {
        sum += element;
        sum
    });
    if at + VECTOR <= prefix.len() {
        prefix.store(at, [running[0], running[1]]);
        prefix.store(at + 2, [running[2], running[3]]);
        return;
    }
    for (part, sum) in running.iter().enumerate() {
        if at + part < prefix.len() {
            prefix.set(at + part, *sum);
        }
    }
}

/// Draws one slot from each of B strata of equal mass: the first whose running sum exceeds u_k = (k + xi_k) total / B.
///
/// xi_k is that of the tree sampler, so both draw the same slots up to the rounding of the tree's sums. Shapes: priorities and
/// prefix `[n]`, n > 0 and the total > 0; counters \[1\]; indices and drawn \[B\], drawn the priorities of the indices. Launch:
/// [`scan_sample_shape`].
#[kernel]
pub fn scan_sample(
    priorities: GlobalSlice<f32>,
    prefix: GlobalSlice<u64>,
    counters: GlobalSlice<Counters>,
    indices: GlobalSliceMut<i64>,
    drawn: GlobalSliceMut<f32>,
    seed: [u32; 2],
) {
    let row = thread::index_1d() as usize;
    let n = indices.len();
    if row >= n {
        return;
    }
    let xi = philox::uniform(seed, stream::PER_SAMPLE, counters.get(0).rng_step as u32, row as u32);
    let total = prefix.get(prefix.len() - 1);
    let point = stratum_unit(row, xi, n, total);
    let (mut low, mut high) = (0, prefix.len() - 1);
    while low < high {
        let middle = (low + high) / 2;
        if prefix.get(middle) > point {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    indices.set(row, low as i64);
    drawn.set(row, priorities.get(low));
}

/// Narrows indices, none of which is negative or above 2^32 - 1. Shapes: from, to `[n]`. Launch: [`scan_sample_shape`].
#[kernel]
pub fn i64_to_u32(from: GlobalSlice<i64>, to: GlobalSliceMut<u32>) {
    let index = thread::index_1d() as usize;
    if index < from.len() {
        to.set(index, from.get(index) as u32);
    }
}

/// The point u_k of stratum `row` of `n`, in units, always under `total`.
#[inline]
pub fn stratum_unit(row: usize, xi: f32, n: usize, total: u64) -> u64 {
    let point = ((row as f64 + xi as f64) * (total as f64 / n as f64)) as u64;
    point.min(total.saturating_sub(1))
}

/// Units a priority of 1 is worth: the largest power of two with which `n` priorities of `max_priority` stay under 2^62.
#[inline]
pub fn units_per_one(max_priority: f32, n: usize) -> f64 {
    let log_n = usize::BITS - n.saturating_sub(1).leading_zeros();
    // The exponent of the power of two above the maximum.
    let log_max = ((max_priority.to_bits() >> 23) as i32 & 0xff) - 126;
    f64::from_bits(((1023 + LOG_TOTAL - log_n as i32 - log_max) as u64) << 52)
}

/// A priority in units, rounded up.
#[inline]
pub fn units(priority: f32, units_per_one: f64) -> u64 {
    let scaled = priority as f64 * units_per_one;
    let whole = scaled as u64;
    whole + ((whole as f64) < scaled) as u64
}

/// First element of this thread.
#[inline(always)]
fn first_element() -> usize {
    thread::block_idx_x() as usize * TILE + thread::thread_idx_x() as usize * VECTOR
}

/// This thread's elements in units, 0 past the end.
#[inline(always)]
fn load_units(priorities: &GlobalSlice<f32>, max_priority: f32) -> [u64; VECTOR] {
    let (at, n) = (first_element(), priorities.len());
    let scale = units_per_one(max_priority, n);
    if at + VECTOR <= n {
        return priorities.load::<VECTOR>(at).map(|priority| units(priority, scale));
    }
    core::array::from_fn(|part| if at + part < n { units(priorities.get(at + part), scale) } else { 0 })
}

/// Sum of the values of all threads of this 1,024-thread block before this one, and of all; `warp_sums` is its scratch.
#[inline(always)]
pub(crate) fn scan_block(value: u64, warp_sums: SharedSlice<u64>) -> (u64, u64) {
    let thread = thread::thread_idx_x() as usize;
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let in_warp = lanes::running_sum(value, lane);
    // Between the reads of the call before and the writes of this one.
    thread::sync_threads();
    if lane == N_LANES - 1 {
        warp_sums.set(warp, in_warp);
    }
    // Between each warp's write of its sum and everyone's reads of all.
    thread::sync_threads();
    let up_to = lanes::running_sum(warp_sums.get(lane), lane);
    let total = lanes::from(up_to, N_LANES - 1);
    let before_warp = if warp == 0 { 0 } else { lanes::from(up_to, warp - 1) };
    (before_warp + in_warp - value, total)
}
