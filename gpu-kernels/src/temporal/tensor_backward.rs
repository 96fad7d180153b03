//! The backward pass on the tensor cores: operands bf16.
//!
//! Weights lie in shared memory, since products take them both ways. The gradients of the weights stay in the accumulators of the
//! block's 16 warps from its first tile to its last, those of the other parameters in registers of the threads that make them.

use cuda_std::prelude::*;
use shared_types::Precision;

use super::parameters::{N_PARAMETERS, Parameters, offset};
use super::scan_backward::{self, FilterGradient};
use super::tensor_forward::{FEATURES, Operands, put};
use super::tensor_gradients::Sums;
use super::tile::{Back, Made};
use super::{CHANNELS, INNER, N_FEATURES, PROJECTED, SCANNED, TAPS, WIDTH, scan, temporal_n_parts};
use crate::fragments::{Lane, Stored, multiply};
use crate::tile::{BARS, ROWS, Taker, Team, Tile, tiles};

const N_THREADS: u32 = 512;
pub(super) const N_WARPS: usize = N_THREADS as usize / 32;
/// Outputs of in_proj but z, up to a whole step of a sum.
pub(super) const SCANNED_WHOLE: usize = SCANNED.next_multiple_of(16);
/// Rows that walk a channel at the same time, in the convolution's backward pass.
const N_WALKS: usize = N_THREADS as usize / CHANNELS;

/// Launch of [`temporal_backward_tensor()`] for `n_rows` rows of `window` bars; it leaves
/// [`temporal_n_parts`]` (n_rows, window, 512)` parts.
pub const fn temporal_backward_tensor_shape(n_rows: usize, window: usize) -> LaunchShape {
    let n_blocks = temporal_n_parts(n_rows, window, N_THREADS) as u32;
    LaunchShape::linear(n_blocks, N_THREADS).with_shared(Shared::END)
}

/// [`temporal_backward()`](super::temporal_backward()) of bf16 operands on the tensor cores; it differs by the order of the products' sums.
///
/// Shapes: as there. Launch: [`temporal_backward_tensor_shape`].
#[kernel(cooperative, max_threads = 512, min_blocks = 1)]
pub fn temporal_backward_tensor(
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
) {
    let precision = Precision::Bf16;
    let p = Parameters { embed: &embed, in_proj: &in_proj, out_proj: &out_proj, flat: &parameters, precision };
    let (made, back, shared) = (Made::new(), Back::new(), Shared::new());
    let stride = stride as usize;
    let mut sums = Sums::default();
    shared.load_weights(&p);
    shared.doutput.clear(Team::new());
    shared.dz.clear(Team::new());
    shared.operands.clear();
    for tile in tiles(rows.len() / stride, window as usize) {
        shared.take_doutput(&doutput, doutput_stride as usize, doutput_first as usize, tile);
        shared.operands.take_bars(&rows, stride, tile);
        shared.embed(&p, tile);
        shared.project_in(&made, tile);
        scan::mix::<f32>(&p, &made, tile, Team::new());
        scan::scan::<f32>(&p, &made, tile, Team::new(), |index, x| back.x.set(index, x));
        shared.operands.norm(&p, &made, tile);

        shared.project_out(&mut sums);
        let put_dz = |row: usize, column: usize, value: f32| shared.dz.set(row, column, value);
        let dgain = &mut sums.gain;
        scan_backward::gate(&p, &made, &back, &shared.dnormed, tile, Team::new(), put_dz, |_, sum| *dgain += sum);
        shared.z_to_embedding(&made);
        let put = |bar: usize, column: usize, value: f32| shared.dprojected.set(bar, column, value);
        scan_backward::scan(&p, &made, &back, tile, Team::new(), put);
        let dhead = &mut sums.head;
        scan_backward::heads(&back, tile, Team::new(), |_, sum| *dhead += sum);
        shared.clear_outside(tile);
        let team = Team::new();
        let (walk, channel) = (team.thread / CHANNELS, team.thread % CHANNELS);
        let channels = channel..channel + usize::from(walk < N_WALKS);
        let rows_of_walk = (walk..tile.n_rows).step_by(N_WALKS);
        scan_backward::convolution(&p, &made, &back, tile, channels, rows_of_walk, put, |channel, gradient| {
            put_filter(&back.x, walk, channel, gradient);
        });
        // The gradient by in_proj's outputs is complete, and the walks' sums are.
        thread::sync_threads();
        shared.project_in_backward(&made, tile, &mut sums);
        let team = Team::new();
        for half in 0..2 {
            let index = team.thread + half * team.n_threads;
            if index < CHANNELS * (TAPS + 1) {
                let of_walk = |walk: usize| back.x.get(walk * CHANNELS * (TAPS + 1) + index);
                (0..N_WALKS).for_each(|walk| sums.filter[half] += of_walk(walk));
            }
        }
        // The gradient by the embeddings is complete.
        thread::sync_threads();
        sums.embed(&shared.dembedded, &shared.operands.bars, tile);
        // The next tile overwrites what the sums have read.
        thread::sync_threads();
    }
    let first = thread::block_idx_x() as usize * N_PARAMETERS;
    sums.store(&parts.sub(first..first + N_PARAMETERS), &back.x);
}

