//! Means over the batch, in two stages and a fixed order.
//!
//! Sums are f64: a mean and a variance that is small beside it come out to f32's precision, from one pass. An order: a thread
//! adds the rows of its block's stretch that are 256 apart, a warp adds by halves (lane distance 16, 8, ..., 1), the warps'
//! sums are added from the first to the last; the second stage likewise. It depends on B alone.

use cuda_std::prelude::*;
use shared_types::LossTotals;

use super::loss::row_loss;
use crate::heads::N_ACTIONS;
use crate::lanes::{self, N_LANES};
use shared_types::market::{BRANCH_SIZES, N_BRANCHES};

const N_THREADS: usize = 256;
const N_WARPS: usize = N_THREADS / N_LANES;
/// Numbers of a block: the sums, and the least and the greatest Q.
const N_PARTS: usize = 12;
const Q_MIN: usize = 10;
const Q_MAX: usize = 11;
/// Blocks of the first stage at most.
const N_BLOCKS_MAX: usize = 256;

/// Blocks of [`loss_partials()`] for `n_rows` rows.
pub const fn n_loss_blocks(n_rows: usize) -> usize {
    let n = n_rows.div_ceil(N_THREADS);
    if n == 0 {
        1
    } else if n > N_BLOCKS_MAX {
        N_BLOCKS_MAX
    } else {
        n
    }
}

/// Elements of `partials` for `n_rows` rows.
pub const fn loss_partials_len(n_rows: usize) -> usize {
    N_PARTS * n_loss_blocks(n_rows)
}

/// Launch of [`loss_partials()`] for `n_rows` rows.
pub const fn loss_partials_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::linear(n_loss_blocks(n_rows) as u32, N_THREADS as u32)
}

/// Launch of [`loss_totals()`]: one block, a warp for each number.
pub const fn loss_totals_shape() -> LaunchShape {
    LaunchShape::linear(1, (N_PARTS * N_LANES) as u32)
}

/// First stage: each block's sums over its stretch of rows.
///
/// Shapes: row_losses `[B, 4]`, q `[B, 13]`, rewards `[B]`, partials [[`loss_partials_len`] (B)]. Launch:
/// [`loss_partials_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn loss_partials(
    row_losses: GlobalSlice<f32>,
    q: GlobalSlice<f32>,
    rewards: GlobalSlice<f32>,
    partials: GlobalSliceMut<f64>,
) {
    let of_warps = shared_slice![f64; N_WARPS * N_PARTS];
    let n_blocks = partials.len() / N_PARTS;
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let stretch = rewards.len().div_ceil(n_blocks);
    let end = rewards.len().min((block + 1) * stretch);
    let mut parts = neutral();
    let mut row = block * stretch + thread;
    while row < end {
        add_row(&mut parts, row_losses.load(row_loss::N * row), rewards.get(row), |action| {
            q.get(row * N_ACTIONS + action)
        });
        row += N_THREADS;
    }
    for (part, value) in parts.into_iter().enumerate() {
        let value = lanes::all(value, |a, b| combine(part, a, b));
        if thread.is_multiple_of(N_LANES) {
            of_warps.set(part * N_WARPS + thread / N_LANES, value);
        }
    }
    // Between each warp's writes and the first threads' reads of all.
    thread::sync_threads();
    if thread < N_PARTS {
        let mut value = of_warps.get(thread * N_WARPS);
        for warp in 1..N_WARPS {
            value = combine(thread, value, of_warps.get(thread * N_WARPS + warp));
        }
        partials.set(thread * n_blocks + block, value);
    }
}

/// Second stage: the batch's totals. A row's NaN reaches every mean that it is in; the least and the greatest Q pass over it.
///
/// J here is mean(w CE) + `alpha_cql` CQL; what else it has is added by who works that out. Shapes: partials
/// [[`loss_partials_len`] (B)] with B = `n_rows` > 0, totals \[1\]. Launch: [`loss_totals_shape`].
#[kernel(cooperative, max_threads = 384)]
pub fn loss_totals(partials: GlobalSlice<f64>, n_rows: u32, alpha_cql: f32, totals: GlobalSliceMut<LossTotals>) {
    let results = shared_slice![f64; N_PARTS];
    let thread = thread::thread_idx_x() as usize;
    let (part, lane) = (thread / N_LANES, thread % N_LANES);
    let n_blocks = partials.len() / N_PARTS;
    let mut value = neutral_of(part);
    let mut block = lane;
    while block < n_blocks {
        value = combine(part, value, partials.get(part * n_blocks + block));
        block += N_LANES;
    }
    let value = lanes::all(value, |a, b| combine(part, a, b));
    if lane == 0 {
        results.set(part, value);
    }
    // Between each warp's write and the first thread's reads of all.
    thread::sync_threads();
    if thread == 0 {
        let mut parts = neutral();
        for (part, value) in parts.iter_mut().enumerate() {
            *value = results.get(part);
        }
        totals.set(0, totals_of(&parts, n_rows, alpha_cql));
    }
}

