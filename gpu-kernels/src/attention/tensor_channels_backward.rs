//! The backward pass of the attention over channels of a row by a warp.

use cuda_std::prelude::*;

use super::forward::scale;
use super::tensor_channels::{
    Channels, add_of_head, columns_of_head, compare, first_slot, gains, put_across, rows_of_head,
};
use super::tensor_row::{Wide, inverse_rms, operands, over_column, over_row, put, softmax_again, softmax_backward};
use super::tensor_weights::TensorWeights;
use super::{N_HEADS, TENSOR_BARS, WIDTH};
use crate::fragments::{Lane, Stored, a_of, each, multiply};
use crate::lanes;

/// Elements of the gradient of a matrix: by slots and bars.
pub(super) const SQUARE: usize = TENSOR_BARS * TENSOR_BARS;

/// Matrices `[16, 64]` of a warp; those of the forward pass besides have been made by it.
pub(super) struct ChannelsBack {
    pub forward: Channels,
    /// Gradient by P V, slots below slots.
    pub dmixed: Stored,
    /// P, and dS or before it the gradient by X + MHA(X), of 16 queries of a head. P may be `forward.mixed`.
    pub weights: Stored,
    pub dscores: Stored,
    /// Shifts of the weights, by the forward pass, `[heads, 64]`.
    pub shifts: SharedSlice<f32>,
}

/// Where the gradients of a row go, in shared memory.
pub(super) struct ChannelsGradient {
    /// W_q, W_k, W_v `[slots, bars]` and W_o `[bars, slots]`, 16 x 16 each.
    pub weights: SharedSlice<f32>,
    /// Gain `[16]`.
    pub gain: SharedSlice<f32>,
}

impl ChannelsBack {
    /// From the gradient by the output, whose 64 elements begin at `first` of `doutput`, to that by X, bars below bars; `residual` is
    /// X + MHA(X). Zeros from bar T on.
    #[inline(always)]
    pub fn run(
        &self,
        w: &TensorWeights<'_>,
        residual: Wide,
        doutput: &GlobalSlice<f32>,
        first: usize,
        gradient: &ChannelsGradient,
    ) -> Wide {
        let mut dx = norm_backward(w, residual, doutput, first, &gradient.gain);
        self.through_wo(w, &operands(&dx), gradient);
        // The gradient by P V is complete, and P and dS come over what has been read.
        lanes::sync();
        let (dk, dv) = self.through_scores(w);
        let at = Lane::new();
        put(&self.forward.k, &operands(&dk), at);
        put(&self.forward.v, &operands(&dv), at);
        // All three gradients are complete.
        lanes::sync();
        self.through_projection(w, 0, &self.forward.q, &mut dx, gradient);
        self.through_projection(w, 1, &self.forward.k, &mut dx, gradient);
        self.through_projection(w, 2, &self.forward.v, &mut dx, gradient);
        dx
    }

    /// The gradient by P V, and W_o's, from that by X + MHA(X).
    #[inline(always)]
    fn through_wo(&self, w: &TensorWeights<'_>, dresidual: &[[u32; 4]; 4], gradient: &ChannelsGradient) {
        let at = Lane::new();
        put(&self.dscores, dresidual, at);
        // Products across read other lanes' elements.
        lanes::sync();
        let wo = w.channels.a_across(at, |bar| 3 * TENSOR_BARS + bar, 0);
        for token in (0..WIDTH).step_by(16) {
            let [low, high] = self.dscores.b_across(at, |bar| bar, token);
            let mut sums = [[0.0f32; 4]; 2];
            multiply(wo, low, &mut sums[0]);
            multiply(wo, high, &mut sums[1]);
            self.dmixed.put(at, token, a_of(&sums));
        }
        let mut sums = [[0.0f32; 4]; 2];
        each!(S in [0 1 2 3] {
            let [low, high] = self.forward.mixed.b(at, 0, 16 * S);
            multiply(dresidual[S], low, &mut sums[0]);
            multiply(dresidual[S], high, &mut sums[1]);
        });
        put_square(&gradient.weights, 3, &sums, at);
    }

