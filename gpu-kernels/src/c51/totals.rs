//! Means over the batch, in two stages and a fixed order.
//!
//! Sums are f64: a mean and a variance that is small beside it come out to f32's precision, from one pass. An order: a thread
//! adds the rows of its block's stretch that are 256 apart, a lane the sums of the threads that are 32 apart, a warp its lanes
//! by halves (distance 16, 8, ..., 1); the second stage likewise. It depends on B alone. A block of one thread adds its rows one
//! after the other, and the blocks' sums so too.

use cuda_std::prelude::*;
use shared_types::LossTotals;
use shared_types::market::N_BRANCHES;

use super::loss::row_loss;
use crate::heads::{N_ACTIONS, first_action};
use crate::lanes::{self, N_LANES};

const N_THREADS: usize = 256;
const N_WARPS: usize = N_THREADS / N_LANES;
/// Sums of a block.
const N_SUMS: usize = 10;
/// Numbers of a block: the sums, and the least and the greatest Q.
const N_PARTS: usize = N_SUMS + 2;
const Q_MIN: usize = N_SUMS;
const Q_MAX: usize = N_SUMS + 1;
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
pub const fn loss_partials_shape(n_rows: usize, lanes: u32) -> LaunchShape {
    LaunchShape::linear(n_loss_blocks(n_rows) as u32, lanes::block_threads(N_THREADS as u32, lanes))
}

/// Launch of [`loss_totals()`]: one block, a warp for each number, or one thread for all.
pub const fn loss_totals_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads((N_PARTS * N_LANES) as u32, lanes))
}

