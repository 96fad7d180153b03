//! Writes bars to a file, whole or not at all.

use super::bars::{Bars, Measure};
use super::error::DataError;
use super::{csv, parquet};
use crate::files::{Unwritten, write_whole};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// The name under which a measured column is written and read.
pub(super) fn column_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Trades => "trades",
        Measure::SignedVolume => "signed_volume",
        Measure::Spread => "spread_fraction",
        Measure::MicropriceOffset => "microprice_offset",
    }
}

/// Writes CSV or Parquet, by the file name's extension. The file appears under its name only when it is complete and
/// on the disk; until then, and after any error, what stood there before is untouched.
pub fn write_bars(path: &Path, bars: &Bars) -> Result<(), DataError> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "csv" => write(path, |output| csv::write(bars, output)),
        "parquet" => write(path, |output| parquet::write(bars, output)),
        _ => Err(DataError::new(path, "the extension names no format to write", "end the name in .csv or .parquet")),
    }
}

fn write<E: Display>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<(), DataError> {
    let written = write_whole(path, |output| fill(output).map_err(|error| io::Error::other(error.to_string())));
    written.map_err(|unwritten| {
        // A folder that is missing or closed is a wrong argument; what fails later is the machine's.
        let bad_input = matches!(unwritten, Unwritten::Place(_));
        DataError { bad_input, ..DataError::unwritable(path, unwritten.error()) }
    })
}
