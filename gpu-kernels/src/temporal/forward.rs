//! The forward pass by multiply-adds.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{Parameters, offset};
use super::tile::Made;
use super::{INNER, N_FEATURES, PROJECTED, SCANNED, WIDTH, scan};
use crate::tile::{BARS, RMS_EPSILON, ROWS, Taker, Team, Tile, n_tile_blocks, tiles};
use crate::tile_product::{EACH_ROWS, NT_COLUMNS, nt};
use crate::{math, operand};

/// Launch of [`temporal_forward()`] for `n_rows` rows of `window` bars, in blocks of `n_threads`: 256 on a GPU, 1 on the CPU.
pub const fn temporal_forward_shape(n_rows: usize, window: usize, n_threads: u32) -> LaunchShape {
    // Two blocks a multiprocessor of an H200.
    LaunchShape::linear(n_tile_blocks(n_rows, window, 264) as u32, n_threads).with_shared(Operands::end(Made::BYTES))
}

/// The output of the block for each row.
///
/// Shapes: rows `[R, stride]`, the first T F columns the bars, oldest first, F = 24; embed `[64, 24]`, in_proj `[292, 64]`, out_proj
/// `[64, 128]` operands; parameters `[`[`N_PARAMETERS`](super::N_PARAMETERS)`]`, the temporal part of the flat ones; output `[R, 64]`.
/// T = window, a multiple of 4, at most 64; stride a multiple of 4. Launch: [`temporal_forward_shape`].
#[kernel(cooperative, conditional, max_threads = 256)]
pub fn temporal_forward(
    rows: GlobalSlice<f32>,
    embed: GlobalSlice<u16>,
    in_proj: GlobalSlice<u16>,
    out_proj: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    output: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
    precision: Precision,
) {
    let p = Parameters { embed: &embed, in_proj: &in_proj, out_proj: &out_proj, flat: &parameters, precision };
    let (made, operands, team) = (Made::new(), Operands::new(Made::BYTES), Team::new());
    for tile in tiles(output.len() / WIDTH, window as usize) {
        make(&p, &made, &operands, &rows, stride as usize, tile, team, |_, _| ());
        project_out(&p, &operands, tile, team, &output);
        // The next tile overwrites what out_proj has read.
        thread::sync_threads();
    }
}

/// Operands of a tile, f32 and already rounded.
pub(super) struct Operands {
    /// Features `[bars, 24]`.
    pub bars: SharedSlice<f32>,
    /// Embeddings `[bars, 64]`.
    pub embedded: SharedSlice<f32>,
    /// RMSNorm's output `[rows, 128]`.
    pub normed: SharedSlice<f32>,
}

impl Operands {
    /// Where they end in shared memory, beginning at byte `start`.
    pub const fn end(start: u32) -> u32 {
        start + 4 * (BARS * (N_FEATURES + WIDTH) + ROWS * INNER) as u32
    }

    #[inline(always)]
    pub fn new(start: u32) -> Self {
        let mut taker = Taker::from(start);
        Self {
            bars: taker.take(BARS * N_FEATURES),
            embedded: taker.take(BARS * WIDTH),
            normed: taker.take(ROWS * INNER),
        }
    }
}

/// Makes everything up to out_proj of a tile; `keep` as in [`scan::scan`].
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all by name, and inlined")]
pub(super) fn make(
    p: &Parameters<'_>,
    made: &Made,
    operands: &Operands,
    rows: &GlobalSlice<f32>,
    stride: usize,
    tile: Tile,
    team: Team,
    keep: impl Fn(usize, f32),
) {
    take_bars(p, operands, rows, stride, tile, team);
    embed(p, operands, tile, team);
    project_in(p, made, operands, tile, team);
    scan::mix(p, made, tile, team);
    scan::scan(p, made, tile, team, keep);
    norm(p, made, operands, tile, team);
}

#[inline(always)]
fn take_bars(p: &Parameters<'_>, operands: &Operands, rows: &GlobalSlice<f32>, stride: usize, tile: Tile, team: Team) {
    let row_len = tile.window * N_FEATURES;
    for piece in team.each(tile.n_rows * row_len / 4) {
        let (row, column) = (piece * 4 / row_len, piece * 4 % row_len);
        let features: [f32; 4] = rows.load((tile.first_row + row) * stride + column);
        operands.bars.store(piece * 4, features.map(|feature| operand::rounded(feature, p.precision)));
    }
    // The bars are complete.
    thread::sync_threads();
}

