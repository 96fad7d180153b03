//! TD errors as priorities take them.

use cuda_std::fast::pack_bf16x2;
use cuda_std::prelude::*;
use shared_types::IqlTotals;

use super::loss::row_loss;
use crate::{math, non_finite};

/// Bound of the modulation's exponent.
const LN_4: f32 = 2.0 * core::f32::consts::LN_2;

/// Launch of [`td_error_bf16()`] and [`modulated_td_bf16()`] for `n` rows: a thread a row.
pub const fn td_error_bf16_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 256)
}

/// The rows' KL rounded to bf16; NaN for a relabelled row, and for every row of a gated step, so that these keep their priority.
/// Any other row without a number keeps it as well, and the step's word of `priority` says so.
///
/// Shapes: row_losses `[B, 4]`; gate \[1\], 0 for a step that is not gated; relabelled, 0 for a row that is as it was stored,
/// and td_errors `[B]`; flag \[1\], that word. Launch: [`td_error_bf16_shape`].
#[kernel]
pub fn td_error_bf16(
    row_losses: GlobalSlice<f32>,
    gate: GlobalSlice<u32>,
    relabelled: GlobalSlice<u8>,
    td_errors: GlobalSliceMut<bf16>,
    flag: GlobalSliceMut<u32>,
) {
    let row = thread::index_1d() as usize;
    if row < td_errors.len() {
        put(&row_losses, &gate, &relabelled, &td_errors, &flag, row, 1.0);
    }
}

/// The rows' KL times exp(clip(beta_adv adv, -ln 4, ln 4)), adv = (q - V_high) / (popart_std + 1e-6): a transition that did better
/// than its state is worth comes back sooner. Rounded, gated and flagged as by [`td_error_bf16()`]; a V that is no number gives NaN.
///
/// Shapes: row_losses `[B, 4]`; gate \[1\]; relabelled, q_taken, v_high `[B]` and totals \[1\] of [`iql_loss`](crate::iql::iql_loss()); td_errors `[B]`;
/// flag \[1\]. Launch: [`td_error_bf16_shape`].
#[kernel]
pub fn modulated_td_bf16(
    row_losses: GlobalSlice<f32>,
    gate: GlobalSlice<u32>,
    relabelled: GlobalSlice<u8>,
    q_taken: GlobalSlice<f32>,
    v_high: GlobalSlice<f32>,
    totals: GlobalSlice<IqlTotals>,
    beta_adv: f32,
    td_errors: GlobalSliceMut<bf16>,
    flag: GlobalSliceMut<u32>,
) {
    let row = thread::index_1d() as usize;
    if row < td_errors.len() {
        let advantage = (q_taken.get(row) - v_high.get(row)) / (totals.get(0).std + 1e-6);
        let factor = math::exp((beta_adv * advantage).clamp(-LN_4, LN_4));
        put(&row_losses, &gate, &relabelled, &td_errors, &flag, row, factor);
    }
}

/// Writes a row's TD error; one that takes part and is no number as bf16 is flagged, by an atomic of its own, since there should
/// be none.
#[inline(always)]
fn put(
    row_losses: &GlobalSlice<f32>,
    gate: &GlobalSlice<u32>,
    relabelled: &GlobalSlice<u8>,
    td_errors: &GlobalSliceMut<bf16>,
    flag: &GlobalSliceMut<u32>,
    row: usize,
    factor: f32,
) {
    let writes = gate.get(0) == 0 && relabelled.get(row) == 0;
    let td = if writes { factor * row_losses.get(row_loss::N * row + row_loss::TD) } else { f32::NAN };
    let rounded = bf16::from_bits(pack_bf16x2(td, 0.0) as u16);
    let found = non_finite::of_number(rounded.to_f32());
    if writes && found != 0 {
        flag.fetch_or(0, found);
    }
    td_errors.set(row, rounded);
}
