//! What the two attentions have in common, and what each of them does in its own way.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{Block, Parameters};
use super::{N_HEADS, WIDTH};
use crate::four::Four;
use crate::tile::{BARS, Team, Tile};
use crate::tile_product::{Matrix, NT_COLUMNS, Operand, dots};

/// Elements of a tile's bars, and of what holds scores.
pub(super) const TILE: usize = BARS * WIDTH;

/// Where a stage works: on which rows, by which threads, in which precision.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub tile: Tile,
    pub team: Team,
    pub precision: Precision,
}

/// Heads of rows that are gone through together: unit u is head u mod 4 of row u / 4 of the tile. The scores of unit
/// `first` + i begin at i n^2 of their array, n being the tokens of a row.
#[derive(Clone, Copy)]
pub(super) struct Units {
    pub first: usize,
    pub n: usize,
}

/// One of the two attentions. Every array of a tile is `[bars, 64]`; `put` gets where four elements belong in it, and those.
pub(super) trait Axis {
    /// Where its tensors lie.
    fn block(window: usize) -> Block;

    /// Tokens of a row.
    fn n_tokens(window: usize) -> usize;

    /// y = x W^T of every token.
    fn project(x: &SharedSlice<f32>, w: &Matrix<'_>, place: Place, put: impl Fn(usize, Four));

    /// dx = dy W of every token.
    fn project_back(dy: &SharedSlice<f32>, w: &Matrix<'_>, place: Place, put: impl Fn(usize, Four));

    /// Adds dW = dy^T x to the matrix at the start of `to`.
    fn add_weight_gradient(dy: &SharedSlice<f32>, x: &SharedSlice<f32>, to: &GlobalSliceMut<f32>, place: Place);

    /// scores\[a, b\] = x_a . y_b over a head's columns, of all tokens a and b of a unit.
    fn compare(units: Units, x: &SharedSlice<f32>, y: &SharedSlice<f32>, scores: &SharedSlice<f32>, place: Place);

    /// y_b = sum_a scores\[a, b\] x_a.
    fn sum_keys(units: Units, scores: &SharedSlice<f32>, x: &SharedSlice<f32>, place: Place, put: impl Fn(usize, Four));

    /// y_a = sum_b scores\[a, b\] x_b.
    fn sum_queries(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place,
        put: impl Fn(usize, Four),
    );

    /// The gradient by RMSNorm's input x, from `dy`, which gives four elements of the gradient by its output. Adds the gain's to
    /// `part`. `scale` has room for a number a token. `put` may write x and what `dy` reads. Ends with a barrier.
    fn norm_backward(
        p: &Parameters<'_>,
        x: &SharedSlice<f32>,
        dy: impl Fn(usize) -> Four,
        scale: &SharedSlice<f32>,
        part: &GlobalSliceMut<f32>,
        place: Place,
        put: impl Fn(usize, Four),
    );
}

/// All units, as many together as `TILE` scores take. An iterator, since a closure's call would not be inlined.
#[inline(always)]
pub(super) fn each_units<A: Axis>(tile: Tile) -> impl Iterator<Item = Units> {
    let (n_tokens, n_units) = (A::n_tokens(tile.window), N_HEADS * tile.n_rows);
    let together = TILE / (n_tokens * n_tokens);
    (0..n_units).step_by(together).map(move |first| Units { first, n: together.min(n_units - first) })
}

/// A B^T over K columns of each: rows `row..row + 4` of A, four columns of the product from `column` on.
#[inline(always)]
pub(super) fn four_dots<const K: usize>(a: &impl Operand, row: usize, b: &impl Operand, column: usize) -> [Four; 4] {
    let low = dots::<K>(a, row, b, [column, column + 1]);
    let high = dots::<K>(a, row, b, [column + NT_COLUMNS, column + NT_COLUMNS + 1]);
    let row = |i: usize| Four::new([low[i][0], low[i][1], high[i][0], high[i][1]]);
    [row(0), row(1), row(2), row(3)]
}

/// Gives [`four_dots`]' four rows to `put`, the first at `first`, `stride` apart. Written out, here and in [`put_rows`]: as a loop it would
/// keep the sums in local memory.
#[inline(always)]
pub(super) fn put_fours([a, b, c, d]: [Four; 4], first: usize, stride: usize, put: impl Fn(usize, Four)) {
    put(first, a);
    put(first + stride, b);
    put(first + 2 * stride, c);
    put(first + 3 * stride, d);
}

/// Gives M rows of eight columns, M at most 4, to `put`, the first at `first` of an array `[bars, 64]`.
#[inline(always)]
pub(super) fn put_rows<const M: usize>(sums: [[Four; 2]; M], first: usize, put: impl Fn(usize, Four)) {
    let put_row = |i: usize| {
        put(first + i * WIDTH, sums[i][0]);
        put(first + i * WIDTH + 4, sums[i][1]);
    };
    put_row(0);
    if M > 1 {
        put_row(1);
    }
    if M > 2 {
        put_row(2);
    }
    if M > 3 {
        put_row(3);
    }
}

/// 1 / sqrt(mean of squares + 1e-5), from the sum of squares of `width` elements.
#[inline(always)]
pub(super) fn inverse_rms(sum_of_squares: f32, width: usize) -> f32 {
    1.0 / crate::math::sqrt(sum_of_squares / width as f32 + crate::tile::RMS_EPSILON)
}