/// Leaves a walk's sums for a channel: its taps, then its bias.
#[inline(always)]
fn put_filter(to: &SharedSlice<f32>, walk: usize, channel: usize, gradient: FilterGradient<f32>) {
    let first = (walk * CHANNELS + channel) * (TAPS + 1);
    for tap in 0..TAPS {
        to.set(first + tap, gradient.taps[tap]);
    }
    to.set(first + TAPS, gradient.bias);
}

/// Matrices of bf16 in shared memory, and what lies over memory that is used before or after.
struct Shared {
    /// W_e `[64, 32]`, zeros from column 24 on.
    embed: Stored,
    /// W_in `[304, 64]`, zeros from row 292 on.
    in_proj: Stored,
    /// W_out `[64, 128]`.
    out_proj: Stored,
    operands: Operands,
    /// Gradient by the output `[rows, 64]`, zeros behind the tile's rows.
    doutput: Stored,
    /// By z of the last bars `[rows, 128]`, likewise.
    dz: Stored,
    /// By in_proj's other outputs `[bars, 176]`, zeros behind the tile's bars and from column 164 on.
    dprojected: Stored,
    /// By RMSNorm's output, f32 `[rows, 128]`; over `dprojected`, which is made after its last use.
    dnormed: SharedSlice<f32>,
    /// By the embeddings `[bars, 64]`; over `raw`, whose last use is before.
    dembedded: Stored,
}

const IN_PROJ_ROWS: usize = INNER + SCANNED_WHOLE;

impl Shared {
    const OPERANDS: u32 =
        Back::END + Stored::bytes(WIDTH, FEATURES) + Stored::bytes(IN_PROJ_ROWS, WIDTH) + Stored::bytes(WIDTH, INNER);
    const END: u32 = Operands::end(Self::OPERANDS)
        + Stored::bytes(ROWS, WIDTH)
        + Stored::bytes(ROWS, INNER)
        + Stored::bytes(BARS, SCANNED_WHOLE);

    #[inline(always)]
    fn new() -> Self {
        let mut taker = Taker::from(Back::END);
        let taker = &mut taker;
        Self {
            embed: Stored::take(taker, WIDTH, FEATURES),
            in_proj: Stored::take(taker, IN_PROJ_ROWS, WIDTH),
            out_proj: Stored::take(taker, WIDTH, INNER),
            operands: Operands::take(taker),
            doutput: Stored::take(taker, ROWS, WIDTH),
            dz: Stored::take(taker, ROWS, INNER),
            dnormed: Taker::from(Self::END - Stored::bytes(BARS, SCANNED_WHOLE)).take(ROWS * INNER),
            dprojected: Stored::take(taker, BARS, SCANNED_WHOLE),
            dembedded: Stored::take(&mut Taker::from(0), BARS, WIDTH),
        }
    }

