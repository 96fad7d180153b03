//! What the warps of a block leave of their rows, and the gradients that the block makes of it.

use cuda_std::prelude::*;

use super::parameters::{Block, EMBED, EMBED_BIAS};
use super::tensor_bars::BarsLeft;
use super::tensor_channels::Channels;
use super::tensor_channels_backward::{ChannelsBack, ChannelsGradient, SQUARE};
use super::tensor_forward::ROW_BYTES;
use super::tensor_weights::{TensorWeights, column_of};
use super::{N_FEATURES, N_HEADS, TENSOR_BARS, WIDTH};
use crate::fragments::{Lane, Stored, each, multiply};
use crate::tile::{Taker, Team};

/// Rows, and warps, of a block.
pub(super) const N_WARPS: usize = 8;
/// Features of a bar, up to a whole step of a sum.
const FEATURES: usize = N_FEATURES.next_multiple_of(16);
/// Matrices `[16, 64]` of a warp.
const N_STORED: usize = 7;
const STORED_BYTES: u32 = N_STORED as u32 * ROW_BYTES + Stored::bytes(TENSOR_BARS, FEATURES);

/// Sums of a row: the channels' matrices, their gain, the bars' gain, and the bias of the embedding.
const GAIN: usize = 4 * SQUARE;
const BARS_GAIN: usize = GAIN + TENSOR_BARS;
const BIAS: usize = BARS_GAIN + WIDTH;
const N_SUMS: usize = BIAS + WIDTH;
/// Shifts of the weights over channels.
const N_SHIFTS: usize = N_HEADS * WIDTH;

/// Shared memory of a warp.
pub(super) struct Left {
    pub bars: BarsLeft,
    /// Features of the bars `[16, 32]`.
    pub features: Stored,
    sums: SharedSlice<f32>,
    /// The attention over channels goes first, over the matrices of that over bars.
    pub channels: ChannelsBack,
    pub channels_gradient: ChannelsGradient,
}

impl Left {
    const BYTES: u32 = STORED_BYTES + 4 * (N_SUMS + N_SHIFTS) as u32;
    /// Bytes of shared memory of all warps, behind the weights.
    pub const END: u32 = TensorWeights::BYTES + N_WARPS as u32 * Self::BYTES;

    #[inline(always)]
    pub fn of_warp(warp: usize) -> Self {
        let mut taker = Taker::from(TensorWeights::BYTES + warp as u32 * Self::BYTES);
        let [a, b, c, d, e, f, g] = core::array::from_fn(|_| Stored::take(&mut taker, TENSOR_BARS, WIDTH));
        let features = Stored::take(&mut taker, TENSOR_BARS, FEATURES);
        let sums: SharedSlice<f32> = taker.take(N_SUMS);
        let shifts = taker.take(N_SHIFTS);
        let forward = Channels { x: a, q: b, k: c, v: d, mixed: f };
        Self {
            bars: BarsLeft { dq: a, dk: b, dv: c, dresidual: d, x: e, mixed: f, dx: g },
            features,
            sums,
            channels: ChannelsBack { forward, dmixed: e, weights: f, dscores: g, shifts },
            channels_gradient: ChannelsGradient { weights: sums.sub(0..GAIN), gain: sums.sub(GAIN..BARS_GAIN) },
        }
    }

    #[inline(always)]
    pub fn put_bars_gain(&self, column: usize, sum: f32) {
        self.sums.set(BARS_GAIN + column, sum);
    }

    #[inline(always)]
    pub fn put_bias(&self, column: usize, sum: f32) {
        self.sums.set(BIAS + column, sum);
    }

    /// Leaves what a row of zeros would.
    #[inline(always)]
    pub fn clear(&self) {
        let team = Team { thread: Lane::new().lane, n_threads: 32 };
        let BarsLeft { dq, dk, dv, dresidual, x, mixed, dx } = &self.bars;
        [dq, dk, dv, dresidual, x, mixed, dx, &self.features].into_iter().for_each(|stored| stored.clear(team));
        team.each(N_SUMS).for_each(|index| self.sums.set(index, 0.0));
    }
}

