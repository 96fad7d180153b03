//! Gradual magnitude pruning (Zhu and Gupta 2017, equation 1), each tensor by a threshold of its own.
//!
//! Masks are bits, a word for 32 elements of the flat parameters, 1 for what is kept; no masks at all keep everything. They are
//! renewed every `every` steps from `start` to `end`: a tensor's weights are counted by the top 16 of the 31 bits of |w|, and what lies
//! under the highest edge of such a bin with at most s n weights under it goes, s = final (1 - (1 - (t - start) / (end - start))^3).
//! Counts are whole numbers, so no order of counting shows.
//!
//! Launches: [`prune_count()`], [`prune_threshold()`], [`prune_masks()`]; each returns at once in a step that renews nothing.

use cuda_std::prelude::*;
use shared_types::{Counters, PruneParams, PruneTensor, isv};

use crate::adamw::CHUNK;
use crate::lanes::N_LANES;
use crate::scan::scan_block;

/// Bits of |w| below those that choose its bin.
const BIN_SHIFT: u32 = 15;
/// Bins of a tensor.
pub const N_BINS: usize = 1 << 16;
/// Elements of a mask's word.
pub const WORD: usize = 32;
/// A chunk's number of a tensor that is not pruned.
pub const NOT_PRUNED: u8 = u8::MAX;

const N_THREADS: u32 = 1024;
const BINS_OF_THREAD: usize = N_BINS / N_THREADS as usize;

/// Launch of [`prune_count()`] and [`prune_masks()`] over `n` parameters: a thread a mask's word.
pub const fn prune_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n / WORD, 128)
}

/// Launch of [`prune_threshold()`]: a block a tensor.
pub const fn prune_threshold_shape(n_tensors: usize) -> LaunchShape {
    LaunchShape::linear(n_tensors as u32, N_THREADS)
}

/// Counts the weights of each tensor by bin.
///
/// Shapes: params `[n]`; chunks `[n / 64]`, the tensor of each chunk or [`NOT_PRUNED`]; tensors `[P]`; counters \[1\]; bins
/// `[P, 65536]`, zeros. Launch: [`prune_shape`].
#[kernel]
pub fn prune_count(
    params: GlobalSlice<f32>,
    chunks: GlobalSlice<u8>,
    tensors: GlobalSlice<PruneTensor>,
    counters: GlobalSlice<Counters>,
    bins: GlobalSliceMut<u32>,
    schedule: PruneParams,
) {
    let at = thread::index_1d() as usize * WORD;
    if at >= params.len() || !is_due(&schedule, counters.get(0).rng_step) {
        return;
    }
    let tensor = chunks.get(at / CHUNK);
    if tensor == NOT_PRUNED {
        return;
    }
    let end = tensors.get(tensor as usize).end as usize;
    for element in at..end.min(at + WORD) {
        bins.fetch_add(tensor as usize * N_BINS + bin(params.get(element)), 1);
    }
}

/// Finds each tensor's threshold, clears its counts for the next time, and adds what goes to the sparsity of the bus.
///
/// Shapes: bins as [`prune_count()`] left them; tensors `[P]`, whose `threshold` and `n_pruned` it writes; counters \[1\]. Launch:
/// [`prune_threshold_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn prune_threshold(
    bins: GlobalSliceMut<u32>,
    tensors: GlobalSliceMut<PruneTensor>,
    counters: GlobalSlice<Counters>,
    schedule: PruneParams,
) {
    let step = counters.get(0).rng_step;
    // The same for the whole grid, so that no thread waits at a barrier which others have left.
    if !is_due(&schedule, step) {
        return;
    }
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let tensor = tensors.get(block);
    let allowed = (sparsity(&schedule, step) * f64::from(tensor.end - tensor.start)) as u64;
    let first = block * N_BINS + thread * BINS_OF_THREAD;
    let mut sum = 0;
    for bin in 0..BINS_OF_THREAD {
        sum += u64::from(bins.get(first + bin));
    }
    let (before, _) = scan_block(sum, shared_slice![u64; N_THREADS as usize / N_LANES]);
    // One thread holds the bin with which more than `allowed` would go.
    let mut under = before;
    for bin in 0..BINS_OF_THREAD {
        let count = u64::from(bins.get(first + bin));
        if under <= allowed && under + count > allowed {
            let threshold = (thread * BINS_OF_THREAD + bin) as u32;
            tensors.set(block, PruneTensor { threshold, n_pruned: under as u32, ..tensor });
        }
        under += count;
        bins.set(first + bin, 0);
    }
}

/// Renews the masks from the thresholds, and the sparsity in the bus: the share of weights of all tensors that are masked.
///
/// Shapes: params, chunks, counters as [`prune_count()`]; tensors `[P]` from [`prune_threshold()`]; masks `[n / 32]`; bus \[64\], of
/// which it writes `SPARSITY`. Launch: [`prune_shape`].
#[kernel]
pub fn prune_masks(
    params: GlobalSlice<f32>,
    chunks: GlobalSlice<u8>,
    tensors: GlobalSlice<PruneTensor>,
    counters: GlobalSlice<Counters>,
    masks: GlobalSliceMut<u32>,
    bus: GlobalSliceMut<f32>,
    schedule: PruneParams,
) {
    let word = thread::index_1d() as usize;
    let at = word * WORD;
    if at >= params.len() || !is_due(&schedule, counters.get(0).rng_step) {
        return;
    }
    if word == 0 {
        let (mut n, mut n_pruned) = (0u64, 0u64);
        for tensor in 0..tensors.len() {
            let tensor = tensors.get(tensor);
            n += u64::from(tensor.end - tensor.start);
            n_pruned += u64::from(tensor.n_pruned);
        }
        bus.set(isv::SPARSITY, (n_pruned as f64 / n as f64) as f32);
    }
    let tensor = chunks.get(at / CHUNK);
    if tensor == NOT_PRUNED {
        return;
    }
    let tensor = tensors.get(tensor as usize);
    let mut bits = u32::MAX;
    for element in at..(tensor.end as usize).min(at + WORD) {
        if (bin(params.get(element)) as u32) < tensor.threshold {
            bits &= !(1 << (element - at));
        }
    }
    masks.set(word, bits);
}

/// What the masks keep of the four values from element `at`, a multiple of 4, of the flat parameters; the others are 0.
#[inline(always)]
pub(crate) fn kept(masks: &GlobalSlice<u32>, at: usize, values: [f32; 4]) -> [f32; 4] {
    if masks.is_empty() {
        return values;
    }
    let bits = masks.get(at / WORD) >> (at % WORD);
    core::array::from_fn(|i| if bits >> i & 1 != 0 { values[i] } else { 0.0 })
}

/// Whether masks are renewed at `step`.
#[inline]
pub fn is_due(schedule: &PruneParams, step: i32) -> bool {
    let step = step as u32;
    step >= schedule.start && step <= schedule.end && step.is_multiple_of(schedule.every)
}

/// Share of weights that go at `step`, which is `start` or later.
#[inline]
pub fn sparsity(schedule: &PruneParams, step: i32) -> f64 {
    let length = (schedule.end - schedule.start) as f64;
    let left = 1.0 - ((step as u32 - schedule.start) as f64 / length).min(1.0);
    schedule.final_sparsity * (1.0 - left * left * left)
}

/// The bin of a weight.
#[inline(always)]
fn bin(weight: f32) -> usize {
    (weight.to_bits() << 1 >> (BIN_SHIFT + 1)) as usize
}
