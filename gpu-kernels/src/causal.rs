//! Causal sensitivity: what the highest Q gains or loses when one feature of the last bar alone is another row's.
//!
//! Of R rows of the batch, for each last-bar feature f: row i takes row (i + s) mod R's value, s = 1 + floor(xi (R - 1)), and
//! sensitivity_f = mean over rows and branches of |max_a Q - max_a Q_do|. All F interventions and the rows as they are go through
//! the network as one pass of (F + 1) R rows, in the order: as they are, feature 0, feature 1, ...

use cuda_std::prelude::*;
use shared_types::market::{N_BRANCHES, N_FEATURES};
use shared_types::{Readback, stream};

use crate::heads::{N_ACTIONS, first_action};
use crate::lanes::{self, N_LANES};
use crate::philox;
use crate::sweep::VECTOR;

/// Rows of a batch that are looked at, at most.
const N_ROWS_MAX: usize = 256;
/// A warp for each feature.
const N_THREADS: u32 = (N_FEATURES * N_LANES) as u32;

/// R of a batch of `n`.
pub const fn n_rows(n: usize) -> usize {
    if n < N_ROWS_MAX { n } else { N_ROWS_MAX }
}

/// Rows of the pass.
pub const fn n_pass_rows(n: usize) -> usize {
    (N_FEATURES + 1) * n_rows(n)
}

/// Launch of [`causal_rows()`]: as many threads as are busy at once, since most steps send them home.
pub const fn causal_rows_shape() -> LaunchShape {
    LaunchShape::linear(256, 256)
}

/// Launch of [`causal_sensitivity()`]: one block, a warp a feature, or one thread for all.
pub const fn causal_sensitivity_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// Writes the rows of the pass.
///
/// Shapes: states `[B, stride]`, stride a multiple of 4, the last bar's features from `last_bar` on; step \[1\], rng_step; rows
/// `[(F + 1) R, stride]`. Launch: [`causal_rows_shape`].
#[kernel(conditional)]
pub fn causal_rows(
    states: GlobalSlice<f32>,
    step: GlobalSlice<u32>,
    rows: GlobalSliceMut<f32>,
    seed: [u32; 2],
    stride: u32,
    last_bar: u32,
) {
    let (first, stride) = (thread::index_1d() as usize, stride as usize);
    let n_rows = rows.len() / stride / (N_FEATURES + 1);
    let xi = philox::uniform(seed, stream::CAUSAL, step.get(0), 0);
    let shift = 1 + (xi * (n_rows - 1) as f32) as usize;
    let n_threads = (thread::grid_dim_x() * thread::block_dim_x()) as usize;
    for at in (first * VECTOR..rows.len()).step_by(n_threads * VECTOR) {
        let (row, column) = (at / stride, at % stride);
        let (intervention, row) = (row / n_rows, row % n_rows);
        let mut values: [f32; VECTOR] = states.load(row * stride + column);
        if intervention > 0 {
            let feature = last_bar as usize + intervention - 1;
            for (i, value) in values.iter_mut().enumerate() {
                if column + i == feature {
                    *value = states.get((row + shift) % n_rows * stride + feature);
                }
            }
        }
        rows.store(at, values);
    }
}

/// Each feature's sensitivity, and their mean, for the host and for [`isv_update`](crate::isv::isv_update()); the host is not told a
/// mean that is no number.
///
/// Shapes: q `[(F + 1) R, 13]` of the pass; sensitivity \[F\]; mean \[1\]; readback \[1\], of which it writes `causal_mean_sens`.
/// Launch: [`causal_sensitivity_shape`].
#[kernel(cooperative, conditional, max_threads = 768, min_blocks = 1)]
pub fn causal_sensitivity(
    q: GlobalSlice<f32>,
    sensitivity: GlobalSliceMut<f32>,
    mean: GlobalSliceMut<f32>,
    readback: GlobalSliceMut<Readback>,
) {
    let n_rows = q.len() / N_ACTIONS / (N_FEATURES + 1);
    if lanes::of_block(N_THREADS) == 1 {
        for feature in 0..N_FEATURES {
            let sum: f32 = (0..n_rows).map(|row| difference(&q, feature, row, n_rows)).sum();
            sensitivity.set(feature, sum / (n_rows * N_BRANCHES) as f32);
        }
        tell(&sensitivity, &mean, &readback);
        return;
    }
    let thread = thread::thread_idx_x() as usize;
    let (feature, lane) = (thread / N_LANES, thread % N_LANES);
    let mut sum = 0.0;
    for row in (lane..n_rows).step_by(N_LANES) {
        sum += difference(&q, feature, row, n_rows);
    }
    let sum = lanes::all(sum, |a, b| a + b);
    if lane == 0 {
        sensitivity.set(feature, sum / (n_rows * N_BRANCHES) as f32);
    }
    // Between each warp's write of its feature and one thread's reads of all.
    thread::sync_threads();
    if thread == 0 {
        tell(&sensitivity, &mean, &readback);
    }
}

/// Sum over branches of |max_a Q - max_a Q_do| of a row.
#[inline(always)]
fn difference(q: &GlobalSlice<f32>, feature: usize, row: usize, n_rows: usize) -> f32 {
    let most = |row: usize, branch: usize| {
        let (first, next) = (first_action(branch), first_action(branch + 1));
        let mut most = q.get(row * N_ACTIONS + first);
        for action in first + 1..next {
            most = most.max(q.get(row * N_ACTIONS + action));
        }
        most
    };
    let mut sum = 0.0;
    for branch in 0..N_BRANCHES {
        sum += (most(row, branch) - most((feature + 1) * n_rows + row, branch)).abs();
    }
    sum
}

#[inline(always)]
fn tell(sensitivity: &GlobalSliceMut<f32>, mean: &GlobalSliceMut<f32>, readback: &GlobalSliceMut<Readback>) {
    let mut sum = 0.0;
    for feature in 0..N_FEATURES {
        sum += sensitivity.get(feature);
    }
    let found = sum / N_FEATURES as f32;
    mean.set(0, found);
    if found.is_finite() {
        readback.set(0, Readback { causal_mean_sens: found, ..readback.get(0) });
    }
}
