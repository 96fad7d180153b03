//! The 24 features of a bar, unscaled, each from bars up to it alone.
//!
//! | feature | equation at bar t |
//! |---|---|
//! | return_n, n = 1, 5, 15, 60 | ln(close_t / close_{t-n}), the sum of n one-bar log returns r |
//! | volatility_n, n = 15, 60 | sqrt(mean of the last n r^2) |
//! | range | (high - low) / close |
//! | close_location | (close - low) / (high - low); 1/2 if high = low |
//! | volume_z, trades_z | (x_t - mean) / std over the last 60, t included; 0 if they do not differ, or are not measured |
//! | rsi, atr, macd | [`indicators`](super::indicators), the last two / close |
//! | mean_distance | (close - mean) / std over the last 20, t included; 0 if they do not differ |
//! | day_sin, day_cos | of 2 pi times the share of the UTC day that is over at the bar's start |
//! | week_sin, week_cos | of 2 pi d / 7, d = 0 on Monday |
//! | flow_n, n = 1, 5, 15 | sum of the last n flows / sum of their volumes; 0 without volume |
//! | spread | measured; else max(0, mean of the last 60 of Corwin and Schultz) |
//! | microprice | measured; else 0 |
//! | gap | (time_t - time_{t-1}) / interval - 1 |
//!
//! Windows are summed afresh at each bar, oldest last: O(60) a bar, and no bar's rounding reaches another's.

use cuda_std::prelude::*;
use shared_types::market::{N_FEATURES, WARM_UP_BARS, feature};

use super::indicators::{ATR, MACD, RSI};
use super::real;
use crate::philox::cos_turns;

const DAY_NS: i64 = 86_400_000_000_000;
/// Days from a Monday to 1970-01-01, a Thursday.
const EPOCH_WEEKDAY: i64 = 3;
/// Deviation under which a window counts as constant, of its mean: 60 additions round within 60 * 2^-53 = 7e-15 of it.
const CONSTANT: f64 = 1e-12;

/// Unscaled features of every bar; 0 in the warm-up, and where arithmetic leaves the finite numbers.
///
/// Shapes: columns \[n\]; `trades`, `spread`, `microprice` \[n\], or \[0\] where the file has none; `log_return`, `flow` and
/// `spread_term` as [`bar_terms`](fn@super::terms::bar_terms) leaves them; indicators \[3, n\]; features \[n, F\].
/// `interval_ns` is the length of a bar. Launch: [`super::terms::bar_shape`].
#[kernel]
pub fn raw_features(
    time_ns: GlobalSlice<i64>,
    high: GlobalSlice<f64>,
    low: GlobalSlice<f64>,
    close: GlobalSlice<f64>,
    volume: GlobalSlice<f64>,
    trades: GlobalSlice<f64>,
    spread: GlobalSlice<f64>,
    microprice: GlobalSlice<f64>,
    log_return: GlobalSlice<f64>,
    flow: GlobalSlice<f64>,
    spread_term: GlobalSlice<f64>,
    indicators: GlobalSlice<f64>,
    interval_ns: i64,
    features: GlobalSliceMut<f64>,
) {
    let (t, n) = (thread::index_1d() as usize, close.len());
    if t >= n {
        return;
    }
    let put = |index: usize, value: f64| {
        features.set(t * N_FEATURES + index, if value.is_finite() { value } else { 0.0 });
    };
    if t < WARM_UP_BARS {
        for index in 0..N_FEATURES {
            put(index, 0.0);
        }
        return;
    }
    let (high, low, last) = (high.get(t), low.get(t), close.get(t));

    put(feature::RETURN_1, log_return.get(t));
    put(feature::RETURN_5, sum(&log_return, t, 5));
    put(feature::RETURN_15, sum(&log_return, t, 15));
    put(feature::RETURN_60, sum(&log_return, t, 60));
    put(feature::VOLATILITY_15, root_mean_square(&log_return, t, 15));
    put(feature::VOLATILITY_60, root_mean_square(&log_return, t, 60));
    put(feature::RANGE, (high - low) / last);
    put(feature::CLOSE_LOCATION, if high > low { (last - low) / (high - low) } else { 0.5 });
    put(feature::VOLUME_Z, z_score(&volume, t, 60));
    put(feature::RSI, indicators.get(RSI * n + t));
    put(feature::ATR, indicators.get(ATR * n + t) / last);
    put(feature::MACD, indicators.get(MACD * n + t) / last);
    put(feature::MEAN_DISTANCE, z_score(&close, t, 20));

    let (day, week) = (day_turns(time_ns.get(t)), week_turns(time_ns.get(t)));
    put(feature::DAY_SIN, sin_turns(day) as f64);
    put(feature::DAY_COS, cos_turns(day) as f64);
    put(feature::WEEK_SIN, sin_turns(week) as f64);
    put(feature::WEEK_COS, cos_turns(week) as f64);

    put(feature::FLOW_1, imbalance(&flow, &volume, t, 1));
    put(feature::FLOW_5, imbalance(&flow, &volume, t, 5));
    put(feature::FLOW_15, imbalance(&flow, &volume, t, 15));
    let estimated = || (sum(&spread_term, t, 60) / 60.0).max(0.0);
    put(feature::SPREAD, if spread.is_empty() { estimated() } else { spread_term.get(t) });
    put(feature::MICROPRICE, if microprice.is_empty() { 0.0 } else { microprice.get(t) });
    put(feature::TRADES_Z, if trades.is_empty() { 0.0 } else { z_score(&trades, t, 60) });
    let steps = if interval_ns > 0 { (time_ns.get(t) - time_ns.get(t - 1)) as f64 / interval_ns as f64 } else { 1.0 };
    put(feature::GAP, steps - 1.0);
}

