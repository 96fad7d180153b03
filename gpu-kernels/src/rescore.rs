//! When each transition's priority was last worked out, and which were the longest ago: what an epoch's boundary scores anew.

use cuda_std::prelude::*;
use half::bf16;
use shared_types::Counters;

use crate::lanes;
use crate::scan::{N_WARPS, scan_block};

const N_THREADS: u32 = 1024;

/// Launch of [`mark_scored()`] for `n` rows: a thread a row.
pub const fn mark_scored_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 256)
}

/// Launch of [`stalest_transitions()`]: one block.
pub const fn stalest_transitions_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// Notes that the rows' transitions were scored at this step; a row whose TD error is no number keeps its priority, and its time.
///
/// Shapes: indices `[B]` under N, repeats allowed; td_errors `[B]`; counters \[1\]; last_scored `[N]`, rng_step. Launch:
/// [`mark_scored_shape`].
#[kernel]
pub fn mark_scored(
    indices: GlobalSlice<u32>,
    td_errors: GlobalSlice<bf16>,
    counters: GlobalSlice<Counters>,
    last_scored: GlobalSliceMut<u32>,
) {
    let row = thread::index_1d() as usize;
    if row < indices.len() && td_errors.get(row).to_f32().is_finite() {
        // rng_step only grows, so the maximum is this step's, whichever of a slot's rows comes last.
        last_scored.fetch_max(indices.get(row) as usize, counters.get(0).rng_step as u32);
    }
}

/// The slots of the `n` transitions that were scored longest ago, in the order of slots; of those scored at the same step the
/// lower slots. Elements of `indices` beyond `n` repeat the first ones: a transition scored twice gets the same priority twice.
///
/// The step up to which all are taken is found bit by bit, from how many were scored before it; a thread counts and then writes
/// a stretch of slots. Shapes: last_scored `[N]`, of which the first `n_filled` slots hold transitions, none scored after
/// rng_step; counters \[1\]; indices of at least `n`; 0 < n <= n_filled. Launch: [`stalest_transitions_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn stalest_transitions(
    last_scored: GlobalSlice<u32>,
    counters: GlobalSlice<Counters>,
    n_filled: u32,
    n: u32,
    indices: GlobalSliceMut<u32>,
) {
    let warp_sums = shared_slice![u64; N_WARPS];
    let (thread, n_threads) = (thread::thread_idx_x() as usize, lanes::of_block(N_THREADS));
    let scan = |value: u64| if n_threads == 1 { (0, value) } else { scan_block(value, warp_sums) };
    let stretch = (n_filled as usize).div_ceil(n_threads);
    let first = (n_filled as usize).min(thread * stretch);
    let slots = first..(n_filled as usize).min(first + stretch);
    let count =
        |chosen: &dyn Fn(u32) -> bool| slots.clone().filter(|&slot| chosen(last_scored.get(slot))).count() as u64;

    // The latest step before which fewer than n were scored.
    let mut limit = 0;
    let mut bit = (counters.get(0).rng_step as u32).checked_ilog2().map_or(0, |log| 1 << log);
    while bit > 0 {
        let candidate = limit | bit;
        let (_, earlier) = scan(count(&|step| step < candidate));
        if earlier < n as u64 {
            limit = candidate;
        }
        bit >>= 1;
    }

    // Both counts in one scan: each fits in half of the word.
    let (before, total) = scan(count(&|step| step < limit) | count(&|step| step == limit) << 32);
    let at_limit = n as u64 - (total & u32::MAX as u64);
    let mut seen = before >> 32;
    let mut rank = ((before & u32::MAX as u64) + seen.min(at_limit)) as usize;
    for slot in slots {
        let step = last_scored.get(slot);
        let is_at_limit = step == limit;
        if step < limit || (is_at_limit && seen < at_limit) {
            let mut at = rank;
            while at < indices.len() {
                indices.set(at, slot as u32);
                at += n as usize;
            }
            rank += 1;
        }
        seen += is_at_limit as u64;
    }
}
