//! The forward pass.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::axis::{Axis, Place, TILE, each_units, put_fours};
use super::bars::Bars;
use super::channels::Channels;
use super::parameters::{EMBED, EMBED_BIAS, Parameters};
use super::softmax::softmax;
use super::{N_FEATURES, N_HEADS, WIDTH};
use crate::floats::{Vector, with_widest};
use crate::four::Four;
use crate::math;
use crate::tile::{Taker, Team, n_tile_blocks, tiles};
use crate::tile_product::{EACH_ROWS, Rows, four_dots};

/// Launch of [`attention_forward()`] for `n_rows` rows of `window` bars, in blocks of `n_threads`: 256 on a GPU, 1 on the CPU.
pub const fn attention_forward_shape(n_rows: usize, window: usize, n_threads: u32) -> LaunchShape {
    // Two blocks a multiprocessor of an H200.
    LaunchShape::linear(n_tile_blocks(n_rows, window, 264) as u32, n_threads).with_shared(6 * TILE_BYTES)
}

/// The output of the attention for each row.
///
/// Shapes: rows `[R, stride]`, the first T F columns the bars, oldest first, F = 24; operands and parameters
/// `[`[`n_parameters`](super::n_parameters)`]`, the attention's part of the operands and of the flat parameters; positions `[T, 64]`, of
/// [`position`](super::position); output `[R, 64]`. T = window, a multiple of 4, at most 64; stride a multiple of 4.
/// Launch: [`attention_forward_shape`].
#[kernel(cooperative, conditional, max_threads = 256)]
pub fn attention_forward(
    rows: GlobalSlice<f32>,
    operands: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    positions: GlobalSlice<f32>,
    output: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
    precision: Precision,
) {
    let p = Parameters { operands: &operands, flat: &parameters, precision };
    let inputs = Inputs { rows: &rows, stride: stride as usize, window: window as usize, positions: &positions };
    with_widest!(forward(&p, &inputs, &output));
}

/// What both passes read beside the parameters.
pub(super) struct Inputs<'a> {
    /// `[R, stride]`.
    pub rows: &'a GlobalSlice<'a, f32>,
    pub stride: usize,
    /// Bars of a row.
    pub window: usize,
    /// `[T, 64]`.
    pub positions: &'a GlobalSlice<'a, f32>,
}

#[inline(always)]
fn forward<V: Vector>(p: &Parameters<'_>, inputs: &Inputs<'_>, output: &GlobalSliceMut<f32>) {
    let Inputs { rows, stride, window, positions } = *inputs;
    let team = Team::new();
    let mut taker = Taker::from(0);
    let (x, operand, q) = (taker.take(TILE), taker.take(TILE), taker.take(TILE));
    let (k, v, scores) = (taker.take(TILE), taker.take(TILE), taker.take(TILE));
    // A head's mixed values replace its queries, which its scores have used up.
    let made = Made { x, operand, q, k, v, mixed: q };
    for tile in tiles(output.len() / WIDTH, window) {
        let place = Place::<V>::new(tile, team, p.precision);
        embed(p, rows, positions, stride, &made, &scores, place);
        attend::<V, Bars>(p, &made, &scores, place);
        norm_bars(p, &made, place);
        attend::<V, Channels>(p, &made, &scores, place);
        Channels::mean_of_norm(
            p,
            &made.x,
            place,
            #[inline(always)]
            |row, channel, mean| {
                output.store((tile.first_row + row) * WIDTH + channel, mean.lanes());
            },
        );
        // The next tile overwrites what the means have read.
        thread::sync_threads();
    }
}

/// Bytes of an array of a tile.
pub(super) const TILE_BYTES: u32 = 4 * TILE as u32;

/// What the pass through one attention makes of a tile, arrays `[bars, 64]`.
#[derive(Clone, Copy)]
pub(super) struct Made {
    /// X, and X + MHA(X) behind the attention.
    pub x: SharedSlice<f32>,
    /// X as an operand.
    pub operand: SharedSlice<f32>,
    /// Queries, keys and values, operands.
    pub q: SharedSlice<f32>,
    pub k: SharedSlice<f32>,
    pub v: SharedSlice<f32>,
    /// P V of all heads, operands.
    pub mixed: SharedSlice<f32>,
}

