//! IQL's value heads (Kostrikov, Nair, Levine 2022, arXiv:2110.06169, equation 5) under PopArt (van Hasselt et al. 2016,
//! arXiv:1602.07714, proposition 1 and section 2.2), one set of statistics for both.
//!
//! | value | equation |
//! |---|---|
//! | out | w SiLU(pre) + b, pre = W h + b of a matrix product, h held constant |
//! | q | 1/4 sum_b Q_b(s, a_b) of the online pass; on purpose not the target net's, which would cost another pass |
//! | mu, nu | averages of the batch's mean q and q^2, rate 0.01, the first batch seeds |
//! | std | max(sqrt(nu - mu^2), 1e-4); 1 before the first batch |
//! | rescaling | w' = w std / std', b' = (std b + mu - mu') / std': V = std out + mu does not change |
//! | without PopArt | mu 0, std 1, nothing is rescaled: V is the raw output, and its target q |
//! | loss | mean of \|e - 1(x < 0)\| x^2, x = (q - mu') / std' - out', e = 0.9 for V_high, 0.1 for V_low |
//!
//! The heads' hidden layers do not depend on PopArt, so the raw outputs of a step are those of the last layers as they stood,
//! rescaled as numbers: out' = out std / std' + (mu - mu') / std'. The parameters follow in
//! [`settle_heads`](crate::settle::settle_heads()), once the step is known not to be gated.
//!
//! Three kernels: a warp a row for the outputs; one block for statistics, losses and gradients by the outputs; a thread for four
//! columns of a stretch of rows for the gradients by the hidden layers. A last layer is a slice of the flat parameters
//! whose first 128 elements are the weights and whose last is the bias.

use cuda_std::prelude::*;
use shared_types::market::N_BRANCHES;
use shared_types::{IqlTotals, PopArt, Precision};

use crate::block::{self, N_WARPS};
use crate::columns::{Stretch, column_partials_shape};
use crate::heads::{N_ACTIONS, first_action};
use crate::sweep::{VECTOR, Vector, add, each, unrolled};
use crate::{isv, lanes, math, operand};

/// Width of the hidden layers.
pub const HIDDEN: usize = 128;
/// V_high and V_low.
pub const N_HEADS: usize = 2;
/// Their expectiles.
pub const EXPECTILES: [f32; N_HEADS] = [0.9, 0.1];
/// Lower bound of PopArt's std.
pub const MIN_STD: f32 = 1e-4;
/// Columns of the hidden layers together.
const N_COLUMNS: usize = N_HEADS * HIDDEN;
/// Columns of the partial sums of [`iql_hidden_gradient()`]: of the hidden biases, then of the last layers' weights.
pub const N_PARTIAL_COLUMNS: usize = 2 * N_COLUMNS;

/// Launch of [`iql_loss()`].
pub const fn iql_loss_shape(lanes: u32) -> LaunchShape {
    block::shape(lanes)
}

/// Launch of [`iql_hidden_gradient()`].
pub const fn iql_hidden_gradient_shape(n_rows: usize) -> LaunchShape {
    column_partials_shape(n_rows, N_COLUMNS)
}

/// Raw outputs of both heads, before PopArt's rescaling, and q of the actions taken.
///
/// Shapes: pre `[2, B, 128]`, V_high's first; high, low `[129 or more]`, last layers; q `[B, 13]`; actions `[B]`; outputs `[B, 2]`;
/// q_taken `[B]`. Error of an output: 2^-20 and 9 additions' 2^-24 of sum |w SiLU(pre)| with 32 lanes, 34 additions alone. Launch:
/// [`lanes::row_shape`] (B, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn iql_outputs(
    pre: GlobalSlice<f32>,
    high: GlobalSlice<f32>,
    low: GlobalSlice<f32>,
    q: GlobalSlice<f32>,
    actions: GlobalSlice<[u8; 4]>,
    outputs: GlobalSliceMut<f32>,
    q_taken: GlobalSliceMut<f32>,
) {
    let n_rows = actions.len();
    let Some(row) = lanes::row_index(n_rows) else { return };
    let out = |head: usize, last: &GlobalSlice<f32>| output(&pre, (head * n_rows + row) * HIDDEN, last);
    let values = [out(0, &high), out(1, &low)];
    if thread::thread_idx_x() == 0 {
        outputs.store(N_HEADS * row, values);
        let [direction, size, order, hold] = actions.get(row);
        let of = |branch: usize, action: u8| q.get(row * N_ACTIONS + first_action(branch) + action as usize);
        let sum = (of(0, direction) + of(1, size)) + (of(2, order) + of(3, hold));
        q_taken.set(row, sum * (1.0 / N_BRANCHES as f32));
    }
}

