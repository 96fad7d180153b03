//! Market data: bars from CSV, Parquet and Databento files, checked, and bars from the simulator.
//!
//! | file | holds |
//! |---|---|
//! | `bars` | the one type all readers produce |
//! | `csv`, `parquet`, `dbn` | a reader each |
//! | `columns`, `time`, `symbols` | names, times and instruments as files write them |
//! | `intake`, `faults` | the checks; what is repaired and what is refused |
//! | `aggregate` | ticks to bars, short bars to longer ones |
//! | `inspect` | what a file holds |
//! | `simulate` | markets with known properties |
//! | `write` | bars to CSV or Parquet |

mod aggregate;
mod bars;
mod columns;
mod csv;
mod dbn;
mod error;
mod faults;
pub mod inspect;
mod intake;
mod parquet;
pub mod simulate;
mod symbols;
/// `2.5`, `1.2e12`.
fn ratio_text(ratio: f64) -> String {
    if ratio < 1e6 { format!("{ratio:.1}") } else { format!("{ratio:.1e}") }
}

#[cfg(test)]
mod testing;
mod time;
mod write;

pub use aggregate::{BAR_LENGTHS, length_name};
pub use bars::{Bar, Bars, DAY_NS, Measure, SECOND_NS};
pub use error::{DataError, Place};
pub use faults::{Fault, FaultKind, FaultLog};
pub use intake::Repairs;
pub use time::format_time;
pub use write::write_bars;

use crate::files::kind_of;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Which end of a bar its time in the file names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Stamps {
    /// The start, as everywhere in this program.
    #[default]
    Start,
    /// The end: one interval is taken off every time.
    End,
}

/// How to read a file.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The instrument wanted, where the file holds several.
    pub symbol: Option<String>,
    /// Length of the bars wanted; none keeps the file's own, and makes one-minute bars of ticks.
    pub bar_ns: Option<i64>,
    /// Which end of a bar the file's times name.
    pub stamps: Stamps,
}

/// What a file is, apart from its bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path.
    pub file: PathBuf,
    /// Its format in words.
    pub format: String,
    /// Rows or records of data in it, of all instruments.
    pub n_rows: u64,
    /// The instruments it names.
    pub instruments: Vec<String>,
    /// What the user should know about how it was read.
    pub notices: Vec<String>,
}

/// A file's bars with all that was wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The bars without fault, sorted, without duplicates.
    pub bars: Bars,
    /// What was repaired.
    pub repairs: Repairs,
    /// What was not.
    pub faults: FaultLog,
    /// The file.
    pub source: Source,
}

impl Reading {
    /// What the user should know of the file and its bars, though they can be used.
    pub fn notices(&self) -> Vec<String> {
        let (n_regular, n_steps) = self.bars.regular_steps();
        let first = self.bars.close.first();
        let still = n_steps > 0 && self.bars.close.iter().all(|close| Some(close) == first);
        let untraded = !self.bars.is_empty() && self.bars.volume.iter().all(|&volume| volume == 0.0);
        let remarks = [
            (
                n_steps > 1 && 2 * n_regular < n_steps,
                "fewer than half of the steps have the commonest length: these may not be bars",
            ),
            (still, "every bar closes at the same price: there is nothing to learn or to earn"),
            (untraded, "no bar has volume: the features of volume and order flow say nothing"),
        ];
        let jump = self.bars.largest_move().filter(|(_, log_return)| log_return.abs() > std::f64::consts::LN_2);
        let jump = jump.map(|(at, log_return)| {
            let (time, times) = (format_time(self.bars.time_ns[at]), ratio_text(log_return.abs().exp()));
            let way = if log_return > 0.0 { "above" } else { "under" };
            format!(
                "at {time} the price closes {times} times {way} the bar before: a split, another contract or a fault"
            )
        });
        let spike = self.bars.widest_spike().filter(|&(_, _, log)| log > std::f64::consts::LN_2);
        let spike = spike.map(|(at, is_high, log)| {
            let (time, times) = (format_time(self.bars.time_ns[at]), ratio_text(log.exp()));
            let (what, way) = if is_high { ("high", "above") } else { ("low", "under") };
            format!("at {time} the {what} is {times} times {way} the close and the close before it: likely a fault")
        });
        let told = remarks.iter().filter(|(holds, _)| *holds).map(|&(_, remark)| remark.to_owned());
        self.source.notices.iter().cloned().chain(told).chain(jump).chain(spike).collect()
    }

