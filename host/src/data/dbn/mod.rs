//! Bars from Databento Binary Encoding, plain or zstd, versions 1 to 3: bars as they are, ticks aggregated.

mod instruments;
mod records;
mod ticks;

use super::bars::{Bar, DAY_NS, Measure, SECOND_NS};
use super::error::{DataError, Place};
use super::intake::Intake;
use super::symbols::SymbolFilter;
use super::{ReadOptions, Reading, Source, Stamps};
use ::dbn::{OhlcvMsg, RType, Record, RecordRef, Schema, UNDEF_PRICE, UNDEF_TIMESTAMP};
use instruments::Instruments;
use records::Records;
use std::io::Read;
use std::path::Path;
use ticks::Ticks;

/// Bars made from ticks when `--bar` is not given.
const DEFAULT_BAR_NS: i64 = 60 * SECOND_NS;

/// What the market records of a file are. One file holds one kind: two would count every trade twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ohlcv,
    Trades,
    /// `tbbo` too, which has the same records.
    Mbp1,
    Mbp10,
    Bbo,
}

impl Kind {
    /// The kind of a record; none for those that say nothing about the market. An error for unread schemas.
    fn of(rtype: RType) -> Result<Option<Self>, String> {
        #[expect(deprecated, reason = "DBN version 1 files hold it")]
        Ok(Some(match rtype {
            RType::Ohlcv1S | RType::Ohlcv1M | RType::Ohlcv1H | RType::Ohlcv1D | RType::OhlcvEod => Kind::Ohlcv,
            RType::OhlcvDeprecated => Kind::Ohlcv,
            RType::Mbp0 => Kind::Trades,
            RType::Mbp1 | RType::Tbbo => Kind::Mbp1,
            RType::Mbp10 => Kind::Mbp10,
            RType::Bbo1S | RType::Bbo1M => Kind::Bbo,
            RType::Mbo | RType::Cmbp1 | RType::Cbbo1S | RType::Cbbo1M | RType::Tcbbo => {
                return Err(format!("{rtype:?} records are not read"));
            }
            _ => return Ok(None),
        }))
    }
}

/// Length of a bar of an `ohlcv` schema; none for the old type that all of them shared.
fn bar_length_ns(rtype: RType) -> Option<i64> {
    match rtype {
        RType::Ohlcv1S => Some(SECOND_NS),
        RType::Ohlcv1M => Some(60 * SECOND_NS),
        RType::Ohlcv1H => Some(3_600 * SECOND_NS),
        RType::Ohlcv1D | RType::OhlcvEod => Some(DAY_NS),
        _ => None,
    }
}

/// The schemas read, for messages.
const SCHEMAS: &str = "export ohlcv-*, trades, tbbo, mbp-1, mbp-10 or bbo-*";

/// Reads a whole DBN stream, already decompressed.
pub(super) fn read(path: &Path, input: impl Read, options: &ReadOptions) -> Result<Reading, DataError> {
    if options.stamps == Stamps::End {
        return Err(DataError::new(path, "is DBN, which stamps the start of a bar", "leave out --stamps end"));
    }
    let (mut records, metadata) = Records::open(path, input)?;
    let version = records.version();
    let mut market = Market {
        path,
        wanted: options.symbol.as_deref(),
        instruments: Instruments::from_metadata(&metadata),
        symbols: SymbolFilter::new(options.symbol.as_deref()),
        bars: Intake::new(&[], Place::Record),
        ticks: None,
        kind: None,
        rtype: None,
        bar_ns: options.bar_ns.unwrap_or(DEFAULT_BAR_NS),
    };
    if metadata.schema.is_some_and(|s| matches!(s, Schema::Mbo | Schema::Definition | Schema::Statistics)) {
        let name = metadata.schema.map_or("", |s| s.as_str());
        return Err(DataError::new(path, format!("holds the schema {name}, which has no bars"), SCHEMAS));
    }
    while let Some((number, record)) = records.next()? {
        market.take(number, record)?;
    }
    let n_rows = records.n_read();
    let Some(kind) = market.kind else {
        return Err(DataError::new(path, format!("holds no market data among its {n_rows} records"), SCHEMAS));
    };
    let symbol = market.symbols.chosen(path)?;
    let mut notices = Vec::new();
    let mut intake = market.bars;
    if let Some(ticks) = market.ticks {
        if kind == Kind::Bbo {
            notices.push("bbo records hold no volume: prices are mids, every volume is 0".to_string());
        }
        let length = super::aggregate::length_name(market.bar_ns);
        notices.push(format!("{} records aggregated to bars of {length}", ticks.n_taken()));
        intake = ticks.into_bars();
    }
    let (mut bars, repairs, faults) = intake.finish();
    bars.symbol = symbol;
    // The schema knows the length of a bar better than the steps between bars, of which some are missing.
    let length_ns = if kind == Kind::Ohlcv { market.rtype.and_then(bar_length_ns) } else { Some(market.bar_ns) };
    bars.interval_ns = length_ns.unwrap_or(bars.interval_ns);
    let schema = metadata.schema.map_or_else(|| format!("{kind:?} records").to_lowercase(), |s| s.as_str().to_owned());
    let source = Source {
        file: path.to_owned(),
        format: format!("DBN version {version}, {schema}"),
        n_rows,
        instruments: market.symbols.into_names(),
        notices,
    };
    Ok(Reading { bars, repairs, faults, source })
}

