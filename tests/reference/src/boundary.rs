//! Formulas of the epoch-boundary kernels (section 7).

use crate::c51::Distributions;
use crate::config::N_BRANCHES;
use crate::iqn::{IqnPass, interquartile_range};
use crate::matrix::mean;

/// Rows of the last batch over which IQN's interquartile range is taken.
pub const N_IQR_ROWS: usize = 256;
/// Bars over which an environment's Kelly fraction is taken.
pub const N_KELLY_BARS: usize = 20;
/// Standard deviation under which an environment counts as flat.
pub const FLAT_STD: f64 = 1e-6;

/// gamma = 0.95 + 0.04 health.
pub fn gamma(health: f64) -> f64 {
    0.95 + 0.04 * health
}

/// Exploration rate and its schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpsilonSchedule {
    /// e_start.
    pub start: f64,
    /// e_end.
    pub end: f64,
    /// Epochs after which the excess has fallen to 1/e.
    pub decay: f64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
}

/// min(1, clip(e_end + (e_start - e_end) exp(-epoch / decay) (1 + 0.5 (vol - 0.5)), e_end, 1) / (0.5 + 0.5 health)), epoch =
/// floor(adam_t / steps_per_epoch), vol the regime's volatility percentile.
pub fn epsilon(schedule: &EpsilonSchedule, adam_t: u64, regime_volatility: f64, health: f64) -> f64 {
    let epoch = (adam_t / schedule.steps_per_epoch) as f64;
    let excess = (schedule.start - schedule.end) * (-epoch / schedule.decay).exp();
    let raw = schedule.end + excess * (1.0 + 0.5 * (regime_volatility - 0.5));
    (raw.clamp(schedule.end, 1.0) / (0.5 + 0.5 * health)).min(1.0)
}

/// Kelly fraction of one environment from its last per-bar log returns: clip(0.5 m / (s^2 + 1e-8), 0, 1), s the population standard
/// deviation of the last 20; 1 with fewer than 20 or when flat.
pub fn kelly_fraction(log_returns: &[f64]) -> f64 {
    let Some(last) = log_returns.len().checked_sub(N_KELLY_BARS).map(|first| &log_returns[first..]) else { return 1.0 };
    let variance = crate::matrix::variance(last);
    if variance.sqrt() < FLAT_STD { 1.0 } else { (0.5 * mean(last) / (variance + 1e-8)).clamp(0.0, 1.0) }
}

/// max(0.1, health * mean of the environments' fractions).
pub fn kelly_cap(health: f64, fractions: &[f64]) -> f64 {
    (health * mean(fractions)).max(0.1)
}

/// `refresh_iqn_iqr`: mean interquartile range over the batch's first 256 rows and branches, at the greedy action of C51's mean.
pub fn iqn_iqr(pass: &IqnPass, d: &Distributions) -> f64 {
    let n_rows = d.q[0].n_rows.min(N_IQR_ROWS);
    let ranges: Vec<f64> = (0..n_rows)
        .flat_map(|i| {
            let greedy = d.greedy(i);
            (0..N_BRANCHES).map(move |b| interquartile_range(&pass.of(i, b, greedy[b])))
        })
        .collect();
    mean(&ranges)
}