/// w SiLU(pre) + b of the hidden row that begins at `start`; every lane gets it.
#[inline(always)]
fn output(pre: &GlobalSlice<f32>, start: usize, last: &GlobalSlice<f32>) -> f32 {
    let mut sums = [0.0; VECTOR];
    let mut at = VECTOR * thread::thread_idx_x() as usize;
    while at < HIDDEN {
        let (x, w): (Vector, Vector) = (pre.load(start + at), last.load(at));
        add(&mut sums, |k| w[k] * math::silu(x[k]));
        at += VECTOR * lanes::of_row();
    }
    let [a, b, c, d] = sums;
    lanes::row_sum((a + b) + (c + d)) + last.get(last.len() - 1)
}

/// PopArt with this batch, both losses, and their gradients by the rescaled outputs.
///
/// Shapes: outputs `[B, 2]` and q_taken `[B]` of [`iql_outputs()`]; popart \[1\] as the step began, or \[0\] without PopArt; values
/// `[2, B]`: V_high, then V_low; d_outputs `[B, 2]`; losses \[2\]; totals \[1\]; high_bias, low_bias \[1\], the gradients by the last
/// layers' biases. Launch: [`iql_loss_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn iql_loss(
    outputs: GlobalSlice<f32>,
    q_taken: GlobalSlice<f32>,
    popart: GlobalSlice<PopArt>,
    values: GlobalSliceMut<f32>,
    d_outputs: GlobalSliceMut<f32>,
    losses: GlobalSliceMut<f32>,
    totals: GlobalSliceMut<IqlTotals>,
    high_bias: GlobalSliceMut<f32>,
    low_bias: GlobalSliceMut<f32>,
) {
    let scratch = shared_slice![f64; 5 * N_WARPS];
    let n_rows = q_taken.len();
    let n = n_rows as f64;
    let (mut before, mut after) = (PopArt::default(), PopArt::default());
    // The whole block takes the same way here.
    if !popart.is_empty() {
        let mut moments = [0.0; 2];
        block::for_rows(n_rows, |row| {
            let q = q_taken.get(row) as f64;
            moments[0] += q;
            moments[1] += q * q;
        });
        let [sum, squares] = block::sums(moments, &scratch);
        before = popart.get(0);
        after = updated(before, sum / n, squares / n);
    }
    let rescaled = rescaling(before, after);
    let (old_std, share) = (std(&before), 1.0 / n_rows as f32);
    let mut found = [0.0; 5];
    block::for_rows(n_rows, |row| {
        let target = (q_taken.get(row) as f64 - rescaled.popart.mean) as f32 / rescaled.std;
        let [high, low] = outputs.load(N_HEADS * row);
        let raw = [high, low].map(|out| out * rescaled.shrink + rescaled.shift);
        let [(of_high, d_high), (of_low, d_low)] =
            [expectile_loss(EXPECTILES[0], target - raw[0]), expectile_loss(EXPECTILES[1], target - raw[1])];
        d_outputs.store(N_HEADS * row, [d_high * share, d_low * share]);
        values.set(row, ((old_std * high) as f64 + before.mean) as f32);
        values.set(n_rows + row, ((old_std * low) as f64 + before.mean) as f32);
        let terms = [of_high, of_low, d_high, d_low, old_std * (high - low)];
        unrolled::<5>(|part| found[part] += terms[part] as f64);
    });
    let means = block::sums(found, &scratch);
    if thread::thread_idx_x() == 0 {
        let [high, low, d_high, d_low, gap] = means.map(|sum| (sum / n) as f32);
        losses.store(0, [high, low]);
        high_bias.set(0, d_high);
        low_bias.set(0, d_low);
        totals.set(0, IqlTotals { gap, ..rescaled });
    }
}

