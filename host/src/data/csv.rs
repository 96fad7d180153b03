//! Bars from CSV: comma, semicolon or tab, quoted fields, byte-order mark, either line end.

use super::bars::{Bar, Bars, Measure};
use super::columns::{Columns, TimeColumns};
use super::error::{DataError, Place};
use super::faults::FaultKind;
use super::intake::Intake;
use super::symbols::SymbolFilter;
use super::time::{TimeForm, parse_time};
use super::{ReadOptions, Reading, Source};
use csv::ByteRecord;
use std::cell::Cell;
use std::io::{BufRead, Read};
use std::path::Path;
use std::rc::Rc;

/// No row of bars is longer; one that is (a quote that never ends) would otherwise be read into memory whole.
const ROW_BYTES_MAX: usize = 64 * 1024;

/// Reads a whole CSV file.
pub(super) fn read(path: &Path, input: impl BufRead, options: &ReadOptions) -> Result<Reading, DataError> {
    let mut rows = Rows::open(path, input)?;
    let columns = Columns::find(rows.header.iter().map(|name| std::str::from_utf8(name).unwrap_or("(not UTF-8)")))
        .map_err(|reason| {
            DataError::at(path, Place::Line(1), reason, "name the columns timestamp, open, high, low, close, volume")
        })?;
    let mut intake = Intake::new(&columns.measures(), Place::Line);
    let mut symbols = SymbolFilter::new(options.symbol.as_deref());
    let mut notices = columns.notices.clone();
    let mut parser = RowParser { n_fields: rows.header.len(), first_form: None, columns };
    let mut record = ByteRecord::new();
    let mut n_rows = 0;
    while let Some(line) = rows.next(&mut record)? {
        n_rows += 1;
        match parser.parse(line, &record) {
            Ok((symbol, bar)) if symbol.is_none_or(|s| symbols.admits(s)) => intake.push(line, &bar),
            Ok(_) => {}
            Err((kind, reason)) => intake.fault(line, kind, || reason),
        }
    }
    let symbol = symbols.chosen(path)?;
    let (mut bars, repairs, faults) = intake.finish();
    bars.symbol = symbol;
    if rows.seen.cut.get() {
        notices.push("the last line has no line end: the file may have been cut inside its last number".to_string());
    }
    let source =
        Source { file: path.to_owned(), format: "CSV".into(), n_rows, instruments: symbols.into_names(), notices };
    Ok(Reading { bars, repairs, faults, source })
}

/// The rows of a file, one at a time, in bounded memory.
struct Rows<R> {
    path: std::path::PathBuf,
    reader: csv::Reader<Guarded<R>>,
    header: ByteRecord,
    /// What the guard saw of the input.
    seen: Rc<Seen>,
    /// True if lines end in CR LF.
    crlf: bool,
}

/// What passed from the input to the parser.
#[derive(Default)]
struct Seen {
    /// Bytes in all.
    n_bytes: Cell<u64>,
    /// Bytes since the last row was complete.
    since_row: Cell<usize>,
    /// True while the last byte is no line end.
    cut: Cell<bool>,
}

impl<R: BufRead> Rows<R> {
    fn open(path: &Path, mut input: R) -> Result<Self, DataError> {
        let start = input.fill_buf().map_err(|e| DataError::unreadable(path, &e))?;
        let n_bom = if start.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let delimiter = delimiter_of(&start[n_bom..]).map_err(|reason| {
            DataError::at(path, Place::Line(1), reason, "give a CSV, Parquet or DBN file; save a table as UTF-8 CSV")
        })?;
        let first_end = start.iter().position(|b| matches!(b, b'\n' | b'\r'));
        let crlf = first_end.is_some_and(|end| start[end..].starts_with(b"\r\n"));
        input.consume(n_bom);
        let seen = Rc::new(Seen::default());
        let guarded = Guarded { input, seen: seen.clone() };
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(guarded);
        let mut header = ByteRecord::new();
        reader.read_byte_record(&mut header).map_err(|e| csv_error(path, &e, 1))?;
        seen.since_row.set(0);
        Ok(Self { path: path.to_owned(), reader, header, seen, crlf })
    }