/// First stage: each block's sums over its stretch of rows.
///
/// Shapes: row_losses `[B, 4]`; q `[B, 13]`, or `[0]` without statistics of Q, which are then 0; rewards `[B]`; partials
/// [[`loss_partials_len`] (B)]. Launch: [`loss_partials_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn loss_partials(
    row_losses: GlobalSlice<f32>,
    q: GlobalSlice<f32>,
    rewards: GlobalSlice<f32>,
    partials: GlobalSliceMut<f64>,
) {
    let of_threads = shared_slice![f64; N_PARTS * N_THREADS];
    let n_blocks = thread::grid_dim_x() as usize;
    let (block, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let stretch = (rewards.len() as u32).div_ceil(n_blocks as u32) as usize;
    let end = rewards.len().min((block + 1) * stretch);
    let mut sums = [0.0; N_SUMS];
    // The whole launch takes the same way here.
    let has_q = !q.is_empty();
    let (mut q_min, mut q_max) = if has_q { (f32::INFINITY, f32::NEG_INFINITY) } else { (0.0, 0.0) };
    let mut row = block * stretch + thread;
    while row < end {
        let of_row = if has_q { QSums::of(&q.sub(row * N_ACTIONS..(row + 1) * N_ACTIONS)) } else { QSums::default() };
        let terms = sum_terms(row_losses.load(row_loss::N * row), &of_row, rewards.get(row));
        for part in 0..N_SUMS {
            sums[part] += terms[part];
        }
        (q_min, q_max) = (q_min.min(of_row.least), q_max.max(of_row.greatest));
        row += lanes::of_block(N_THREADS as u32);
    }
    if lanes::of_block(N_THREADS as u32) == 1 {
        for part in 0..N_SUMS {
            partials.set(part * n_blocks + block, sums[part]);
        }
        partials.set(Q_MIN * n_blocks + block, q_min as f64);
        partials.set(Q_MAX * n_blocks + block, q_max as f64);
        return;
    }
    for part in 0..N_SUMS {
        of_threads.set(part * N_THREADS + thread, sums[part]);
    }
    of_threads.set(Q_MIN * N_THREADS + thread, q_min as f64);
    of_threads.set(Q_MAX * N_THREADS + thread, q_max as f64);
    // Between each thread's writes and each warp's reads of some numbers of all.
    thread::sync_threads();
    let mut part = thread / N_LANES;
    while part < N_PARTS {
        let of_part = of_threads.sub(part * N_THREADS..(part + 1) * N_THREADS);
        let value = combined(part, N_THREADS, |index| of_part.get(index));
        if thread.is_multiple_of(N_LANES) {
            partials.set(part * n_blocks + block, value);
        }
        part += N_WARPS;
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
    let part = thread / N_LANES;
    let n_blocks = partials.len() / N_PARTS;
    if lanes::of_block((N_PARTS * N_LANES) as u32) == 1 {
        let of_part = |part| {
            (0..n_blocks)
                .fold(neutral(part), |value, block| combine(part, value, partials.get(part * n_blocks + block)))
        };
        totals.set(0, totals_of(of_part, n_rows, alpha_cql));
        return;
    }
    let of_part = partials.sub(part * n_blocks..(part + 1) * n_blocks);
    let value = combined(part, n_blocks, |block| of_part.get(block));
    if thread.is_multiple_of(N_LANES) {
        results.set(part, value);
    }
    // Between each warp's write and the first thread's reads of all.
    thread::sync_threads();
    if thread == 0 {
        totals.set(0, totals_of(|part| results.get(part), n_rows, alpha_cql));
    }
}

/// `n` values of a part combined by a warp; every lane gets the result.
#[inline(always)]
fn combined(part: usize, n: usize, value: impl Fn(usize) -> f64) -> f64 {
    let mut mine = neutral(part);
    let mut index = thread::thread_idx_x() as usize % N_LANES;
    while index < n {
        mine = combine(part, mine, value(index));
        index += N_LANES;
    }
    lanes::all(mine, |a, b| combine(part, a, b))
}

/// What changes no value of a part.
#[inline(always)]
fn neutral(part: usize) -> f64 {
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

/// What a row's Q add up to.
#[derive(Default)]
struct QSums {
    sum: f64,
    squares: f64,
    /// Of the greatest Q of each branch.
    best: f64,
    least: f32,
    greatest: f32,
}

impl QSums {
    /// Of q \[13\].
    #[inline(always)]
    fn of(q: &GlobalSlice<f32>) -> Self {
        let mut sums = Self { sum: 0.0, squares: 0.0, best: 0.0, least: f32::INFINITY, greatest: f32::NEG_INFINITY };
        sums.add::<4>(q, 0);
        sums.add::<3>(q, first_action(1));
        sums.add::<3>(q, first_action(2));
        sums.add::<3>(q, first_action(3));
        sums
    }

    /// Adds a branch. Products of two f32 are exact in f64.
    #[inline(always)]
    fn add<const N: usize>(&mut self, q: &GlobalSlice<f32>, first: usize) {
        let mut best = f32::NEG_INFINITY;
        for action in 0..N {
            let q = q.get(first + action);
            self.sum += q as f64;
            self.squares += q as f64 * q as f64;
            self.least = self.least.min(q);
            best = best.max(q);
        }
        self.best += best as f64;
        self.greatest = self.greatest.max(best);
    }
}

/// A row's part of the sums, in the order that [`totals_of`] takes them in.
#[inline(always)]
fn sum_terms(losses: [f32; row_loss::N], q: &QSums, reward: f32) -> [f64; N_SUMS] {
    let [weighted_ce, td, squared_gap, cql] = losses;
    let (weighted_ce, td, squared_gap, cql) = (weighted_ce as f64, td as f64, squared_gap as f64, cql as f64);
    let reward = reward as f64;
    [weighted_ce, td, td * td, squared_gap, cql, q.sum, q.squares, q.best, reward, reward * reward]
}

#[inline(always)]
fn totals_of(part: impl Fn(usize) -> f64, n_rows: u32, alpha_cql: f32) -> LossTotals {
    let n = n_rows as f64;
    let n_q = n * N_ACTIONS as f64;
    let (weighted_ce, cql) = (part(0) / n, part(4) / n);
    LossTotals {
        weighted_ce: weighted_ce as f32,
        td_mean: (part(1) / n) as f32,
        td_var: variance(part(1), part(2), n),
        mse: (part(3) / n) as f32,
        cql: cql as f32,
        objective: (weighted_ce + alpha_cql as f64 * cql) as f32,
        q_mean: (part(5) / n_q) as f32,
        q_min: part(Q_MIN) as f32,
        q_max: part(Q_MAX) as f32,
        q_variance: variance(part(5), part(6), n_q),
        avg_max_q: (part(7) / (n * N_BRANCHES as f64)) as f32,
        reward_mean: (part(8) / n) as f32,
        reward_var: variance(part(8), part(9), n),
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
