//! Causal sensitivity (section 6.8): what max Q loses or gains when one feature of the last bar comes from another row.

use crate::c51::Distributions;
use crate::config::{Config, N_BRANCHES};
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::network;
use crate::trunk::TrunkContext;

/// Rows at most.
pub const N_CAUSAL_ROWS: usize = 256;

/// s = 1 + floor(xi (R - 1)).
pub fn shift(xi: f64, n_rows: usize) -> usize {
    1 + (xi * (n_rows - 1) as f64).floor() as usize
}

/// States of the first R rows with last-bar feature `feature` taken from row (i + s) mod R.
pub fn intervened(config: &Config, states: &Matrix, feature: usize, shift: usize) -> Matrix {
    let s = &config.sizes;
    let n_rows = states.n_rows.min(N_CAUSAL_ROWS);
    let column = (s.window - 1) * s.features + feature;
    let mut changed = states.rows(0..n_rows);
    for i in 0..n_rows {
        changed[(i, column)] = states[((i + shift) % n_rows, column)];
    }
    changed
}

/// Mean over rows and branches of |max_a Q - max_a Q_do|.
pub fn difference(before: &Distributions, after: &Distributions) -> f64 {
    let max = |d: &Distributions, i: usize, b: usize| d.q[b].row(i).iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let n_rows = after.q[0].n_rows;
    let sum: f64 = (0..n_rows)
        .flat_map(|i| (0..N_BRANCHES).map(move |b| (i, b)))
        .map(|(i, b)| (max(before, i, b) - max(after, i, b)).abs())
        .sum();
    sum / (n_rows * N_BRANCHES) as f64
}

/// Sensitivity of each feature `[F]`. `context` carries keep probabilities, not masks.
pub fn sensitivities(
    config: &Config,
    p: &Tensors,
    states: &Matrix,
    context: &TrunkContext,
    atoms: &[Vec<f64>],
    xi: f64,
) -> Vec<f64> {
    let n_rows = states.n_rows.min(N_CAUSAL_ROWS);
    let run = |states: &Matrix| network::forward(config, p, p, states, context, atoms).distributions;
    let before = run(&states.rows(0..n_rows));
    (0..config.sizes.features)
        .map(|f| difference(&before, &run(&intervened(config, states, f, shift(xi, n_rows)))))
        .collect()
}