    /// The bars, if no row is at fault and there are at least `n_bars_min` of them.
    pub fn accept(self, n_bars_min: usize) -> Result<(Bars, Repairs), DataError> {
        if let Some(error) = self.faults.first_error(&self.source.file) {
            return Err(error);
        }
        if self.bars.len() < n_bars_min {
            let (n, plural) = (self.bars.len(), if self.bars.len() == 1 { "" } else { "s" });
            let reason = format!("has {n} bar{plural}, fewer than the {n_bars_min} that are needed at least");
            return Err(DataError::new(&self.source.file, reason, "give a longer file"));
        }
        Ok((self.bars, self.repairs))
    }
}

/// Reads a file, whatever its format, and tells its faults apart instead of stopping at the first.
///
/// The format follows from the first bytes, not from the name. An error means that the file as a whole cannot be
/// understood: it is missing, cut, damaged, lacks a column, or leaves the choice of an instrument open.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Reading, DataError> {
    let unreadable = |e: std::io::Error| DataError::unreadable(path, &e);
    // Before it is opened, which of a pipe would wait for a writer.
    if let Some(kind) = kind_of(&std::fs::metadata(path).map_err(unreadable)?) {
        return Err(DataError::new(path, format!("is {kind}"), "name a regular file"));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    let mut reading = match magic.as_slice() {
        b"PAR1" => parquet::read(path, file, options)?,
        b"\x28\xB5\x2F\xFD" => dbn::read(path, unzstd(path, file)?, options)?,
        [b'D', b'B', b'N', ..] => dbn::read(path, BufReader::new(file), options)?,
        b"PARE" => return Err(DataError::new(path, "is encrypted Parquet", "decrypt it first")),
        [0x1f, 0x8b, ..] => return Err(DataError::new(path, "is compressed with gzip", "decompress it first")),
        [b'P', b'K', 3, 4] => return Err(DataError::new(path, "is a zip archive", "unpack it first")),
        _ => csv::read(path, BufReader::with_capacity(1 << 16, file), options)?,
    };
    if reading.source.n_rows == 0 {
        return Err(DataError::new(path, "has no rows", "give a file that holds bars or ticks"));
    }
    if options.stamps == Stamps::End {
        stamp_starts(path, &mut reading.bars)?;
    }
    if let Some(bar_ns) = options.bar_ns {
        reading.bars = aggregate::lengthen(path, reading.bars, bar_ns)?;
    }
    Ok(reading)
}

/// Decompresses all frames one after the other; a file that ends inside one is an error of the reader.
fn unzstd(path: &Path, file: File) -> Result<impl Read, DataError> {
    /// A frame may ask for a window of 2^27 bytes (zstd's own default limit), not more.
    const WINDOW_LOG_MAX: u32 = 27;
    let mut decoder = zstd::stream::read::Decoder::new(file).map_err(|e| DataError::unreadable(path, &e))?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(|e| DataError::unreadable(path, &e))?;
    Ok(decoder)
}

/// Turns times that name the end of a bar into its start.
fn stamp_starts(path: &Path, bars: &mut Bars) -> Result<(), DataError> {
    if bars.interval_ns == 0 {
        return Err(DataError::new(path, "has too few bars to know their length", "give a longer file"));
    }
    for time in &mut bars.time_ns {
        *time = time.saturating_sub(bars.interval_ns);
    }
    Ok(())
}