/// The market records taken in so far.
struct Market<'a> {
    path: &'a Path,
    wanted: Option<&'a str>,
    instruments: Instruments,
    symbols: SymbolFilter,
    /// Bars of an `ohlcv` file.
    bars: Intake,
    /// Ticks of any other.
    ticks: Option<Ticks>,
    kind: Option<Kind>,
    rtype: Option<RType>,
    bar_ns: i64,
}

impl Market<'_> {
    fn take(&mut self, number: u64, record: RecordRef<'_>) -> Result<(), DataError> {
        let refuse = |reason: String, remedy: &str| DataError::at(self.path, Place::Record(number), reason, remedy);
        let Ok(rtype) = record.rtype() else {
            let reason = format!("has the unknown type {:#04x}", record.header().rtype);
            return Err(refuse(reason, "fetch the file again, or export it in DBN version 3"));
        };
        let Some(kind) = Kind::of(rtype).map_err(|reason| refuse(reason, SCHEMAS))? else {
            return self.instruments.learn(&record).map_err(|reason| refuse(reason, "fetch the file again"));
        };
        let first = *self.kind.get_or_insert(kind);
        let first_rtype = *self.rtype.get_or_insert(rtype);
        if kind != first || (kind == Kind::Ohlcv && rtype != first_rtype) {
            let reason = format!("is {rtype:?}, the records before are {first_rtype:?}");
            return Err(refuse(reason, "export one schema to one file"));
        }
        let damaged = || refuse("is shorter than its type".into(), "fetch the file again");
        if kind == Kind::Ohlcv {
            let bar: &OhlcvMsg = record.try_get().map_err(|_| damaged())?;
            self.take_bar(number, bar);
            return Ok(());
        }
        let time = Ticks::time_of(kind, &record).ok_or_else(damaged)?;
        let ticks = self.ticks.get_or_insert_with(|| Ticks::new(kind, self.bar_ns));
        let Some(time_ns) = ticks.defined_time(number, time) else { return Ok(()) };
        let id = record.header().instrument_id;
        if self.instruments.admits(id, time_ns, self.wanted, &mut self.symbols) {
            ticks.take(number, time_ns, &record).ok_or_else(damaged)?;
        }
        Ok(())
    }

    fn take_bar(&mut self, number: u64, bar: &OhlcvMsg) {
        let Ok(time_ns) = i64::try_from(bar.hd.ts_event) else {
            if bar.hd.ts_event == UNDEF_TIMESTAMP {
                self.bars.repairs.undefined_times_dropped += 1;
            } else {
                let reason = || "time lies outside the years 1970 to 2262".into();
                self.bars.fault(number, super::faults::FaultKind::BadTime, reason);
            }
            return;
        };
        if self.instruments.admits(bar.hd.instrument_id, time_ns, self.wanted, &mut self.symbols) {
            let bar = Bar {
                time_ns,
                open: price_of(bar.open),
                high: price_of(bar.high),
                low: price_of(bar.low),
                close: price_of(bar.close),
                volume: bar.volume as f64,
                measured: [f64::NAN; Measure::COUNT],
            };
            self.bars.push(number, &bar);
        }
    }
}

/// A price in its unit; NaN for an undefined one. The quotient is the double nearest to the decimal price wherever
/// the fixed-point value has at most 53 bits (prices below nine million).
fn price_of(fixed: i64) -> f64 {
    if fixed == UNDEF_PRICE { f64::NAN } else { fixed as f64 / 1e9 }
}

#[cfg(test)]
mod tests;
