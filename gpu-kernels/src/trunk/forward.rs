//! Between the trunk's products, forwards.

use cuda_std::prelude::*;
use shared_types::{Precision, StepScalars};

use super::inverse_rms;
use crate::sweep::{self, Row, VECTOR, Vector, each};
use crate::{lanes, math, operand};

/// Launch of [`residual_out()`]: a thread for four columns of a row.
pub const fn residual_out_shape(n_rows: usize, hidden: usize) -> LaunchShape {
    LaunchShape::cover(n_rows * hidden / VECTOR, 256)
}

/// h0 = e (1 + g) + s with e = SiLU(RMSNorm(pre_in)), and n0 = RMSNorm(h0) for the first block.
///
/// Shapes: pre_in `[R, H]`, gain_in `[H]`, film `[2H]` (g, then s), next_gain `[H]`, h0 `[R, H]`, n0 operand `[R, H]`. Launch:
/// [`row_shape`](lanes::row_shape).
#[kernel(cooperative, conditional, max_threads = 256)]
pub fn trunk_entry(
    pre_in: GlobalSlice<f32>,
    gain_in: GlobalSlice<f32>,
    film: GlobalSlice<f32>,
    next_gain: GlobalSlice<f32>,
    h0: GlobalSliceMut<f32>,
    n0: GlobalSliceMut<u16>,
    precision: Precision,
) {
    let width = gain_in.len();
    let Some(row) = lanes::row_index(sweep::n_rows(pre_in.len(), width)) else { return };
    let (from, share) = (row * width, Row::new(width));
    let load = |at: usize| -> Vector { pre_in.load(from + at) };
    let pre = share.load(load);
    let mut squares = [0.0; VECTOR];
    share.sweep(&pre, load, |_, x| sweep::add(&mut squares, |k| x[k] * x[k]));
    let inverse = inverse_rms(squares, width);
    let mut squares = [0.0; VECTOR];
    let h = share.sweep(&pre, load, |at, x| {
        let (gain, g, s): (Vector, Vector, Vector) = (gain_in.load(at), film.load(at), film.load(width + at));
        let h = each(|k| math::silu(x[k] * inverse * gain[k]) * (1.0 + g[k]) + s[k]);
        h0.store(from + at, h);
        sweep::add(&mut squares, |k| h[k] * h[k]);
        h
    });
    // What is not kept this lane wrote itself.
    let again = |at: usize| h0.load(from + at);
    store_normed(&share, &h, again, squares, &next_gain, |at, n| operand::store4(&n0, from + at, n, precision));
}

/// h_next = h + m z with m the block's mask of stochastic depth, and n_next = RMSNorm(h_next) for the next block.
///
/// Shapes: h, z, h_next `[R, H]`, scalars `[1]`, of which it reads `depth_mask[block_index]` (passes without stochastic depth bring
/// scalars whose mask is the keep probability), next_gain `[H]`, n_next operand `[R, H]`. Launch: [`row_shape`](lanes::row_shape).
#[kernel(cooperative, conditional, max_threads = 256)]
pub fn residual_norm(
    h: GlobalSlice<f32>,
    z: GlobalSlice<f32>,
    scalars: GlobalSlice<StepScalars>,
    next_gain: GlobalSlice<f32>,
    h_next: GlobalSliceMut<f32>,
    n_next: GlobalSliceMut<u16>,
    block_index: u32,
    precision: Precision,
) {
    let width = next_gain.len();
    let Some(row) = lanes::row_index(sweep::n_rows(h.len(), width)) else { return };
    let (from, share) = (row * width, Row::new(width));
    let mask = depth_mask(&scalars, block_index);
    let load = |at: usize| -> (Vector, Vector) { (h.load(from + at), z.load(from + at)) };
    let mut squares = [0.0; VECTOR];
    let sums = share.sweep(&share.load(load), load, |at, (h, z)| {
        let next = each(|k| h[k] + mask * z[k]);
        h_next.store(from + at, next);
        sweep::add(&mut squares, |k| next[k] * next[k]);
        next
    });
    let again = |at: usize| h_next.load(from + at);
    store_normed(&share, &sums, again, squares, &next_gain, |at, n| operand::store4(&n_next, from + at, n, precision));
}

/// Stores RMSNorm of a row h, of which `kept` is kept and `squares` the lanes' sums of squares.
#[inline(always)]
fn store_normed(
    share: &Row,
    kept: &sweep::Kept<Vector>,
    again: impl Fn(usize) -> Vector,
    squares: Vector,
    gain: &GlobalSlice<f32>,
    store: impl Fn(usize, Vector),
) {
    let inverse = inverse_rms(squares, gain.len());
    share.sweep(kept, again, |at, h| {
        let gain: Vector = gain.load(at);
        store(at, each(|k| h[k] * inverse * gain[k]));
    });
}

/// h_next = h + m z of the last block, and the same as operands.
///
/// Shapes: h, z, h_next `[R, H]`, scalars `[1]` as of [`residual_norm()`], out operand `[R, H]`: slot 0 of the branches' input.
/// Launch: [`residual_out_shape`].
#[kernel(conditional, max_threads = 256)]
pub fn residual_out(
    h: GlobalSlice<f32>,
    z: GlobalSlice<f32>,
    scalars: GlobalSlice<StepScalars>,
    h_next: GlobalSliceMut<f32>,
    out: GlobalSliceMut<u16>,
    block_index: u32,
    precision: Precision,
) {
    let at = thread::index_1d() as usize * VECTOR;
    if at >= h.len() {
        return;
    }
    let mask = depth_mask(&scalars, block_index);
    let (h, z): (Vector, Vector) = (h.load(at), z.load(at));
    let next = each(|k| h[k] + mask * z[k]);
    h_next.store(at, next);
    operand::store4(&out, at, next, precision);
}

/// m of block `block_index`.
#[inline(always)]
pub(super) fn depth_mask(scalars: &GlobalSlice<StepScalars>, block_index: u32) -> f32 {
    let mut mask = 0.0;
    // Chosen by comparison: an index that is not constant would put the array into local memory.
    for (index, value) in scalars.get(0).depth_mask.into_iter().enumerate() {
        if index as u32 == block_index {
            mask = value;
        }
    }
    mask
}
