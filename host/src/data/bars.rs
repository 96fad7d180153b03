//! Bars in columns: what every reader produces and everything after it consumes.

use serde::Serialize;

/// Nanoseconds in a second.
pub const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds in a day.
pub const DAY_NS: i64 = 86_400 * SECOND_NS;

/// A series of bars of one instrument, sorted by time, without two bars at one time. All columns have equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// The instrument, where the source names it.
    pub symbol: Option<String>,
    /// Length of a bar: the commonest step between bars (the smaller one at a tie), 0 for fewer than two bars.
    pub interval_ns: i64,
    /// Start of each bar, nanoseconds since 1970-01-01 UTC. The bar is known only at its end, `interval_ns` later.
    pub time_ns: Vec<i64>,
    /// First price.
    pub open: Vec<f64>,
    /// Highest price.
    pub high: Vec<f64>,
    /// Lowest price.
    pub low: Vec<f64>,
    /// Last price.
    pub close: Vec<f64>,
    /// Traded volume in the source's unit, not negative.
    pub volume: Vec<f64>,
    /// Number of trades, where measured.
    pub trades: Option<Vec<f64>>,
    /// Volume bought less volume sold by whoever crossed the spread, in the unit of `volume`, where measured.
    pub signed_volume: Option<Vec<f64>>,
    /// (ask - bid) / mid, the mean over the bar, where measured. A fraction, not basis points.
    pub spread: Option<Vec<f64>>,
    /// (microprice - mid) / mid of the bar's last quote, where measured.
    pub microprice_offset: Option<Vec<f64>>,
}

/// One bar. Measured values are NaN where the source has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Start of the bar, nanoseconds since 1970-01-01 UTC.
    pub time_ns: i64,
    /// First price.
    pub open: f64,
    /// Highest price.
    pub high: f64,
    /// Lowest price.
    pub low: f64,
    /// Last price.
    pub close: f64,
    /// Traded volume.
    pub volume: f64,
    /// Number of trades, signed volume, spread and microprice offset, in the order of [`Measure`].
    pub measured: [f64; Measure::COUNT],
}

/// The optional columns, in the order of [`Bar::measured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// [`Bars::trades`].
    Trades,
    /// [`Bars::signed_volume`].
    SignedVolume,
    /// [`Bars::spread`].
    Spread,
    /// [`Bars::microprice_offset`].
    MicropriceOffset,
}

impl Measure {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All of them, in order.
    pub const ALL: [Measure; Self::COUNT] =
        [Measure::Trades, Measure::SignedVolume, Measure::Spread, Measure::MicropriceOffset];

    /// Its name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trades => "trades",
            Self::SignedVolume => "signed_volume",
            Self::Spread => "spread",
            Self::MicropriceOffset => "microprice_offset",
        }
    }
}

impl Bars {
    /// No bars yet, with room for the given measured columns.
    pub fn with_measures(measures: &[Measure]) -> Self {
        let mut bars = Self::default();
        for &measure in measures {
            *bars.measure_mut(measure) = Some(Vec::new());
        }
        bars
    }

    /// Steps from a bar to the next that have the commonest length, and all of them.
    pub(super) fn regular_steps(&self) -> (usize, usize) {
        let steps = self.time_ns.windows(2).map(|pair| pair[1] - pair[0]);
        (steps.filter(|&step| step == self.interval_ns).count(), self.len().saturating_sub(1))
    }

    /// The bar that closes the furthest from the one before, and ln of the quotient of the two.
    pub(super) fn largest_move(&self) -> Option<(usize, f64)> {
        let moves = self.close.windows(2).map(|pair| (pair[1] / pair[0]).ln());
        let (before, largest) = moves.enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
        Some((before + 1, largest))
    }

    /// The bar whose high lies the furthest above its own close and the close before it, or its low the furthest under both: the bar,
    /// whether it is the high, and ln of the quotient.
    pub(super) fn widest_spike(&self) -> Option<(usize, bool, f64)> {
        let spikes = (0..self.len()).flat_map(|at| {
            let (close, before) = (self.close[at], self.close[at.saturating_sub(1)]);
            let (above, under) = (self.high[at] / close.max(before), close.min(before) / self.low[at]);
            [(at, true, above.ln()), (at, false, under.ln())]
        });
        spikes.max_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// Number of bars.
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// True without any bar.
    pub fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// A measured column, if the source has it.
    pub fn measure(&self, measure: Measure) -> Option<&[f64]> {
        match measure {
            Measure::Trades => self.trades.as_deref(),
            Measure::SignedVolume => self.signed_volume.as_deref(),
            Measure::Spread => self.spread.as_deref(),
            Measure::MicropriceOffset => self.microprice_offset.as_deref(),
        }
    }

    fn measure_mut(&mut self, measure: Measure) -> &mut Option<Vec<f64>> {
        match measure {
            Measure::Trades => &mut self.trades,
            Measure::SignedVolume => &mut self.signed_volume,
            Measure::Spread => &mut self.spread,
            Measure::MicropriceOffset => &mut self.microprice_offset,
        }
    }

    /// The measured columns this series has.
    pub fn measures(&self) -> Vec<Measure> {
        Measure::ALL.into_iter().filter(|&m| self.measure(m).is_some()).collect()
    }

    /// Bar `idx`. Panics if there is none.
    pub fn bar(&self, idx: usize) -> Bar {
        Bar {
            time_ns: self.time_ns[idx],
            open: self.open[idx],
            high: self.high[idx],
            low: self.low[idx],
            close: self.close[idx],
            volume: self.volume[idx],
            measured: Measure::ALL.map(|m| self.measure(m).map_or(f64::NAN, |column| column[idx])),
        }
    }

    /// Appends a bar. Measured values whose column this series lacks are left out.
    pub fn push(&mut self, bar: &Bar) {
        self.time_ns.push(bar.time_ns);
        for (column, value) in self.price_columns_mut().into_iter().zip([bar.open, bar.high, bar.low, bar.close]) {
            column.push(value);
        }
        self.volume.push(bar.volume);
        for (measure, value) in Measure::ALL.into_iter().zip(bar.measured) {
            if let Some(column) = self.measure_mut(measure) {
                column.push(value);
            }
        }
    }

    fn price_columns_mut(&mut self) -> [&mut Vec<f64>; 4] {
        [&mut self.open, &mut self.high, &mut self.low, &mut self.close]
    }

    /// Keeps the bars of these positions, in this order.
    pub(super) fn select(&mut self, positions: &[usize]) {
        fn pick<T: Copy>(column: &mut Vec<T>, positions: &[usize]) {
            *column = positions.iter().map(|&i| column[i]).collect();
        }
        pick(&mut self.time_ns, positions);
        for column in self.price_columns_mut() {
            pick(column, positions);
        }
        pick(&mut self.volume, positions);
        for measure in Measure::ALL {
            if let Some(column) = self.measure_mut(measure) {
                pick(column, positions);
            }
        }
    }

    /// The commonest positive step between neighbours, the smaller one at a tie; 0 if there is none.
    pub(super) fn commonest_step_ns(&self) -> i64 {
        let mut counts = std::collections::HashMap::<i64, u64>::new();
        for pair in self.time_ns.windows(2) {
            if let Some(step) = pair[1].checked_sub(pair[0]).filter(|&step| step > 0) {
                *counts.entry(step).or_default() += 1;
            }
        }
        counts.into_iter().max_by_key(|&(step, n)| (n, std::cmp::Reverse(step))).map_or(0, |(step, _)| step)
    }
}
