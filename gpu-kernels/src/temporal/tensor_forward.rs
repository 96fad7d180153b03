//! The forward pass on the tensor cores: operands bf16.
//!
//! A warp keeps its columns of W_e and W_in in registers, as fragments, from tile to tile; W_out lies in shared memory.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{Parameters, offset};
use super::tile::Made;
use super::{INNER, N_FEATURES, PROJECTED, SCANNED, WIDTH, scan};
use crate::fragments::{Lane, Stored, multiply, weights};
use crate::tile::{BARS, RMS_EPSILON, ROWS, Taker, Team, Tile, n_tile_blocks, tiles};
use crate::{lanes, math};

const N_THREADS: u32 = 256;
const N_WARPS: usize = N_THREADS as usize / 32;
/// Steps of 16 in a sum over the embedding.
const N_STEPS: usize = WIDTH / 16;
/// Fragments of 8 columns of z a warp.
const Z_EACH: usize = INNER / 8 / N_WARPS;
/// Fragments of 8 columns of x, B, C, dt, and the most that a warp makes.
const N_SCANNED: usize = SCANNED.div_ceil(8);
const SCANNED_EACH: usize = N_SCANNED.div_ceil(N_WARPS);

/// Launch of [`temporal_forward_tensor()`] for `n_rows` rows of `window` bars.
pub const fn temporal_forward_tensor_shape(n_rows: usize, window: usize) -> LaunchShape {
    // Two blocks a multiprocessor of an H200.
    LaunchShape::linear(n_tile_blocks(n_rows, window, 264) as u32, N_THREADS).with_shared(Weights::END)
}

/// [`temporal_forward()`](super::temporal_forward()) of bf16 operands on the tensor cores; it differs by the order of the products' sums.
///
/// Shapes: as there. Launch: [`temporal_forward_tensor_shape`].
#[kernel(cooperative, conditional, max_threads = 256, min_blocks = 2)]
pub fn temporal_forward_tensor(
    rows: GlobalSlice<f32>,
    embed: GlobalSlice<u16>,
    in_proj: GlobalSlice<u16>,
    out_proj: GlobalSlice<u16>,
    parameters: GlobalSlice<f32>,
    output: GlobalSliceMut<f32>,
    stride: u32,
    window: u32,
) {
    let precision = Precision::Bf16;
    let p = Parameters { embed: &embed, in_proj: &in_proj, out_proj: &out_proj, flat: &parameters, precision };
    let (made, operands) = (Made::new(), Operands::new());
    let weights = Weights::load(&p);
    operands.clear();
    for tile in tiles(output.len() / WIDTH, window as usize) {
        operands.take_bars(&rows, stride as usize, tile);
        weights.embed(&operands, tile);
        weights.project_in(&made, &operands, tile);
        scan::mix::<f32>(&p, &made, tile, Team::new());
        scan::scan::<f32>(&p, &made, tile, Team::new(), |_, _| ());
        operands.norm(&p, &made, tile);
        weights.project_out(&operands, tile, &output);
    }
}

/// Operands of a tile.
pub(super) struct Operands {
    /// Features `[bars, 32]`, of which the last 8 are zeros.
    pub bars: Stored,
    /// Embeddings `[bars, 64]`.
    pub embedded: Stored,
    /// RMSNorm's output `[rows, 128]`.
    pub normed: Stored,
}

/// Features of a bar, up to a whole step of a sum.
pub(super) const FEATURES: usize = N_FEATURES.next_multiple_of(16);

impl Operands {
    /// Where they end in shared memory, behind [`Made`].
    const END: u32 = Self::end(Made::BYTES);

    /// Where they end, beginning at byte `start`.
    pub const fn end(start: u32) -> u32 {
        start + Stored::bytes(BARS, FEATURES) + Stored::bytes(BARS, WIDTH) + Stored::bytes(ROWS, INNER)
    }

    #[inline(always)]
    fn new() -> Self {
        Self::take(&mut Taker::from(Made::BYTES))
    }

    #[inline(always)]
    pub fn take(taker: &mut Taker) -> Self {
        Self {
            bars: Stored::take(taker, BARS, FEATURES),
            embedded: Stored::take(taker, BARS, WIDTH),
            normed: Stored::take(taker, ROWS, INNER),
        }
    }

    /// Zeros everywhere: what no tile has written still takes part in products, times zero. Ends with a barrier.
    #[inline(always)]
    pub fn clear(&self) {
        let team = Team::new();
        self.bars.clear(team);
        self.embedded.clear(team);
        self.normed.clear(team);
        // The first tile's bars come over the zeros.
        thread::sync_threads();
    }

    /// Ends with a barrier.
    #[inline(always)]
    pub fn take_bars(&self, rows: &GlobalSlice<f32>, stride: usize, tile: Tile) {
        let team = Team::new();
        const PIECES: usize = N_FEATURES / 4;
        for piece in team.each(tile.n_bars() * PIECES) {
            let (bar, column) = (piece / PIECES, piece % PIECES * 4);
            let row = tile.row_of(bar);
            let from = (tile.first_row + row) * stride + (bar - row * tile.window) * N_FEATURES + column;
            let [a, b, c, d]: [f32; 4] = rows.load(from);
            self.bars.set2(bar, column, a, b);
            self.bars.set2(bar, column + 2, c, d);
        }
        // The bars are complete.
        thread::sync_threads();
    }

