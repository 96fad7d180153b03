//! The backward pass by multiply-adds.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::forward::{self, Operands};
use super::parameters::{N_PARAMETERS, Parameters, offset};
use super::tile::{Back, Made};
use super::{CHANNELS, INNER, N_FEATURES, PROJECTED, SCANNED, TAPS, WIDTH, scan_backward, temporal_n_parts};
use crate::floats::{Floats, OnTarget, Vector, with_widest};
use crate::four::Four;
use crate::operand;
use crate::tile::{BARS, ROWS, Taker, Team, Tile, tiles};
use crate::tile_product::{EACH_ROWS, Rows, Separate, blends, tn, wide};

/// Launch of [`temporal_backward()`] for `n_rows` rows of `window` bars, in blocks of `n_threads`: 256 on a GPU, 1 on the CPU.
pub const fn temporal_backward_shape(n_rows: usize, window: usize, n_threads: u32) -> LaunchShape {
    LaunchShape::linear(temporal_n_parts(n_rows, window, n_threads) as u32, n_threads).with_shared(Gradients::END)
}

/// Each block's gradients of the parameters, over its rows, by the gradient of the output.
///
/// Shapes: rows, weights and parameters as [`temporal_forward()`](super::temporal_forward()); doutput `[R, doutput_stride]`, of which
/// 64 columns from `doutput_first` on are the gradient; parts
/// `[`[`temporal_n_parts`]`, `[`N_PARAMETERS`]`]`, overwritten. Launch:
/// [`temporal_backward_shape`]; [`temporal_gradient()`](super::temporal_gradient()) adds the parts.
#[kernel(cooperative, max_threads = 256)]
pub fn temporal_backward(
    rows: GlobalSlice<f32>,
    embed: GlobalSlice<u16>,
    in_proj: GlobalSlice<u16>,
    out_proj: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    doutput: GlobalSlice<f32>,
    parts: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
    doutput_stride: u32,
    doutput_first: u32,
    precision: Precision,
) {
    let p = Parameters { embed: &embed, in_proj: &in_proj, out_proj: &out_proj, flat: &parameters, precision };
    let first = thread::block_idx_x() as usize * N_PARAMETERS;
    let part = parts.sub(first..first + N_PARAMETERS);
    let rows = Bars { rows: &rows, stride: stride as usize, window: window as usize };
    let doutput = OfOutput { rows: &doutput, stride: doutput_stride as usize, first: doutput_first as usize };
    with_widest!(backward(&p, &rows, &doutput, &part));
}

/// The rows of the pass.
struct Bars<'a> {
    rows: &'a GlobalSlice<'a, f32>,
    stride: usize,
    window: usize,
}

/// The gradient of the output: 64 columns of each row from `first` on.
struct OfOutput<'a> {
    rows: &'a GlobalSlice<'a, f32>,
    stride: usize,
    first: usize,
}

#[inline(always)]
fn backward<V: Vector + OnTarget>(
    p: &Parameters<'_>,
    rows: &Bars<'_>,
    doutput: &OfOutput<'_>,
    part: &GlobalSliceMut<f32>,
) {
    let (made, back, team) = (Made::new(), Back::new(), Team::new());
    let (operands, gradients) = (Operands::new(Back::END), Gradients::new());
    for at in team.each(N_PARAMETERS / 4) {
        part.store(4 * at, [0.0f32; 4]);
    }
    for tile in tiles(rows.rows.len() / rows.stride, rows.window) {
        for index in team.each(tile.n_rows * WIDTH) {
            let (row, column) = (tile.first_row + index / WIDTH, doutput.first + index % WIDTH);
            let d = doutput.rows.get(row * doutput.stride + column);
            gradients.doutput.set(index, operand::rounded(d, p.precision));
        }
        // Its barriers also stand between the zeros above and their sums.
        forward::make::<V>(
            p,
            &made,
            &operands,
            rows.rows,
            rows.stride,
            tile,
            team,
            #[inline(always)]
            |at, x| x.store(&back.x, at),
        );
        let add = |at: usize, value: f32| part.set(at, part.get(at) + value);
        let put_dt = |bar: usize, column: usize, value: f32| {
            gradients.dprojected.set(bar * SCANNED + column, operand::rounded(value, p.precision));
        };
        let put = {
            #[inline(always)]
            |bar: usize, column: usize, values: V::Lanes| {
                values.rounded(p.precision).store(&gradients.dprojected, bar * SCANNED + column);
            }
        };
        let put_dz = {
            #[inline(always)]
            |row: usize, column: usize, values: V::Lanes| {
                values.rounded(p.precision).store(&gradients.dz, row * INNER + column);
            }
        };
        project_out::<V>(p, &operands, &gradients, part, tile, team);
        scan_backward::gate(p, &made, &back, &gradients.dnormed, tile, team, put_dz, add);
        scan_backward::scan(p, &made, &back, tile, team, put_dt);
        scan_backward::heads(&back, tile, team, add);
        let channels = team.each(CHANNELS / V::Lanes::N).map(|item| item * V::Lanes::N);
        scan_backward::convolution(
            p,
            &made,
            &back,
            tile,
            channels,
            0..tile.n_rows,
            put,
            #[inline(always)]
            |first, gradient| {
                for tap in 0..TAPS {
                    gradient.taps[tap].each(offset::CONV + first * TAPS + tap, TAPS, &mut { add });
                }
                gradient.bias.each(offset::CONV_BIAS + first, 1, &mut { add });
            },
        );
        // The gradient by in_proj's outputs is complete.
        thread::sync_threads();
        project_in::<V>(p, &made, &operands, &gradients, part, tile, team);
        embed_backward::<V::Lanes>(&made, &operands, part, tile, team);
        // The next tile overwrites what the sums have read.
        thread::sync_threads();
    }
}

