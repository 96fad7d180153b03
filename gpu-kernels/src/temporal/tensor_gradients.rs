//! Gradients of the parameters as the threads of a block keep them from tile to tile.

use cuda_std::prelude::*;

use super::parameters::offset;
use super::tensor_backward::SCANNED_WHOLE;
use super::{CHANNELS, INNER, N_FEATURES, N_HEADS, PROJECTED, SCANNED, TAPS, WIDTH};
use crate::fragments::{Lane, Stored, multiply};
use crate::lanes;
use crate::tile::{Team, Tile};

/// Warps side by side over the columns of dW_in, and one above the other over its rows.
const GROUPS: usize = 4;
/// Fragments of 16 rows of dW_in: x, B, C, dt; and the most of them that a warp makes.
const N_SCANNED: usize = SCANNED_WHOLE / 16;
const SCANNED_EACH: usize = N_SCANNED.div_ceil(GROUPS);
/// Those of z.
const Z_EACH: usize = INNER / 16 / GROUPS;

/// A thread's share: of the matrices as fragments of its warp, of the others element by element.
#[derive(Default)]
pub(super) struct Sums {
    /// dW_in, rows of x, B, C, dt: 16 rows from 16 (group + 4 i), 16 columns.
    scanned: [[[f32; 4]; 2]; SCANNED_EACH],
    /// Rows of z, likewise.
    z: [[[f32; 4]; 2]; Z_EACH],
    /// dW_out: 16 rows, 32 columns.
    out: [[f32; 4]; 4],
    /// dW_e: 16 rows, 8 columns, of 12 warps.
    embed: [f32; 4],
    /// Bias of the embedding: columns 8 i and 8 i + 1 from the thread's on, of the bars that it made.
    pub embed_bias: [[f32; 2]; 2],
    /// Taps and bias of the convolution, as walks leave them: elements thread and thread + 512.
    pub filter: [f32; 2],
    /// Gain number thread.
    pub gain: f32,
    /// dt_bias, A_log, D, number thread of the twelve.
    pub head: f32,
}

impl Sums {
    /// Columns and rows of a warp in dW_in.
    #[inline(always)]
    fn place(at: Lane) -> (usize, usize) {
        (at.warp % GROUPS, at.warp / GROUPS)
    }

    /// dW_out += dout^T normed.
    #[inline(always)]
    pub fn out_proj(&mut self, doutput: &Stored, normed: &Stored) {
        let at = Lane::new();
        let (row, column) = (at.warp % 4 * 16, at.warp / 4 * 32);
        let a = doutput.a_across(at, |k| k, row);
        for pair in 0..2 {
            let [low, high] = normed.b_across(at, |k| k, column + 16 * pair);
            multiply(a, low, &mut self.out[2 * pair]);
            multiply(a, high, &mut self.out[2 * pair + 1]);
        }
    }

    /// dW_in += dprojected^T e, that of z over the last bars alone.
    #[inline(always)]
    pub fn in_proj(&mut self, dprojected: &Stored, dz: &Stored, embedded: &Stored, tile: Tile) {
        let at = Lane::new();
        let (across, group) = Self::place(at);
        for first in (0..tile.n_bars()).step_by(16) {
            let [low, high] = embedded.b_across(at, |k| first + k, 16 * across);
            for (i, sums) in self.scanned.iter_mut().enumerate() {
                let number = group + GROUPS * i;
                // The same for the whole warp.
                if number < N_SCANNED {
                    let a = dprojected.a_across(at, |k| first + k, 16 * number);
                    multiply(a, low, &mut sums[0]);
                    multiply(a, high, &mut sums[1]);
                }
            }
        }
        let last = |row: usize| tile.last(row.min(tile.n_rows - 1));
        let [low, high] = embedded.b_across(at, last, 16 * across);
        for (i, sums) in self.z.iter_mut().enumerate() {
            let a = dz.a_across(at, |k| k, 16 * (group + GROUPS * i));
            multiply(a, low, &mut sums[0]);
            multiply(a, high, &mut sums[1]);
        }
    }

