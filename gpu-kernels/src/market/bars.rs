//! Bars as environments use them: moves from the previous close, half spread, and the market's regime.

use cuda_std::prelude::*;
use shared_types::MarketBar;
use shared_types::market::{N_FEATURES, WARM_UP_BARS, feature};

use super::features::moments;
use super::real;

const YEAR_NS: f64 = 365.25 * 86_400.0e9;
/// Bars of the regime's window.
const N_REGIME: usize = 60;
/// Lowest and highest move of a price in one bar: what keeps 1 + move positive, and products of two finite, in f32.
const LOWEST_MOVE: f64 = -0.999_999;
const HIGHEST_MOVE: f64 = 1e6;
/// Highest half spread, of the price.
const HIGHEST_HALF_SPREAD: f64 = 0.25;

/// The bars for the environments of a fold.
///
/// regime_volatility is the share of `volatility_table` that is <= the bar's volatility_60, regime_trend the mean over the
/// standard deviation of its last 60 one-bar log returns within +-1; both 0 in the warm-up. Moves lie within
/// \[-0.999999, 1e6\], half spreads within \[0, 0.25\].
///
/// Shapes: columns \[n\]; spread \[n\], or \[0\] where the file has none: then `half_spread` (of the price) holds for every bar,
/// as it does for bars without a finite one; raw \[n, F\]; volatility_table \[any\]: volatility_60 of the training part, rising.
/// Launch: [`super::terms::bar_shape`].
#[kernel]
pub fn market_bars(
    time_ns: GlobalSlice<i64>,
    open: GlobalSlice<f64>,
    high: GlobalSlice<f64>,
    low: GlobalSlice<f64>,
    close: GlobalSlice<f64>,
    spread: GlobalSlice<f64>,
    log_return: GlobalSlice<f64>,
    raw: GlobalSlice<f64>,
    volatility_table: GlobalSlice<f64>,
    half_spread: f64,
    bars: GlobalSliceMut<MarketBar>,
) {
    let t = thread::index_1d() as usize;
    if t >= bars.len() {
        return;
    }
    let measured = if spread.is_empty() { f64::NAN } else { 0.5 * spread.get(t) };
    let half = if measured >= 0.0 { measured } else { half_spread }.clamp(0.0, HIGHEST_HALF_SPREAD);
    let mut bar = MarketBar { half_spread: half as f32, ..MarketBar::default() };
    if t > 0 {
        let before = close.get(t - 1);
        bar.open = move_from(before, open.get(t));
        bar.high = move_from(before, high.get(t));
        bar.low = move_from(before, low.get(t));
        bar.close = move_from(before, close.get(t));
        bar.elapsed_years = ((time_ns.get(t) - time_ns.get(t - 1)) as f64 / YEAR_NS) as f32;
    }
    if t >= WARM_UP_BARS {
        bar.regime_volatility = rank(&volatility_table, raw.get(t * N_FEATURES + feature::VOLATILITY_60));
        let (mean, std) = moments(&log_return, t, N_REGIME);
        bar.regime_trend = if std > 0.0 { real::clip((mean / std) as f32, 1.0) } else { 0.0 };
    }
    bars.set(t, bar);
}

#[inline]
fn move_from(close: f64, price: f64) -> f32 {
    (price / close - 1.0).clamp(LOWEST_MOVE, HIGHEST_MOVE) as f32
}

/// Share of a rising table that is at most `value`.
#[inline]
fn rank(table: &GlobalSlice<f64>, value: f64) -> f32 {
    let (mut low, mut high) = (0, table.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if table.get(middle) <= value {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if table.is_empty() { 0.0 } else { low as f32 / table.len() as f32 }
}
