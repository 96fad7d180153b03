//! The backward pass by multiply-adds.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::forward::{self, Operands};
use super::parameters::{N_PARAMETERS, Parameters, offset};
use super::tile::{Back, Made};
use super::{CHANNELS, INNER, N_FEATURES, PROJECTED, SCANNED, TAPS, WIDTH, scan_backward, temporal_n_parts};
use crate::operand;
use crate::tile::{BARS, ROWS, Taker, Team, Tile, tiles};
use crate::tile_product::{EACH_ROWS, Rows, WIDE, nn, tn};

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
    let (made, back, team) = (Made::new(), Back::new(), Team::new());
    let (operands, gradients) = (Operands::new(Back::END), Gradients::new());
    let first = thread::block_idx_x() as usize * N_PARAMETERS;
    let part = parts.sub(first..first + N_PARAMETERS);
    for at in team.each(N_PARAMETERS / 4) {
        part.store(4 * at, [0.0f32; 4]);
    }
    let stride = stride as usize;
    for tile in tiles(rows.len() / stride, window as usize) {
        for index in team.each(tile.n_rows * WIDTH) {
            let (row, column) = (tile.first_row + index / WIDTH, doutput_first as usize + index % WIDTH);
            let d = doutput.get(row * doutput_stride as usize + column);
            gradients.doutput.set(index, operand::rounded(d, precision));
        }
        // Its barriers also stand between the zeros above and their sums.
        forward::make(&p, &made, &operands, &rows, stride, tile, team, |at, x| back.x.set(at, x));
        let add = |at: usize, value: f32| part.set(at, part.get(at) + value);
        let put = |bar: usize, column: usize, value: f32| {
            gradients.dprojected.set(bar * SCANNED + column, operand::rounded(value, precision));
        };
        let put_dz = |row: usize, column: usize, value: f32| {
            gradients.dz.set(row * INNER + column, operand::rounded(value, precision));
        };
        project_out(&p, &operands, &gradients, &part, tile, team);
        scan_backward::gate(&p, &made, &back, &gradients.dnormed, tile, team, put_dz, add);
        scan_backward::scan(&p, &made, &back, tile, team, put);
        scan_backward::heads(&back, tile, team, add);
        let channels = team.each(CHANNELS);
        scan_backward::convolution(&p, &made, &back, tile, channels, 0..tile.n_rows, put, |channel, gradient| {
            for tap in 0..TAPS {
                add(offset::CONV + channel * TAPS + tap, gradient.taps[tap]);
            }
            add(offset::CONV_BIAS + channel, gradient.bias);
        });
        // The gradient by in_proj's outputs is complete.
        thread::sync_threads();
        project_in(&p, &made, &operands, &gradients, &part, tile, team);
        embed_backward(&made, &operands, &part, tile, team);
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
fn project_out(
    p: &Parameters<'_>,
    operands: &Operands,
    gradients: &Gradients,
    part: &GlobalSliceMut<f32>,
    tile: Tile,
    team: Team,
) {
    const ACROSS: usize = INNER / WIDE;
    for piece in team.each(tile.n_rows.div_ceil(EACH_ROWS) * ACROSS) {
        let (first, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * WIDE);
        // Where the rows end within a piece, its last row is made again and not stored.
        let rows: [usize; EACH_ROWS] = core::array::from_fn(|i| (first + i).min(tile.n_rows - 1));
        let left = rows.map(|row| gradients.doutput.sub(row * WIDTH..row * WIDTH + WIDTH));
        let sums = nn::<EACH_ROWS, INNER>(left, p.out_proj, 0, column, WIDTH, p.precision);
        for (i, row_sums) in sums.iter().enumerate() {
            if first + i < tile.n_rows {
                store(&gradients.dnormed, rows[i] * INNER + column, row_sums);
            }
        }
    }
    let (dout, normed) = (Rows::new(gradients.doutput, WIDTH), Rows::new(operands.normed, INNER));
    let pieces = team.each(WIDTH / EACH_ROWS * (INNER / WIDE));
    tn(dout, normed, tile.n_rows, INNER, &part.sub(offset::OUT_PROJ..offset::OUT_PROJ + WIDTH * INNER), pieces);
    // The gradient by the norm's output is complete.
    thread::sync_threads();
}

/// dW_in = dprojected^T e, and de = dprojected W_in: unrounded over `raw`'s first half and as an operand over the other, which the
/// convolution has read. Ends with a barrier.
#[inline(always)]
fn project_in(
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
    const ACROSS: usize = WIDTH / WIDE;
    for piece in team.each(tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * WIDE);
        let left: [_; EACH_ROWS] =
            core::array::from_fn(|i| gradients.dprojected.sub((bar + i) * SCANNED..(bar + i) * SCANNED + SCANNED));
        let mut sums = nn::<EACH_ROWS, WIDTH>(left, p.in_proj, FIRST, column, SCANNED, p.precision);
        if (bar + EACH_ROWS).is_multiple_of(tile.window) {
            // A row's last bar is the last of its four, and z is of it alone.
            let row = bar / tile.window;
            let dz = [gradients.dz.sub(row * INNER..row * INNER + INNER)];
            let [of_z] = nn::<1, WIDTH>(dz, p.in_proj, 0, column, INNER, p.precision);
            for j in 0..WIDE {
                sums[EACH_ROWS - 1][j] += of_z[j];
            }
        }
        let put = |i: usize, sums: &[f32; WIDE]| {
            let at = (bar + i) * WIDTH + column;
            store(&unrounded, at, sums);
            store(&rounded, at, &sums.map(|sum| operand::rounded(sum, p.precision)));
        };
        // Written out: as a loop it would keep the sums in local memory.
        let [first, second, third, fourth] = &sums;
        put(0, first);
        put(1, second);
        put(2, third);
        put(3, fourth);
    }
    let weights = |first: usize, n: usize| {
        let first = offset::IN_PROJ + first * WIDTH;
        part.sub(first..first + n * WIDTH)
    };
    let embedded = Rows::new(operands.embedded, WIDTH);
    let pieces = team.each(SCANNED / EACH_ROWS * ACROSS);
    tn(Rows::new(gradients.dprojected, SCANNED), embedded, tile.n_bars(), WIDTH, &weights(FIRST, SCANNED), pieces);
    let of_last = Rows { first: tile.last(0) * WIDTH, stride: tile.window * WIDTH, ..embedded };
    let pieces = team.each(INNER / EACH_ROWS * ACROSS);
    tn(Rows::new(gradients.dz, INNER), of_last, tile.n_rows, WIDTH, &weights(0, INNER), pieces);
    // The gradient by the embeddings is complete.
    thread::sync_threads();
}