/// |e - 1(x < 0)| x^2 and its derivative by -x; NaN for NaN.
#[inline]
pub fn expectile_loss(expectile: f32, x: f32) -> (f32, f32) {
    let weight = if x < 0.0 { 1.0 - expectile } else { expectile };
    (weight * x * x, -2.0 * weight * x)
}

/// PopArt's averages after a batch with these means of q and q^2.
#[inline]
pub fn updated(before: PopArt, mean: f64, square: f64) -> PopArt {
    let blend = |old: f64, new: f64| if before.seeded == 0 { new } else { old + isv::RATE as f64 * (new - old) };
    PopArt { mean: blend(before.mean, mean), square: blend(before.square, square), seeded: 1, reserved: 0 }
}

/// PopArt's std. A NaN goes through.
#[inline]
pub fn std(popart: &PopArt) -> f32 {
    if popart.seeded == 0 {
        return 1.0;
    }
    let variance = (popart.square - popart.mean * popart.mean) as f32;
    let std = math::sqrt(if variance < 0.0 { 0.0 } else { variance });
    if std < MIN_STD { MIN_STD } else { std }
}

/// How outputs under `before` become outputs under `after`; the gap is left 0.
#[inline]
pub fn rescaling(before: PopArt, after: PopArt) -> IqlTotals {
    let std_after = std(&after);
    let shift = (before.mean - after.mean) as f32 / std_after;
    IqlTotals { popart: after, std: std_after, shrink: std(&before) / std_after, shift, gap: 0.0 }
}

/// Gradients by the hidden layers before SiLU, d w'_j SiLU'(pre_j), and partial sums over rows of them and of d SiLU(pre_j): first
/// stage of the gradients of the hidden biases and of the last layers' weights.
///
/// Shapes: pre `[2, B, 128]`; d_outputs `[B, 2]`; high, low last layers before rescaling; totals \[1\]; d_pre operand `[2, B, 128]`;
/// partials `[P, 512]`, P of [`n_column_partials`](crate::columns::n_column_partials): hidden biases of V_high and V_low, then
/// their last weights. Launch: [`iql_hidden_gradient_shape`].
#[kernel(max_threads = 128)]
pub fn iql_hidden_gradient(
    pre: GlobalSlice<f32>,
    d_outputs: GlobalSlice<f32>,
    high: GlobalSlice<f32>,
    low: GlobalSlice<f32>,
    totals: GlobalSlice<IqlTotals>,
    d_pre: GlobalSliceMut<u16>,
    partials: GlobalSliceMut<f32>,
    precision: Precision,
) {
    let n_rows = d_outputs.len() / N_HEADS;
    let Some(stretch) = Stretch::of_thread(n_rows, N_COLUMNS) else { return };
    let (head, column) = (stretch.column / HIDDEN, stretch.column % HIDDEN);
    let last: Vector = if head == 0 { high.load(column) } else { low.load(column) };
    let shrink = totals.get(0).shrink;
    let w = each(|k| last[k] * shrink);
    let at = |row: usize| (head * n_rows + row) * HIDDEN + column;
    let (mut of_bias, mut of_weight) = ([0.0; VECTOR], [0.0; VECTOR]);
    let load = |row: usize| (d_outputs.get(N_HEADS * row + head), pre.load(at(row)));
    stretch.for_rows(load, |row, (d, x): (f32, Vector)| {
        let by_pre = each(|k| d * w[k] * math::silu_slope(x[k]));
        operand::store4(&d_pre, at(row), by_pre, precision);
        add(&mut of_bias, |k| by_pre[k]);
        add(&mut of_weight, |k| d * math::silu(x[k]));
    });
    let first = stretch.partial * N_PARTIAL_COLUMNS + stretch.column;
    partials.store(first, of_bias);
    partials.store(first + N_COLUMNS, of_weight);
}
