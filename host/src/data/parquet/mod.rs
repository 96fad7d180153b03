//! Bars from and to Parquet, a batch of rows at a time, without Arrow.

mod column;
mod guard;

use super::bars::{Bar, Bars, Measure};
use super::columns::{Columns, TimeColumns};
use super::error::{DataError, Place};
use super::faults::FaultKind;
use super::intake::Intake;
use super::symbols::SymbolFilter;
use super::time::TimeForm;
use super::{ReadOptions, Reading, Source};
use ::parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use ::parquet::data_type::{DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::Type as SchemaType;
use column::{Column, Content};
use guard::GuardedFile;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Rows decoded at a time.
const BATCH_ROWS: usize = 4096;
/// Rows of a written row group.
const GROUP_ROWS: usize = 1 << 16;

/// Reads a whole Parquet file.
pub(super) fn read(path: &Path, file: File, options: &ReadOptions) -> Result<Reading, DataError> {
    let damaged = |e: ParquetError| {
        DataError::new(path, format!("is not a whole Parquet file: {e}"), "fetch the file again, or export it again")
    };
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(damaged)?;
    let file = Arc::new(GuardedFile::new(file));
    let columns = find_columns(path, &metadata)?;
    let mut table = Table {
        intake: Intake::new(&columns.measures(), Place::Row),
        symbols: SymbolFilter::new(options.symbol.as_deref()),
        first_form: None,
        n_rows: 0,
        columns,
    };
    for group_idx in 0..metadata.num_row_groups() {
        let row_before = table.n_rows;
        table.read_group(&file, &metadata, group_idx).map_err(|reason| {
            let place = Place::Row(table.n_rows + 1);
            DataError::at(path, place, reason, "fetch the file again, or export it with snappy or zstd")
        })?;
        let (read, promised) = (table.n_rows - row_before, metadata.row_group(group_idx).num_rows());
        if i64::try_from(read) != Ok(promised) {
            let reason = format!("row group {group_idx} ends after {read} of {promised} rows");
            return Err(DataError::at(path, Place::Row(table.n_rows), reason, "fetch the file again"));
        }
    }
    let symbol = table.symbols.chosen(path)?;
    let (mut bars, repairs, faults) = table.intake.finish();
    bars.symbol = symbol;
    let source = Source {
        file: path.to_owned(),
        format: "Parquet".into(),
        n_rows: table.n_rows,
        instruments: table.symbols.into_names(),
        notices: table.columns.notices,
    };
    Ok(Reading { bars, repairs, faults, source })
}

/// Finds the columns among the flat ones; nested columns are passed over.
fn find_columns(path: &Path, metadata: &ParquetMetaData) -> Result<Columns, DataError> {
    let schema = metadata.file_metadata().schema_descr();
    let names = schema.columns().iter().map(|c| if column::is_flat(c) { c.name() } else { "" });
    let columns = Columns::find(names)
        .map_err(|reason| DataError::new(path, reason, "name the columns timestamp, open, high, low, close, volume"))?;
    let mut wanted = vec![(columns.volume, Content::Number)];
    wanted.extend(columns.prices.iter().map(|&i| (i, Content::Number)));
    wanted.extend(columns.measured.iter().flatten().map(|&i| (i, Content::Number)));
    wanted.extend(columns.symbol.map(|i| (i, Content::Text)));
    match columns.time {
        TimeColumns::One(i) => wanted.push((i, Content::Time)),
        TimeColumns::DateAndClock(..) => {
            return Err(DataError::new(path, "has its date and its time in two columns", "join them in one column"));
        }
    }
    for (i, content) in wanted {
        let descriptor = schema.column(i);
        if !column::can_hold(&descriptor, content) {
            let reason =
                format!("column {} holds {}, not {}", descriptor.name(), descriptor.physical_type(), content.name());
            return Err(DataError::new(path, reason, "export the column in a usual type"));
        }
    }
    Ok(columns)
}

/// The table being read.
struct Table {
    columns: Columns,
    intake: Intake,
    symbols: SymbolFilter,
    first_form: Option<(TimeForm, u64)>,
    n_rows: u64,
}

impl Table {
    fn read_group(&mut self, file: &Arc<GuardedFile>, metadata: &ParquetMetaData, group: usize) -> Result<(), String> {
        let group = metadata.row_group(group);
        let n_rows = usize::try_from(group.num_rows()).map_err(|_| "a row group of negative length".to_string())?;
        let open = |idx: usize, content| Column::open(file, group.column(idx), n_rows, content);
        let TimeColumns::One(time) = self.columns.time else { return Err("two time columns".into()) };
        let mut time = open(time, Content::Time)?;
        let mut numbers = Vec::new();
        for &idx in self.columns.prices.iter().chain([&self.columns.volume]) {
            numbers.push(open(idx, Content::Number)?);
        }
        let mut measured = Vec::new();
        for measure in self.columns.measures() {
            if let Some(idx) = self.columns.measured[measure as usize] {
                measured.push((measure, open(idx, Content::Number)?));
            }
        }
        let mut symbol = self.columns.symbol.map(|idx| open(idx, Content::Text)).transpose()?;
        loop {
            let n = time.next_batch(BATCH_ROWS)?;
            let others = numbers.iter_mut().chain(measured.iter_mut().map(|(_, column)| column)).chain(&mut symbol);
            for column in others {
                let other = column.next_batch(BATCH_ROWS)?;
                if other != n {
                    return Err(format!("column {} has another length than the time column", column.name()));
                }
            }
            if n == 0 {
                return Ok(());
            }
            for i in 0..n {
                self.n_rows += 1;
                self.take_row(i, &time, &numbers, &measured, symbol.as_ref());
            }
        }
    }

    fn take_row(
        &mut self,
        i: usize,
        time: &Column,
        numbers: &[Column],
        measured: &[(Measure, Column)],
        symbol: Option<&Column>,
    ) {
        let row = self.n_rows;
        match self.bar(i, time, numbers, measured) {
            Ok(bar) => match symbol.map(|column| column.text(i)) {
                None => self.intake.push(row, &bar),
                Some(Some(name)) if self.symbols.admits(name) => self.intake.push(row, &bar),
                Some(Some(_)) => {}
                Some(None) => self.intake.fault(row, FaultKind::Malformed, || "has no instrument name".into()),
            },
            Err((kind, reason)) => self.intake.fault(row, kind, || reason),
        }
    }

    fn bar(
        &mut self,
        i: usize,
        time: &Column,
        numbers: &[Column],
        measured: &[(Measure, Column)],
    ) -> Result<Bar, (FaultKind, String)> {
        let (time_ns, form) = time.time(i).map_err(|reason| (FaultKind::BadTime, format!("time {reason}")))?;
        let (first_form, first_row) = *self.first_form.get_or_insert((form, self.n_rows));
        if form != first_form {
            let reason = format!("the time is {}, row {first_row} has {}", form.name(), first_form.name());
            return Err((FaultKind::MixedTimes, reason));
        }
        let number = |column: &Column| {
            column.number(i).ok_or_else(|| (FaultKind::NotANumber, format!("{} is empty", column.name())))
        };
        let mut bar = Bar {
            time_ns,
            open: number(&numbers[0])?,
            high: number(&numbers[1])?,
            low: number(&numbers[2])?,
            close: number(&numbers[3])?,
            volume: number(&numbers[4])?,
            measured: [f64::NAN; Measure::COUNT],
        };
        for (measure, column) in measured {
            bar.measured[*measure as usize] = number(column)?;
        }
        Ok(bar)
    }
}

/// Writes bars: the time as a UTC timestamp in nanoseconds, everything else as doubles, zstd, no nulls.
pub(super) fn write(bars: &Bars, output: impl std::io::Write + Send) -> Result<(), ParquetError> {
    let measures = bars.measures();
    let names = ["open", "high", "low", "close", "volume"].into_iter();
    let names = names.chain(measures.iter().map(|&m| super::write::column_name(m)));
    let time = SchemaType::primitive_type_builder("timestamp", Physical::INT64)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::timestamp(true, TimeUnit::NANOS)))
        .with_converted_type(ConvertedType::NONE)
        .build()?;
    let mut fields = vec![Arc::new(time)];
    for name in names {
        let field = SchemaType::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::REQUIRED);
        fields.push(Arc::new(field.build()?));
    }
    let schema = SchemaType::group_type_builder("bars").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut writer = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))?;
    let mut columns: Vec<&[f64]> = vec![&bars.open, &bars.high, &bars.low, &bars.close, &bars.volume];
    columns.extend(measures.iter().filter_map(|&m| bars.measure(m)));
    for start in (0..bars.len()).step_by(GROUP_ROWS) {
        let rows = start..bars.len().min(start + GROUP_ROWS);
        let mut group = writer.next_row_group()?;
        let missing = || ParquetError::General("the schema has fewer columns than the bars".into());
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<Int64Type>().write_batch(&bars.time_ns[rows.clone()], None, None)?;
        column.close()?;
        for values in &columns {
            let mut column = group.next_column()?.ok_or_else(missing)?;
            column.typed::<DoubleType>().write_batch(&values[rows.clone()], None, None)?;
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests;