    #[inline(always)]
    fn load_weights(&self, p: &Parameters<'_>) {
        let team = Team::new();
        self.embed.copy(p.embed, WIDTH, N_FEATURES, FEATURES, team);
        self.in_proj.copy(p.in_proj, IN_PROJ_ROWS, WIDTH, WIDTH, team);
        self.out_proj.copy(p.out_proj, WIDTH, INNER, INNER, team);
    }

    #[inline(always)]
    fn take_doutput(&self, doutput: &GlobalSlice<f32>, stride: usize, first: usize, tile: Tile) {
        let team = Team::new();
        for index in team.each(ROWS * WIDTH) {
            let (row, column) = (index / WIDTH, index % WIDTH);
            let inside = row < tile.n_rows;
            let d = if inside { doutput.get((tile.first_row + row) * stride + first + column) } else { 0.0 };
            self.doutput.set(row, column, d);
            // z's gradient has as many columns twice over.
            if !inside {
                self.dz.set2(row, 2 * column, 0.0, 0.0);
            }
        }
    }

    /// e = W_e x + b_e: a warp makes 8 columns of half of the bars. Ends with a barrier.
    #[inline(always)]
    fn embed(&self, p: &Parameters<'_>, tile: Tile) {
        let at = Lane::new();
        let column = at.warp % 8 * 8;
        let w: [[u32; 2]; FEATURES / 16] = core::array::from_fn(|step| self.embed.b_single(at, column, 16 * step));
        let bias: [f32; 2] = core::array::from_fn(|i| p.get(offset::EMBED_BIAS, column + at.column() + i));
        for first in (at.warp / 8 * 16..tile.n_bars()).step_by(32) {
            let mut sum = [0.0f32; 4];
            for (step, w) in w.iter().enumerate() {
                multiply(self.operands.bars.a(at, |i| first + i, 16 * step), *w, &mut sum);
            }
            let (row, column) = (first + at.row(), column + at.column());
            self.operands.embedded.set2(row, column, sum[0] + bias[0], sum[1] + bias[1]);
            self.operands.embedded.set2(row + 8, column, sum[2] + bias[0], sum[3] + bias[1]);
        }
        // The embeddings are complete.
        thread::sync_threads();
    }

    /// x, B, C, dt of every bar and z of the last ones: jobs of 16 columns of 32 bars, or of 16 columns of z. Ends with a barrier.
    #[inline(always)]
    fn project_in(&self, made: &Made, tile: Tile) {
        let at = Lane::new();
        const HALVES: usize = BARS / 32;
        const N_JOBS: usize = SCANNED_WHOLE / 16 * HALVES + INNER / 16;
        for job in (at.warp..N_JOBS).step_by(N_WARPS) {
            let of_z = job >= SCANNED_WHOLE / 16 * HALVES;
            let column = if of_z { 16 * (job - SCANNED_WHOLE / 16 * HALVES) } else { 16 * (job / HALVES) };
            let row_of_w = if of_z { column } else { PROJECTED - SCANNED + column };
            let w: [[[u32; 2]; 2]; WIDTH / 16] = core::array::from_fn(|step| self.in_proj.b(at, row_of_w, 16 * step));
            if of_z {
                let sums = self.of_embedded(&w, |i| tile.last(i.min(tile.n_rows - 1)), at);
                put(&made.z, INNER, at.row(), column + at.column(), sums[0]);
                put(&made.z, INNER, at.row(), column + 8 + at.column(), sums[1]);
            } else {
                let begin = job % HALVES * 32;
                for first in (begin..tile.n_bars().min(begin + 32)).step_by(16) {
                    let sums = self.of_embedded(&w, |i| first + i, at);
                    put(&made.raw, SCANNED, first + at.row(), column + at.column(), sums[0]);
                    put(&made.raw, SCANNED, first + at.row(), column + 8 + at.column(), sums[1]);
                }
            }
        }
        // What in_proj makes is complete.
        thread::sync_threads();
    }