/// Takes a tile's bars as operands `[bars, 24]` to the start of `to`. Ends with a barrier.
#[inline(always)]
pub(super) fn take_bars<V: Vector>(rows: &GlobalSlice<f32>, stride: usize, to: &SharedSlice<f32>, place: Place<V>) {
    let row_len = place.tile.window * N_FEATURES;
    for piece in place.team.each(place.tile.n_rows * row_len / 4) {
        let (row, column) = (piece * 4 / row_len, piece * 4 % row_len);
        let features = Four::new(rows.load((place.tile.first_row + row) * stride + column));
        to.store(piece * 4, features.rounded(place.precision).lanes());
    }
    // The bars are complete.
    thread::sync_threads();
}

/// X = x W_e^T + b_e + positions. Works in `scratch`. Ends with a barrier.
#[inline(always)]
pub(super) fn embed<V: Vector>(
    p: &Parameters<'_>,
    rows: &GlobalSlice<f32>,
    positions: &GlobalSlice<f32>,
    stride: usize,
    made: &Made,
    scratch: &SharedSlice<f32>,
    place: Place<V>,
) {
    take_bars(rows, stride, scratch, place);
    const ACROSS: usize = WIDTH / 4;
    let (bars, weight, window) = (Rows::new(*scratch, N_FEATURES), p.matrix(EMBED, N_FEATURES), place.tile.window);
    for piece in place.team.each(place.tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * 4);
        let sums = four_dots::<V, N_FEATURES>(&bars, bar, &weight, column);
        put_fours(sums, bar * WIDTH + column, WIDTH, &|at, sum| {
            let position = positions.load(at / WIDTH % window * WIDTH + column);
            let x = sum + p.four(EMBED_BIAS, column) + Four::new(position);
            made.x.store(at, x.lanes());
            made.operand.store(at, x.rounded(p.precision).lanes());
        });
    }
    // The embeddings are complete.
    thread::sync_threads();
}

/// X + MHA(X). Works in `scores`. Ends with a barrier.
#[inline(always)]
pub(super) fn attend<V: Vector, A: Axis>(p: &Parameters<'_>, made: &Made, scores: &SharedSlice<f32>, place: Place<V>) {
    let window = place.tile.window;
    let block = A::block(window);
    let store = |to: SharedSlice<f32>| {
        #[inline(always)]
        move |at: usize, x: Four| to.store(at, x.rounded(place.precision).lanes())
    };
    A::project(&made.operand, &p.of_block(block, 0), place, store(made.q));
    A::project(&made.operand, &p.of_block(block, 1), place, store(made.k));
    A::project(&made.operand, &p.of_block(block, 2), place, store(made.v));
    // Queries, keys and values are complete.
    thread::sync_threads();
    for units in each_units::<A>(place.tile) {
        A::compare(units, &made.k, &made.q, scores, place);
        // The scores are complete.
        thread::sync_threads();
        softmax(units, A::n_tokens(window), scale(block.width), scores, place);
        A::sum_keys(units, scores, &made.v, place, store(made.mixed));
        // The next units overwrite the weights.
        thread::sync_threads();
    }
    A::project(
        &made.mixed,
        &p.of_block(block, 3),
        place,
        #[inline(always)]
        |at, mixed| add(&made.x, at, mixed),
    );
    // X + MHA(X) is complete.
    thread::sync_threads();
}

/// 1 / sqrt(head width) of tokens of `width`.
#[inline(always)]
pub(super) fn scale(width: usize) -> f32 {
    1.0 / math::sqrt((width / N_HEADS) as f32)
}

/// X = RMSNorm(X) over bars, and as an operand. Ends with a barrier.
#[inline(always)]
pub(super) fn norm_bars<V: Vector>(p: &Parameters<'_>, made: &Made, place: Place<V>) {
    Bars::norm(
        p,
        &made.x,
        place,
        #[inline(always)]
        |at, x| {
            made.x.store(at, x.lanes());
            made.operand.store(at, x.rounded(place.precision).lanes());
        },
    );
    // What the attention over channels takes is complete.
    thread::sync_threads();
}

/// Adds to four elements.
#[inline(always)]
pub(super) fn add(to: &SharedSlice<f32>, at: usize, value: Four) {
    to.store(at, (Four::new(to.load(at)) + value).lanes());
}
