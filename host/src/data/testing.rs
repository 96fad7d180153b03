//! Helpers of the data tests.

use super::{Bar, Bars, DataError, Measure, ReadOptions, Reading, read};

/// Reads bytes as a file.
pub(super) fn read_bytes(bytes: &[u8], options: &ReadOptions) -> Result<Reading, DataError> {
    let file = tempfile::NamedTempFile::new().expect("the system has a temporary folder");
    std::fs::write(file.path(), bytes).expect("the temporary folder has room");
    read(file.path(), options)
}

/// The same with the options a file is read with by default.
pub(super) fn read_plainly(bytes: &[u8]) -> Result<Reading, DataError> {
    read_bytes(bytes, &ReadOptions::default())
}

/// A few minutes of bars in which no two numbers are equal, with all measured columns.
pub(super) fn some_bars(n_bars: usize) -> Bars {
    let mut bars = Bars::with_measures(&Measure::ALL);
    for i in 0..n_bars {
        let base = 100.0 + i as f64 / 3.0;
        bars.push(&Bar {
            time_ns: 1_700_000_040_000_000_000 + i as i64 * 60_000_000_000,
            open: base,
            high: base + 0.7,
            low: base - 0.3,
            close: base + 0.1,
            volume: 10.0 + i as f64,
            measured: [3.0 + i as f64, 0.1 * i as f64, 1e-4 + 1e-7 * i as f64, 1e-5 * i as f64],
        });
    }
    bars.interval_ns = if n_bars > 1 { 60_000_000_000 } else { 0 };
    bars
}
