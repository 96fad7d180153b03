//! Norms of the learners' gradients, all in one launch, in a fixed order, and what is no number among their elements.
//!
//! First stage of two; the second is in [`gate_step`](crate::gate::gate_step()). Each learner's range is cut into stretches of
//! whole tiles, a block each. A thread adds the squares of its vectors of four, each component on its own, then
//! ((v0 + v1) + (v2 + v3)); a warp adds by halves, then the warps' sums do. The order depends on the range's length alone. A block
//! of one thread adds eight vectors side by side, and so its 32 partial sums by halves.
//!
//! Error: all terms are positive, so it is relative. A square and its addition round at most twice; with
//! h = ceil(n / (1,024 partials)) of them one after the other, 2 + 5 + 3 levels in a block and 16 + 5 in the second stage, it
//! is at most (h + 32) 2^-24. Of a block of one thread it is at most (k + 35) 2^-24 with k = ceil(n / (32 partials)).

use cuda_std::prelude::*;
use shared_types::{GradientNorm, LearnerRange};

use crate::lanes::{self, N_LANES};
use crate::{alone, non_finite, prune};

pub(crate) const N_THREADS: u32 = 256;
pub(crate) const N_WARPS: usize = N_THREADS as usize / N_LANES;
/// f32 in 16 bytes, the widest access.
const VECTOR: usize = 4;
/// f32 that a block takes in one sweep of its threads.
pub(crate) const TILE: usize = N_THREADS as usize * VECTOR;
/// Partial norms of a learner at most: 16 a lane of the warp that adds them.
const N_PARTIALS_MAX: usize = 512;

/// The range of `len` elements from `start`, whose partial norms follow those of `before`, the learner before it in the list.
///
/// # Panics
/// If the range does not begin and end at a multiple of 64 elements, or passes 2^32.
pub const fn learner_range(start: usize, len: usize, before: Option<LearnerRange>) -> LearnerRange {
    assert!(start.is_multiple_of(64) && len.is_multiple_of(64), "a learner's range is of whole chunks of 64 elements");
    assert!(start + len <= u32::MAX as usize, "parameters are counted in 32 bits");
    let n_tiles = len.div_ceil(TILE);
    LearnerRange {
        start: start as u32,
        len: len as u32,
        first_partial: match before {
            Some(before) => before.first_partial + before.n_partials,
            None => 0,
        },
        n_partials: if n_tiles < N_PARTIALS_MAX { n_tiles } else { N_PARTIALS_MAX } as u32,
    }
}

/// Partial norms of a list of learners.
pub const fn n_partial_norms(ranges: &[LearnerRange]) -> usize {
    match ranges.last() {
        Some(last) => (last.first_partial + last.n_partials) as usize,
        None => 0,
    }
}

/// Launch of [`gradient_norm()`] for a list of learners: a block a partial norm.
pub const fn gradient_norm_shape(ranges: &[LearnerRange], lanes: u32) -> LaunchShape {
    let n = n_partial_norms(ranges);
    LaunchShape::linear(if n == 0 { 1 } else { n as u32 }, lanes::block_threads(N_THREADS, lanes))
}

/// Elements of a range of `len` that each of its `n_partials` partial norms is of, but for the last ones.
pub(crate) const fn stretch(len: usize, n_partials: usize) -> usize {
    len.div_ceil(TILE).div_ceil(n_partials) * TILE
}

