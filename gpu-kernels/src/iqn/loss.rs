//! The quantile Huber loss with its gradient, and what it adds to the objective.

use cuda_std::prelude::*;
use shared_types::market::N_BRANCHES;
use shared_types::{LossTotals, Precision, isv};

use super::{N_QUANTILES, QUANTILE_STRIDE, action_of, first_of, level};
use crate::c51::power;
use crate::lanes::{self, N_LANES};
use crate::operand;

const N_THREADS: u32 = 256;
const N_WARPS: usize = N_THREADS as usize / N_LANES;
// A lane has one quantile of one branch.
const _: () = assert!(N_QUANTILES * N_BRANCHES == N_LANES);

/// Launch of [`iqn_total()`]: one block, of one thread on the CPU.
pub const fn iqn_total_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// Loss of each row, the mean over its branches, and the gradient of L by the quantiles.
///
/// Shapes: quantiles `[8 B, 16]` of the online net on s and next_quantiles `[8 B, 16]` of the target net on s', row i 8 + n, of whose
/// columns the first 13 are actions; actions, next_actions (greedy on s'), rewards, dones, discount_powers (n) `[B]`; bus \[64\];
/// row_losses `[B]`; d_quantiles operand `[8 B, 16]`, 0 for the actions not taken and in the last three columns. Error of a row's loss:
/// 48 x 2^-24 of the sum of its terms' magnitudes beside what delta is off. Launch: [`lanes::row_shape`] (B, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn iqn_loss(
    quantiles: GlobalSlice<f32>,
    next_quantiles: GlobalSlice<f32>,
    actions: GlobalSlice<[u8; 4]>,
    next_actions: GlobalSlice<[u8; 4]>,
    rewards: GlobalSlice<f32>,
    dones: GlobalSlice<u8>,
    discount_powers: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    row_losses: GlobalSliceMut<f32>,
    d_quantiles: GlobalSliceMut<u16>,
    precision: Precision,
) {
    let n_rows = actions.len();
    let Some(row) = lanes::row_index(n_rows) else { return };
    let (taken, greedy, reward) = (actions.get(row), next_actions.get(row), rewards.get(row));
    let gamma = bus.get(isv::GAMMA);
    let discount = if dones.get(row) == 0 { power(gamma, discount_powers.get(row) as u32) } else { 0.0 };
    let share = 1.0 / (N_BRANCHES * n_rows) as f32;
    let place = |n: usize| (row * N_QUANTILES + n) * QUANTILE_STRIDE;
    let quantile = |branch: usize, n: usize| quantiles.get(place(n) + first_of(branch) + action_of(taken, branch));
    let target = |branch: usize, n: usize| {
        reward + discount * next_quantiles.get(place(n) + first_of(branch) + action_of(greedy, branch))
    };
    // The gradient in a branch's columns of row n; the last branch has the unused ones too.
    let put = |branch: usize, n: usize, slope: f32| {
        let (first, action) = (first_of(branch), action_of(taken, branch));
        let end = if branch + 1 < N_BRANCHES { first_of(branch + 1) } else { QUANTILE_STRIDE };
        for column in first..end {
            let value = if column == first + action { share * slope } else { 0.0 };
            operand::store(&d_quantiles, place(n) + column, value, precision);
        }
    };
    let loss = if lanes::of_row() == 1 {
        let mut loss = 0.0;
        for branch in 0..N_BRANCHES {
            let targets: [f32; N_QUANTILES] = core::array::from_fn(|m| target(branch, m));
            for n in 0..N_QUANTILES {
                let (of_quantile, slope) = quantile_huber(quantile(branch, n), level(n), |m| targets[m]);
                loss += of_quantile;
                put(branch, n, slope);
            }
        }
        loss
    } else {
        let lane = thread::thread_idx_x() as usize;
        let (branch, n) = (lane / N_QUANTILES, lane % N_QUANTILES);
        let own = target(branch, n);
        let of_branch = |m: usize| lanes::of_lane(own, branch * N_QUANTILES + m);
        let (loss, slope) = quantile_huber(quantile(branch, n), level(n), of_branch);
        put(branch, n, slope);
        lanes::row_sum(loss)
    };
    if thread::thread_idx_x() == 0 {
        row_losses.set(row, loss * (1.0 / N_BRANCHES as f32));
    }
}