/// Gradients that products take, f32 and already rounded, and RMSNorm's.
struct Gradients {
    /// By the output, operands `[rows, 64]`.
    doutput: SharedSlice<f32>,
    /// By RMSNorm's output `[rows, 128]`.
    dnormed: SharedSlice<f32>,
    /// By z of the last bars, operands `[rows, 128]`.
    dz: SharedSlice<f32>,
    /// By in_proj's other outputs, operands `[bars, 164]`.
    dprojected: SharedSlice<f32>,
}

impl Gradients {
    const START: u32 = Operands::end(Back::END);
    /// Where they end in shared memory.
    const END: u32 = Self::START + 4 * (ROWS * (WIDTH + 2 * INNER) + BARS * SCANNED) as u32;

    #[inline(always)]
    fn new() -> Self {
        let mut taker = Taker::from(Self::START);
        Self {
            doutput: taker.take(ROWS * WIDTH),
            dnormed: taker.take(ROWS * INNER),
            dz: taker.take(ROWS * INNER),
            dprojected: taker.take(BARS * SCANNED),
        }
    }
}

/// dnormed = dout W_out, dW_out = dout^T normed. Ends with a barrier.
#[inline(always)]
fn project_out<V: Vector>(
    p: &Parameters<'_>,
    operands: &Operands,
    gradients: &Gradients,
    part: &GlobalSliceMut<f32>,
    tile: Tile,
    team: Team,
) {
    let (across, weights) = (INNER / wide::<V>(), p.matrix(p.out_proj, 0, INNER));
    for piece in team.each(tile.n_rows.div_ceil(EACH_ROWS) * across) {
        let (first, column) = (piece / across * EACH_ROWS, piece % across * wide::<V>());
        // Where the rows end within a piece, its last row is made again and not stored.
        let rows: [usize; EACH_ROWS] = core::array::from_fn(|i| (first + i).min(tile.n_rows - 1));
        let left = Separate { from: gradients.doutput, first: rows.map(|row| row * WIDTH) };
        let sums = blends::<V, EACH_ROWS>(&left, 0, &weights, column, WIDTH);
        for (i, row_sums) in sums.iter().enumerate() {
            if first + i < tile.n_rows {
                store(&gradients.dnormed, rows[i] * INNER + column, *row_sums);
            }
        }
    }
    let (dout, normed) = (Rows::new(gradients.doutput, WIDTH), Rows::new(operands.normed, INNER));
    let pieces = team.each(WIDTH / EACH_ROWS * across);
    tn::<V>(dout, normed, tile.n_rows, INNER, &part.sub(offset::OUT_PROJ..offset::OUT_PROJ + WIDTH * INNER), pieces);
    // The gradient by the norm's output is complete.
    thread::sync_threads();
}

