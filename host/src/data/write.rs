//! Writes bars to a file, whole or not at all.

use super::bars::{Bars, Measure};
use super::error::DataError;
use super::{csv, parquet};
use crate::files::write_whole;
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
    let written = match extension.as_str() {
        "csv" => write_whole(path, |output| csv::write(bars, output)),
        "parquet" => write_whole(path, |output| parquet::write(bars, output)),
        _ => {
            let remedy = "end the name in .csv or .parquet";
            return Err(DataError::new(path, "the extension names no format to write", remedy));
        }
    };
    written.map_err(|error| DataError { bad_input: error.bad_path, ..DataError::unwritable(path, error.reason) })
}