/// e = W_e x + b_e.
#[inline(always)]
fn embed(p: &Parameters<'_>, operands: &Operands, tile: Tile, team: Team) {
    const ACROSS: usize = WIDTH / NT_COLUMNS;
    for piece in team.each(tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * NT_COLUMNS);
        let bars =
            core::array::from_fn(|i| operands.bars.sub((bar + i) * N_FEATURES..(bar + i) * N_FEATURES + N_FEATURES));
        let sums = nt::<N_FEATURES>(bars, p.embed, column, p.precision);
        for (i, row_sums) in sums.iter().enumerate() {
            for (j, sum) in row_sums.iter().enumerate() {
                let value = sum + p.get(offset::EMBED_BIAS, column + j);
                operands.embedded.set((bar + i) * WIDTH + column + j, operand::rounded(value, p.precision));
            }
        }
    }
    // The embeddings are complete.
    thread::sync_threads();
}

/// x, B, C, dt of every bar and z of the last ones.
#[inline(always)]
fn project_in(p: &Parameters<'_>, made: &Made, operands: &Operands, tile: Tile, team: Team) {
    let embedded = |bar: usize| operands.embedded.sub(bar * WIDTH..bar * WIDTH + WIDTH);
    const ACROSS: usize = SCANNED / NT_COLUMNS;
    for piece in team.each(tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * NT_COLUMNS);
        let bars = core::array::from_fn(|i| embedded(bar + i));
        let sums = nt::<WIDTH>(bars, p.in_proj, PROJECTED - SCANNED + column, p.precision);
        for (i, row_sums) in sums.iter().enumerate() {
            for (j, sum) in row_sums.iter().enumerate() {
                made.raw.set((bar + i) * SCANNED + column + j, *sum);
            }
        }
    }
    of_last_bars(tile, team, INNER, |rows, column| {
        let sums = nt::<WIDTH>(rows.map(|row| embedded(tile.last(row))), p.in_proj, column, p.precision);
        move |i, j| made.z.set(rows[i] * INNER + column + j, sums[i][j])
    });
    // What in_proj makes is complete.
    thread::sync_threads();
}

/// RMSNorm of the gated rows. Ends with a barrier.
#[inline(always)]
fn norm(p: &Parameters<'_>, made: &Made, operands: &Operands, tile: Tile, team: Team) {
    for row in team.each(tile.n_rows) {
        let mut squares = [0.0f32; 4];
        for j in (0..INNER).step_by(4) {
            let gated: [f32; 4] = made.gated.load(row * INNER + j);
            for l in 0..4 {
                squares[l] += gated[l] * gated[l];
            }
        }
        let mean = ((squares[0] + squares[1]) + (squares[2] + squares[3])) / INNER as f32;
        made.scale.set(row, 1.0 / math::sqrt(mean + RMS_EPSILON));
    }
    // A row's scale is made by one thread.
    thread::sync_threads();
    for index in team.each(tile.n_rows * INNER) {
        let value = made.gated.get(index) * made.scale.get(index / INNER) * p.get(offset::GAIN, index % INNER);
        operands.normed.set(index, operand::rounded(value, p.precision));
    }
    // out_proj and the backward pass read it by rows.
    thread::sync_threads();
}

#[inline(always)]
fn project_out(p: &Parameters<'_>, operands: &Operands, tile: Tile, team: Team, output: &GlobalSliceMut<f32>) {
    let normed = |row: usize| operands.normed.sub(row * INNER..row * INNER + INNER);
    of_last_bars(tile, team, WIDTH, |rows, column| {
        let sums = nt::<INNER>(rows.map(normed), p.out_proj, column, p.precision);
        move |i, j| output.set((tile.first_row + rows[i]) * WIDTH + column + j, sums[i][j])
    });
}

/// Runs a product over the last bars: `multiply` gets the rows and the column of a piece of [`EACH_ROWS`] by [`NT_COLUMNS`] and
/// returns what stores an element. Where the rows end within a piece, its last row is made again and not stored.
#[inline(always)]
fn of_last_bars<S: Fn(usize, usize)>(
    tile: Tile,
    team: Team,
    n_columns: usize,
    multiply: impl Fn([usize; EACH_ROWS], usize) -> S,
) {
    let across = n_columns / NT_COLUMNS;
    for piece in team.each(tile.n_rows.div_ceil(EACH_ROWS) * across) {
        let (first, column) = (piece / across * EACH_ROWS, piece % across * NT_COLUMNS);
        let store = multiply(core::array::from_fn(|i| (first + i).min(tile.n_rows - 1)), column);
        for i in 0..EACH_ROWS {
            if first + i < tile.n_rows {
                for j in 0..NT_COLUMNS {
                    store(i, j);
                }
            }
        }
    }
}
