//! The 24 features in f64, written from their equations, bar by bar and window by window; nothing of the kernels is used.

use host::data::Bars;

const DAY_NS: i64 = 86_400_000_000_000;

/// Unscaled features of bar `t`, which is at least 128, in the design's order.
pub fn raw(bars: &Bars, t: usize) -> [f64; 24] {
    let close = &bars.close;
    let log_return = |n: usize| close[t].ln() - close[t - n].ln();
    let volatility = |n: usize| {
        let squares: f64 = (t + 1 - n..=t).map(|i| (close[i] / close[i - 1]).ln().powi(2)).sum();
        (squares / n as f64).sqrt()
    };
    let range = bars.high[t] - bars.low[t];
    let day = (bars.time_ns[t] % DAY_NS) as f64 / DAY_NS as f64;
    // 1970-01-05 was a Monday.
    let week = ((bars.time_ns[t] / DAY_NS - 4) % 7) as f64 / 7.0;
    let turn = std::f64::consts::TAU;
    [
        log_return(1),
        log_return(5),
        log_return(15),
        log_return(60),
        volatility(15),
        volatility(60),
        range / close[t],
        if range > 0.0 { (close[t] - bars.low[t]) / range } else { 0.5 },
        z_score(&bars.volume[t - 59..=t]),
        rsi(close, t),
        atr(bars, t) / close[t],
        macd_histogram(close, t) / close[t],
        z_score(&close[t - 19..=t]),
        (turn * day).sin(),
        (turn * day).cos(),
        (turn * week).sin(),
        (turn * week).cos(),
        imbalance(bars, t, 1),
        imbalance(bars, t, 5),
        imbalance(bars, t, 15),
        bars.spread.as_ref().map_or_else(|| corwin_schultz_mean(bars, t), |spread| spread[t]),
        bars.microprice_offset.as_ref().map_or(0.0, |offset| offset[t]),
        bars.trades.as_ref().map_or(0.0, |trades| z_score(&trades[t - 59..=t])),
        (bars.time_ns[t] - bars.time_ns[t - 1]) as f64 / bars.interval_ns as f64 - 1.0,
    ]
}

/// (last - mean) / population deviation.
fn z_score(window: &[f64]) -> f64 {
    let n = window.len() as f64;
    let mean = window.iter().sum::<f64>() / n;
    let variance = window.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    if variance.sqrt() <= 1e-12 * mean.abs() { 0.0 } else { (window[window.len() - 1] - mean) / variance.sqrt() }
}

/// Wilder 1978: mean of the first 14 changes, then (13 average + change) / 14.
fn wilder(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let first = values[..14].iter().sum::<f64>() / 14.0;
    values[14..].iter().fold(first, |average, value| (13.0 * average + value) / 14.0)
}

fn rsi(close: &[f64], t: usize) -> f64 {
    let gain = wilder((1..=t).map(|i| (close[i] - close[i - 1]).max(0.0)));
    let loss = wilder((1..=t).map(|i| (close[i - 1] - close[i]).max(0.0)));
    if gain == 0.0 && loss == 0.0 { 50.0 } else { 100.0 - 100.0 / (1.0 + gain / loss) }
}

fn atr(bars: &Bars, t: usize) -> f64 {
    wilder((1..=t).map(|i| {
        let (high, low, before) = (bars.high[i], bars.low[i], bars.close[i - 1]);
        (high - low).max((high - before).abs()).max((low - before).abs())
    }))
}

/// Exponential averages with weight 2 / (n + 1), from the first value.
fn ema(values: &[f64], n: f64) -> Vec<f64> {
    let weight = 2.0 / (n + 1.0);
    let mut average = values[0];
    values
        .iter()
        .map(|value| {
            average = weight * value + (1.0 - weight) * average;
            average
        })
        .collect()
}

fn macd_histogram(close: &[f64], t: usize) -> f64 {
    let (fast, slow) = (ema(&close[..=t], 12.0), ema(&close[..=t], 26.0));
    let macd: Vec<f64> = fast.iter().zip(&slow).map(|(fast, slow)| fast - slow).collect();
    macd[t] - ema(&macd, 9.0)[t]
}

fn imbalance(bars: &Bars, t: usize, n: usize) -> f64 {
    let flow = |i: usize| match &bars.signed_volume {
        Some(signed) => signed[i],
        None if bars.close[i] == bars.close[i - 1] => 0.0,
        None => bars.volume[i] * (bars.close[i] - bars.close[i - 1]).signum(),
    };
    let window = t + 1 - n..=t;
    let volume: f64 = bars.volume[window.clone()].iter().sum();
    if volume == 0.0 { 0.0 } else { window.map(flow).sum::<f64>() / volume }
}

/// Corwin and Schultz 2012: equations 14 (alpha) and 18 (S), the second day moved over an overnight gap.
pub fn corwin_schultz(bars: &Bars, t: usize) -> f64 {
    let (high, low, before) = (bars.high[t], bars.low[t], bars.close[t - 1]);
    let gap = if low > before {
        low - before
    } else if high < before {
        high - before
    } else {
        0.0
    };
    let (high, low) = (high - gap, low - gap);
    let (high_before, low_before) = (bars.high[t - 1], bars.low[t - 1]);
    let beta = (high_before / low_before).ln().powi(2) + (high / low).ln().powi(2);
    let gamma = (high_before.max(high) / low_before.min(low)).ln().powi(2);
    let k = 3.0 - 2.0 * 2f64.sqrt();
    let alpha = ((2.0 * beta).sqrt() - beta.sqrt()) / k - (gamma / k).sqrt();
    2.0 * (alpha.exp() - 1.0) / (1.0 + alpha.exp())
}

fn corwin_schultz_mean(bars: &Bars, t: usize) -> f64 {
    ((t - 59..=t).map(|i| corwin_schultz(bars, i)).sum::<f64>() / 60.0).max(0.0)
}

/// Mean and population deviation of a column.
pub fn mean_std(column: &[f64]) -> (f64, f64) {
    let n = column.len() as f64;
    let mean = column.iter().sum::<f64>() / n;
    (mean, (column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
}
