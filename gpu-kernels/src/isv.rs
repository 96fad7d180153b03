//! The internal state vector at the end of a step, and what of the step's proposals it takes over.
//!
//! EMA(x, a): m <- m + a (x - m); the first sample seeds it, a sample that is not finite and a gated step leave it alone. Which
//! averages have had a sample is a word of bits on the device.
//!
//! iqn_readiness = clip(1 - EMA of IQN's loss / its value at the head's first applied update, 0, 1), of updates of that head that are
//! applied; 0 before.
//!
//! What `maintenance` found in a step in which it was due is taken over here, since it runs beside the passes that read the same bus,
//! and before it is known whether the step is gated: the spacing of the atoms unless the step is, the mean sensitivity if it is a
//! number.
//!
//! health = 1 / ((1 + k)(1 + |loss_ema - loss_slow| / (loss_slow + 1e-6))), k the updates skipped in the last 1,000 steps.

use cuda_std::prelude::*;
use shared_types::market::N_BRANCHES;
use shared_types::{Counters, LossTotals, SKIP_WINDOW, SKIP_WORDS, UpdateScalars, VaccineScalars, due, isv, learner};

use crate::heads::N_ATOMS_MAX;
use crate::math;

/// Rate of the averages.
pub const RATE: f32 = 0.01;
/// Rate of `loss_slow`.
pub const SLOW_RATE: f32 = 0.001;

/// A thread for each width of the atoms at least.
const N_THREADS: usize = N_BRANCHES * N_ATOMS_MAX;

/// Launch of [`isv_update()`]: one block, of which one thread does all but the spacing.
pub const fn isv_update_shape() -> LaunchShape {
    LaunchShape::linear(1, N_THREADS as u32)
}

/// Brings the averages of the losses, the gradient's norm, the TD errors, Q, the rewards and CQL, and IQN's readiness up to the step,
/// counts a skipped update, renews the health, and takes over what was due.
///
/// Shapes: totals \[1\]; scalars `[L]` of [`gate_step`](crate::gate::gate_step()), of which it reads theta's and IQN's, and vaccine \[1\]
/// of the same; counters \[1\], of which it reads rng_step; iqn_loss \[1\], IQN's own, or \[0\] with IQN off; iqn_averages \[2\], that
/// loss's average and first value, in f64 because the readiness is their difference; due, a word for each kind of work in [`due`];
/// causal_mean \[1\], of [`causal_sensitivity`](crate::causal::causal_sensitivity()), or \[0\] with that off; proposed, of
/// [`atom_spacing`](crate::atoms::atom_spacing()), and spacing \[4, K - 1\], or both \[0\] with that off; bus \[64\], of which it writes those
/// averages, `CAUSAL_MEAN`, `IQN_READINESS`, `SKIPPED_UPDATES` and `HEALTH`; seeded \[1\], the averages that have had a sample, bit by
/// index; window \[33\], as [`SKIP_WORDS`] says. `off` has the averages of the totals, bit by index, that are left alone. Launch:
/// [`isv_update_shape`].
#[kernel(max_threads = 256)]
pub fn isv_update(
    totals: GlobalSlice<LossTotals>,
    scalars: GlobalSlice<UpdateScalars>,
    vaccine: GlobalSlice<VaccineScalars>,
    counters: GlobalSlice<Counters>,
    iqn_loss: GlobalSlice<f32>,
    iqn_averages: GlobalSliceMut<f64>,
    due: GlobalSlice<u32>,
    causal_mean: GlobalSlice<f32>,
    proposed: GlobalSlice<f32>,
    spacing: GlobalSliceMut<f32>,
    bus: GlobalSliceMut<f32>,
    seeded: GlobalSliceMut<u64>,
    window: GlobalSliceMut<u32>,
    off: u64,
) {
    let (thread, theta) = (thread::index_1d() as usize, scalars.get(learner::THETA));
    let gated = theta.gate & UpdateScalars::STEP_GATED != 0;
    if thread < spacing.len() && !gated && due.get(due::SPACING) != 0 {
        spacing.set(thread, proposed.get(thread));
    }
    if thread != 0 {
        return;
    }
    let totals = totals.get(0);
    if !gated {
        let norm = math::sqrt(theta.squared_norm);
        let mut had = seeded.get(0);
        // One by one: a list that is walked would lie in local memory.
        take(&bus, &mut had, off, isv::LOSS_EMA, totals.weighted_ce, RATE);
        take(&bus, &mut had, off, isv::LOSS_SLOW, totals.weighted_ce, SLOW_RATE);
        take(&bus, &mut had, off, isv::GRAD_NORM_EMA, norm, RATE);
        take(&bus, &mut had, off, isv::CLIP_EMA, norm, RATE);
        take(&bus, &mut had, off, isv::TD_EMA, totals.td_mean, RATE);
        take(&bus, &mut had, off, isv::TD_VAR_EMA, totals.td_var, RATE);
        take(&bus, &mut had, off, isv::Q_MEAN_EMA, totals.q_mean, RATE);
        take(&bus, &mut had, off, isv::Q_VAR_EMA, totals.q_variance, RATE);
        take(&bus, &mut had, off, isv::REWARD_EMA, totals.reward_mean, RATE);
        take(&bus, &mut had, off, isv::REWARD_VAR_EMA, totals.reward_var, RATE);
        take(&bus, &mut had, off, isv::CQL_EMA, totals.cql, RATE);
        if !iqn_loss.is_empty() && scalars.get(learner::IQN).gate & UpdateScalars::GATED == 0 {
            let loss = iqn_loss.get(0) as f64;
            let [ema, first] = if had >> isv::IQN_READINESS & 1 != 0 { iqn_averages.load(0) } else { [loss, loss] };
            let ema = ema + RATE as f64 * (loss - ema);
            iqn_averages.store(0, [ema, first]);
            bus.set(isv::IQN_READINESS, readiness(ema, first));
            had |= 1 << isv::IQN_READINESS;
        }
        seeded.set(0, had);
        let vaccine = vaccine.get(0);
        if vaccine.compared != 0 {
            // From 0, and the first sample does not seed it, as in the paper.
            bus.set(isv::VACCINE_COS_EMA, averaged(bus.get(isv::VACCINE_COS_EMA), vaccine.cosine, RATE, true));
        }
    }
    if due.get(due::CAUSAL) != 0 && causal_mean.get(0).is_finite() {
        bus.set(isv::CAUSAL_MEAN, causal_mean.get(0));
    }
    let n_skipped = recorded(&window, counters.get(0).rng_step, gated);
    if gated {
        bus.set(isv::SKIPPED_UPDATES, bus.get(isv::SKIPPED_UPDATES) + 1.0);
    }
    bus.set(isv::HEALTH, health(n_skipped, bus.get(isv::LOSS_EMA), bus.get(isv::LOSS_SLOW)));
}