/// Partial squared norms of each learner's gradient, with flags. Shapes: gradient `[n]`, the flat gradient; masks as
/// [`prune`] has them, what these take away counting for 0; ranges `[L]` made by [`learner_range`] one after the other; partials
/// [[`n_partial_norms`]]. Launch: [`gradient_norm_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn gradient_norm(
    gradient: GlobalSlice<f32>,
    masks: GlobalSlice<u32>,
    ranges: GlobalSlice<LearnerRange>,
    partials: GlobalSliceMut<GradientNorm>,
) {
    let warp_sums = shared_slice![f32; N_WARPS];
    let warp_flags = shared_slice![u32; N_WARPS];
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let (mut sums, mut flags) = ([0.0; VECTOR], 0);
    // The whole block passes the same branch: it works for one learner.
    if let Some((range, part)) = owner(&ranges, block as u32) {
        let stretch = stretch(range.len as usize, range.n_partials as usize);
        let first = range.start as usize;
        let end = first + (range.len as usize).min((part + 1) * stretch);
        if lanes::of_block(N_THREADS) == 1 {
            partials.set(block, norm_alone(&gradient, &masks, first + part * stretch, end));
            return;
        }
        let mut at = first + part * stretch + thread * VECTOR;
        while at < end {
            let vector = prune::kept(&masks, at, gradient.load(at));
            sums = core::array::from_fn(|i| sums[i] + vector[i] * vector[i]);
            flags |= non_finite::of_vector(vector);
            at += TILE;
        }
    }
    if lanes::of_block(N_THREADS) == 1 {
        return;
    }
    let sum = lanes::all((sums[0] + sums[1]) + (sums[2] + sums[3]), |a, b| a + b);
    let flags = non_finite::of_warp(flags);
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    if lane == 0 {
        warp_sums.set(warp, sum);
        warp_flags.set(warp, flags);
    }
    // Between each warp's write of its result and the first warp's reads of all.
    thread::sync_threads();
    if warp != 0 {
        return;
    }
    let (sum, flags) = if lane < N_WARPS { (warp_sums.get(lane), warp_flags.get(lane)) } else { (0.0, 0) };
    let (sum_of_squares, flags) = (lanes::all(sum, |a, b| a + b), non_finite::of_warp(flags));
    if lane == 0 && block < partials.len() {
        partials.set(block, GradientNorm { sum_of_squares, flags });
    }
}

/// A partial norm by a block of one thread; of no element from `end` on.
#[inline(always)]
fn norm_alone(gradient: &GlobalSlice<f32>, masks: &GlobalSlice<u32>, start: usize, end: usize) -> GradientNorm {
    let sum_of_squares = alone::sum(start..end, |at| prune::kept(masks, at, gradient.load(at)).map(|g| g * g));
    // A sum that is a number has only numbers for its terms.
    let flags = if sum_of_squares.is_finite() { 0 } else { non_finite::of_range(gradient, start, end) };
    GradientNorm { sum_of_squares, flags }
}

/// The learner that partial norm `partial` is of, and its number among that learner's.
#[inline(always)]
fn owner(ranges: &GlobalSlice<LearnerRange>, partial: u32) -> Option<(LearnerRange, usize)> {
    for learner in 0..ranges.len() {
        let range = ranges.get(learner);
        let part = partial.wrapping_sub(range.first_partial);
        if part < range.n_partials {
            return Some((range, part as usize));
        }
    }
    None
}

/// Second stage: the norm of one learner from its partial norms, by the 32 lanes of a warp; all get it. Each lane adds every
/// 32nd partial, then the lanes add by halves. A thread alone adds them as [`crate::alone`] says.
#[inline(always)]
pub(crate) fn combined(partials: &GlobalSlice<GradientNorm>, range: &LearnerRange, lane: usize) -> GradientNorm {
    let first = range.first_partial as usize;
    if lanes::of_block(N_LANES as u32) == 1 {
        let n = range.n_partials as usize;
        let sum_of_squares = alone::sum_of(n, |part| partials.get(first + part).sum_of_squares);
        let flags = (0..n).fold(0, |flags, part| flags | partials.get(first + part).flags);
        return GradientNorm { sum_of_squares, flags };
    }
    let (mut sum, mut flags) = (0.0, 0);
    for part in (lane..range.n_partials as usize).step_by(N_LANES) {
        let partial = partials.get(first + part);
        sum += partial.sum_of_squares;
        flags |= partial.flags;
    }
    GradientNorm { sum_of_squares: lanes::all(sum, |a, b| a + b), flags: non_finite::of_warp(flags) }
}
