//! The real market files, and what damage does to files like them.
//!
//! The files lie in the folder `ONEGRAPH_DATA`, or in `shared/data` beside the checkout. A test whose file is not there
//! is reported as ignored, never as passed.

mod counted;

use counted::{LIVE_BYTES, PEAK_BYTES};
use host::data::inspect::Inspection;
use host::data::simulate::{Market, Simulation};
use host::data::{Bars, DataError, ReadOptions, read, write_bars};
use libtest_mimic::{Arguments, Failed, Trial};
use parquet::basic::Compression;
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials = vec![
        real("eurusd_1h", &["eurusd_1h.csv"], |[file]| eurusd(&file)),
        real("btcperp_1m", &["btcperp_1m.csv"], |[file]| btcperp(&file)),
        real("goog_1d", &["goog_1d.csv"], |[file]| goog(&file)),
        real("case_q_case_r_dbn_bars_of_two_instruments", &["esu4_nqu4_ohlcv-1m.dbn.zst"], |[file]| dbn_bars(&file)),
        real(
            "case_q_ticks_add_up_to_the_bars",
            &["esu4_nqu4_ohlcv-1m.dbn.zst", "esu4_trades.dbn.zst", "esu4_mbp-1.dbn.zst"],
            |[bars, trades, quotes]| ticks_add_up(&bars, &trades, &quotes),
        ),
    ];
    for name in ["goog_1d.csv", "esu4_nqu4_ohlcv-1m.dbn.zst", "esu4_trades.dbn.zst", "esu4_mbp-1.dbn.zst"] {
        let trial = format!("case_s_damaged_{name}");
        trials.push(real(&trial, &[name], |[file]| damage(std::fs::read(&file)?)));
    }
    // Inside of a zstd frame most damage is found by zstd: these reach the decoders behind it.
    let unpacked = |[file]: [PathBuf; 1]| damage(zstd::decode_all(std::fs::File::open(file)?)?);
    trials.push(real("case_s_damaged_mbp-1_unpacked", &["esu4_mbp-1.dbn.zst"], unpacked));
    trials.push(real("case_s_damaged_ohlcv_unpacked", &["esu4_nqu4_ohlcv-1m.dbn.zst"], unpacked));
    for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        trials.push(Trial::test(format!("case_s_damaged_parquet_{codec}"), move || damage(nullable_parquet(codec)?)));
    }
    for name in ["simulated.csv", "simulated.parquet"] {
        trials.push(Trial::test(format!("case_s_damaged_{name}"), move || damage(simulated(name)?)));
    }
    trials.push(Trial::test("command_line", command_line));
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test of real files, ignored where they are missing.
fn real<const N: usize>(
    name: &str,
    files: &[&str; N],
    test: impl FnOnce([PathBuf; N]) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    let folder = std::env::var_os("ONEGRAPH_DATA").map(PathBuf::from).or_else(|| {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        checkout.map(|folder| folder.join("shared/data")).find(|folder| folder.is_dir())
    });
    let paths = files.map(|file| folder.clone().unwrap_or_default().join(file));
    let missing = folder.is_none() || paths.iter().any(|path| !path.is_file());
    Trial::test(name, move || test(paths)).with_ignored_flag(missing)
}

fn inspected(path: &Path, options: &ReadOptions) -> Result<Inspection, DataError> {
    let inspection = Inspection::new(&read(path, options)?);
    assert_eq!(inspection.faults.total(), 0);
    assert_eq!(inspection.repairs.total(), 0);
    assert!(!inspection.to_string().is_empty());
    Ok(inspection)
}

// What the next three expect stands in the README beside the files.

fn eurusd(path: &Path) -> Result<(), Failed> {
    let i = inspected(path, &ReadOptions::default())?;
    assert_eq!((i.rows, i.bars, i.interval_s), (5_000, 5_000, Some(3_600.0)));
    assert_eq!(i.first.as_deref(), Some("2017-04-19T09:00:00Z"));
    assert_eq!(i.last.as_deref(), Some("2018-02-07T15:00:00Z"));
    assert_eq!((i.gaps.count, i.zero_volume, i.flat_bars), (42, 0, 2));
    assert!(i.gaps.common_lengths_s.iter().all(|&(s, _)| (48.0 * 3600.0..=73.0 * 3600.0).contains(&s)));
    assert_eq!(i.sessions.count, 43);
    assert!((i.largest_move.ok_or("no move")?.0.abs() - 0.0158).abs() < 1e-4);
    Ok(())
}

fn btcperp(path: &Path) -> Result<(), Failed> {
    let i = inspected(path, &ReadOptions::default())?;
    assert_eq!((i.bars, i.interval_s, i.zero_volume, i.flat_bars), (45_017, Some(60.0), 0, 5));
    assert_eq!((i.gaps.count, i.gaps.missing_bars, i.sessions.count), (2, 14, 1));
    assert_eq!(i.gaps.common_lengths_s, [(480.0, 2)]);
    assert!((i.largest_move.ok_or("no move")?.0.abs() - 0.0196).abs() < 1e-4);
    Ok(())
}

