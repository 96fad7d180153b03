//! Importance weights of a prioritized batch.
//!
//! w_k = (n P(i_k))^-beta / max_j (n P(i_j))^-beta (Schaul et al. 2016, section 3.4 and algorithm 1), P = p / sum of all p.
//! n and the sum are in every weight alike and cancel: w_k = (p_min / p_k)^beta with p_min the batch's least priority, which is
//! how it is worked out. The largest weight is exactly 1.

use cuda_std::prelude::*;
use shared_types::StepScalars;

use crate::lanes::{self, N_LANES};
use crate::math;

const N_THREADS: u32 = 1024;
const N_WARPS: usize = N_THREADS as usize / N_LANES;

/// Launch of [`per_is_weights()`]: one block.
pub const fn per_is_weights_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// The weight of each sampled row. Shapes: priorities \[B\], > 0; scalars \[1\], of which it reads beta; weights \[B\], in (0, 1].
/// Launch: [`per_is_weights_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn per_is_weights(priorities: GlobalSlice<f32>, scalars: GlobalSlice<StepScalars>, weights: GlobalSliceMut<f32>) {
    let warp_minima = shared_slice![f32; N_WARPS];
    let thread = thread::thread_idx_x() as usize;
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let n_threads = lanes::of_block(N_THREADS);
    let mut least = f32::INFINITY;
    for row in (thread..priorities.len()).step_by(n_threads) {
        least = least.min(priorities.get(row));
    }
    // The whole block takes the same way; a block of one thread has its minimum.
    if n_threads != 1 {
        let warp_least = lanes::all(least, f32::min);
        if lane == 0 {
            warp_minima.set(warp, warp_least);
        }
        // Between each warp's write of its minimum and everyone's reads of all.
        thread::sync_threads();
        least = lanes::all(warp_minima.get(lane), f32::min);
    }
    let beta = scalars.get(0).beta;
    for row in (thread..priorities.len()).step_by(n_threads) {
        weights.set(row, weight(priorities.get(row), least, beta));
    }
}

/// (least / priority)^beta.
#[inline]
pub fn weight(priority: f32, least: f32, beta: f32) -> f32 {
    math::pow(least / priority, beta)
}
