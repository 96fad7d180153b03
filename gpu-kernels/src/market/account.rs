//! The episode's account: equity, drawdown, reward, and what the agent sees of them.

use shared_types::market::{N_ACCOUNT, N_RECENT, direction};
use shared_types::{EnvParams, EnvState};

use super::real;
use crate::math;

/// Bound of a bar's reward, and of a portfolio feature.
const REWARD_BOUND: f32 = 10.0;
const FEATURE_BOUND: f32 = 5.0;
/// Bars that "bars held" and "minimum hold left" are divided by.
const HOLD_UNIT: f32 = 15.0;
/// ln(1/2).
const LN_HALF: f32 = -core::f32::consts::LN_2;

/// Mean and population standard deviation of the equity's latest log returns; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    /// How many, at most [`N_RECENT`].
    pub n: u32,
    /// Mean.
    pub mean: f32,
    /// Standard deviation.
    pub std: f32,
}

impl Recent {
    /// Of the ring of environment states, `value(i)` being its slot `i`, in the order of slots.
    #[inline]
    pub fn of(n_returns: u32, value: impl Fn(usize) -> f32) -> Self {
        let n = n_returns.min(N_RECENT as u32);
        if n == 0 {
            return Self::default();
        }
        let (mut sum, mut squares) = (0.0, 0.0);
        for slot in 0..n as usize {
            sum += value(slot);
        }
        let mean = sum / n as f32;
        for slot in 0..n as usize {
            let off = value(slot) - mean;
            squares += off * off;
        }
        Self { n, mean, std: math::sqrt(squares / n as f32) }
    }

    /// Kelly's fraction of an environment: clip(0.5 m / (s_e^2 + 1e-8), 0, 1); 1 with under 20 bars or a flat equity.
    #[inline]
    pub fn kelly(&self) -> f32 {
        if self.n < N_RECENT as u32 || self.std < 1e-6 {
            1.0
        } else {
            (0.5 * self.mean / (self.std * self.std + 1e-8)).clamp(0.0, 1.0)
        }
    }
}

/// Books a bar's log return of equity; returns its reward,
/// clip((log return - lambda_dd * increase of the episode's maximum log drawdown) / s, +-10).
#[inline]
pub fn book(state: &mut EnvState, log_return: f32, params: &EnvParams) -> f32 {
    state.steps += 1;
    state.log_equity += log_return;
    state.peak = state.peak.max(state.log_equity);
    let deepest = state.max_drawdown.max(state.peak - state.log_equity);
    let increase = deepest - state.max_drawdown;
    state.max_drawdown = deepest;
    real::clip((log_return - params.lambda_dd * increase) / params.bar_sigma, REWARD_BOUND)
}

/// Whether the episode's equity is under half of what it started with.
#[inline]
pub fn is_under_half(state: &EnvState) -> bool {
    state.log_equity < LN_HALF
}

/// ln(equity / start) in episode sigmas, s sqrt(episode_len).
#[inline]
pub fn achieved(state: &EnvState, params: &EnvParams) -> f32 {
    state.log_equity / (params.bar_sigma * math::sqrt(params.episode_len as f32))
}

/// Starts the account of an episode; the position stays.
#[inline]
pub fn restart(state: &mut EnvState) {
    state.log_equity = 0.0;
    state.peak = 0.0;
    state.max_drawdown = 0.0;
    state.steps = 0;
}

/// The 15 portfolio features, each within +-5, and the goal.
#[inline]
pub fn features(
    state: &EnvState,
    recent: &Recent,
    kelly_cap: f32,
    epsilon: f32,
    params: &EnvParams,
) -> [f32; N_ACCOUNT] {
    let s = params.bar_sigma;
    let episode_sigma = s * math::sqrt(params.episode_len as f32);
    let recent_sigma = s * math::sqrt(N_RECENT as f32);
    let unit = |value: f32| real::clip(value, FEATURE_BOUND);
    let is_last = |choice: u8| if state.last_direction == choice as u32 { 1.0 } else { 0.0 };
    // In the order of `market::portfolio`. A literal, and no loop over it: an array that is indexed lies in local memory.
    [
        unit(state.position),
        unit(state.unrealised / (s * math::sqrt(1.0 + state.bars_held as f32))),
        unit(state.bars_held as f32 / HOLD_UNIT),
        unit(state.hold_left as f32 / HOLD_UNIT),
        unit(state.log_equity / episode_sigma),
        unit((state.peak - state.log_equity) / episode_sigma),
        unit(recent.mean * recent.n as f32 / recent_sigma),
        unit(recent.std / s),
        is_last(direction::SHORT),
        is_last(direction::LONG),
        is_last(direction::FLAT),
        is_last(direction::HOLD),
        unit(kelly_cap),
        unit(epsilon),
        unit(state.steps as f32 / state.length.max(1) as f32),
        state.goal,
    ]
}
