//! What the two attentions have in common, and what each of them does in its own way.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{Block, Parameters};
use super::{N_HEADS, WIDTH};
use core::marker::PhantomData;

use crate::floats::Vector;
use crate::four::Four;
use crate::tile::{BARS, Team, Tile};
use crate::tile_product::Matrix;

/// Elements of a tile's bars, and of what holds scores.
pub(super) const TILE: usize = BARS * WIDTH;

/// Where a stage works: on which rows, by which threads, in which precision and in which vectors.
#[derive(Clone, Copy)]
pub(super) struct Place<V> {
    pub tile: Tile,
    pub team: Team,
    pub precision: Precision,
    vector: PhantomData<V>,
}

impl<V> Place<V> {
    #[inline(always)]
    pub fn new(tile: Tile, team: Team, precision: Precision) -> Self {
        Self { tile, team, precision, vector: PhantomData }
    }
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
    fn project<V: Vector>(x: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four));

    /// dx = dy W of every token.
    fn project_back<V: Vector>(dy: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four));

    /// Adds dW = dy^T x to the matrix at the start of `to`.
    fn add_weight_gradient<V: Vector>(
        dy: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        to: &GlobalSliceMut<f32>,
        place: Place<V>,
    );

    /// scores\[a, b\] = x_a . y_b over a head's columns, of all tokens a and b of a unit.
    fn compare<V: Vector>(
        units: Units,
        x: &SharedSlice<f32>,
        y: &SharedSlice<f32>,
        scores: &SharedSlice<f32>,
        place: Place<V>,
    );

    /// y_b = sum_a scores\[a, b\] x_a.
    fn sum_keys<V: Vector>(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    );

    /// y_a = sum_b scores\[a, b\] x_b.
    fn sum_queries<V: Vector>(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    );

    /// The gradient by RMSNorm's input x, from `dy`, which gives four elements of the gradient by its output. Adds the gain's to
    /// `part`. `scale` has room for a number a token. `put` may write x and what `dy` reads. Ends with a barrier.
    fn norm_backward<V: Vector>(
        p: &Parameters<'_>,
        x: &SharedSlice<f32>,
        dy: impl Fn(usize) -> Four,
        scale: &SharedSlice<f32>,
        part: &GlobalSliceMut<f32>,
        place: Place<V>,
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

/// Gives the four rows of [`four_dots`](crate::tile_product::four_dots) to `put`, the first at `first`, `stride` apart. Written out,
/// here and in [`put_rows`]: as a loop it would keep the sums in local memory.
#[inline(always)]
pub(super) fn put_fours([a, b, c, d]: [Four; 4], first: usize, stride: usize, put: &impl Fn(usize, Four)) {
    put(first, a);
    put(first + stride, b);
    put(first + 2 * stride, c);
    put(first + 3 * stride, d);
}

/// Gives M rows of two vectors, M at most 4, to `put`, the first at `first` of an array `[bars, 64]`.
#[inline(always)]
pub(super) fn put_rows<V: Vector, const M: usize>(sums: [[V; 2]; M], first: usize, put: &impl Fn(usize, Four)) {
    put_row(sums[0], first, put);
    if M > 1 {
        put_row(sums[1], first + WIDTH, put);
    }
    if M > 2 {
        put_row(sums[2], first + 2 * WIDTH, put);
    }
    if M > 3 {
        put_row(sums[3], first + 3 * WIDTH, put);
    }
}

#[inline(always)]
fn put_row<V: Vector>([low, high]: [V; 2], first: usize, put: &impl Fn(usize, Four)) {
    low.each_four(first, put);
    high.each_four(first + V::N, put);
}

/// 1 / sqrt(mean of squares + 1e-5), from the sum of squares of `width` elements.
#[inline(always)]
pub(super) fn inverse_rms(sum_of_squares: f32, width: usize) -> f32 {
    1.0 / crate::math::sqrt(sum_of_squares / width as f32 + crate::tile::RMS_EPSILON)
}