/// Takes a sample into an average, unless that is off or the sample is no finite number; `had` are the averages with a sample.
#[inline(always)]
fn take(bus: &GlobalSliceMut<f32>, had: &mut u64, off: u64, entry: usize, sample: f32, rate: f32) {
    if sample.is_finite() && off >> entry & 1 == 0 {
        bus.set(entry, averaged(bus.get(entry), sample, rate, *had >> entry & 1 != 0));
        *had |= 1 << entry;
    }
}

/// Puts the step into the record of skipped ones, and the one of 1,000 steps ago out; how many it then holds.
#[inline(always)]
fn recorded(window: &GlobalSliceMut<u32>, rng_step: i32, skipped: bool) -> u32 {
    let at = rng_step as usize % SKIP_WINDOW;
    let (word, bit) = (window.get(at / 32), at % 32);
    let n_skipped = window.get(SKIP_WORDS - 1) + skipped as u32 - (word >> bit & 1);
    window.set(at / 32, (word & !(1 << bit)) | ((skipped as u32) << bit));
    window.set(SKIP_WORDS - 1, n_skipped);
    n_skipped
}

/// An average after `sample`.
#[inline]
pub fn averaged(mean: f32, sample: f32, rate: f32, seeded: bool) -> f32 {
    if seeded { mean + rate * (sample - mean) } else { sample }
}

/// iqn_readiness, in \[0, 1\]; 0 if the first loss was 0.
#[inline]
pub fn readiness(loss_ema: f64, first_loss: f64) -> f32 {
    let readiness = (1.0 - loss_ema / first_loss) as f32;
    // A NaN fails the comparison.
    if readiness > 0.0 { readiness.min(1.0) } else { 0.0 }
}

/// Health of the training, in (0, 1].
#[inline]
pub fn health(n_skipped: u32, loss_ema: f32, loss_slow: f32) -> f32 {
    1.0 / ((1.0 + n_skipped as f32) * (1.0 + (loss_ema - loss_slow).abs() / (loss_slow + 1e-6)))
}