/// Adds what all warps have left to `part`, by the whole block.
#[inline(always)]
pub(super) fn add(part: &GlobalSliceMut<f32>, window: usize) {
    add_sums(part, window);
    let warp = Lane::new().warp;
    // A quarter of the warps is for each matrix, half of its rows for each warp.
    let (number, half) = (warp / 2, warp % 2);
    let to = part.sub(Block::bars().matrix(number)..Block::bars().matrix(number) + WIDTH * WIDTH);
    for row in (32 * half..32 * half + 32).step_by(16) {
        let operands = |warp: usize| {
            let BarsLeft { dq, dk, dv, dresidual, x, mixed, .. } = Left::of_warp(warp).bars;
            match number {
                0 => (dq, x),
                1 => (dk, x),
                2 => (dv, x),
                _ => (dresidual, mixed),
            }
        };
        add_rows(&to, row, operands);
    }
    add_embed(part);
}

/// 16 rows of the gradient of a matrix over bars, from `row` on: dy^T x of all warps' rows.
#[inline(always)]
fn add_rows(to: &GlobalSliceMut<f32>, row: usize, operands: impl Fn(usize) -> (Stored, Stored)) {
    let at = Lane::new();
    let index = |j: usize, half: usize| (row + at.row() + 8 * half) * WIDTH + 8 * j + at.column();
    let mut sums = [[0.0f32; 4]; WIDTH / 8];
    each!(J in [0 1 2 3 4 5 6 7] {
        let ([a, b], [c, d]): ([f32; 2], [f32; 2]) = (to.load(index(J, 0)), to.load(index(J, 1)));
        sums[J] = [a, b, c, d];
    });
    for warp in 0..N_WARPS {
        let (dy, x) = operands(warp);
        let a = dy.a_across(at, |bar| bar, row);
        each!(J in [0 1 2 3] {
            let [low, high] = x.b_across(at, |bar| bar, 16 * J);
            multiply(a, low, &mut sums[2 * J]);
            multiply(a, high, &mut sums[2 * J + 1]);
        });
    }
    each!(J in [0 1 2 3 4 5 6 7] {
        to.store(index(J, 0), [sums[J][0], sums[J][1]]);
        to.store(index(J, 1), [sums[J][2], sums[J][3]]);
    });
}

/// W_e's gradient: a warp makes 16 rows and 16 columns.
#[inline(always)]
fn add_embed(part: &GlobalSliceMut<f32>) {
    let at = Lane::new();
    let (row, column) = (at.warp % 4 * 16, at.warp / 4 * 16);
    let mut sums = [[0.0f32; 4]; 2];
    for warp in 0..N_WARPS {
        let left = Left::of_warp(warp);
        let a = left.bars.dx.a_across(at, |bar| bar, row);
        let [low, high] = left.features.b_across(at, |bar| bar, column);
        multiply(a, low, &mut sums[0]);
        multiply(a, high, &mut sums[1]);
    }
    each!(N in [0 1] {
        each!(H in [0 1] {
            let column = column + 8 * N + at.column();
            if column < N_FEATURES {
                let index = EMBED + (row + at.row() + 8 * H) * N_FEATURES + column;
                let [a, b]: [f32; 2] = part.load(index);
                part.store(index, [a + sums[N][2 * H], b + sums[N][2 * H + 1]]);
            }
        });
    });
}

/// Gradients of which each warp has left a sum over its row.
#[inline(always)]
fn add_sums(part: &GlobalSliceMut<f32>, window: usize) {
    let block = Block::channels(window);
    for index in Team::new().each(N_SUMS) {
        let to = if index < GAIN {
            let (number, row, column) = (index / SQUARE, index % SQUARE / TENSOR_BARS, index % TENSOR_BARS);
            let (slot, bar) = if number < 3 { (row, column) } else { (column, row) };
            column_of(slot, window).filter(|_| bar < window).map(|inner| {
                let (row, column) = if number < 3 { (inner, bar) } else { (bar, inner) };
                block.matrix(number) + row * window + column
            })
        } else if index < BARS_GAIN {
            Some(index - GAIN).filter(|bar| *bar < window).map(|bar| block.gain() + bar)
        } else if index < BIAS {
            Some(Block::bars().gain() + index - BARS_GAIN)
        } else {
            Some(EMBED_BIAS + index - BIAS)
        };
        let Some(to) = to else { continue };
        let mut sum = part.get(to);
        for warp in 0..N_WARPS {
            sum += Left::of_warp(warp).sums.get(index);
        }
        part.set(to, sum);
    }
}