/// dW_in = dprojected^T e, and de = dprojected W_in: unrounded over `raw`'s first half and as an operand over the other, which the
/// convolution has read. Ends with a barrier.
#[inline(always)]
fn project_in<V: Vector>(
    p: &Parameters<'_>,
    made: &Made,
    operands: &Operands,
    gradients: &Gradients,
    part: &GlobalSliceMut<f32>,
    tile: Tile,
    team: Team,
) {
    const FIRST: usize = PROJECTED - SCANNED;
    let (unrounded, rounded) = embedding_gradients(made, tile);
    let across = WIDTH / wide::<V>();
    let (dprojected, dz) = (Rows::new(gradients.dprojected, SCANNED), Rows::new(gradients.dz, INNER));
    let (weights, of_z) = (p.matrix(p.in_proj, FIRST, WIDTH), p.matrix(p.in_proj, 0, WIDTH));
    for piece in team.each(tile.n_bars() / EACH_ROWS * across) {
        let (bar, column) = (piece / across * EACH_ROWS, piece % across * wide::<V>());
        let mut sums = blends::<V, EACH_ROWS>(&dprojected, bar, &weights, column, SCANNED);
        if (bar + EACH_ROWS).is_multiple_of(tile.window) {
            // A row's last bar is the last of its four, and z is of it alone.
            let row = bar / tile.window;
            let [[low, high]] = blends::<V, 1>(&dz, row, &of_z, column, INNER);
            let last = sums[EACH_ROWS - 1];
            sums[EACH_ROWS - 1] = [last[0] + low, last[1] + high];
        }
        // Written out: as a loop it would keep the sums in local memory.
        let [first, second, third, fourth] = sums;
        let at = bar * WIDTH + column;
        put_both(&unrounded, &rounded, at, first, p.precision);
        put_both(&unrounded, &rounded, at + WIDTH, second, p.precision);
        put_both(&unrounded, &rounded, at + 2 * WIDTH, third, p.precision);
        put_both(&unrounded, &rounded, at + 3 * WIDTH, fourth, p.precision);
    }
    let gradient = |first: usize, n: usize| {
        let first = offset::IN_PROJ + first * WIDTH;
        part.sub(first..first + n * WIDTH)
    };
    let embedded = Rows::new(operands.embedded, WIDTH);
    let pieces = team.each(SCANNED / EACH_ROWS * across);
    tn::<V>(dprojected, embedded, tile.n_bars(), WIDTH, &gradient(FIRST, SCANNED), pieces);
    let of_last = Rows { first: tile.last(0) * WIDTH, stride: tile.window * WIDTH, ..embedded };
    let pieces = team.each(INNER / EACH_ROWS * across);
    tn::<V>(dz, of_last, tile.n_rows, WIDTH, &gradient(0, INNER), pieces);
    // The gradient by the embeddings is complete.
    thread::sync_threads();
}

/// dW_e = de^T x and the bias's.
#[inline(always)]
fn embed_backward<F: Floats>(made: &Made, operands: &Operands, part: &GlobalSliceMut<f32>, tile: Tile, team: Team) {
    let (unrounded, rounded) = embedding_gradients(made, tile);
    for column in team.each(WIDTH / F::N).map(|item| item * F::N) {
        let mut sum = F::ZERO;
        for bar in 0..tile.n_bars() {
            sum = sum + F::load(&unrounded, bar * WIDTH + column);
        }
        sum.each(offset::EMBED_BIAS + column, 1, &mut |at, sum| part.set(at, part.get(at) + sum));
    }
    // Features are no whole number of the widest vectors.
    let pieces = team.each(WIDTH / EACH_ROWS * (N_FEATURES / wide::<Four>()));
    let weights = part.sub(offset::EMBED..offset::EMBED + WIDTH * N_FEATURES);
    tn::<Four>(
        Rows::new(rounded, WIDTH),
        Rows::new(operands.bars, N_FEATURES),
        tile.n_bars(),
        N_FEATURES,
        &weights,
        pieces,
    );
}

/// Where the gradient by the embeddings lies, unrounded and as an operand.
#[inline(always)]
fn embedding_gradients(made: &Made, tile: Tile) -> (SharedSlice<f32>, SharedSlice<f32>) {
    let len = tile.n_bars() * WIDTH;
    (made.raw.sub(0..len), made.raw.sub(len..2 * len))
}

/// Stores two vectors.
#[inline(always)]
fn store<V: Vector>(to: &SharedSlice<f32>, at: usize, [low, high]: [V; 2]) {
    low.store(to, at);
    high.store(to, at + V::N);
}

/// Stores two vectors unrounded, and as operands.
#[inline(always)]
fn put_both<V: Vector>(
    unrounded: &SharedSlice<f32>,
    rounded: &SharedSlice<f32>,
    at: usize,
    [low, high]: [V; 2],
    precision: Precision,
) {
    store(unrounded, at, [low, high]);
    store(rounded, at, [low.rounded(precision), high.rounded(precision)]);
}
