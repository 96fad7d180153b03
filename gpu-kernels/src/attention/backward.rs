//! The backward pass.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::axis::{Axis, Place, TILE, each_units};
use super::bars::Bars;
use super::channels::Channels;
use super::forward::{Inputs, Made, TILE_BYTES, add, attend, embed, norm_bars, scale, take_bars};
use super::parameters::{Block, EMBED, EMBED_BIAS, Parameters, n_parameters};
use super::softmax::softmax_backward;
use super::{N_FEATURES, WIDTH, attention_n_parts};
use crate::floats::{Vector, with_widest};
use crate::four::Four;
use crate::tile::{ROWS, Taker, Team, Tile, tiles};
use crate::tile_product::{EACH_ROWS, Rows, tn, wide};

/// f32 that a block keeps of the attention over bars while it works on the one over channels: six arrays of a tile.
pub const KEPT: usize = 6 * TILE;

/// Launch of [`attention_backward()`] for `n_rows` rows of `window` bars, in blocks of `n_threads`: 256 on a GPU, 1 on the CPU.
pub const fn attention_backward_shape(n_rows: usize, window: usize, n_threads: u32) -> LaunchShape {
    let shared = 11 * TILE_BYTES + 2 * 4 * (ROWS * WIDTH) as u32;
    LaunchShape::linear(attention_n_parts(n_rows, window, n_threads) as u32, n_threads).with_shared(shared)
}

/// Each block's gradients of the parameters, over its rows, by the gradient of the output.
///
/// Shapes: rows, operands, parameters and positions as [`attention_forward()`](super::attention_forward()); doutput `[R, 64]`; kept
/// `[`[`attention_n_parts`]`, `[`KEPT`]`]`, scratch; parts `[`[`attention_n_parts`]`, `[`n_parameters`]`]`, overwritten. Launch:
/// [`attention_backward_shape`]; [`attention_gradient()`](super::attention_gradient()) adds the parts.
#[kernel(cooperative, max_threads = 256)]
pub fn attention_backward(
    rows: GlobalSlice<f32>,
    operands: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    positions: GlobalSlice<f32>,
    doutput: GlobalSlice<f32>,
    kept: GlobalSliceMut<f32>,
    parts: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
    precision: Precision,
) {
    let p = Parameters { operands: &operands, flat: &parameters, precision };
    let (block, n_parameters) = (thread::block_idx_x() as usize, n_parameters(window as usize));
    let part = parts.sub(block * n_parameters..(block + 1) * n_parameters);
    let kept = kept.sub(block * KEPT..(block + 1) * KEPT);
    let inputs = Inputs { rows: &rows, stride: stride as usize, window: window as usize, positions: &positions };
    with_widest!(backward(&p, &inputs, &doutput, &kept, &part));
}