/// Sum of the last `n` values, the one at `t` first.
#[inline]
pub(super) fn sum(values: &GlobalSlice<f64>, t: usize, n: usize) -> f64 {
    let mut sum = 0.0;
    for back in 0..n {
        sum += values.get(t - back);
    }
    sum
}

/// Mean and population standard deviation of the last `n` values; the deviation is 0 when rounding alone makes it.
#[inline]
pub(super) fn moments(values: &GlobalSlice<f64>, t: usize, n: usize) -> (f64, f64) {
    let mean = sum(values, t, n) / n as f64;
    let mut squares = 0.0;
    for back in 0..n {
        let off = values.get(t - back) - mean;
        squares += off * off;
    }
    let std = real::sqrt(squares / n as f64);
    (mean, if std > CONSTANT * mean.abs() { std } else { 0.0 })
}

#[inline]
fn root_mean_square(values: &GlobalSlice<f64>, t: usize, n: usize) -> f64 {
    let mut squares = 0.0;
    for back in 0..n {
        squares += values.get(t - back) * values.get(t - back);
    }
    real::sqrt(squares / n as f64)
}

#[inline]
fn z_score(values: &GlobalSlice<f64>, t: usize, n: usize) -> f64 {
    let (mean, std) = moments(values, t, n);
    if std > 0.0 { (values.get(t) - mean) / std } else { 0.0 }
}

#[inline]
fn imbalance(flow: &GlobalSlice<f64>, volume: &GlobalSlice<f64>, t: usize, n: usize) -> f64 {
    let total = sum(volume, t, n);
    if total > 0.0 { sum(flow, t, n) / total } else { 0.0 }
}

/// Share of the UTC day that is over.
#[inline]
pub fn day_turns(time_ns: i64) -> f32 {
    (time_ns.rem_euclid(DAY_NS) as f64 / DAY_NS as f64) as f32
}

/// Days since Monday / 7.
#[inline]
pub fn week_turns(time_ns: i64) -> f32 {
    (time_ns.div_euclid(DAY_NS) + EPOCH_WEEKDAY).rem_euclid(7) as f32 / 7.0
}

/// sin(2 pi `turns`) for `turns` in [0, 1): the cosine a quarter turn earlier.
#[inline]
pub fn sin_turns(turns: f32) -> f32 {
    cos_turns(if turns < 0.25 { turns + 0.75 } else { turns - 0.25 })
}