fn goog(path: &Path) -> Result<(), Failed> {
    let i = inspected(path, &ReadOptions::default())?;
    assert_eq!((i.bars, i.interval_s, i.zero_volume, i.flat_bars), (2_148, Some(86_400.0), 0, 0));
    assert_eq!((i.gaps.count, i.sessions.count), (463, 0));
    assert!((i.largest_move.ok_or("no move")?.0 - 0.1823).abs() < 1e-4);
    Ok(())
}

fn choose(symbol: &str) -> ReadOptions {
    ReadOptions { symbol: Some(symbol.into()), ..ReadOptions::default() }
}

fn dbn_bars(path: &Path) -> Result<(), Failed> {
    for symbol in ["ESU4", "NQU4", "118", "4358"] {
        let i = inspected(path, &choose(symbol))?;
        assert_eq!((i.rows, i.bars, i.interval_s, i.gaps.count), (60, 30, Some(60.0), 0), "{symbol}");
        assert_eq!(i.first.as_deref(), Some("2024-07-01T23:40:00Z"));
        assert_eq!(i.last.as_deref(), Some("2024-07-02T00:09:00Z"));
    }
    let open = read(path, &ReadOptions::default()).err().ok_or("two instruments were taken as one")?.to_string();
    assert!(open.contains("2 instruments: ESU4, NQU4"), "{open}");
    let none = read(path, &choose("ESZ4")).err().ok_or("a name that matches nothing was taken")?.to_string();
    assert!(none.contains("it has: ESU4, NQU4"), "{none}");
    Ok(())
}

fn ticks_add_up(bars: &Path, trades: &Path, quotes: &Path) -> Result<(), Failed> {
    let bars = read(bars, &choose("ESU4"))?.bars;
    let of_trades = read(trades, &ReadOptions::default())?;
    let of_quotes = read(quotes, &choose("ESU4"))?;
    assert_eq!((of_trades.source.n_rows, of_quotes.source.n_rows), (120, 2_288));
    let minutes = |b: &Bars| -> Vec<_> {
        let row = |i: usize| (b.time_ns[i], b.open[i], b.high[i], b.low[i], b.close[i], b.volume[i]);
        (0..b.len()).map(row).collect()
    };
    // The four minutes from 23:58 are the last two of the first day's bars and the first two of the second's.
    let first = bars.time_ns.iter().position(|&t| t == of_quotes.bars.time_ns[0]).ok_or("no such minute")?;
    assert_eq!(minutes(&of_quotes.bars), minutes(&bars)[first..first + 4]);
    assert_eq!(minutes(&of_trades.bars), minutes(&bars)[first..first + 4]);
    assert_eq!(of_trades.bars.signed_volume, of_quotes.bars.signed_volume);
    assert_eq!(of_trades.bars.trades, of_quotes.bars.trades);
    // The spread is one tick of 0.25, now and then two, at a price near 5,500.
    for spread in of_quotes.bars.spread.ok_or("quotes measure the spread")? {
        assert!((0.25 / 5_600.0..0.50 / 5_400.0).contains(&spread), "{spread}");
    }
    Ok(())
}

fn simulated(name: &str) -> Result<Vec<u8>, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    write_bars(&path, &Simulation { market: Market::Regimes, n_bars: 3_000, seed: 1 }.bars())?;
    Ok(std::fs::read(path)?)
}

/// The program's exit code, standard output and standard error.
fn onegraph(arguments: &[&str]) -> Result<(i32, String, String), Failed> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onegraph")).args(arguments).output()?;
    let text = |bytes| String::from_utf8(bytes).map_err(|e| Failed::from(e.to_string()));
    Ok((output.status.code().unwrap_or(-1), text(output.stdout)?, text(output.stderr)?))
}

