//! What a file holds: range, interval, gaps, repairs, faults, sessions.

use super::bars::{Bars, DAY_NS, Measure, SECOND_NS};
use super::faults::FaultLog;
use super::intake::Repairs;
use super::time::format_time;
use super::{Reading, length_name};
use crate::text::shown;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A break of at least this length between bars shorter than a day ends a session.
const SESSION_BREAK_NS: i64 = 1_800 * SECOND_NS;
/// How many of the longest gaps, and of the commonest gap lengths, are told.
const N_GAPS_TOLD: usize = 5;

/// Everything `data inspect` says. Its JSON form is this structure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The file's path.
    pub file: String,
    /// Its format in words.
    pub format: String,
    /// Rows or records in the file, of all instruments.
    pub rows: u64,
    /// The instruments the file names.
    pub instruments: Vec<String>,
    /// The instrument inspected.
    pub symbol: Option<String>,
    /// Bars after repairs, without those at fault.
    pub bars: u64,
    /// Start of the first bar.
    pub first: Option<String>,
    /// Start of the last bar.
    pub last: Option<String>,
    /// Length of a bar in seconds; none for a single bar, whose length cannot be known.
    pub interval_s: Option<f64>,
    /// Share of the steps between bars that have exactly this length; none without a step.
    pub interval_share: Option<f64>,
    /// Where bars are missing.
    pub gaps: Gaps,
    /// Bars on which nothing was traded.
    pub zero_volume: u64,
    /// Bars whose high equals their low.
    pub flat_bars: u64,
    /// The bar-to-bar move of the close furthest from 0, as a natural logarithm, and its time.
    pub largest_move: Option<(f64, String)>,
    /// Lowest low and highest high.
    pub price_range: Option<(f64, f64)>,
    /// Runs of bars between breaks.
    pub sessions: Sessions,
    /// Columns beyond open, high, low, close and volume.
    pub measured: Vec<Measure>,
    /// What was repaired.
    pub repairs: Repairs,
    /// What was not, and makes `train` refuse the file.
    pub faults: FaultLog,
    /// What else the user should know.
    pub notices: Vec<String>,
}

/// Steps between bars that are longer than the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// How many of them contain a whole Saturday or Sunday in UTC, or most of one: markets close there.
    pub over_weekends: u64,
    /// Intervals without a bar, in all.
    pub missing_bars: u64,
    /// The longest, each with the start of the bar before it and its length in seconds.
    pub longest: Vec<Gap>,
    /// The commonest lengths in seconds, each with its count.
    pub common_lengths_s: Vec<(f64, u64)>,
}

/// One gap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Start of the last bar before it.
    pub after: String,
    /// From there to the start of the next bar, in seconds.
    pub step_s: f64,
}

/// Runs of bars without a break of half an hour, for bars shorter than a day.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sessions {
    /// How many; 0 for bars of a day or longer.
    pub count: u64,
    /// Bars in the session of median length.
    pub median_bars: u64,
    /// The commonest time of day of a session's first bar, UTC, and its share of all sessions.
    pub opens: Option<(String, f64)>,
    /// The commonest time of day of a session's last bar, UTC, and its share of all sessions.
    pub closes: Option<(String, f64)>,
    /// Bars by weekday, Monday first, UTC.
    pub bars_by_weekday: [u64; 7],
}

