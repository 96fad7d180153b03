//! `run.json`: what a run was started with.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::RunError;
use crate::config::{Config, Preset};
use crate::data::{Bars, ReadOptions, Stamps, format_time};
use crate::device::Device;
use crate::files;

/// What a run was started with; a resumption takes its data from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of the program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// `cuda` or `cpu`.
    pub backend: String,
    /// The device's name.
    pub device: String,
    /// The preset under the other layers; none where they gave every key, so that nothing of it is left.
    pub preset: Option<Preset>,
    /// The seed.
    pub seed: u64,
    /// [`Config::fingerprint`](crate::config::Config::fingerprint) of the effective configuration.
    pub config_fingerprint: u32,
    /// Market files and how they are read; none for the simulator.
    pub data: Option<DataRecord>,
    /// The series as it was read or simulated.
    pub bars: BarsRecord,
    /// What must be known of the series: repairs, jumps, prices that stand still.
    #[serde(default)]
    pub notes: Vec<String>,
    /// When it was started, UTC.
    pub started: String,
}

impl RunRecord {
    /// Of a run that starts now, on bars of the simulator.
    pub fn new(device: &Device, config: &Config, preset: Option<Preset>, bars: &Bars) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            backend: device.backend_name().to_owned(),
            device: device.info().name,
            preset,
            seed: config.seed,
            config_fingerprint: config.fingerprint(),
            data: None,
            bars: BarsRecord::new(bars),
            notes: Vec::new(),
            started: Self::started_now(),
        }
    }
}

/// A series in short. Times are starts of bars, nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarsRecord {
    /// Bars.
    pub n_bars: usize,
    /// Length of a bar, nanoseconds.
    pub interval_ns: i64,
    /// The first bar.
    pub first_ns: i64,
    /// The last bar.
    pub last_ns: i64,
}

impl BarsRecord {
    /// Of a series.
    pub fn new(bars: &Bars) -> Self {
        let end = |time: Option<&i64>| time.copied().unwrap_or(0);
        Self {
            n_bars: bars.len(),
            interval_ns: bars.interval_ns,
            first_ns: end(bars.time_ns.first()),
            last_ns: end(bars.time_ns.last()),
        }
    }

    /// Whether some time lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first_ns <= other.last_ns && other.first_ns <= self.last_ns
    }
}

/// Market files and how they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRecord {
    /// The files, in order.
    pub files: Vec<DataFile>,
    /// `--symbol`.
    pub symbol: Option<String>,
    /// `--bar`, nanoseconds.
    pub bar_ns: Option<i64>,
    /// Whether times name the end of a bar.
    pub stamps_end: bool,
}

/// A market file as it was when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// CRC-32 of its contents: tells a changed file, not a forged one.
    pub crc32: u32,
}

impl DataRecord {
    /// How the files are read.
    pub fn options(&self) -> ReadOptions {
        let stamps = if self.stamps_end { Stamps::End } else { Stamps::Start };
        ReadOptions { symbol: self.symbol.clone(), bar_ns: self.bar_ns, stamps }
    }
}

impl DataFile {
    /// The file as it is now.
    pub fn new(path: &Path) -> Result<Self, RunError> {
        let unreadable = |error: std::io::Error| {
            let remedy = format!("{}; `--data` says where the file is now", files::remedy(&error));
            RunError::new(path, format!("cannot be read: {error}"), remedy)
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut bytes, mut crc32) = (0, crc32fast::Hasher::new());
        let mut chunk = vec![0; 1 << 20];
        loop {
            let n = file.read(&mut chunk).map_err(unreadable)?;
            if n == 0 {
                break;
            }
            bytes += n as u64;
            crc32.update(&chunk[..n]);
        }
        let path = std::path::absolute(path).map_err(unreadable)?;
        Ok(Self { path, bytes, crc32: crc32.finalize() })
    }

    /// An error unless the file at `path` has the contents that this one had.
    pub fn check_unchanged(&self, path: &Path) -> Result<(), RunError> {
        let now = Self::new(path)?;
        if (now.bytes, now.crc32) == (self.bytes, self.crc32) {
            return Ok(());
        }
        let reason = format!(
            "is not the file that the run began with ({} bytes, CRC-32 {:08x}; now {} bytes, {:08x})",
            self.bytes, self.crc32, now.bytes, now.crc32
        );
        Err(RunError::new(path, reason, "restore it, name its copy with `--data`, or start a new run"))
    }
}

/// The present time, UTC, and the same for a folder's name: `20261129-235959`.
pub(super) fn now() -> (String, String) {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(0);
    let text = format_time(seconds.saturating_mul(crate::data::SECOND_NS));
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    (text, format!("{}-{}", &digits[..8], &digits[8..14]))
}

impl RunRecord {
    /// The present time as [`RunRecord::started`] has it.
    pub fn started_now() -> String {
        now().0
    }
}