fn command_line() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in ["market.csv", "market.parquet"] {
        let market = path(name);
        let simulate =
            ["data", "simulate", "--sim", "mean-reverting", "--bars", "500", "--seed", "3", "--out", &market];
        let (code, out, err) = onegraph(&simulate)?;
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        let (code, out, err) = onegraph(&["data", "inspect", &market, "--bar", "1h", "--json"])?;
        assert_eq!((code, err.as_str()), (0, ""));
        let seen: serde_json::Value = serde_json::from_str(&out)?;
        assert_eq!((&seen["rows"], &seen["bars"], &seen["interval_s"]), (&500.into(), &42.into(), &3600.0.into()));
        assert_eq!(seen["measured"], serde_json::json!(["spread"]));
    }
    let broken = path("broken.csv");
    std::fs::write(&broken, "time,open,high,low,close,volume\n2024-01-02,1,2,3,1,5\n2024-01-03,1,2,1,1,5\n")?;
    let (code, out, err) = onegraph(&["data", "inspect", &broken])?;
    // What is right is still told; then the file is refused.
    assert!(out.contains("high_below_low: 1") && out.contains("2024-01-03T00:00:00Z"), "{out}");
    assert_eq!(code, 2);
    assert!(err.starts_with(&format!("error: {broken}, line 2: high 2 is below low 3; correct the row")), "{err}");
    for wrong in [
        ["data", "inspect", &path("absent.csv")].as_slice(),
        &["data", "inspect", &broken, "--symbol", "X"],
        &["data", "inspect", &broken, "--bar", "2m"],
        &["data", "simulate", "--out", &path("market.xlsx")],
        &["data", "simulate", "--out", &path("no/such/folder.csv")],
        &["data", "simulate", "--bars", "0", "--out", &path("x.csv")],
    ] {
        let (code, out, err) = onegraph(wrong)?;
        assert_eq!((code, out.as_str()), (2, ""), "{wrong:?}");
        assert!(err.starts_with("error: "), "{err}");
    }
    Ok(())
}

/// Nullable columns in dictionaries, as most programs write them.
fn nullable_parquet(codec: Compression) -> Result<Vec<u8>, Failed> {
    let bars = Simulation { market: Market::RandomWalk, n_bars: 500, seed: 1 }.bars();
    let schema = "message m { OPTIONAL INT64 ts (TIMESTAMP_MICROS); OPTIONAL DOUBLE open; OPTIONAL DOUBLE high;
                  OPTIONAL DOUBLE low; OPTIONAL DOUBLE close; OPTIONAL DOUBLE volume; }";
    let properties = WriterProperties::builder().set_compression(codec).build();
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(parse_message_type(schema)?), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let present = vec![1; bars.len()];
    let micros: Vec<i64> = bars.time_ns.iter().map(|t| t / 1000).collect();
    let mut column = group.next_column()?.ok_or("six columns")?;
    column.typed::<Int64Type>().write_batch(&micros, Some(&present), None)?;
    column.close()?;
    for values in [&bars.open, &bars.high, &bars.low, &bars.close, &bars.volume] {
        let mut column = group.next_column()?.ok_or("six columns")?;
        column.typed::<DoubleType>().write_batch(values, Some(&present), None)?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// No reading of a small file may take more: a zstd window is 128 MiB at most, a Parquet page 64 MiB, and the reader
/// holds a compressed and an uncompressed copy of a page.
const PEAK_BYTES_MAX: usize = 320 << 20;

/// Flips bits, overwrites stretches and cuts; a reading may fail or, where the damage makes sense, succeed, but it
/// never panics and its memory is bounded.
fn damage(whole: Vec<u8>) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("damaged");
    let change = (any::<prop::sample::Index>(), any::<u8>(), 1usize..=8);
    let strategy = (prop::collection::vec(change, 0..6), any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    // The same cases at every run, unless more are asked for: those are new each time.
    let asked = std::env::var("ONEGRAPH_FUZZ_CASES").ok().and_then(|n| n.parse().ok());
    let (cases, rng_seed) = asked.map_or((300, RngSeed::Fixed(1)), |n| (n, RngSeed::Random));
    let mut runner = TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() });
    let peak_max = AtomicUsize::new(0);
    let outcome = runner.run(&strategy, |(changes, end, cut, at_the_edges)| {
        let mut bytes = whole.clone();
        for (at, value, n) in changes {
            // Headers and footers decide most; they get half of the damage.
            let mut start = at.index(bytes.len());
            if at_the_edges {
                start = if start % 2 == 0 {
                    start % 400.min(bytes.len())
                } else {
                    bytes.len() - 1 - start % 400.min(bytes.len())
                };
            }
            for byte in bytes.iter_mut().skip(start).take(n) {
                *byte ^= value;
            }
        }
        if cut {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        std::fs::write(&path, &bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
        PEAK_BYTES.store(LIVE_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = LIVE_BYTES.load(Ordering::Relaxed);
        if let Ok(reading) = read(&path, &ReadOptions::default()) {
            let inspection = Inspection::new(&reading);
            prop_assert!(!inspection.to_string().is_empty());
            prop_assert!(serde_json::to_string(&inspection).is_ok());
        }
        let peak = PEAK_BYTES.load(Ordering::Relaxed).saturating_sub(before);
        peak_max.fetch_max(peak, Ordering::Relaxed);
        prop_assert!(peak < PEAK_BYTES_MAX, "reading took {} MiB", peak >> 20);
        Ok(())
    });
    let (peak_mib, limit_mib) = (peak_max.into_inner() >> 20, PEAK_BYTES_MAX >> 20);
    eprintln!("{cases} damaged files of {} bytes: at most {peak_mib} MiB of {limit_mib}", whole.len());
    outcome.map_err(|e| Failed::from(e.to_string()))
}
