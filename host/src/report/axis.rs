//! Ticks of axes: few, round, and written with no more digits than they need.

use super::text;

/// An axis: the range it shows, and its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Lowest value shown.
    pub low: f64,
    /// Highest value shown; above `low`.
    pub high: f64,
    /// Values with their labels, rising.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Round ticks around these values, and a range that begins and ends on one.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values);
        let step = round_step(high - low, 4.0);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let ticks = (0..=(last - first) as usize).map(|at| (first + at as f64) * step);
        Self { low: first * step, high: last * step, ticks: ticks.map(|value| (value, label(value, step))).collect() }
    }

    /// Fractions as percentages, from 0.
    pub fn percent(values: impl IntoIterator<Item = f64>) -> Self {
        let mut axis = Self::linear(values.into_iter().chain([0.0]).map(|fraction| 100.0 * fraction));
        for (value, label) in &mut axis.ticks {
            *value /= 100.0;
            label.push_str(" %");
        }
        Self { low: axis.low / 100.0, high: axis.high / 100.0, ..axis }
    }

    /// For logarithms of equity: ticks at round multiples of the first equity.
    pub fn growth(log_equity: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(log_equity);
        let ticks: Vec<f64> =
            if high - low > 1.6 { powers(low.exp(), high.exp()) } else { rounds(low.exp(), high.exp()) };
        let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        let (low, high) = (low.min(ticks[0].ln()), high.max(ticks[ticks.len() - 1].ln()));
        let name = |value: f64| (value.ln(), format!("{} ×", label(value, step)));
        Self { low, high, ticks: ticks.into_iter().map(name).collect() }
    }

    /// For logarithms to base 10.
    pub fn decades(logs: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(logs);
        let (first, last) = (low.floor(), high.ceil());
        let every = (((last - first) / 6.0).ceil() as usize).max(1);
        let ticks = (0..=(last - first) as usize).step_by(every).map(|at| first + at as f64);
        Self { low: first, high: last, ticks: ticks.map(|power| (power, text::short(10f64.powf(power)))).collect() }
    }

    /// Whole numbers from `first` on for the positions 0 to `n` - 1, each position a stretch from itself to the next.
    pub fn positions(n: usize, first: i64) -> Self {
        let step = round_step(n as f64, 6.0).max(1.0) as i64;
        let ticks = (0..n as i64).map(|at| at + first).filter(|number| number % step == 0);
        let mut ticks: Vec<_> =
            ticks.map(|number| ((number - first) as f64 + 0.5, text::fixed(number as f64, 0))).collect();
        if ticks.is_empty() {
            ticks.push((0.5, text::fixed(first as f64, 0)));
        }
        Self { low: 0.0, high: n.max(1) as f64, ticks }
    }

    /// Bars, named by their times: about six of the places whose time is known.
    pub fn times(n_bars: usize, places: &[(u32, i64)]) -> Self {
        let span_ns = places.last().map_or(0, |last| last.1) - places.first().map_or(0, |first| first.1);
        let name = if span_ns > 6 * 86_400_000_000_000 { text::day } else { text::minute };
        let every = places.len().div_ceil(6).max(1);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        // Away from both ends, so that no label is cut.
        for &(bar, time_ns) in places.iter().skip(every / 2).step_by(every) {
            let label = name(time_ns);
            if ticks.last().is_none_or(|last| last.1 != label) {
                ticks.push((f64::from(bar), label));
            }
        }
        Self { low: 0.0, high: n_bars.max(1) as f64, ticks }
    }

    /// Where a value lies between `low` (0) and `high` (1).
    pub fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// The finite values' range, widened where it is no range.
fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let least = 1e-9f64.max(1e-6 * high.abs().max(low.abs()));
    if high - low > least {
        (low, high)
    } else if high.abs().max(low.abs()) < 1e-9 {
        (0.0, 1.0)
    } else {
        (low - 0.05 * low.abs(), high + 0.05 * high.abs())
    }
}

