//! The default market: regimes in turn, under a daily rhythm.
//!
//! Per bar: a regime ends with probability 1/240 and is followed by any of the three. The log price moves by a drift of
//! the regime plus noise. Volatility is a slow log-normal factor times a daily curve; spread widens and volume grows
//! with it, as they do on real markets.

use super::random::{normal, uniform};
use super::{BAR_NS, BAR_SIGMA, HALF_LIFE_BARS, MEDIAN_VOLUME, PATH_STEPS, Path, Simulation, VOLUME};
use crate::data::bars::{Bars, DAY_NS, Measure};

/// Mean length of a regime in bars.
const REGIME_BARS: f64 = 240.0;
/// Drift of a trend per bar, in units of the bar's volatility.
const TREND: f64 = 0.2;
/// The log volatility's own decay and noise per bar: half of a deviation is gone in 138 bars, its stationary standard
/// deviation is 0.25.
const VOLATILITY_DECAY: f64 = 0.995;
const VOLATILITY_SIGMA: f64 = 0.25;
/// The quoted spread at ordinary volatility, as a fraction of the price: 2 basis points.
const SPREAD: f64 = 2e-4;

/// Elements of the random numbers of a bar, after [`VOLUME`].
const VOLATILITY: u32 = VOLUME + 1;
const SPREAD_NOISE: u32 = VOLUME + 2;
const SWITCH: u32 = VOLUME + 3;
const NEXT_REGIME: u32 = VOLUME + 4;

#[derive(Clone, Copy, Debug)]
enum Regime {
    /// Drift up (+1) or down (-1).
    Trend(f64),
    /// Pull towards the log price at which the regime began.
    Reversion(f64),
    Noise,
}

impl Regime {
    fn draw(u: f64, log_price: f64) -> Self {
        match (u * 6.0) as u32 {
            0 => Regime::Trend(1.0),
            1 => Regime::Trend(-1.0),
            2 | 3 => Regime::Reversion(log_price),
            _ => Regime::Noise,
        }
    }
}

/// Volatility over the day, UTC: highest at 14:30 and 2:30, lowest between; its mean square is 1.
pub(super) fn daily_curve(time_ns: i64) -> f64 {
    let phase = std::f64::consts::TAU * (time_ns.rem_euclid(DAY_NS) as f64 / DAY_NS as f64 - 14.5 / 24.0);
    (1.0 + 0.4 * phase.cos() + 0.3 * (2.0 * phase).cos()) / (1.0f64 + 0.08 + 0.045).sqrt()
}

pub(super) fn bars(simulation: &Simulation) -> Bars {
    let seed = simulation.seed;
    let mut bars = Bars::with_measures(&[Measure::Spread]);
    let steps = f64::from(PATH_STEPS);
    let pull = 1.0 - (-1.0 / (HALF_LIFE_BARS * steps)).exp2();
    let volatility_noise = VOLATILITY_SIGMA * (1.0 - VOLATILITY_DECAY * VOLATILITY_DECAY).sqrt();
    let (mut log_price, mut log_volatility) = (0.0, 0.0);
    let mut regime = Regime::draw(uniform(seed, NEXT_REGIME, u32::MAX), log_price);
    for step in 0..simulation.n_bars {
        if uniform(seed, SWITCH, step) < 1.0 / REGIME_BARS {
            regime = Regime::draw(uniform(seed, NEXT_REGIME, step), log_price);
        }
        log_volatility = VOLATILITY_DECAY * log_volatility + volatility_noise * normal(seed, VOLATILITY, step);
        // exp(2 x) of a normal x has mean exp(2 sigma^2): taking sigma^2 off keeps the mean square at 1.
        let slow = (log_volatility - VOLATILITY_SIGMA * VOLATILITY_SIGMA).exp();
        let activity = slow * daily_curve(i64::from(step) * BAR_NS);
        let sigma = BAR_SIGMA * activity;
        let mut path = Path::default();
        for k in 0..PATH_STEPS {
            let drift = match regime {
                Regime::Trend(direction) => direction * TREND * sigma / steps,
                Regime::Reversion(anchor) => pull * (anchor - log_price),
                Regime::Noise => 0.0,
            };
            log_price += drift + sigma / steps.sqrt() * normal(seed, k, step);
            path.push(log_price);
        }
        let range = (path.high - path.low) / BAR_SIGMA;
        let volume = MEDIAN_VOLUME * (0.3 + activity + 0.5 * range) * (0.3 * normal(seed, VOLUME, step)).exp();
        let spread = SPREAD * (0.5 + 0.5 * activity) * (0.2 * normal(seed, SPREAD_NOISE, step)).exp();
        bars.push(&path.bar(step, volume, spread));
    }
    bars
}
