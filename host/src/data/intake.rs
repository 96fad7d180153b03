//! Takes in bars in file order: checks each, then sorts, drops exact duplicates and finds the interval.

use super::bars::{Bar, Bars, Measure};
use super::error::Place;
use super::faults::{FaultKind, FaultLog};
use super::time::format_time;
use serde::Serialize;

/// What was mended, and how often. Each has only one possible meaning; anything else is a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repairs {
    /// Bars equal in every column to another bar of the same time, dropped.
    pub duplicates_dropped: u64,
    /// Bars earlier than one before them, sorted into place.
    pub out_of_order_sorted: u64,
    /// DBN records without a time, dropped.
    pub undefined_times_dropped: u64,
    /// DBN trades without a price, dropped.
    pub undefined_prices_dropped: u64,
    /// Bars before the first quote of a file with quotes, dropped: their spread is unknown.
    pub bars_before_first_quote_dropped: u64,
}

impl Repairs {
    /// How many rows were touched.
    pub fn total(&self) -> u64 {
        self.duplicates_dropped
            + self.out_of_order_sorted
            + self.undefined_times_dropped
            + self.undefined_prices_dropped
            + self.bars_before_first_quote_dropped
    }

    /// What was mended, as a note; none where nothing was.
    pub fn note(&self) -> Option<String> {
        let mended = [
            (self.duplicates_dropped, "exact duplicates dropped"),
            (self.out_of_order_sorted, "rows out of order sorted"),
            (self.undefined_times_dropped, "records without a time dropped"),
            (self.undefined_prices_dropped, "trades without a price dropped"),
            (self.bars_before_first_quote_dropped, "bars before the first quote dropped"),
        ];
        let mended: Vec<String> =
            mended.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what} ({n})")).collect();
        (!mended.is_empty()).then(|| format!("mended: {}", mended.join(", ")))
    }
}

/// Bars on their way in.
#[derive(Debug)]
pub(super) struct Intake {
    bars: Bars,
    places: Vec<u64>,
    to_place: fn(u64) -> Place,
    /// Faults met so far.
    pub(super) faults: FaultLog,
    /// Repairs made so far.
    pub(super) repairs: Repairs,
}

impl Intake {
    /// Nothing taken in yet. `to_place` turns a row's number into words (line, row, record).
    pub(super) fn new(measures: &[Measure], to_place: fn(u64) -> Place) -> Self {
        Self {
            bars: Bars::with_measures(measures),
            places: Vec::new(),
            to_place,
            faults: FaultLog::default(),
            repairs: Repairs::default(),
        }
    }

    /// Counts a fault at a row's number.
    pub(super) fn fault(&mut self, number: u64, kind: FaultKind, reason: impl FnOnce() -> String) {
        self.faults.add(kind, (self.to_place)(number), reason);
    }

    /// Takes a bar in if nothing is wrong with it by itself.
    pub(super) fn push(&mut self, number: u64, bar: &Bar) {
        match check(bar, &self.bars) {
            Ok(()) => {
                self.bars.push(bar);
                self.places.push(number);
            }
            Err((kind, reason)) => self.fault(number, kind, || reason),
        }
    }

    /// Sorted bars without duplicates. Bars of one time that differ are faults; the first of them is kept, so that
    /// `data inspect` can go on.
    pub(super) fn finish(mut self) -> (Bars, Repairs, FaultLog) {
        self.sort();
        self.drop_duplicates();
        self.bars.interval_ns = self.bars.commonest_step_ns();
        (self.bars, self.repairs, self.faults)
    }

    fn sort(&mut self) {
        let mut latest = i64::MIN;
        for &time in &self.bars.time_ns {
            self.repairs.out_of_order_sorted += u64::from(time < latest);
            latest = latest.max(time);
        }
        if self.repairs.out_of_order_sorted > 0 {
            let mut order: Vec<usize> = (0..self.bars.len()).collect();
            order.sort_by_key(|&i| self.bars.time_ns[i]);
            self.keep(&order);
        }
    }

    fn drop_duplicates(&mut self) {
        let mut kept: Vec<usize> = Vec::new();
        for i in 0..self.bars.len() {
            match kept.last() {
                Some(&first) if self.bars.time_ns[first] == self.bars.time_ns[i] => {
                    if same_values(&self.bars.bar(first), &self.bars.bar(i)) {
                        self.repairs.duplicates_dropped += 1;
                    } else {
                        let (time, other) = (format_time(self.bars.time_ns[i]), (self.to_place)(self.places[first]));
                        self.faults.add(FaultKind::ConflictingTimes, (self.to_place)(self.places[i]), || {
                            format!("differs from {other}, which has the same time {time}")
                        });
                    }
                }
                _ => kept.push(i),
            }
        }
        if kept.len() < self.bars.len() {
            self.keep(&kept);
        }
    }

    fn keep(&mut self, positions: &[usize]) {
        self.bars.select(positions);
        self.places = positions.iter().map(|&i| self.places[i]).collect();
    }
}

/// Equality column by column, in which NaN (not measured) equals NaN.
fn same_values(a: &Bar, b: &Bar) -> bool {
    let values = |bar: &Bar| {
        let mut all = [bar.open, bar.high, bar.low, bar.close, bar.volume, 0.0, 0.0, 0.0, 0.0];
        all[5..].copy_from_slice(&bar.measured);
        all.map(f64::to_bits)
    };
    values(a) == values(b)
}

/// 1900-01-01 to 2190-01-01. Any two times in it differ by less than 2^63 ns, so that steps never overflow.
const TIMES_NS: std::ops::Range<i64> = -2_208_988_800_000_000_000..6_942_758_400_000_000_000;