/// 1, 2 or 5 times a power of ten that cuts `span` into about `n` pieces.
fn round_step(span: f64, n: f64) -> f64 {
    let raw = span / n;
    let power = 10f64.powf(raw.log10().floor());
    let multiple = [1.0, 2.0, 5.0].into_iter().find(|multiple| raw <= multiple * power * 1.000_001).unwrap_or(10.0);
    multiple * power
}

fn rounds(low: f64, high: f64) -> Vec<f64> {
    let step = round_step(high - low, 4.0);
    let (first, last) = ((low / step + 1e-9).floor().max(1.0), (high / step - 1e-9).ceil());
    (0..=(last - first).max(1.0) as usize).map(|at| (first + at as f64) * step).collect()
}

/// 1, 2 and 5 times powers of ten from just under `low` to just above `high`; powers of ten alone where those are many.
fn powers(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let multiples: &[f64] = if last - first > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> = (first..=last).flat_map(|power| multiples.iter().map(move |m| m * 10f64.powi(power))).collect();
    let from = all.iter().rposition(|&value| value <= low * 1.000_001).unwrap_or(0);
    let to = all.iter().position(|&value| value >= high * 0.999_999).unwrap_or(all.len() - 1);
    let every = (to - from).div_ceil(7).max(1);
    all[from..=to].iter().copied().step_by(every).collect()
}

/// With as many decimals as the step needs.
fn label(value: f64, step: f64) -> String {
    if step < 1e-4 || value.abs() >= 1e7 {
        return if value == 0.0 { "0".into() } else { text::short(value) };
    }
    text::fixed(value, (-(step * 1.000_001).log10().floor()).max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.1.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        assert_eq!(labels(&Axis::linear([0.13, 0.97])), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(&Axis::linear([-3.0, 7.2])), ["−5", "0", "5", "10"]);
        assert_eq!(labels(&Axis::linear([0.95, 0.99])), ["0.95", "0.96", "0.97", "0.98", "0.99"]);
        assert_eq!(labels(&Axis::percent([0.02, 0.34])), ["0 %", "10 %", "20 %", "30 %", "40 %"]);
        assert_eq!(labels(&Axis::growth([0.0, 0.2])), ["1.0 ×", "1.1 ×", "1.2 ×", "1.3 ×"]);
        assert_eq!(labels(&Axis::growth([-1.0, 2.0])), ["0.2 ×", "0.5 ×", "1.0 ×", "2.0 ×", "5.0 ×", "10.0 ×"]);
        assert_eq!(labels(&Axis::positions(12, 0)), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&Axis::positions(1, 1)), ["1"]);
    }

    #[test]
    fn strange_values_still_make_an_axis() {
        let inputs: [&[f64]; 7] =
            [&[], &[f64::NAN], &[0.0], &[5.0, 5.0], &[-2e-12], &[1e300, 3.0], &[f64::INFINITY, 2.0]];
        for values in inputs {
            for axis in [Axis::linear(values.iter().copied()), Axis::percent(values.iter().copied())] {
                assert!(axis.high > axis.low && axis.low.is_finite(), "{values:?}: {axis:?}");
                assert!((1..=12).contains(&axis.ticks.len()), "{values:?}: {axis:?}");
                let inside = values.iter().filter(|value| value.is_finite());
                assert!(inside.map(|&value| axis.place(value)).all(|at| (-1e-6..=1.000_001).contains(&at)), "{axis:?}");
            }
        }
        for growth in [[0.0, 0.0], [-13.8, 0.1], [0.0, 40.0], [-0.3, 0.001]] {
            let axis = Axis::growth(growth);
            assert!((2..=10).contains(&axis.ticks.len()), "{axis:?}");
            assert!(axis.low <= growth[0] && axis.high >= growth[1], "{axis:?}");
        }
    }
}
