//! Indicators that carry a state from bar to bar, from the series' first bar on.
//!
//! | indicator | recursion | start | source |
//! |---|---|---|---|
//! | RSI 14 | G <- (13 G + max(d, 0)) / 14, L <- (13 L + max(-d, 0)) / 14, d the close's change; 100 G / (G + L) | mean of the first 14 | Wilder 1978 |
//! | ATR 14 | A <- (13 A + TR) / 14, TR = max(high, close before) - min(low, close before) | mean of the first 14 | Wilder 1978 |
//! | MACD histogram | m = EMA12 - EMA26 of the close; m - EMA9 of m, EMA_n(x) <- EMA_n + 2 / (n + 1) (x - EMA_n) | the first value | Appel 2005 |
//!
//! One thread an indicator: each is a chain, and a chain's bits must not depend on how it is cut.

use cuda_std::prelude::*;

/// Bars of Wilder's averages.
pub const N_WILDER: usize = 14;
/// RSI, ATR and MACD's histogram, one after the other.
pub const N_RECURSIVE: usize = 3;
/// Column of RSI in the indicators.
pub const RSI: usize = 0;
/// Column of ATR in the indicators.
pub const ATR: usize = 1;
/// Column of MACD's histogram in the indicators.
pub const MACD: usize = 2;

/// Launch of [`recursive_indicators()`]: a thread an indicator, each in a warp of its own so that none waits for another.
pub const fn recursive_indicators_shape() -> LaunchShape {
    LaunchShape::linear(N_RECURSIVE as u32, 1)
}

/// RSI, ATR and MACD's histogram of every bar, unscaled.
///
/// Shapes: prices \[n\]; indicators \[3, n\], RSI in 0 to 100, the others in the price's unit. While Wilder's first mean is not
/// complete, RSI is 50 and ATR 0. Launch: [`recursive_indicators_shape`].
#[kernel]
pub fn recursive_indicators(
    high: GlobalSlice<f64>,
    low: GlobalSlice<f64>,
    close: GlobalSlice<f64>,
    indicators: GlobalSliceMut<f64>,
) {
    let n = close.len();
    if n == 0 {
        return;
    }
    match thread::index_1d() as usize {
        RSI => {
            let (mut gain, mut loss) = (Wilder::new(), Wilder::new());
            indicators.set(RSI * n, strength(0.0, 0.0));
            for t in 1..n {
                let change = close.get(t) - close.get(t - 1);
                gain.take(change.max(0.0));
                loss.take((-change).max(0.0));
                indicators.set(RSI * n + t, strength(gain.mean(), loss.mean()));
            }
        }
        ATR => {
            let mut range = Wilder::new();
            indicators.set(ATR * n, range.mean());
            for t in 1..n {
                range.take(high.get(t).max(close.get(t - 1)) - low.get(t).min(close.get(t - 1)));
                indicators.set(ATR * n + t, range.mean());
            }
        }
        MACD => {
            let (mut fast, mut slow, mut signal) = (close.get(0), close.get(0), 0.0);
            indicators.set(MACD * n, 0.0);
            for t in 1..n {
                fast = ema(fast, close.get(t), 12);
                slow = ema(slow, close.get(t), 26);
                signal = ema(signal, fast - slow, 9);
                indicators.set(MACD * n + t, fast - slow - signal);
            }
        }
        _ => {}
    }
}

/// Wilder's average: the mean of the first 14 values, then 13/14 of itself and 1/14 of the value.
struct Wilder {
    n: usize,
    sum: f64,
}

impl Wilder {
    #[inline]
    fn new() -> Self {
        Self { n: 0, sum: 0.0 }
    }

    #[inline]
    fn take(&mut self, value: f64) {
        if self.n < N_WILDER {
            self.n += 1;
            self.sum += value;
        } else {
            self.sum += value - self.sum / N_WILDER as f64;
        }
    }

    /// 0 until 14 values came.
    #[inline]
    fn mean(&self) -> f64 {
        if self.n < N_WILDER { 0.0 } else { self.sum / N_WILDER as f64 }
    }
}

/// RSI of average gain and loss; 50 when the price did not move.
#[inline]
pub fn strength(gain: f64, loss: f64) -> f64 {
    if gain + loss > 0.0 { 100.0 * gain / (gain + loss) } else { 50.0 }
}

#[inline]
fn ema(mean: f64, value: f64, n: u32) -> f64 {
    mean + 2.0 / (n + 1) as f64 * (value - mean)
}
