//! A row of the batch as a warp holds it: a matrix `[16, 64]`, bars below bars, in the accumulators of the tensor cores. Rows from T on
//! are zeros where a product or a sum takes them.

use cuda_std::fast;
use cuda_std::fast::pack_bf16x2;
use cuda_std::prelude::*;

use super::parameters::EMBED_BIAS;
use super::tensor_weights::TensorWeights;
use super::{N_FEATURES, WIDTH};
use crate::fragments::{Lane, Stored, a_of, each, multiply};
use crate::lanes;
use crate::tile::RMS_EPSILON;

/// Accumulator j is of columns 8 j to 8 j + 7.
pub(super) type Wide = [[f32; 4]; WIDTH / 8];
/// As A: fragment s is of columns 16 s to 16 s + 15.
pub(super) type Operands = [[u32; 4]; WIDTH / 16];
/// Features of the bars, as A.
pub(super) type Features = [[u32; 4]; 2];

/// Rounds to operands.
#[inline(always)]
pub(super) fn operands(x: &Wide) -> Operands {
    [a_of(&[x[0], x[1]]), a_of(&[x[2], x[3]]), a_of(&[x[4], x[5]]), a_of(&[x[6], x[7]])]
}

/// Stores operands `[16, 64]`.
#[inline(always)]
pub(super) fn put(to: &Stored, x: &Operands, at: Lane) {
    to.put(at, 0, x[0]);
    to.put(at, 16, x[1]);
    to.put(at, 32, x[2]);
    to.put(at, 48, x[3]);
}

/// The bars of the row that begins at `first`.
#[inline(always)]
pub(super) fn features(rows: &GlobalSlice<f32>, first: usize, window: usize, at: Lane) -> Features {
    let pair = |bar: usize, column: usize| {
        if bar >= window || column >= N_FEATURES {
            return 0;
        }
        let [low, high]: [f32; 2] = rows.load(first + bar * N_FEATURES + column);
        pack_bf16x2(low, high)
    };
    let (row, column) = (at.row(), at.column());
    let step = |k: usize| {
        [pair(row, k + column), pair(row + 8, k + column), pair(row, k + column + 8), pair(row + 8, k + column + 8)]
    };
    [step(0), step(16)]
}

/// X = x W_e^T + b_e + positions; zeros from bar T on.
#[inline(always)]
pub(super) fn embed(w: &TensorWeights<'_>, features: &Features, at: Lane) -> Wide {
    let mut x = Wide::default();
    each!(J in [0 1 2 3] {
        each!(S in [0 1] {
            let [low, high] = w.embed.b(at, 16 * J, 16 * S);
            multiply(features[S], low, &mut x[2 * J]);
            multiply(features[S], high, &mut x[2 * J + 1]);
        });
    });
    each!(J in [0 1 2 3 4 5 6 7] {
        let column = 8 * J + at.column();
        let bias: [f32; 2] = w.flat.load(EMBED_BIAS + column);
        each!(H in [0 1] {
            let bar = at.row() + 8 * H;
            let inside = bar < w.window;
            let position: [f32; 2] = if inside { w.positions.load(bar * WIDTH + column) } else { [0.0; 2] };
            x[J][2 * H] = if inside { x[J][2 * H] + bias[0] + position[0] } else { 0.0 };
            x[J][2 * H + 1] = if inside { x[J][2 * H + 1] + bias[1] + position[1] } else { 0.0 };
        });
    });
    x
}

/// Replaces S by P = softmax(S) of scores in units of ln 2 / `factor`, over `n_keys` columns; those behind become 0. Returns the shifts c
/// of the lane's two rows with which P = 2^(factor S + c).
#[inline(always)]
pub(super) fn softmax<const N: usize>(scores: &mut [[f32; 4]; N], factor: f32, n_keys: usize, at: Lane) -> [f32; 2] {
    [softmax_of::<N, 0>(scores, factor, n_keys, at), softmax_of::<N, 2>(scores, factor, n_keys, at)]
}