    /// The next row's line, its fields in `record`; none at the end.
    fn next(&mut self, record: &mut ByteRecord) -> Result<Option<u64>, DataError> {
        let more = self.reader.read_byte_record(record);
        self.seen.since_row.set(0);
        match more {
            Ok(true) => Ok(Some(self.line_of(record))),
            Ok(false) => Ok(None),
            Err(e) => Err(csv_error(&self.path, &e, self.reader.position().line())),
        }
    }

    /// The line on which the row just read begins. The parser's own position of a row lies before any blank lines, so
    /// this counts back from its end: past the line ends inside of fields, and past the row's own one, which the
    /// parser has passed unless the file ended without it or it is the LF of a CR LF.
    fn line_of(&self, record: &ByteRecord) -> u64 {
        let after = self.reader.position();
        let inside = record.as_slice().iter().filter(|&&b| b == b'\n').count() as u64;
        let at_end = after.byte() == self.seen.n_bytes.get();
        // A quote that is never closed ends with the file, the file's last line end inside of it.
        let unclosed = at_end && !self.seen.cut.get() && record.as_slice().ends_with(b"\n");
        let without_line_end = at_end && self.seen.cut.get() || unclosed;
        after.line().saturating_sub(inside + u64::from(!(self.crlf || without_line_end)))
    }
}

fn csv_error(path: &Path, error: &csv::Error, line: u64) -> DataError {
    let remedy = "close every quote, and fetch the file again if it is damaged";
    match error.kind() {
        csv::ErrorKind::Io(e) => DataError::at(path, Place::Line(line), e.to_string(), remedy),
        _ => DataError::at(path, Place::Line(line), error.to_string(), remedy),
    }
}

/// The separator that the first line with text uses most.
fn delimiter_of(start: &[u8]) -> Result<u8, String> {
    if start.is_empty() {
        return Err("the file is empty".into());
    }
    if start.starts_with(b"\xFF\xFE") || start.starts_with(b"\xFE\xFF") {
        return Err("the text is UTF-16".into());
    }
    let line = start.split(|&b| b == b'\n' || b == b'\r').find(|l| !l.is_empty()).unwrap_or_default();
    if line.iter().any(|&b| b < b' ' && b != b'\t') {
        return Err("the file is neither text nor Parquet nor DBN".into());
    }
    let mut quoted = false;
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0)];
    for &byte in line {
        quoted ^= byte == b'"';
        for (delimiter, n) in counts.iter_mut().filter(|_| !quoted) {
            *n += usize::from(byte == *delimiter);
        }
    }
    // `max_by_key` takes the last of equals: reversed, the comma wins a tie.
    match counts.into_iter().rev().max_by_key(|&(_, n)| n) {
        Some((delimiter, n)) if n > 0 => Ok(delimiter),
        _ => Err("the first line has no comma, semicolon or tab".into()),
    }
}

/// Stops a row from growing without end, and remembers whether the input ended with a line end.
struct Guarded<R> {
    input: R,
    seen: Rc<Seen>,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Seen { n_bytes, since_row, cut } = &*self.seen;
        if since_row.get() > ROW_BYTES_MAX {
            return Err(std::io::Error::other(format!("a row is longer than {} KiB", ROW_BYTES_MAX / 1024)));
        }
        let n = self.input.read(buffer)?;
        n_bytes.set(n_bytes.get() + n as u64);
        since_row.set(since_row.get() + n);
        if let Some(last) = buffer[..n].last() {
            cut.set(!matches!(last, b'\n' | b'\r'));
        }
        Ok(n)
    }
}

/// Turns fields into bars, and remembers the first time's form.
struct RowParser {
    columns: Columns,
    n_fields: usize,
    first_form: Option<(TimeForm, u64)>,
}