#[inline(always)]
fn neutral() -> [f64; N_PARTS] {
    let mut parts = [0.0; N_PARTS];
    parts[Q_MIN] = f64::INFINITY;
    parts[Q_MAX] = f64::NEG_INFINITY;
    parts
}

#[inline(always)]
fn neutral_of(part: usize) -> f64 {
    match part {
        Q_MIN => f64::INFINITY,
        Q_MAX => f64::NEG_INFINITY,
        _ => 0.0,
    }
}

#[inline(always)]
fn combine(part: usize, a: f64, b: f64) -> f64 {
    match part {
        Q_MIN => a.min(b),
        Q_MAX => a.max(b),
        _ => a + b,
    }
}

/// Adds a row. Products of two f32 are exact in f64.
#[inline(always)]
fn add_row(parts: &mut [f64; N_PARTS], losses: [f32; row_loss::N], reward: f32, q: impl Fn(usize) -> f32) {
    let (td, reward) = (losses[row_loss::TD] as f64, reward as f64);
    let (mut sum, mut squares, mut greatest) = (0.0, 0.0, 0.0);
    let (mut least_of_all, mut greatest_of_all) = (f32::INFINITY, f32::NEG_INFINITY);
    let mut action = 0;
    for n_actions in BRANCH_SIZES {
        let mut of_branch = f32::NEG_INFINITY;
        for _ in 0..n_actions {
            let q = q(action);
            sum += q as f64;
            squares += q as f64 * q as f64;
            of_branch = of_branch.max(q);
            least_of_all = least_of_all.min(q);
            action += 1;
        }
        greatest += of_branch as f64;
        greatest_of_all = greatest_of_all.max(of_branch);
    }
    let terms = [
        losses[row_loss::WEIGHTED_CE] as f64,
        td,
        td * td,
        losses[row_loss::SQUARED_GAP] as f64,
        losses[row_loss::CQL] as f64,
        sum,
        squares,
        greatest,
        reward,
        reward * reward,
        least_of_all as f64,
        greatest_of_all as f64,
    ];
    for (part, term) in terms.into_iter().enumerate() {
        parts[part] = combine(part, parts[part], term);
    }
}

#[inline(always)]
fn totals_of(parts: &[f64; N_PARTS], n_rows: u32, alpha_cql: f32) -> LossTotals {
    let [weighted_ce, td, td_squares, mse, cql, q, q_squares, greatest, reward, reward_squares, q_min, q_max] = *parts;
    let n = n_rows as f64;
    let n_q = n * N_ACTIONS as f64;
    let (weighted_ce, cql) = (weighted_ce / n, cql / n);
    LossTotals {
        weighted_ce: weighted_ce as f32,
        td_mean: (td / n) as f32,
        td_var: variance(td, td_squares, n),
        mse: (mse / n) as f32,
        cql: cql as f32,
        objective: (weighted_ce + alpha_cql as f64 * cql) as f32,
        q_mean: (q / n_q) as f32,
        q_min: q_min as f32,
        q_max: q_max as f32,
        q_variance: variance(q, q_squares, n_q),
        avg_max_q: (greatest / (n * N_BRANCHES as f64)) as f32,
        reward_mean: (reward / n) as f32,
        reward_var: variance(reward, reward_squares, n),
        reserved: [0; 3],
    }
}

/// Population variance of n numbers from their sum and their squares'. Not below 0, but NaN stays NaN.
#[inline(always)]
fn variance(sum: f64, squares: f64, n: f64) -> f32 {
    let mean = sum / n;
    let variance = squares / n - mean * mean;
    if variance < 0.0 { 0.0 } else { variance as f32 }
}