/// Of the rows whose elements are I and I + 1 of an accumulator.
#[inline(always)]
fn softmax_of<const N: usize, const I: usize>(scores: &mut [[f32; 4]; N], factor: f32, n_keys: usize, at: Lane) -> f32 {
    let mut most = f32::NEG_INFINITY;
    for (j, scores) in scores.iter_mut().enumerate() {
        let key = 8 * j + at.column();
        scores[I] = if key < n_keys { scores[I] } else { f32::NEG_INFINITY };
        scores[I + 1] = if key + 1 < n_keys { scores[I + 1] } else { f32::NEG_INFINITY };
        most = most.max(scores[I].max(scores[I + 1]));
    }
    most = most.max(lanes::across(most, 1));
    most = most.max(lanes::across(most, 2));
    let shift = -most * factor;
    let mut sum = 0.0;
    for scores in scores.iter_mut() {
        scores[I] = fast::exp2_flushed(GpuFloat::mul_add(scores[I], factor, shift));
        scores[I + 1] = fast::exp2_flushed(GpuFloat::mul_add(scores[I + 1], factor, shift));
        sum += scores[I] + scores[I + 1];
    }
    let over_sum = fast::rcp(over_row(sum));
    for scores in scores.iter_mut() {
        scores[I] *= over_sum;
        scores[I + 1] *= over_sum;
    }
    shift + fast::log2(over_sum)
}

/// P by the shifts that [`softmax`] returned. Off by 2^-20 of itself more than there: the logarithm of a sum of at most 64 is off by 6
/// 2^-22.
#[inline(always)]
pub(super) fn softmax_again<const N: usize>(scores: &mut [[f32; 4]; N], factor: f32, shifts: [f32; 2]) {
    let weight = |score: f32, shift: f32| fast::exp2_flushed(GpuFloat::mul_add(score, factor, shift));
    for scores in scores.iter_mut() {
        scores[0] = weight(scores[0], shifts[0]);
        scores[1] = weight(scores[1], shifts[0]);
        scores[2] = weight(scores[2], shifts[1]);
        scores[3] = weight(scores[3], shifts[1]);
    }
}

/// dS = P (dP - sum over keys of P dP), in place of dP.
#[inline(always)]
pub(super) fn softmax_backward<const N: usize>(weights: &[[f32; 4]; N], dweights: &mut [[f32; 4]; N]) {
    softmax_backward_of::<N, 0>(weights, dweights);
    softmax_backward_of::<N, 2>(weights, dweights);
}

#[inline(always)]
fn softmax_backward_of<const N: usize, const I: usize>(weights: &[[f32; 4]; N], dweights: &mut [[f32; 4]; N]) {
    let (mut even, mut odd) = (0.0f32, 0.0f32);
    for (p, dp) in weights.iter().zip(dweights.iter()) {
        even += p[I] * dp[I];
        odd += p[I + 1] * dp[I + 1];
    }
    let inner = over_row(even + odd);
    for (p, dp) in weights.iter().zip(dweights.iter_mut()) {
        dp[I] = p[I] * (dp[I] - inner);
        dp[I + 1] = p[I + 1] * (dp[I + 1] - inner);
    }
}

/// Sum over the lanes that share a row of an accumulator.
#[inline(always)]
pub(super) fn over_row(sum: f32) -> f32 {
    let sum = sum + lanes::across(sum, 1);
    sum + lanes::across(sum, 2)
}

/// Sum over the lanes that share a column.
#[inline(always)]
pub(super) fn over_column(sum: f32) -> f32 {
    let sum = sum + lanes::across(sum, 4);
    let sum = sum + lanes::across(sum, 8);
    sum + lanes::across(sum, 16)
}

/// 1 / sqrt(mean of squares + 1e-5).
#[inline(always)]
pub(super) fn inverse_rms(sum_of_squares: f32, over_width: f32) -> f32 {
    fast::rsqrt(sum_of_squares * over_width + RMS_EPSILON)
}
