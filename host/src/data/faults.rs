//! Faults of single rows, counted by kind, the first few kept with their place.

use super::error::{DataError, Place};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What can be wrong with a row. None of these is repaired: its right value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A row with too many or too few fields, or that is not text.
    Malformed,
    /// A field that is not a number where one is needed.
    NotANumber,
    /// A time that cannot be read.
    BadTime,
    /// A time in another form than the file's first.
    MixedTimes,
    /// A price that is not finite or not above zero.
    BadPrice,
    /// High below low.
    HighBelowLow,
    /// Open or close outside of low and high.
    OutsideRange,
    /// A volume that is not finite or under zero.
    BadVolume,
    /// Another measured value, such as a spread, that is not finite or out of its range.
    BadMeasure,
    /// Two different bars of one time.
    ConflictingTimes,
}

impl FaultKind {
    /// Its name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Malformed => "malformed",
            FaultKind::NotANumber => "not_a_number",
            FaultKind::BadTime => "bad_time",
            FaultKind::MixedTimes => "mixed_times",
            FaultKind::BadPrice => "bad_price",
            FaultKind::HighBelowLow => "high_below_low",
            FaultKind::OutsideRange => "outside_range",
            FaultKind::BadVolume => "bad_volume",
            FaultKind::BadMeasure => "bad_measure",
            FaultKind::ConflictingTimes => "conflicting_times",
        }
    }

    /// What the user can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            FaultKind::Malformed => "mend the row, or fetch the file again if it was cut",
            FaultKind::NotANumber => "write numbers as 1234.5, without thousands separators, units or decimal commas",
            FaultKind::BadTime => "write times as 2024-01-31T15:30:00Z, or as an epoch in s, ms, us or ns",
            FaultKind::MixedTimes => "write all times of the file in one form",
            FaultKind::BadPrice
            | FaultKind::HighBelowLow
            | FaultKind::OutsideRange
            | FaultKind::BadVolume
            | FaultKind::BadMeasure => "correct the row from its source or remove it",
            FaultKind::ConflictingTimes => "keep the right one of the two rows, or name one instrument with --symbol",
        }
    }
}

/// One fault and its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// Where.
    pub place: Place,
    /// What was found.
    pub reason: String,
}

/// All faults of a file: every one counted, the first [`FaultLog::KEPT`] of a kind kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FaultLog {
    /// How many of each kind.
    pub counts: BTreeMap<FaultKind, u64>,
    /// The first of each kind, in the order met.
    pub examples: Vec<Fault>,
}

impl FaultLog {
    /// How many of a kind are kept with their place.
    pub const KEPT: u64 = 5;

    /// Counts a fault; its reason is only made when it is kept.
    pub fn add(&mut self, kind: FaultKind, place: Place, reason: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= Self::KEPT {
            self.examples.push(Fault { kind, place, reason: reason() });
        }
    }

    /// How many faults there are.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The first fault as an error that also says how many more there are.
    pub fn first_error(&self, file: &Path) -> Option<DataError> {
        let first = self.examples.first()?;
        let mut reason = first.reason.clone();
        if self.total() > 1 {
            reason += &format!(" (and {} more faults; `data inspect` lists them)", self.total() - 1);
        }
        Some(DataError::at(file, first.place, reason, first.kind.remedy()))
    }
}