    /// Gradients by keys and values, slots below slots; that by the queries goes over them.
    #[inline(always)]
    fn through_scores(&self, w: &TensorWeights<'_>) -> (Wide, Wide) {
        let Channels { q, k, v, .. } = &self.forward;
        let scale = scale(w.window);
        let (mut dk, mut dv) = (Wide::default(), Wide::default());
        for query in (0..WIDTH).step_by(16) {
            let mut dq = [[0.0f32; 4]; 2];
            for head in 0..N_HEADS {
                let at = Lane::new();
                let of_head = |from: &Stored| columns_of_head(from.a_across(at, |slot| slot, query), head, at);
                let mut weights = compare(of_head(q), k, at);
                let shift = |below: usize| self.shifts.get(head * WIDTH + query + at.row() + below);
                softmax_again(&mut weights, scale * core::f32::consts::LOG2_E, [shift(0), shift(8)]);
                let mut dscores = compare(of_head(&self.dmixed), v, at);
                softmax_backward(&weights, &mut dscores);
                let (weights, dscores) = (operands(&weights), operands(&dscores));
                // The head before has been read.
                lanes::sync();
                put(&self.weights, &weights, at);
                put(&self.dscores, &dscores, at);
                // Products across read other lanes' elements.
                lanes::sync();
                let mut sums = [0.0f32; 4];
                each!(S in [0 1 2 3] {
                    multiply(dscores[S], k.b_single(at, first_slot(head), 16 * S), &mut sums);
                });
                add_of_head(&mut dq, &sums, head, at);
                let across = |from: &Stored| rows_of_head(from.a(at, |slot| slot, query), head, at);
                let (q, dmixed) = (across(q), across(&self.dmixed));
                each!(J in [0 1 2 3] {
                    let [low, high] = self.dscores.b_across(at, |query| query, 16 * J);
                    multiply(q, low, &mut dk[2 * J]);
                    multiply(q, high, &mut dk[2 * J + 1]);
                    let [low, high] = self.weights.b_across(at, |query| query, 16 * J);
                    multiply(dmixed, low, &mut dv[2 * J]);
                    multiply(dmixed, high, &mut dv[2 * J + 1]);
                });
            }
            // These queries have been read for the last time.
            lanes::sync();
            put_across(q, query, &dq.map(|sums| sums.map(|d| d * scale)), Lane::new());
        }
        // Keys and values have been read, and the gradient by the queries is complete.
        lanes::sync();
        (dk.map(|sums| sums.map(|d| d * scale)), dv)
    }

    /// Through W_q, W_k or W_v, number `number`, with the gradient `d` by what it makes: adds d W to the gradient by X.
    #[inline(always)]
    fn through_projection(
        &self,
        w: &TensorWeights<'_>,
        number: usize,
        d: &Stored,
        dx: &mut Wide,
        gradient: &ChannelsGradient,
    ) {
        let at = Lane::new();
        let matrix = w.channels.a_across(at, |slot| number * TENSOR_BARS + slot, 0);
        let mut sums = [[0.0f32; 4]; 2];
        each!(J in [0 1 2 3] {
            let [low, high] = d.b_across(at, |slot| slot, 16 * J);
            multiply(matrix, low, &mut dx[2 * J]);
            multiply(matrix, high, &mut dx[2 * J + 1]);
            let a = d.a(at, |slot| slot, 16 * J);
            let [low, high] = self.forward.x.b(at, 0, 16 * J);
            multiply(a, low, &mut sums[0]);
            multiply(a, high, &mut sums[1]);
        });
        put_square(&gradient.weights, number, &sums, at);
    }
}

/// The gradient by the norm's input `x`.
#[inline(always)]
fn norm_backward(
    w: &TensorWeights<'_>,
    mut x: Wide,
    doutput: &GlobalSlice<f32>,
    first: usize,
    dgain: &SharedSlice<f32>,
) -> Wide {
    let (at, over_window, gain) = (Lane::new(), 1.0 / w.window as f32, gains(w));
    let mut dgains = [0.0f32; 2];
    each!(J in [0 1 2 3 4 5 6 7] {
        let d: [f32; 2] = doutput.load(first + 8 * J + at.column());
        each!(I in [0 1] {
            // The mean's gradient is the same for every bar.
            let d = d[I] * over_window;
            let (upper, lower) = (x[J][I], x[J][2 + I]);
            let scale = inverse_rms(over_column(upper * upper + lower * lower), over_window);
            let inner = d * over_column(gain[0] * upper + gain[1] * lower);
            let along = scale * scale * scale * inner * over_window;
            dgains[0] += d * upper * scale;
            dgains[1] += d * lower * scale;
            x[J][I] = gain[0] * d * scale - upper * along;
            x[J][2 + I] = gain[1] * d * scale - lower * along;
        });
    });
    each!(H in [0 1] {
        let sum = over_row(dgains[H]);
        if at.column() == 0 {
            dgain.set(at.row() + 8 * H, sum);
        }
    });
    x
}

/// Stores the gradient of a matrix.
#[inline(always)]
fn put_square(to: &SharedSlice<f32>, number: usize, sums: &[[f32; 4]; 2], at: Lane) {
    each!(N in [0 1] {
        each!(H in [0 1] {
            let index = number * SQUARE + (at.row() + 8 * H) * TENSOR_BARS + 8 * N + at.column();
            to.store(index, [sums[N][2 * H], sums[N][2 * H + 1]]);
        });
    });
}