    /// RMSNorm of the gated rows, a warp a row. Ends with a barrier.
    #[inline(always)]
    pub fn norm(&self, p: &Parameters<'_>, made: &Made, tile: Tile) {
        let (team, at) = (Team::new(), Lane::new());
        let column = 4 * at.lane;
        let gain: [f32; 4] = p.flat.load(offset::GAIN + column);
        for row in (at.warp..tile.n_rows).step_by(team.n_threads / 32) {
            let [a, b, c, d]: [f32; 4] = made.gated.load(row * INNER + column);
            let squares = lanes::all((a * a + b * b) + (c * c + d * d), |x, y| x + y);
            let scale = 1.0 / math::sqrt(squares / INNER as f32 + RMS_EPSILON);
            self.normed.set2(row, column, a * scale * gain[0], b * scale * gain[1]);
            self.normed.set2(row, column + 2, c * scale * gain[2], d * scale * gain[3]);
            if at.lane == 0 {
                made.scale.set(row, scale);
            }
        }
        // out_proj reads it by rows.
        thread::sync_threads();
    }
}

/// A warp's fragments of the weights and its biases.
struct Weights {
    embed: [[u32; 2]; FEATURES / 16],
    embed_bias: [f32; 2],
    z: [[[u32; 2]; N_STEPS]; Z_EACH],
    scanned: [[[u32; 2]; N_STEPS]; SCANNED_EACH],
    /// `[64, 128]`, in shared memory.
    out: Stored,
}

impl Weights {
    /// Where they end in shared memory.
    const END: u32 = Operands::END + Stored::bytes(WIDTH, INNER);

    /// The block's threads together copy W_out, for whose use a barrier is still needed.
    #[inline(always)]
    fn load(p: &Parameters<'_>) -> Self {
        let (team, at) = (Team::new(), Lane::new());
        let column = 8 * at.warp;
        let out = Stored::take(&mut Taker::from(Operands::END), WIDTH, INNER);
        out.copy(p.out_proj, WIDTH, INNER, INNER, team);
        let in_proj = |first: usize| core::array::from_fn(|step| weights(p.in_proj, at, first, 16 * step, WIDTH));
        Self {
            embed: core::array::from_fn(|step| weights(p.embed, at, column, 16 * step, N_FEATURES)),
            embed_bias: core::array::from_fn(|i| p.get(offset::EMBED_BIAS, column + at.column() + i)),
            z: core::array::from_fn(|i| in_proj(column + i * INNER / Z_EACH)),
            scanned: core::array::from_fn(|i| in_proj(PROJECTED - SCANNED + 8 * (at.warp + i * N_WARPS))),
            out,
        }
    }

    /// e = W_e x + b_e. Ends with a barrier.
    #[inline(always)]
    fn embed(&self, operands: &Operands, tile: Tile) {
        let at = Lane::new();
        let [b0, b1] = self.embed_bias;
        for first in (0..tile.n_bars()).step_by(16) {
            let mut sum = [0.0f32; 4];
            for (step, w) in self.embed.iter().enumerate() {
                multiply(operands.bars.a(at, |i| first + i, 16 * step), *w, &mut sum);
            }
            let (row, column) = (first + at.row(), 8 * at.warp + at.column());
            operands.embedded.set2(row, column, sum[0] + b0, sum[1] + b1);
            operands.embedded.set2(row + 8, column, sum[2] + b0, sum[3] + b1);
        }
        // The embeddings are complete.
        thread::sync_threads();
    }

    /// x, B, C, dt of every bar and z of the last ones. Ends with a barrier.
    #[inline(always)]
    fn project_in(&self, made: &Made, operands: &Operands, tile: Tile) {
        let at = Lane::new();
        for first in (0..tile.n_bars()).step_by(16) {
            let bars: [[u32; 4]; N_STEPS] =
                core::array::from_fn(|step| operands.embedded.a(at, |i| first + i, 16 * step));
            for (i, w) in self.scanned.iter().enumerate() {
                let column = 8 * (at.warp + i * N_WARPS);
                // The same for the whole warp.
                if column < SCANNED {
                    let sum = product(&bars, w);
                    put(&made.raw, SCANNED, first + at.row(), column + at.column(), sum);
                }
            }
        }
        let last = |i: usize| tile.last(i.min(tile.n_rows - 1));
        let bars: [[u32; 4]; N_STEPS] = core::array::from_fn(|step| operands.embedded.a(at, last, 16 * step));
        for (i, w) in self.z.iter().enumerate() {
            let column = 8 * at.warp + i * INNER / Z_EACH;
            put(&made.z, INNER, at.row(), column + at.column(), product(&bars, w));
        }
        // What in_proj makes is complete.
        thread::sync_threads();
    }

    #[inline(always)]
    fn project_out(&self, operands: &Operands, tile: Tile, output: &GlobalSliceMut<f32>) {
        let at = Lane::new();
        let mut sum = [0.0f32; 4];
        for k in (0..INNER).step_by(16) {
            multiply(operands.normed.a(at, |i| i, k), self.out.b_single(at, 8 * at.warp, k), &mut sum);
        }
        let column = 8 * at.warp + at.column();
        for half in 0..2 {
            let row = at.row() + 8 * half;
            if row < tile.n_rows {
                output.store((tile.first_row + row) * WIDTH + column, [sum[2 * half], sum[2 * half + 1]]);
            }
        }
    }
}

#[inline(always)]
fn product(a: &[[u32; 4]; N_STEPS], b: &[[u32; 2]; N_STEPS]) -> [f32; 4] {
    let mut sum = [0.0f32; 4];
    for (a, b) in a.iter().zip(b) {
        multiply(*a, *b, &mut sum);
    }
    sum
}

/// Stores an accumulator whose first element is (row, column) of a matrix, as far as its columns go.
#[inline(always)]
pub(super) fn put(to: &SharedSlice<f32>, n_columns: usize, row: usize, column: usize, sum: [f32; 4]) {
    if column < n_columns {
        to.store(row * n_columns + column, [sum[0], sum[1]]);
        to.store((row + 8) * n_columns + column, [sum[2], sum[3]]);
    }
}
