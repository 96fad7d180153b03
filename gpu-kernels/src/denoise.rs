//! Denoise: an autoencoder of the last bar's features (Vincent et al. 2008, section 2.3), SiLU(W_e x + b_e) with a linear decoder. Its
//! bottleneck on clean features is a part of the trunk's input: [`trunk_input`](crate::trunk::input::trunk_input()).
//!
//! The learner's parameters lie together in the flat vector: [`ENCODER`], [`ENCODER_BIAS`], [`DECODER`], [`DECODER_BIAS`]. Products
//! take both operands rounded, as all with a weight matrix do.

use cuda_std::prelude::*;
use shared_types::market::N_FEATURES;
use shared_types::{Counters, Precision, stream};

use crate::sweep::{self, VECTOR, Vector};
use crate::{lanes, math, operand, philox};

/// Width of the bottleneck.
pub const BOTTLENECK: usize = 32;
/// First element of the encoder's weights `[32, 24]` among the learner's.
pub const ENCODER: usize = 0;
/// Of its bias.
pub const ENCODER_BIAS: usize = ENCODER + BOTTLENECK * N_FEATURES;
/// Of the decoder's weights `[24, 32]`.
pub const DECODER: usize = (ENCODER_BIAS + BOTTLENECK).next_multiple_of(64);
/// Of its bias.
pub const DECODER_BIAS: usize = DECODER + N_FEATURES * BOTTLENECK;

/// Columns of the operands of the weight gradients: inputs are `[x noisy 24 | code 32]`, gradients
/// `[d encoder 32 | d decoder 24]`.
pub const N_COLUMNS: usize = N_FEATURES + BOTTLENECK;
const CODE: usize = N_FEATURES;
const D_ENCODER: usize = N_COLUMNS;
const D_DECODER: usize = D_ENCODER + BOTTLENECK;
const PRE: usize = 2 * N_COLUMNS;
/// Elements that a row keeps in shared memory: inputs, gradients, the encoder's output before SiLU.
const N_KEPT: usize = PRE + BOTTLENECK;
const _: () = assert!((CODE | D_ENCODER | D_DECODER | PRE | N_KEPT).is_multiple_of(VECTOR));

/// Constants of [`denoise_rows()`]; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenoiseParams {
    /// Key of the random generator: low word, high word of the seed.
    pub seed: [u32; 2],
    /// Bars of a state.
    pub window: u32,
    /// Standard deviation of the noise.
    pub noise: f32,
}

/// Each row's loss, and what the weight gradients multiply.
///
/// loss = 1 / (B F) sum_f (decoded_f - x_f)^2, so that the rows' sum is the mean squared error; decoded of x + noise. Draws:
/// normals of stream `DENOISE`, element row * F + feature. Shapes: rows `[B, stride]`; parameters of the learner; counters
/// \[1\], of which it reads rng_step; inputs, gradients operands `[B, 56]`, see [`N_COLUMNS`]; row_losses `[B]`. Launch:
/// [`lanes::row_shape`] (B, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn denoise_rows(
    rows: GlobalSlice<f32>,
    parameters: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    inputs: GlobalSliceMut<u16>,
    gradients: GlobalSliceMut<u16>,
    row_losses: GlobalSliceMut<f32>,
    params: DenoiseParams,
    precision: Precision,
) {
    let block = shared_slice![f32; lanes::ROWS_A_BLOCK * N_KEPT];
    let n_rows = row_losses.len();
    let Some(row) = lanes::row_index(n_rows) else { return };
    let place = thread::thread_idx_y() as usize * N_KEPT;
    let kept = block.sub(place..place + N_KEPT);
    let clean = row * sweep::n_rows(rows.len(), n_rows) + (params.window as usize - 1) * N_FEATURES;
    let step = counters.get(0).rng_step as u32;
    let share = 1.0 / (n_rows * N_FEATURES) as f32;
    let rounded = |value: f32| operand::rounded(value, precision);
    let layer = |weights: usize, from: usize, n: usize| {
        let mut sums = [0.0; VECTOR];
        for at in (0..n).step_by(VECTOR) {
            let (w, x): (Vector, Vector) = (parameters.load(weights + at), kept.load(from + at));
            sweep::add(&mut sums, |k| rounded(w[k]) * x[k]);
        }
        let [a, b, c, d] = sums;
        (a + b) + (c + d)
    };

    across(N_FEATURES, |f| {
        let normal = philox::normal(params.seed, stream::DENOISE, step, (row * N_FEATURES + f) as u32);
        kept.set(f, rounded(rows.get(clean + f) + params.noise * normal));
    });
    // Between each stage's writes and the next one's reads of all of them; so too below.
    lanes::sync_row();
    across(BOTTLENECK, |j| {
        let pre = layer(ENCODER + j * N_FEATURES, 0, N_FEATURES) + parameters.get(ENCODER_BIAS + j);
        kept.set(PRE + j, pre);
        kept.set(CODE + j, rounded(math::silu(pre)));
    });
    lanes::sync_row();
    let mut squares = 0.0;
    across(N_FEATURES, |f| {
        let decoded = layer(DECODER + f * BOTTLENECK, CODE, BOTTLENECK) + parameters.get(DECODER_BIAS + f);
        let off = decoded - rows.get(clean + f);
        squares += off * off;
        kept.set(D_DECODER + f, rounded(2.0 * off * share));
    });
    let squares = lanes::row_sum(squares);
    if thread::thread_idx_x() == 0 {
        row_losses.set(row, squares * share);
    }
    lanes::sync_row();
    across(BOTTLENECK, |j| {
        let mut by_code = 0.0;
        for f in 0..N_FEATURES {
            by_code += kept.get(D_DECODER + f) * rounded(parameters.get(DECODER + f * BOTTLENECK + j));
        }
        kept.set(D_ENCODER + j, by_code * math::silu_slope(kept.get(PRE + j)));
    });
    lanes::sync_row();
    across(2 * N_COLUMNS / VECTOR, |vector| {
        let at = VECTOR * vector;
        if at < N_COLUMNS {
            operand::store4(&inputs, row * N_COLUMNS + at, kept.load(at), precision);
        } else {
            operand::store4(&gradients, row * N_COLUMNS + at - N_COLUMNS, kept.load(at), precision);
        }
    });
}

/// Calls `work` with this lane's share of 0 to `n` - 1.
#[inline(always)]
fn across(n: usize, mut work: impl FnMut(usize)) {
    let mut at = thread::thread_idx_x() as usize;
    while at < n {
        work(at);
        at += lanes::of_row();
    }
}

/// Four columns from `first` on of the bottleneck of the features at `features` of `rows`.
#[inline(always)]
pub(crate) fn bottleneck4(
    rows: &GlobalSlice<f32>,
    features: usize,
    parameters: &GlobalSlice<f32>,
    first: usize,
    precision: Precision,
) -> Vector {
    let mut sums: Vector = [0.0; VECTOR];
    for at in (0..N_FEATURES).step_by(VECTOR) {
        let x = rows.load::<VECTOR>(features + at).map(|x| operand::rounded(x, precision));
        sums = core::array::from_fn(|k| {
            let w = parameters.load::<VECTOR>(ENCODER + (first + k) * N_FEATURES + at);
            let [a, b, c, d]: Vector = core::array::from_fn(|i| operand::rounded(w[i], precision) * x[i]);
            sums[k] + ((a + b) + (c + d))
        });
    }
    let bias: Vector = parameters.load(ENCODER_BIAS + first);
    core::array::from_fn(|k| math::silu(sums[k] + bias[k]))
}
