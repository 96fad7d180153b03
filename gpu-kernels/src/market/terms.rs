//! What single bars and pairs of neighbours give: the summands of the windowed features.
//!
//! | term | equation | source |
//! |---|---|---|
//! | log return | ln(close_t / close_{t-1}) | |
//! | flow | signed volume where measured, else volume_t sign(close_t - close_{t-1}) | |
//! | spread | (ask - bid) / mid where measured, else S of Corwin and Schultz | 2012, equations 14 and 18, section II.B |
//!
//! S = 2 (e^a - 1) / (1 + e^a), a = (sqrt(2 b) - sqrt(b)) / (3 - 2 sqrt 2) - sqrt(g / (3 - 2 sqrt 2)),
//! b = ln(h_{t-1} / l_{t-1})^2 + ln(h_t / l_t)^2, g = ln(max h / min l)^2. A bar that lies wholly above (below) the close
//! before it is first shifted down (up) by the gap. S may be negative; features take the mean and then the floor.
//!
//! The first bar, which has none before it, has 0 for all.

use cuda_std::prelude::*;

use super::real;

/// 3 - 2 sqrt 2.
const CORWIN_SCHULTZ: f64 = 3.0 - 2.0 * core::f64::consts::SQRT_2;

/// Launch of a kernel with a thread for each of `n` bars.
pub const fn bar_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 128)
}

/// The terms of every bar.
///
/// Shapes: all \[n\]; `signed_volume` and `spread` \[n\], or \[0\] where the file has none. Units: prices as given; `volume` and
/// `signed_volume` in one unit. Launch: [`bar_shape`].
#[kernel]
pub fn bar_terms(
    high: GlobalSlice<f64>,
    low: GlobalSlice<f64>,
    close: GlobalSlice<f64>,
    volume: GlobalSlice<f64>,
    signed_volume: GlobalSlice<f64>,
    spread: GlobalSlice<f64>,
    log_return: GlobalSliceMut<f64>,
    flow: GlobalSliceMut<f64>,
    spread_term: GlobalSliceMut<f64>,
) {
    let t = thread::index_1d() as usize;
    if t >= close.len() {
        return;
    }
    let measured_spread = if spread.is_empty() { 0.0 } else { spread.get(t) };
    let measured_flow = if signed_volume.is_empty() { 0.0 } else { signed_volume.get(t) };
    if t == 0 {
        log_return.set(t, 0.0);
        flow.set(t, measured_flow);
        spread_term.set(t, measured_spread);
        return;
    }
    let (now, before) = (close.get(t), close.get(t - 1));
    log_return.set(t, real::ln(now / before));
    flow.set(t, if signed_volume.is_empty() { tick_signed(volume.get(t), now, before) } else { measured_flow });
    let estimate = || corwin_schultz([high.get(t - 1), low.get(t - 1)], before, [high.get(t), low.get(t)]);
    spread_term.set(t, if spread.is_empty() { estimate() } else { measured_spread });
}

/// `volume` with the sign of the price's move.
#[inline]
pub fn tick_signed(volume: f64, close: f64, close_before: f64) -> f64 {
    if close > close_before {
        volume
    } else if close < close_before {
        -volume
    } else {
        0.0
    }
}

/// The spread / mid that Corwin and Schultz read from two neighbouring bars' \[high, low\] and the first one's close.
#[inline]
pub fn corwin_schultz(first: [f64; 2], first_close: f64, second: [f64; 2]) -> f64 {
    let [high, low] = second;
    let shift = if low > first_close {
        first_close - low
    } else if high < first_close {
        first_close - high
    } else {
        0.0
    };
    let (high, low) = (high + shift, low + shift);
    let (range_before, range) = (real::ln(first[0] / first[1]), real::ln(high / low));
    let both = real::ln(first[0].max(high) / first[1].min(low));
    let beta = range_before * range_before + range * range;
    let root = real::sqrt(beta);
    let alpha = (core::f64::consts::SQRT_2 - 1.0) * root / CORWIN_SCHULTZ - both / real::sqrt(CORWIN_SCHULTZ);
    2.0 * real::half_tanh(alpha)
}