impl Inspection {
    /// Looks through what was read.
    pub fn new(reading: &Reading) -> Self {
        let Reading { bars, repairs, faults, source } = reading;
        let (n_regular, n_steps) = bars.regular_steps();
        Self {
            file: source.file.display().to_string(),
            format: source.format.clone(),
            rows: source.n_rows,
            instruments: source.instruments.clone(),
            symbol: bars.symbol.clone(),
            bars: bars.len() as u64,
            first: bars.time_ns.first().map(|&t| format_time(t)),
            last: bars.time_ns.last().map(|&t| format_time(t)),
            interval_s: (bars.interval_ns > 0).then(|| seconds(bars.interval_ns)),
            interval_share: (n_steps > 0).then(|| n_regular as f64 / n_steps as f64),
            gaps: Gaps::of(bars),
            zero_volume: bars.volume.iter().filter(|&&v| v == 0.0).count() as u64,
            flat_bars: bars.high.iter().zip(&bars.low).filter(|(high, low)| high == low).count() as u64,
            largest_move: bars.largest_move().map(|(at, largest)| (largest, format_time(bars.time_ns[at]))),
            price_range: (!bars.is_empty()).then(|| {
                (bars.low.iter().copied().fold(f64::INFINITY, f64::min), bars.high.iter().copied().fold(0.0, f64::max))
            }),
            sessions: Sessions::of(bars),
            measured: bars.measures(),
            repairs: *repairs,
            faults: faults.clone(),
            notices: reading.notices(),
        }
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / SECOND_NS as f64
}

impl Gaps {
    fn of(bars: &Bars) -> Self {
        let mut gaps = Self::default();
        let mut found: Vec<(i64, i64)> = Vec::new();
        let mut lengths = BTreeMap::<i64, u64>::new();
        for pair in bars.time_ns.windows(2) {
            let step = pair[1] - pair[0];
            if bars.interval_ns > 0 && step > bars.interval_ns {
                gaps.count += 1;
                gaps.over_weekends += u64::from(spans_weekend(pair[0] + bars.interval_ns, pair[1]));
                gaps.missing_bars += (step / bars.interval_ns - 1) as u64;
                *lengths.entry(step).or_default() += 1;
                found.push((step, pair[0]));
            }
        }
        found.sort_by_key(|&(step, start)| (std::cmp::Reverse(step), start));
        let told = found.iter().take(N_GAPS_TOLD);
        gaps.longest = told.map(|&(step, start)| Gap { after: format_time(start), step_s: seconds(step) }).collect();
        let mut lengths: Vec<(i64, u64)> = lengths.into_iter().collect();
        lengths.sort_by_key(|&(step, n)| (std::cmp::Reverse(n), step));
        gaps.common_lengths_s = lengths.iter().take(N_GAPS_TOLD).map(|&(step, n)| (seconds(step), n)).collect();
        gaps
    }
}

/// Monday is 0; 1970-01-01 was a Thursday.
fn weekday(time_ns: i64) -> usize {
    (time_ns.div_euclid(DAY_NS) + 3).rem_euclid(7) as usize
}

/// True if the span holds noon of a Saturday or Sunday.
fn spans_weekend(start_ns: i64, end_ns: i64) -> bool {
    let first_noon = (start_ns + DAY_NS / 2 - 1).div_euclid(DAY_NS) * DAY_NS + DAY_NS / 2;
    (0..7).map(|day| first_noon + day * DAY_NS).take_while(|&noon| noon < end_ns).any(|noon| weekday(noon) >= 5)
}

impl Sessions {
    fn of(bars: &Bars) -> Self {
        let mut sessions = Self::default();
        for &time in &bars.time_ns {
            sessions.bars_by_weekday[weekday(time)] += 1;
        }
        if bars.is_empty() || bars.interval_ns == 0 || bars.interval_ns >= DAY_NS {
            return sessions;
        }
        let break_ns = SESSION_BREAK_NS.max(bars.interval_ns);
        let (mut lengths, mut opens, mut closes) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut start = 0;
        for i in 0..bars.len() {
            let ends = bars.time_ns.get(i + 1).is_none_or(|next| next - bars.time_ns[i] - bars.interval_ns >= break_ns);
            if ends {
                lengths.push((i + 1 - start) as u64);
                *opens.entry(bars.time_ns[start].rem_euclid(DAY_NS)).or_insert(0u64) += 1;
                *closes.entry(bars.time_ns[i].rem_euclid(DAY_NS)).or_insert(0u64) += 1;
                start = i + 1;
            }
        }
        lengths.sort_unstable();
        sessions.count = lengths.len() as u64;
        sessions.median_bars = lengths[lengths.len() / 2];
        let commonest = |times: BTreeMap<i64, u64>| {
            let (time, n) = times.into_iter().max_by_key(|&(time, n)| (n, std::cmp::Reverse(time)))?;
            Some((format_time(time)[11..].to_owned(), n as f64 / lengths.len() as f64))
        };
        (sessions.opens, sessions.closes) = (commonest(opens), commonest(closes));
        sessions
    }
}

/// The table for people.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<18}{}", shown(&value));
        row("file", self.file.clone())?;
        row("format", self.format.clone())?;
        if !self.instruments.is_empty() {
            row("instruments", self.instruments.join(", "))?;
        }
        row("rows", self.rows.to_string())?;
        row("bars", self.bars.to_string())?;
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            row("range", format!("{first} to {last} (starts of bars)"))?;
        }
        let share = self.interval_share.map(|share| format!(" ({:.1}% of steps)", 100.0 * share));
        let interval = self.interval_s.map_or("unknown".into(), duration);
        row("interval", interval + &share.unwrap_or_default())?;
        row("gaps", self.gaps.to_string())?;
        for gap in &self.gaps.longest {
            row("", format!("{} after {}", duration(gap.step_s), gap.after))?;
        }
        row("sessions", self.interval_s.map_or("unknown".into(), |_| self.sessions.to_string()))?;
        let weekdays = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].iter().zip(self.sessions.bars_by_weekday);
        row("bars by weekday", weekdays.map(|(day, n)| format!("{day} {n}")).collect::<Vec<_>>().join(", "))?;
        if let Some((low, high)) = self.price_range {
            row("prices", format!("{low} to {high}"))?;
        }
        if let Some((largest, time)) = &self.largest_move {
            row("largest move", format!("{largest:+.4} (log) at {time}"))?;
        }
        row("zero volume", self.zero_volume.to_string())?;
        row("high = low", self.flat_bars.to_string())?;
        if !self.measured.is_empty() {
            row("measured", self.measured.iter().map(|m| m.name()).collect::<Vec<_>>().join(", "))?;
        }
        let repairs = &self.repairs;
        row("duplicates", format!("{} exact, dropped", repairs.duplicates_dropped))?;
        row("out of order", format!("{} rows, sorted", repairs.out_of_order_sorted))?;
        for (name, n) in [
            ("without time", repairs.undefined_times_dropped),
            ("without price", repairs.undefined_prices_dropped),
            ("before 1st quote", repairs.bars_before_first_quote_dropped),
        ] {
            if n > 0 {
                row(name, format!("{n} dropped"))?;
            }
        }
        row("faults", self.faults.total().to_string())?;
        for (kind, n) in &self.faults.counts {
            row("", format!("{}: {n}", kind.name()))?;
            for fault in self.faults.examples.iter().filter(|fault| fault.kind == *kind) {
                row("", format!("  {}: {}", fault.place, fault.reason))?;
            }
        }
        for notice in &self.notices {
            row("note", notice.clone())?;
        }
        Ok(())
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if self.count > 0 {
            let common = self.common_lengths_s.iter().map(|&(s, n)| format!("{n} x {}", duration(s)));
            let common = common.collect::<Vec<_>>().join(", ");
            write!(f, " ({} over weekends, {} bars missing; steps: {common})", self.over_weekends, self.missing_bars)?;
        }
        Ok(())
    }
}

impl fmt::Display for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some((open, open_share)), Some((close, close_share))) = (&self.opens, &self.closes) else {
            return write!(f, "one bar a day or less");
        };
        write!(
            f,
            "{} without a break of 30 min; median {} bars; first bar mostly {open} ({:.0}%), last {close} ({:.0}%)",
            self.count,
            self.median_bars,
            100.0 * open_share,
            100.0 * close_share
        )
    }
}

fn duration(seconds: f64) -> String {
    length_name((seconds * SECOND_NS as f64) as i64)
}
