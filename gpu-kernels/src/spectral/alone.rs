//! A block of one thread, as blocks are on the CPU: the three launches' work without warps and barriers.
//!
//! W^T u over a slab adds in the order that the block of many threads has; the other sums are [`crate::alone`]'s.

use cuda_std::prelude::*;

use super::{POWER_EPSILON, SLAB, VECTOR};
use crate::sweep::{self, Vector, each, unrolled};
use crate::{alone, math};

/// Vectors of columns whose sums go on side by side.
const SIDE_BY_SIDE: usize = 4;

/// W^T u over rows `rows` of a matrix of `n_cols` columns, to `out` on.
#[inline(always)]
pub(super) fn columns(
    w: &GlobalSlice<f32>,
    u: &GlobalSlice<f32>,
    rows: core::ops::Range<usize>,
    n_cols: usize,
    partials: &GlobalSliceMut<f32>,
    out: usize,
) {
    let middle = rows.end.min(rows.start + SLAB / 2);
    let mut at = 0;
    while at + SIDE_BY_SIDE * VECTOR <= n_cols {
        let upper = strip::<SIDE_BY_SIDE>(w, u, rows.start..middle, n_cols, at);
        let lower = strip::<SIDE_BY_SIDE>(w, u, middle..rows.end, n_cols, at);
        unrolled::<SIDE_BY_SIDE>(|i| {
            partials.store::<VECTOR>(out + at + i * VECTOR, each(|k| upper[i][k] + lower[i][k]));
        });
        at += SIDE_BY_SIDE * VECTOR;
    }
    while at < n_cols {
        let [upper] = strip::<1>(w, u, rows.start..middle, n_cols, at);
        let [lower] = strip::<1>(w, u, middle..rows.end, n_cols, at);
        partials.store::<VECTOR>(out + at, each(|k| upper[k] + lower[k]));
        at += VECTOR;
    }
}

/// W^T u over `rows` of N vectors of columns from `at`.
#[inline(always)]
fn strip<const N: usize>(
    w: &GlobalSlice<f32>,
    u: &GlobalSlice<f32>,
    rows: core::ops::Range<usize>,
    n_cols: usize,
    at: usize,
) -> [Vector; N] {
    let mut sums = [[0.0; VECTOR]; N];
    for row in rows {
        let by = u.get(row);
        unrolled::<N>(|i| {
            let weights: Vector = w.load(row * n_cols + at + i * VECTOR);
            sweep::add(&mut sums[i], |k| weights[k] * by);
        });
    }
    sums
}

/// The norm that v is divided by; v holds W^T u.
#[inline(always)]
pub(super) fn length(v: &SharedSlice<f32>, n_cols: usize) -> f32 {
    math::sqrt(alone::sum(0..n_cols, |at| v.load::<VECTOR>(at).map(|x| x * x))) + POWER_EPSILON
}

/// A row of W times v.
#[inline(always)]
pub(super) fn product(w: &GlobalSlice<f32>, v: &SharedSlice<f32>, row: usize, n_cols: usize) -> f32 {
    alone::sum(0..n_cols, |at| {
        let (weights, by): (Vector, Vector) = (w.load(row * n_cols + at), v.load(at));
        each(|k| weights[k] * by[k])
    })
}

/// Squared norm of a matrix's products W v.
#[inline(always)]
pub(super) fn squares(products: &GlobalSlice<f32>) -> f32 {
    alone::sum_of(products.len(), |row| products.get(row) * products.get(row))
}

/// sigma: the products times themselves divided by `length`.
#[inline(always)]
pub(super) fn sigma(products: &GlobalSlice<f32>, length: f32) -> f32 {
    alone::sum_of(products.len(), |row| products.get(row) / length * products.get(row))
}