type RowFault = (FaultKind, String);

impl RowParser {
    fn parse<'r>(&mut self, line: u64, record: &'r ByteRecord) -> Result<(Option<&'r str>, Bar), RowFault> {
        if record.len() != self.n_fields {
            let (n, s) = (record.len(), if record.len() == 1 { "" } else { "s" });
            let quote = if record.as_slice().contains(&b'\n') { "; is a quote opened and not closed?" } else { "" };
            let reason = format!("has {n} field{s}, the header {}{quote}", self.n_fields);
            return Err((FaultKind::Malformed, reason));
        }
        let time_ns = self.time(line, record)?;
        let [open, high, low, close] = self.columns.prices;
        let mut measured = [f64::NAN; Measure::COUNT];
        for (value, column) in measured.iter_mut().zip(self.columns.measured) {
            if let Some(column) = column {
                *value = number(record, column, "measured value")?;
            }
        }
        let bar = Bar {
            time_ns,
            open: number(record, open, "open")?,
            high: number(record, high, "high")?,
            low: number(record, low, "low")?,
            close: number(record, close, "close")?,
            volume: number(record, self.columns.volume, "volume")?,
            measured,
        };
        let symbol = self.columns.symbol.map(|column| text(record, column)).transpose()?;
        Ok((symbol, bar))
    }

    fn time(&mut self, line: u64, record: &ByteRecord) -> Result<i64, RowFault> {
        let written = match self.columns.time {
            TimeColumns::One(column) => std::borrow::Cow::from(text(record, column)?),
            TimeColumns::DateAndClock(date, clock) => {
                format!("{} {}", text(record, date)?, text(record, clock)?).into()
            }
        };
        let (time_ns, form) = parse_time(&written)
            .map_err(|reason| (FaultKind::BadTime, format!("time \"{}\" {reason}", shortened(&written))))?;
        let (first_form, first_line) = *self.first_form.get_or_insert((form, line));
        if form != first_form {
            let (here, there) = (form.name(), first_form.name());
            let reason = format!("time \"{}\" is {here}, line {first_line} has {there}", shortened(&written));
            return Err((FaultKind::MixedTimes, reason));
        }
        Ok(time_ns)
    }
}

fn text(record: &ByteRecord, column: usize) -> Result<&str, RowFault> {
    let bytes = record.get(column).unwrap_or_default();
    std::str::from_utf8(bytes).map(str::trim).map_err(|_| (FaultKind::Malformed, "is not UTF-8 text".into()))
}

fn number(record: &ByteRecord, column: usize, name: &str) -> Result<f64, RowFault> {
    let field = text(record, column)?;
    field.parse().map_err(|_| (FaultKind::NotANumber, format!("{name} \"{}\" is not a number", shortened(field))))
}

/// A field as it can be shown: printable and short.
fn shortened(field: &str) -> String {
    let shown: String = field.chars().take(40).flat_map(char::escape_debug).collect();
    if field.chars().count() > 40 { shown + "..." } else { shown }
}

/// The header of written files; measured columns follow it.
const HEADER: [&str; 6] = ["timestamp", "open", "high", "low", "close", "volume"];

/// Writes bars so that reading them gives the same values: times in ISO 8601, numbers at full precision.
pub(super) fn write(bars: &Bars, output: impl std::io::Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(output);
    let measures = bars.measures();
    writer.write_record(HEADER.into_iter().chain(measures.iter().map(|&m| super::write::column_name(m))))?;
    for idx in 0..bars.len() {
        let bar = bars.bar(idx);
        writer.write_field(super::time::format_time(bar.time_ns))?;
        for value in [bar.open, bar.high, bar.low, bar.close, bar.volume] {
            writer.write_field(value.to_string())?;
        }
        for &measure in &measures {
            writer.write_field(bar.measured[measure as usize].to_string())?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests;