/// dW_e = de^T x and the bias's.
#[inline(always)]
fn embed_backward(made: &Made, operands: &Operands, part: &GlobalSliceMut<f32>, tile: Tile, team: Team) {
    let (unrounded, rounded) = embedding_gradients(made, tile);
    for column in team.each(WIDTH) {
        let mut sum = 0.0;
        (0..tile.n_bars()).for_each(|bar| sum += unrounded.get(bar * WIDTH + column));
        let at = offset::EMBED_BIAS + column;
        part.set(at, part.get(at) + sum);
    }
    let pieces = team.each(WIDTH / EACH_ROWS * (N_FEATURES / WIDE));
    let weights = part.sub(offset::EMBED..offset::EMBED + WIDTH * N_FEATURES);
    tn(Rows::new(rounded, WIDTH), Rows::new(operands.bars, N_FEATURES), tile.n_bars(), N_FEATURES, &weights, pieces);
}

/// Where the gradient by the embeddings lies, unrounded and as an operand.
#[inline(always)]
fn embedding_gradients(made: &Made, tile: Tile) -> (SharedSlice<f32>, SharedSlice<f32>) {
    let len = tile.n_bars() * WIDTH;
    (made.raw.sub(0..len), made.raw.sub(len..2 * len))
}

#[inline(always)]
fn store(to: &SharedSlice<f32>, at: usize, [a, b, c, d, e, f, g, h]: &[f32; WIDE]) {
    to.store(at, [*a, *b, *c, *d]);
    to.store(at + 4, [*e, *f, *g, *h]);
}