#[inline(always)]
fn backward<V: Vector>(
    p: &Parameters<'_>,
    inputs: &Inputs<'_>,
    doutput: &GlobalSlice<f32>,
    kept: &GlobalSliceMut<f32>,
    part: &GlobalSliceMut<f32>,
) {
    let Inputs { rows, stride, window, positions } = *inputs;
    let team = Team::new();
    for at in team.each(part.len() / 4) {
        part.store(4 * at, [0.0f32; 4]);
    }
    let mut taker = Taker::from(0);
    let (x, operand, q, k) = (taker.take(TILE), taker.take(TILE), taker.take(TILE), taker.take(TILE));
    let (v, mixed, dq, dk) = (taker.take(TILE), taker.take(TILE), taker.take(TILE), taker.take(TILE));
    let (dv, scores, dscores) = (taker.take(TILE), taker.take(TILE), taker.take(TILE));
    let (dmean, scales) = (taker.take(ROWS * WIDTH), taker.take(ROWS * WIDTH));
    let made = Made { x, operand, q, k, v, mixed };
    let back = Back { dq, dk, dv, scores, dscores, scales };
    for tile in tiles(rows.len() / stride, window) {
        let place = Place::<V>::new(tile, team, p.precision);
        take_doutput(doutput, &dmean, tile, team);
        // Its barriers also stand between the zeros above and their sums, and behind the gradient of the means.
        embed(p, rows, positions, stride, &made, &scores, place);
        attend::<V, Bars>(p, &made, &scores, place);
        each_kept(
            &made,
            place,
            #[inline(always)]
            |array, first, at| kept.store(first + at, array.load::<4>(at)),
        );
        // The norm overwrites what is copied.
        thread::sync_threads();
        norm_bars(p, &made, place);
        attend::<V, Channels>(p, &made, &scores, place);
        let window = tile.window;
        let row = |at: usize| at / WIDTH / window;
        let of_mean = |at: usize| Four::new(dmean.load(row(at) * WIDTH + at % WIDTH));
        attend_backward::<V, Channels>(p, &made, &made.x, of_mean, &back, part, place);
        // X + MHA(X) of the bars goes where the gradient by it will lie as an operand, since x holds the gradient by what follows it.
        let restored = Made { x: back.dq, ..made };
        each_kept(
            &restored,
            place,
            #[inline(always)]
            |array, first, at| array.store(at, kept.load::<4>(first + at)),
        );
        // What the attention over bars made is complete.
        thread::sync_threads();
        let of_x = |at: usize| Four::new(made.x.load(at));
        attend_backward::<V, Bars>(p, &made, &restored.x, of_x, &back, part, place);
        embed_backward(rows, stride, &made, &scores, part, place);
        // The next tile overwrites what the sums have read.
        thread::sync_threads();
    }
}

/// What the backward pass of one attention makes besides, arrays `[bars, 64]`.
struct Back {
    /// Gradients by queries, keys and values, operands; `dq` is the gradient by the norm's input before, as an operand.
    dq: SharedSlice<f32>,
    dk: SharedSlice<f32>,
    dv: SharedSlice<f32>,
    /// Scores of some heads, and gradients by them.
    scores: SharedSlice<f32>,
    dscores: SharedSlice<f32>,
    /// A number for each token.
    scales: SharedSlice<f32>,
}

/// Runs over the arrays that are kept, four elements at a time: the array, where it begins among what is kept, and the element. Each by
/// name, since an array of them would lie in local memory.
#[inline(always)]
fn each_kept<V: Vector>(made: &Made, place: Place<V>, run: impl Fn(&SharedSlice<f32>, usize, usize)) {
    for at in place.team.each(place.tile.n_bars() * WIDTH / 4).map(|piece| 4 * piece) {
        run(&made.x, 0, at);
        run(&made.operand, TILE, at);
        run(&made.q, 2 * TILE, at);
        run(&made.k, 3 * TILE, at);
        run(&made.v, 4 * TILE, at);
        run(&made.mixed, 5 * TILE, at);
    }
}

/// The gradient by the norm's output, which is that of every bar's: the mean's over T.
#[inline(always)]
fn take_doutput(doutput: &GlobalSlice<f32>, to: &SharedSlice<f32>, tile: Tile, team: Team) {
    let over_window = Four::splat(1.0 / tile.window as f32);
    for at in team.each(tile.n_rows * WIDTH / 4) {
        let d = Four::new(doutput.load(tile.first_row * WIDTH + 4 * at));
        to.store(4 * at, (d * over_window).lanes());
    }
}