    /// 16 embeddings, of stored rows `row(i)`, times 16 columns.
    #[inline(always)]
    fn of_embedded(
        &self,
        w: &[[[u32; 2]; 2]; WIDTH / 16],
        row: impl Fn(usize) -> usize + Copy,
        at: Lane,
    ) -> [[f32; 4]; 2] {
        let mut sums = [[0.0f32; 4]; 2];
        for (step, w) in w.iter().enumerate() {
            let a = self.operands.embedded.a(at, row, 16 * step);
            multiply(a, w[0], &mut sums[0]);
            multiply(a, w[1], &mut sums[1]);
        }
        sums
    }

    /// dnormed = dout W_out, a warp 8 columns; dW_out. Ends with a barrier.
    #[inline(always)]
    fn project_out(&self, sums: &mut Sums) {
        let at = Lane::new();
        let column = 8 * at.warp;
        let mut sum = [0.0f32; 4];
        for k in (0..WIDTH).step_by(16) {
            multiply(self.doutput.a(at, |i| i, k), self.out_proj.b_across_single(at, |i| k + i, column), &mut sum);
        }
        put(&self.dnormed, INNER, at.row(), column + at.column(), sum);
        sums.out_proj(&self.doutput, &self.operands.normed);
        // The gradient by the norm's output is complete.
        thread::sync_threads();
    }

    /// dz W_in over `gated`, which has been used: what z adds to the gradient by the last bars' embeddings, f32 `[rows, 64]`. Half of
    /// the warps make 8 columns each.
    #[inline(always)]
    fn z_to_embedding(&self, made: &Made) {
        let at = Lane::new();
        let column = 8 * at.warp;
        if column < WIDTH {
            let mut sum = [0.0f32; 4];
            for k in (0..INNER).step_by(16) {
                multiply(self.dz.a(at, |i| i, k), self.in_proj.b_across_single(at, |i| k + i, column), &mut sum);
            }
            put(&made.gated, WIDTH, at.row(), column + at.column(), sum);
        }
    }

    /// Zeros where `dprojected` has no bar or no output.
    #[inline(always)]
    fn clear_outside(&self, tile: Tile) {
        let team = Team::new();
        const OUTSIDE: usize = (SCANNED_WHOLE - SCANNED) / 2;
        for index in team.each(BARS * OUTSIDE) {
            self.dprojected.set2(index / OUTSIDE, SCANNED + index % OUTSIDE * 2, 0.0, 0.0);
        }
        let n_outside = (BARS - tile.n_bars()) * (SCANNED / 2);
        for index in team.each(n_outside) {
            self.dprojected.set2(tile.n_bars() + index / (SCANNED / 2), index % (SCANNED / 2) * 2, 0.0, 0.0);
        }
    }

    /// de = dprojected W_in, a warp 16 columns of 16 bars, as an operand; dW_in.
    #[inline(always)]
    fn project_in_backward(&self, made: &Made, tile: Tile, sums: &mut Sums) {
        let at = Lane::new();
        let (first, column) = (at.warp % 4 * 16, at.warp / 4 * 16);
        let mut de = [[0.0f32; 4]; 2];
        for k in (0..SCANNED_WHOLE).step_by(16) {
            let a = self.dprojected.a(at, |i| first + i, k);
            let [low, high] = self.in_proj.b_across(at, |i| PROJECTED - SCANNED + k + i, column);
            multiply(a, low, &mut de[0]);
            multiply(a, high, &mut de[1]);
        }
        for half in 0..2 {
            let bar = first + at.row() + 8 * half;
            let row = tile.row_of(bar);
            let is_last = bar < tile.n_bars() && bar == tile.last(row);
            for (i, de) in de.iter_mut().enumerate() {
                let column = column + 8 * i + at.column();
                if is_last {
                    let [a, b]: [f32; 2] = made.gated.load(row * WIDTH + column);
                    de[2 * half] += a;
                    de[2 * half + 1] += b;
                }
                self.dembedded.set2(bar, column, de[2 * half], de[2 * half + 1]);
                sums.embed_bias[i][0] += de[2 * half];
                sums.embed_bias[i][1] += de[2 * half + 1];
            }
        }
        sums.in_proj(&self.dprojected, &self.dz, &self.operands.embedded, tile);
    }
}
