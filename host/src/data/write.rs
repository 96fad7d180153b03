//! Writes bars to a file, whole or not at all.

use super::bars::{Bars, Measure};
use super::error::DataError;
use super::{csv, parquet};
use std::fs::File;
use std::io::{BufWriter, Write};
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
        "csv" => whole_or_absent(path, |output| csv::write(bars, output).map_err(|e| e.to_string())),
        "parquet" => whole_or_absent(path, |output| parquet::write(bars, output).map_err(|e| e.to_string())),
        _ => Err(DataError::new(path, "the extension names no format to write", "end the name in .csv or .parquet")),
    }
}

fn whole_or_absent(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), String>,
) -> Result<(), DataError> {
    let failed = |e: &dyn std::fmt::Display| DataError::unwritable(path, e);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // In the same folder, since a rename is atomic only within one file system.
    let temporary = tempfile::NamedTempFile::new_in(folder);
    // A folder that is missing or closed is a wrong argument; what fails later is the machine's.
    let mut temporary = temporary.map_err(|e| DataError { bad_input: true, ..failed(&e) })?;
    let mut output = BufWriter::new(temporary.as_file_mut());
    fill(&mut output).map_err(|e| failed(&e))?;
    output.flush().map_err(|e| failed(&e))?;
    drop(output);
    temporary.as_file().sync_all().map_err(|e| failed(&e))?;
    temporary.persist(path).map_err(|e| failed(&e))?;
    // The new name itself reaches the disk with its folder.
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| failed(&e))
}
