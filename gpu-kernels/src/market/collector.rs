//! Where collection stands, and what it tells the epoch boundary.
//!
//! regime_volatility, regime_trend: means over environments of their present bar's. kelly_cap = max(0.1, health *
//! mean over environments of Kelly's fraction).

use cuda_std::prelude::*;
use shared_types::{Collector, CollectorSums, EnvParams, EnvState, MarketBar, isv};

use super::account::Recent;

/// Partial sums over environments.
pub const N_PARTIALS: usize = 256;
/// Lowest cap.
const LEAST_CAP: f32 = 0.1;

/// Launch of a kernel of one thread.
pub const fn single_shape() -> LaunchShape {
    LaunchShape::linear(1, 1)
}

/// Launch of [`collector_partials()`].
pub const fn collector_partials_shape() -> LaunchShape {
    LaunchShape::linear((N_PARTIALS / 32) as u32, 32)
}

/// Counts a step of all environments, and the slots that it wrote. Last of a step.
///
/// Shapes: params, collector \[1\]; n_envs is E, n_slots N. Launch: [`single_shape`].
#[kernel]
pub fn collector_advance(
    params: GlobalSlice<EnvParams>,
    collector: GlobalSliceMut<Collector>,
    n_envs: u32,
    n_slots: u32,
) {
    if thread::index_1d() == 0 {
        collector.set(0, advanced(collector.get(0), params.get(0).n_step, n_envs, n_slots));
    }
}

/// The collector after a step.
#[inline]
pub fn advanced(now: Collector, n_step: u32, n_envs: u32, n_slots: u32) -> Collector {
    let written = if now.step + 1 >= n_step { n_envs } else { 0 };
    Collector {
        step: now.step + 1,
        head: ((now.head as u64 + written as u64) % n_slots as u64) as u32,
        filled: now.filled.saturating_add(written).min(n_slots),
        reserved: 0,
    }
}

/// Partial sum i over environments i, i + 256, ...
///
/// Shapes: bars \[n\], states \[E\], returns \[20, E\], partials \[256\]. Launch: [`collector_partials_shape`].
#[kernel]
pub fn collector_partials(
    bars: GlobalSlice<MarketBar>,
    states: GlobalSlice<EnvState>,
    returns: GlobalSlice<f32>,
    partials: GlobalSliceMut<CollectorSums>,
) {
    let (index, n_envs) = (thread::index_1d() as usize, states.len());
    if index >= N_PARTIALS {
        return;
    }
    let mut sums = CollectorSums::default();
    let mut env = index;
    while env < n_envs {
        let state = states.get(env);
        let bar = bars.get(state.bar as usize);
        let recent = Recent::of(state.n_returns, |slot| returns.get(slot * n_envs + env));
        sums.regime_volatility += bar.regime_volatility;
        sums.regime_trend += bar.regime_trend;
        sums.kelly += recent.kelly();
        env += N_PARTIALS;
    }
    partials.set(index, sums);
}

/// Writes regime_volatility and regime_trend. Shapes: partials \[256\], bus \[64\]. Launch: [`single_shape`].
#[kernel]
pub fn regime_update(partials: GlobalSlice<CollectorSums>, bus: GlobalSliceMut<f32>, n_envs: u32) {
    if thread::index_1d() != 0 {
        return;
    }
    bus.set(isv::REGIME_VOLATILITY, mean(&partials, n_envs, |sums| sums.regime_volatility));
    bus.set(isv::REGIME_TREND, mean(&partials, n_envs, |sums| sums.regime_trend));
}

/// Writes kelly_cap. Shapes: partials \[256\], bus \[64\]. Launch: [`single_shape`].
#[kernel]
pub fn kelly_cap_update(partials: GlobalSlice<CollectorSums>, bus: GlobalSliceMut<f32>, n_envs: u32) {
    if thread::index_1d() != 0 {
        return;
    }
    let kelly = mean(&partials, n_envs, |sums| sums.kelly);
    bus.set(isv::KELLY_CAP, (bus.get(isv::HEALTH) * kelly).max(LEAST_CAP));
}

#[inline]
fn mean(partials: &GlobalSlice<CollectorSums>, n_envs: u32, part: impl Fn(&CollectorSums) -> f32) -> f32 {
    let mut sum = 0.0;
    for index in 0..N_PARTIALS {
        sum += part(&partials.get(index));
    }
    sum / n_envs as f32
}
