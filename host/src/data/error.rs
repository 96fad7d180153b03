//! What can be wrong with market data, said once: what, where, why, and what to do.

use crate::text::{shown, shown_path};
use std::fmt;
use std::path::{Path, PathBuf};

/// A place inside a file, counted from 1 as an editor or a table viewer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A line of a text file.
    Line(u64),
    /// A row of a Parquet table.
    Row(u64),
    /// A record of a DBN stream.
    Record(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Row(n) => write!(f, "row {n}"),
            Place::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// Market data that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}{}: {}; {}",
    shown_path(file),
    place.map(|p| format!(", {p}")).unwrap_or_default(),
    shown(reason),
    shown(remedy)
)]
pub struct DataError {
    /// The file concerned.
    pub file: PathBuf,
    /// Where in the file, if one place is to blame.
    pub place: Option<Place>,
    /// What was found, with the offending value.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: String,
    /// True if the input is at fault (exit code 2), false if the machine failed while writing (exit code 1).
    pub bad_input: bool,
}

impl DataError {
    /// Input that is at fault as a whole.
    pub fn new(file: &Path, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { file: file.to_owned(), place: None, reason: reason.into(), remedy: remedy.into(), bad_input: true }
    }

    /// Input that is at fault in one place.
    pub fn at(file: &Path, place: Place, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: Some(place), ..Self::new(file, reason, remedy) }
    }

    /// A file that the system does not let us read.
    pub fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self::new(file, format!("cannot be read: {error}"), crate::files::remedy(error))
    }

    /// A file that could not be written; what stood at its path before is untouched.
    pub fn unwritable(file: &Path, error: impl fmt::Display) -> Self {
        let remedy = "name a file in a folder that exists, is writable and has room";
        Self { bad_input: false, ..Self::new(file, format!("cannot be written: {error}"), remedy) }
    }
}
