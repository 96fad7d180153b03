//! The forward pass by multiply-adds.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{Parameters, offset};
use super::tile::Made;
use super::{INNER, N_FEATURES, PROJECTED, SCANNED, WIDTH, scan};
use crate::floats::{Floats, OnTarget, Vector, with_widest};
use crate::four::Four;
use crate::math;
use crate::tile::{BARS, RMS_EPSILON, ROWS, Taker, Team, Tile, n_tile_blocks, tiles};
use crate::tile_product::{EACH_ROWS, FOUR_COLUMNS, Rows, Separate, four_dots};

/// Launch of [`temporal_forward()`] for `n_rows` rows of `window` bars, in blocks of `n_threads`: 256 on a GPU, 1 on the CPU.
pub const fn temporal_forward_shape(n_rows: usize, window: usize, n_threads: u32) -> LaunchShape {
    // Two blocks a multiprocessor of an H200, one behind the other: a thread takes some 200 registers.
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
    with_widest!(forward(&p, &rows, stride as usize, window as usize, &output));
}

#[inline(always)]
fn forward<V: Vector + OnTarget>(
    p: &Parameters<'_>,
    rows: &GlobalSlice<f32>,
    stride: usize,
    window: usize,
    output: &GlobalSliceMut<f32>,
) {
    let (made, operands, team) = (Made::new(), Operands::new(Made::BYTES), Team::new());
    for tile in tiles(output.len() / WIDTH, window) {
        make::<V>(
            p,
            &made,
            &operands,
            rows,
            stride,
            tile,
            team,
            #[inline(always)]
            |_, _| (),
        );
        project_out::<V>(p, &operands, tile, team, output);
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
pub(super) fn make<V: Vector + OnTarget>(
    p: &Parameters<'_>,
    made: &Made,
    operands: &Operands,
    rows: &GlobalSlice<f32>,
    stride: usize,
    tile: Tile,
    team: Team,
    keep: impl Fn(usize, V::Lanes),
) {
    take_bars(p, operands, rows, stride, tile, team);
    embed::<V>(p, operands, tile, team);
    project_in::<V>(p, made, operands, tile, team);
    scan::mix::<V::Lanes>(p, made, tile, team);
    scan::scan(p, made, tile, team, keep);
    norm::<V::Lanes>(p, made, operands, tile, team);
}

#[inline(always)]
fn take_bars(p: &Parameters<'_>, operands: &Operands, rows: &GlobalSlice<f32>, stride: usize, tile: Tile, team: Team) {
    let row_len = tile.window * N_FEATURES;
    for piece in team.each(tile.n_rows * row_len / 4) {
        let (row, column) = (piece * 4 / row_len, piece * 4 % row_len);
        let features = Four::new(rows.load((tile.first_row + row) * stride + column));
        operands.bars.store(piece * 4, features.rounded(p.precision).lanes());
    }
    // The bars are complete.
    thread::sync_threads();
}

/// e = W_e x + b_e.
#[inline(always)]
fn embed<V: Vector>(p: &Parameters<'_>, operands: &Operands, tile: Tile, team: Team) {
    const ACROSS: usize = WIDTH / FOUR_COLUMNS;
    let (bars, weights) = (Rows::new(operands.bars, N_FEATURES), p.matrix(p.embed, 0, N_FEATURES));
    for piece in team.each(tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * FOUR_COLUMNS);
        let bias = Four::new(p.flat.load(offset::EMBED_BIAS + column));
        let sums = four_dots::<V, N_FEATURES>(&bars, bar, &weights, column);
        for (i, sum) in sums.iter().enumerate() {
            let embedded = (*sum + bias).rounded(p.precision);
            operands.embedded.store((bar + i) * WIDTH + column, embedded.lanes());
        }
    }
    // The embeddings are complete.
    thread::sync_threads();
}

/// x, B, C, dt of every bar and z of the last ones.
#[inline(always)]
fn project_in<V: Vector>(p: &Parameters<'_>, made: &Made, operands: &Operands, tile: Tile, team: Team) {
    const ACROSS: usize = SCANNED / FOUR_COLUMNS;
    let (embedded, weights) = (Rows::new(operands.embedded, WIDTH), p.matrix(p.in_proj, 0, WIDTH));
    for piece in team.each(tile.n_bars() / EACH_ROWS * ACROSS) {
        let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * FOUR_COLUMNS);
        let sums = four_dots::<V, WIDTH>(&embedded, bar, &weights, PROJECTED - SCANNED + column);
        for (i, sum) in sums.iter().enumerate() {
            made.raw.store((bar + i) * SCANNED + column, sum.lanes());
        }
    }
    of_last_bars(
        tile,
        team,
        INNER,
        #[inline(always)]
        |rows, column| {
            let last = Separate { from: operands.embedded, first: rows.map(|row| tile.last(row) * WIDTH) };
            let sums = four_dots::<V, WIDTH>(&last, 0, &weights, column);
            #[inline(always)]
            move |i| made.z.store(rows[i] * INNER + column, sums[i].lanes())
        },
    );
    // What in_proj makes is complete.
    thread::sync_threads();
}