/// From the gradient by an attention's norm to that by its input X, which it leaves in `made.x`; `residual` is X + MHA(X). Adds the
/// gradients of its tensors to `part`. Ends with a barrier.
#[inline(always)]
fn attend_backward<V: Vector, A: Axis>(
    p: &Parameters<'_>,
    made: &Made,
    residual: &SharedSlice<f32>,
    dnormed: impl Fn(usize) -> Four,
    back: &Back,
    part: &GlobalSliceMut<f32>,
    place: Place<V>,
) {
    let window = place.tile.window;
    let (block, n_tokens) = (A::block(window), A::n_tokens(window));
    let rounded = |to: SharedSlice<f32>| {
        #[inline(always)]
        move |at: usize, d: Four| to.store(at, d.rounded(place.precision).lanes())
    };
    let dresidual = back.dq;
    A::norm_backward(
        p,
        residual,
        dnormed,
        &back.scales,
        part,
        place,
        #[inline(always)]
        |at, d| {
            made.x.store(at, d.lanes());
            rounded(dresidual)(at, d);
        },
    );
    A::add_weight_gradient(&dresidual, &made.mixed, &matrix_of(part, block, 3), place);
    // The sums have read what the gradient by it overwrites.
    thread::sync_threads();
    let dmixed = made.mixed;
    A::project_back(&dresidual, &p.of_block(block, 3), place, rounded(dmixed));
    // The gradient by P V is complete.
    thread::sync_threads();
    let scale = scale(block.width);
    let scaled = |to: SharedSlice<f32>| {
        #[inline(always)]
        move |at: usize, d: Four| to.store(at, (d * Four::splat(scale)).rounded(place.precision).lanes())
    };
    for units in each_units::<A>(place.tile) {
        A::compare(units, &made.k, &made.q, &back.scores, place);
        A::compare(units, &made.v, &dmixed, &back.dscores, place);
        // Scores and the gradient by the weights are complete.
        thread::sync_threads();
        softmax_backward(units, n_tokens, scale, &back.scores, &back.dscores, place);
        A::sum_keys(units, &back.dscores, &made.k, place, scaled(back.dq));
        A::sum_queries(units, &back.dscores, &made.q, place, scaled(back.dk));
        A::sum_queries(units, &back.scores, &dmixed, place, rounded(back.dv));
        // The next units overwrite weights and scores.
        thread::sync_threads();
    }
    project_in_backward::<V, A>(p, made, 0, &back.dq, part, place);
    project_in_backward::<V, A>(p, made, 1, &back.dk, part, place);
    project_in_backward::<V, A>(p, made, 2, &back.dv, part, place);
    // The gradient by X is complete.
    thread::sync_threads();
}

/// Through W_q, W_k or W_v, number `number`: adds d W to the gradient by X, and d^T X to `part`.
#[inline(always)]
fn project_in_backward<V: Vector, A: Axis>(
    p: &Parameters<'_>,
    made: &Made,
    number: usize,
    d: &SharedSlice<f32>,
    part: &GlobalSliceMut<f32>,
    place: Place<V>,
) {
    let block = A::block(place.tile.window);
    A::project_back(
        d,
        &p.of_block(block, number),
        place,
        #[inline(always)]
        |at, dx| add(&made.x, at, dx),
    );
    A::add_weight_gradient(d, &made.operand, &matrix_of(part, block, number), place);
}

/// The gradient of an attention's matrix.
#[inline(always)]
fn matrix_of<'a>(part: &'a GlobalSliceMut<f32>, block: Block, number: usize) -> GlobalSliceMut<'a, f32> {
    let first = block.matrix(number);
    part.sub(first..first + block.width * block.width)
}

/// dW_e = dX^T x and the bias's. Works in `scratch` and over the operands.
#[inline(always)]
fn embed_backward<V: Vector>(
    rows: &GlobalSlice<f32>,
    stride: usize,
    made: &Made,
    scratch: &SharedSlice<f32>,
    part: &GlobalSliceMut<f32>,
    place: Place<V>,
) {
    let n_bars = place.tile.n_bars();
    for at in place.team.each(n_bars * WIDTH / 4).map(|piece| 4 * piece) {
        let dx = Four::new(made.x.load(at));
        made.operand.store(at, dx.rounded(place.precision).lanes());
    }
    // Its barrier also stands behind the operands.
    take_bars(rows, stride, scratch, place);
    for column in place.team.each(WIDTH / 4).map(|piece| 4 * piece) {
        let mut sum = Four::new(part.load(EMBED_BIAS + column));
        for bar in 0..n_bars {
            sum = sum + Four::new(made.x.load(bar * WIDTH + column));
        }
        part.store(EMBED_BIAS + column, sum.lanes());
    }
    // Features are no whole number of the widest vectors.
    let pieces = place.team.each(WIDTH / EACH_ROWS * (N_FEATURES / wide::<Four>()));
    let weight = part.sub(EMBED..EMBED + WIDTH * N_FEATURES);
    tn::<Four>(Rows::new(made.operand, WIDTH), Rows::new(*scratch, N_FEATURES), n_bars, N_FEATURES, &weight, pieces);
}