/// Loss of one quantile against all targets, their mean, and its derivative. A NaN goes through.
#[inline(always)]
fn quantile_huber(quantile: f32, level: f32, target: impl Fn(usize) -> f32) -> (f32, f32) {
    let (mut loss, mut slope) = (0.0, 0.0);
    for m in 0..N_QUANTILES {
        let delta = target(m) - quantile;
        let weight = if delta < 0.0 { 1.0 - level } else { level };
        let size = delta.abs();
        let huber = if size <= 1.0 { 0.5 * delta * delta } else { size - 0.5 };
        loss += weight * huber;
        slope -= weight * delta.clamp(-1.0, 1.0);
    }
    (loss * (1.0 / N_QUANTILES as f32), slope * (1.0 / N_QUANTILES as f32))
}

/// Weight of L in the objective as the step began: lambda_iqn iqn_readiness.
#[inline(always)]
pub(super) fn weight(bus: &GlobalSlice<f32>, lambda: f32) -> f32 {
    lambda * bus.get(isv::IQN_READINESS)
}

/// L, the rows' mean, and J + lambda iqn_readiness L in the place of J. What is no number in L reaches J whatever its weight.
///
/// Order of the sum, in f64: a thread adds the rows that are 256 apart, a warp its lanes by halves, then the warps' sums in order; a
/// block of one thread adds its rows one after the other. Shapes: row_losses `[B]`, B > 0; bus \[64\]; head_loss \[1\]: L; totals \[1\], of
/// which it reads and writes J. Launch: [`iqn_total_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn iqn_total(
    row_losses: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    lambda: f32,
    head_loss: GlobalSliceMut<f32>,
    totals: GlobalSliceMut<LossTotals>,
) {
    let warp_sums = shared_slice![f64; N_WARPS];
    let (thread, n_threads) = (thread::thread_idx_x() as usize, lanes::of_block(N_THREADS));
    let mut sum = 0.0;
    let mut row = thread;
    while row < row_losses.len() {
        sum += row_losses.get(row) as f64;
        row += n_threads;
    }
    if n_threads > 1 {
        let of_warp = lanes::all(sum, |a, b| a + b);
        if thread.is_multiple_of(N_LANES) {
            warp_sums.set(thread / N_LANES, of_warp);
        }
        // Between each warp's write and the first thread's reads of all.
        thread::sync_threads();
        sum = 0.0;
        for warp in 0..N_WARPS {
            sum += warp_sums.get(warp);
        }
    }
    if thread == 0 {
        let (loss, before) = (sum / row_losses.len() as f64, totals.get(0));
        let objective = before.objective as f64 + weight(&bus, lambda) as f64 * loss;
        head_loss.set(0, loss as f32);
        totals.set(0, with_objective(before, objective as f32));
    }
}

/// `before` with another J. Field by field: `..before` would copy stretches of bytes through local memory.
#[inline(always)]
fn with_objective(before: LossTotals, objective: f32) -> LossTotals {
    LossTotals {
        weighted_ce: before.weighted_ce,
        td_mean: before.td_mean,
        td_var: before.td_var,
        mse: before.mse,
        cql: before.cql,
        objective,
        q_mean: before.q_mean,
        q_min: before.q_min,
        q_max: before.q_max,
        q_variance: before.q_variance,
        avg_max_q: before.avg_max_q,
        reward_mean: before.reward_mean,
        reward_var: before.reward_var,
        reserved: [0; 3],
    }
}