    /// dW_e += de^T x.
    #[inline(always)]
    pub fn embed(&mut self, dembedded: &Stored, bars: &Stored, tile: Tile) {
        let at = Lane::new();
        let (row, column) = (at.warp % 4 * 16, at.warp / 4 * 8);
        if column < N_FEATURES {
            for first in (0..tile.n_bars()).step_by(16) {
                let b = bars.b_across_single(at, |k| first + k, column);
                multiply(dembedded.a_across(at, |k| first + k, row), b, &mut self.embed);
            }
        }
    }

    /// Stores everything, and zeros in the gaps. `scratch` holds at least 256 f32 that nobody reads any more.
    #[inline(always)]
    pub fn store(&self, part: &GlobalSliceMut<f32>, scratch: &SharedSlice<f32>) {
        let (team, at) = (Team::new(), Lane::new());
        let put = |first: usize, n_columns: usize, n_rows: usize, row: usize, column: usize, sum: &[f32; 4]| {
            for half in 0..2 {
                let (row, column) = (row + at.row() + 8 * half, column + at.column());
                if row < n_rows {
                    part.store(first + row * n_columns + column, [sum[2 * half], sum[2 * half + 1]]);
                }
            }
        };
        let (across, group) = Self::place(at);
        for half in 0..2 {
            let column = 16 * across + 8 * half;
            for (i, sums) in self.z.iter().enumerate() {
                put(offset::IN_PROJ, WIDTH, INNER, 16 * (group + GROUPS * i), column, &sums[half]);
            }
            let first = offset::IN_PROJ + (PROJECTED - SCANNED) * WIDTH;
            for (i, sums) in self.scanned.iter().enumerate() {
                put(first, WIDTH, SCANNED, 16 * (group + GROUPS * i), column, &sums[half]);
            }
        }
        for (i, sum) in self.out.iter().enumerate() {
            put(offset::OUT_PROJ, INNER, WIDTH, at.warp % 4 * 16, at.warp / 4 * 32 + 8 * i, sum);
        }
        if at.warp / 4 * 8 < N_FEATURES {
            put(offset::EMBED, N_FEATURES, WIDTH, at.warp % 4 * 16, at.warp / 4 * 8, &self.embed);
        }
        for half in 0..2 {
            let index = team.thread + half * team.n_threads;
            let (channel, which) = (index / (TAPS + 1), index % (TAPS + 1));
            if channel < CHANNELS {
                let taps = offset::CONV + channel * TAPS + which;
                part.set(if which < TAPS { taps } else { offset::CONV_BIAS + channel }, self.filter[half]);
            }
        }
        if team.thread < INNER {
            part.set(offset::GAIN + team.thread, self.gain);
        }
        if team.thread < 3 * N_HEADS {
            part.set(offset::of_head(team.thread / N_HEADS) + team.thread % N_HEADS, self.head);
        }
        self.store_embed_bias(part, scratch, team, at);
        let clear = |gap: usize, end: usize| team.each(end - gap).for_each(|at| part.set(gap + at, 0.0));
        clear(offset::CONV_BIAS + CHANNELS, offset::DT_BIAS);
        clear(offset::DT_BIAS + N_HEADS, offset::A_LOG);
        clear(offset::A_LOG + N_HEADS, offset::D);
        clear(offset::D + N_HEADS, offset::GAIN);
    }

    /// Adds the bias's sums over the rows of a fragment, which lie in eight lanes, and over the fragments of four warps.
    #[inline(always)]
    fn store_embed_bias(&self, part: &GlobalSliceMut<f32>, scratch: &SharedSlice<f32>, team: Team, at: Lane) {
        for (i, pair) in self.embed_bias.iter().enumerate() {
            for (j, sum) in pair.iter().enumerate() {
                let sum = *sum + lanes::across(*sum, 4);
                let sum = sum + lanes::across(sum, 8);
                let sum = sum + lanes::across(sum, 16);
                if at.lane < 4 {
                    scratch.set(at.warp % 4 * WIDTH + at.warp / 4 * 16 + 8 * i + at.column() + j, sum);
                }
            }
        }
        // The warps' sums are complete.
        thread::sync_threads();
        for column in team.each(WIDTH) {
            let sum = |warp: usize| scratch.get(warp * WIDTH + column);
            part.set(offset::EMBED_BIAS + column, (sum(0) + sum(1)) + (sum(2) + sum(3)));
        }
    }
}
