//! What an applied step leaves of the auxiliary learners besides what their Adams do.

use cuda_std::prelude::*;
use shared_types::{IqlTotals, PopArt, isv};

use crate::iql::HIDDEN;
use crate::isv::{RATE, averaged};
use crate::risk;
use crate::sweep::{VECTOR, each};

/// Vectors of a last layer's weights: a thread each, and V_low's behind V_high's.
const N_VECTORS: usize = HIDDEN / VECTOR;

/// How the level of CVaR moves; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RiskParams {
    /// Rate.
    pub lr: f32,
    /// cvar_loss at which it rests.
    pub target: f32,
}

/// Launch of [`settle_heads()`]: one block.
pub const fn settle_heads_shape() -> LaunchShape {
    LaunchShape::linear(1, 2 * N_VECTORS as u32)
}

/// Takes over PopArt's statistics with both last layers rescaled, and the learners' entries of the internal state vector: 10
/// (iql_gap), 15 (denoise_ema), 16 (select_rate), 19, 20 (popart), 45 (risk_eta). It runs before the update's sweep, which then moves
/// the rescaled layers; a gated step changes nothing, and what is no finite number is not taken over.
///
/// Shapes: gate \[1\], not 0 when the step is gated; iql, select_rate, denoise_loss, cvar_loss \[1\], or \[0\] for a learner that is off;
/// popart \[1\], and high, low last layers, 128 weights first and the bias last: all three empty without PopArt; bus \[64\]; seeded \[1\].
/// Launch: [`settle_heads_shape`].
#[kernel(max_threads = 64)]
pub fn settle_heads(
    gate: GlobalSlice<u32>,
    iql: GlobalSlice<IqlTotals>,
    select_rate: GlobalSlice<f32>,
    denoise_loss: GlobalSlice<f32>,
    cvar_loss: GlobalSlice<f32>,
    popart: GlobalSliceMut<PopArt>,
    high: GlobalSliceMut<f32>,
    low: GlobalSliceMut<f32>,
    bus: GlobalSliceMut<f32>,
    seeded: GlobalSliceMut<u64>,
    risk: RiskParams,
) {
    let thread = thread::thread_idx_x() as usize;
    if gate.get(0) != 0 {
        return;
    }
    if !iql.is_empty() {
        let found = iql.get(0);
        let rescales = !popart.is_empty() && found.shrink.is_finite() && found.shift.is_finite();
        if rescales {
            rescale(if thread < N_VECTORS { &high } else { &low }, thread % N_VECTORS, &found);
        }
        if thread == 0 {
            if rescales {
                popart.set(0, found.popart);
                bus.set(isv::POPART_MEAN, found.popart.mean as f32);
                bus.set(isv::POPART_STD, found.std);
            }
            put(&bus, isv::IQL_GAP, found.gap);
        }
    }
    if thread != 0 {
        return;
    }
    if !select_rate.is_empty() {
        put(&bus, isv::SELECT_RATE, select_rate.get(0));
    }
    if !denoise_loss.is_empty() && denoise_loss.get(0).is_finite() {
        let (had, at) = (seeded.get(0), isv::DENOISE_EMA);
        bus.set(at, averaged(bus.get(at), denoise_loss.get(0), RATE, had >> at & 1 != 0));
        seeded.set(0, had | 1 << at);
    }
    if !cvar_loss.is_empty() {
        let eta = risk::next_eta(bus.get(isv::RISK_ETA), cvar_loss.get(0), risk.lr, risk.target);
        bus.set(isv::RISK_ETA, eta);
    }
}

/// w' = w std / std' of a vector of a last layer; the first of its threads does the bias, b' = b std / std' + (mu - mu') / std'.
#[inline(always)]
fn rescale(last: &GlobalSliceMut<f32>, vector: usize, found: &IqlTotals) {
    let w: [f32; VECTOR] = last.load(vector * VECTOR);
    last.store(vector * VECTOR, each(|k| w[k] * found.shrink));
    if vector == 0 {
        let bias = last.len() - 1;
        last.set(bias, last.get(bias) * found.shrink + found.shift);
    }
}

/// An entry that is not averaged.
#[inline(always)]
fn put(bus: &GlobalSliceMut<f32>, entry: usize, value: f32) {
    if value.is_finite() {
        bus.set(entry, value);
    }
}
