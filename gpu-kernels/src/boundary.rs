//! Schedules that move at an epoch's boundary, one thread each.
//!
//! | kernel | equation |
//! |---|---|
//! | [`tau_update()`] | health_e = health, which scales tau for an epoch |
//! | [`gamma_update()`] | gamma = 0.95 + 0.04 health |
//! | [`epsilon_update()`] | epsilon = min(1, clip(e_end + (e_start - e_end) exp(-epoch / decay) (1 + 0.5 (vol - 0.5)), e_end, 1) / (0.5 + 0.5 health)) |
//!
//! epoch = floor(adam_t / steps_per_epoch), vol the regime's volatility percentile.

use cuda_std::prelude::*;
use shared_types::{Counters, StepScalars, isv};

use crate::math;

/// Launch of each kernel here: one thread.
pub const fn boundary_shape() -> LaunchShape {
    LaunchShape::linear(1, 1)
}

/// How exploration falls; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpsilonSchedule {
    /// e_start.
    pub start: f32,
    /// e_end.
    pub end: f32,
    /// Epochs after which the excess over e_end has fallen to 1/e, > 0.
    pub decay: f32,
    /// Steps of an epoch, > 0.
    pub steps_per_epoch: u32,
}

/// Keeps health for the epoch's tau. Shapes: bus \[64\], scalars \[1\]. Launch: [`boundary_shape`].
#[kernel]
pub fn tau_update(bus: GlobalSlice<f32>, scalars: GlobalSliceMut<StepScalars>) {
    if thread::index_1d() == 0 {
        scalars.set(0, StepScalars { health_at_epoch: bus.get(isv::HEALTH), ..scalars.get(0) });
    }
}

/// Writes gamma. Shapes: bus \[64\]. Launch: [`boundary_shape`].
#[kernel]
pub fn gamma_update(bus: GlobalSliceMut<f32>) {
    if thread::index_1d() == 0 {
        bus.set(isv::GAMMA, 0.95 + 0.04 * bus.get(isv::HEALTH));
    }
}

/// Writes epsilon. Shapes: bus \[64\], counters \[1\]. Launch: [`boundary_shape`].
#[kernel]
pub fn epsilon_update(bus: GlobalSliceMut<f32>, counters: GlobalSlice<Counters>, schedule: EpsilonSchedule) {
    if thread::index_1d() == 0 {
        let (volatility, health) = (bus.get(isv::REGIME_VOLATILITY), bus.get(isv::HEALTH));
        bus.set(isv::EPSILON, epsilon(&schedule, counters.get(0).adam_t, volatility, health));
    }
}

/// epsilon after `adam_t` updates.
#[inline]
pub fn epsilon(schedule: &EpsilonSchedule, adam_t: i32, regime_volatility: f32, health: f32) -> f32 {
    let epoch = (adam_t.max(0) as u32 / schedule.steps_per_epoch) as f32;
    let excess = (schedule.start - schedule.end) * math::exp_nonpositive(-epoch / schedule.decay);
    let raw = schedule.end + excess * (1.0 + 0.5 * (regime_volatility - 0.5));
    (raw.max(schedule.end).min(1.0) / (0.5 + 0.5 * health)).min(1.0)
}