/// RMSNorm of the gated rows. Ends with a barrier.
#[inline(always)]
fn norm<F: Floats>(p: &Parameters<'_>, made: &Made, operands: &Operands, tile: Tile, team: Team) {
    for row in team.each(tile.n_rows) {
        let mut squares = Four::ZERO;
        for j in (0..INNER).step_by(4) {
            let gated = Four::new(made.gated.load(row * INNER + j));
            squares = squares.add_product(gated, gated);
        }
        let mean = squares.sum() / INNER as f32;
        made.scale.set(row, 1.0 / math::sqrt(mean + RMS_EPSILON));
    }
    // A row's scale is made by one thread.
    thread::sync_threads();
    for index in team.each(tile.n_rows * INNER / F::N).map(|item| item * F::N) {
        let gain = F::load_global(p.flat, offset::GAIN + index % INNER);
        let normed = F::load(&made.gated, index) * F::splat(made.scale.get(index / INNER)) * gain;
        normed.rounded(p.precision).store(&operands.normed, index);
    }
    // out_proj and the backward pass read it by rows.
    thread::sync_threads();
}

#[inline(always)]
fn project_out<V: Vector>(
    p: &Parameters<'_>,
    operands: &Operands,
    tile: Tile,
    team: Team,
    output: &GlobalSliceMut<f32>,
) {
    let weights = p.matrix(p.out_proj, 0, INNER);
    of_last_bars(
        tile,
        team,
        WIDTH,
        #[inline(always)]
        |rows, column| {
            let normed = Separate { from: operands.normed, first: rows.map(|row| row * INNER) };
            let sums = four_dots::<V, INNER>(&normed, 0, &weights, column);
            #[inline(always)]
            move |i| output.store((tile.first_row + rows[i]) * WIDTH + column, sums[i].lanes())
        },
    );
}

/// Runs a product over the last bars: `multiply` gets the rows and the column of a piece of [`EACH_ROWS`] by [`FOUR_COLUMNS`] and
/// returns what stores a row of it. Where the rows end within a piece, its last row is made again and not stored.
#[inline(always)]
fn of_last_bars<S: Fn(usize)>(
    tile: Tile,
    team: Team,
    n_columns: usize,
    multiply: impl Fn([usize; EACH_ROWS], usize) -> S,
) {
    let across = n_columns / FOUR_COLUMNS;
    for piece in team.each(tile.n_rows.div_ceil(EACH_ROWS) * across) {
        let (first, column) = (piece / across * EACH_ROWS, piece % across * FOUR_COLUMNS);
        let store = multiply(core::array::from_fn(|i| (first + i).min(tile.n_rows - 1)), column);
        for i in 0..EACH_ROWS {
            if first + i < tile.n_rows {
                store(i);
            }
        }
    }
}