/// Everything that a bar can violate by itself, in the order of the columns.
fn check(bar: &Bar, series: &Bars) -> Result<(), (FaultKind, String)> {
    if !TIMES_NS.contains(&bar.time_ns) {
        return Err((FaultKind::BadTime, format!("time {} lies outside 1900 to 2189", format_time(bar.time_ns))));
    }
    let prices = [("open", bar.open), ("high", bar.high), ("low", bar.low), ("close", bar.close)];
    for (name, price) in prices {
        if !(price.is_finite() && price > 0.0) {
            return Err((FaultKind::BadPrice, format!("{name} {price} is not a finite price above 0")));
        }
    }
    let (low, high) = (bar.low, bar.high);
    if high < low {
        return Err((FaultKind::HighBelowLow, format!("high {high} is below low {low}")));
    }
    for (name, price) in [("open", bar.open), ("close", bar.close)] {
        if !(low..=high).contains(&price) {
            return Err((FaultKind::OutsideRange, format!("{name} {price} lies outside low {low} to high {high}")));
        }
    }
    if !(bar.volume.is_finite() && bar.volume >= 0.0) {
        return Err((FaultKind::BadVolume, format!("volume {} is not a finite number from 0", bar.volume)));
    }
    for measure in series.measures() {
        let value = bar.measured[measure as usize];
        let in_range = match measure {
            Measure::Trades => value >= 0.0,
            // Of the mid, which lies half way between an ask and a bid that is not under 0.
            Measure::Spread => (0.0..=2.0).contains(&value),
            Measure::SignedVolume => value.abs() <= bar.volume * (1.0 + 1e-9),
            Measure::MicropriceOffset => true,
        };
        if !(value.is_finite() && in_range) {
            return Err((
                FaultKind::BadMeasure,
                format!("{} {value} is not finite or out of its range", measure.name()),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(time_ns: i64, close: f64) -> Bar {
        Bar { time_ns, open: 10.0, high: 12.0, low: 9.0, close, volume: 1.0, measured: [f64::NAN; Measure::COUNT] }
    }

    fn intake(bars: &[Bar]) -> (Bars, Repairs, FaultLog) {
        let mut intake = Intake::new(&[], Place::Line);
        for (i, bar) in bars.iter().enumerate() {
            intake.push(i as u64 + 2, bar);
        }
        intake.finish()
    }

    #[test]
    fn unsorted_and_repeated_bars_are_mended_and_counted() {
        let (bars, repairs, faults) =
            intake(&[bar(30, 10.0), bar(10, 11.0), bar(20, 10.5), bar(30, 10.0), bar(40, 10.0)]);
        assert_eq!(bars.time_ns, [10, 20, 30, 40]);
        assert_eq!(bars.close, [11.0, 10.5, 10.0, 10.0]);
        assert_eq!(bars.interval_ns, 10);
        assert_eq!((repairs.out_of_order_sorted, repairs.duplicates_dropped, repairs.total()), (2, 1, 3));
        let note = "mended: exact duplicates dropped (1), rows out of order sorted (2)";
        assert_eq!((repairs.note().as_deref(), Repairs::default().note()), (Some(note), None));
        assert_eq!(faults.total(), 0);
    }

    #[test]
    fn two_bars_of_one_time_that_differ_name_each_other() {
        let (_, _, faults) = intake(&[bar(10, 10.0), bar(20, 10.0), bar(10, 11.0)]);
        assert_eq!(faults.examples[0].place, Place::Line(4));
        assert!(faults.examples[0].reason.contains("line 2"), "{}", faults.examples[0].reason);
    }

    #[test]
    fn case_p_bad_prices_are_faults() {
        for (broken, kind) in [
            (Bar { close: 0.0, ..bar(1, 0.0) }, FaultKind::BadPrice),
            (Bar { open: f64::NAN, ..bar(1, 10.0) }, FaultKind::BadPrice),
            (Bar { high: f64::INFINITY, ..bar(1, 10.0) }, FaultKind::BadPrice),
            (Bar { low: -1.0, ..bar(1, 10.0) }, FaultKind::BadPrice),
            (Bar { high: 8.0, ..bar(1, 10.0) }, FaultKind::HighBelowLow),
            (bar(1, 12.5), FaultKind::OutsideRange),
            (bar(1, 8.5), FaultKind::OutsideRange),
            (Bar { open: 13.0, ..bar(1, 10.0) }, FaultKind::OutsideRange),
            (Bar { volume: -1.0, ..bar(1, 10.0) }, FaultKind::BadVolume),
            (Bar { volume: f64::NAN, ..bar(1, 10.0) }, FaultKind::BadVolume),
        ] {
            let (bars, _, faults) = intake(&[broken]);
            assert!(bars.is_empty());
            assert_eq!(faults.counts.into_iter().collect::<Vec<_>>(), [(kind, 1)], "{broken:?}");
        }
    }

    #[test]
    fn a_jump_of_a_thousand_times_is_a_price_like_any_other() {
        let jump = Bar { time_ns: 2, open: 1e4, high: 1e4, low: 1e4, close: 1e4, ..bar(2, 0.0) };
        assert_eq!(intake(&[bar(1, 10.0), jump]).0.len(), 2);
    }

    #[test]
    fn faults_beyond_the_first_few_are_counted_without_being_kept() {
        let (_, _, faults) = intake(&[bar(1, 0.0); 100]);
        assert_eq!((faults.total(), faults.examples.len() as u64), (100, FaultLog::KEPT));
        let error = faults.first_error("x.csv".as_ref()).expect("there are faults").to_string();
        assert_eq!(
            error,
            "x.csv, line 2: close 0 is not a finite price above 0 (and 99 more faults; `data inspect` lists them); \
             correct the row from its source or remove it"
        );
    }
}
