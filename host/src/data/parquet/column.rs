//! One column of a row group, read in step with the others.

use super::guard::GuardedFile;
use crate::data::bars::DAY_NS;
use crate::data::time::{TimeForm, parse_time};
use ::parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use ::parquet::data_type::{ByteArray, DataType, Int96};
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::serialized_reader::SerializedPageReader;
use ::parquet::schema::types::ColumnDescriptor;
use std::sync::Arc;

/// What is wanted from a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Number,
    Time,
    Text,
}

impl Content {
    pub(super) fn name(self) -> &'static str {
        match self {
            Content::Number => "numbers",
            Content::Time => "times",
            Content::Text => "text",
        }
    }
}

/// True for a column of plain values, at most nullable.
pub(super) fn is_flat(descriptor: &ColumnDescriptor) -> bool {
    descriptor.path().parts().len() == 1 && descriptor.max_rep_level() == 0 && descriptor.max_def_level() <= 1
}

/// True if the column's type can hold this content.
pub(super) fn can_hold(descriptor: &ColumnDescriptor, content: Content) -> bool {
    let physical = descriptor.physical_type();
    match content {
        Content::Number => match physical {
            Physical::DOUBLE | Physical::FLOAT => true,
            Physical::INT32 | Physical::INT64 => is_plain_or_decimal(descriptor),
            _ => false,
        },
        Content::Time => match physical {
            Physical::INT64 | Physical::INT32 => time_scale(descriptor).is_some(),
            Physical::INT96 | Physical::BYTE_ARRAY => true,
            _ => false,
        },
        Content::Text => physical == Physical::BYTE_ARRAY,
    }
}

fn is_plain_or_decimal(descriptor: &ColumnDescriptor) -> bool {
    use ConvertedType as C;
    matches!(descriptor.logical_type_ref(), None | Some(LogicalType::Integer(_) | LogicalType::Decimal(_)))
        && !matches!(
            descriptor.converted_type(),
            C::DATE | C::TIME_MILLIS | C::TIME_MICROS | C::TIMESTAMP_MILLIS | C::TIMESTAMP_MICROS
        )
}

/// How an integer column counts time: a unit of so many nanoseconds, or an epoch told apart by magnitude.
#[derive(Clone, Copy, Debug)]
enum TimeScale {
    Unit(i64),
    Epoch,
}

fn time_scale(descriptor: &ColumnDescriptor) -> Option<TimeScale> {
    match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (Some(LogicalType::Timestamp(timestamp)), _) => Some(TimeScale::Unit(match timestamp.unit {
            TimeUnit::MILLIS => 1_000_000,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1,
        })),
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Some(TimeScale::Unit(DAY_NS)),
        (None, ConvertedType::TIMESTAMP_MILLIS) => Some(TimeScale::Unit(1_000_000)),
        (None, ConvertedType::TIMESTAMP_MICROS) => Some(TimeScale::Unit(1_000)),
        (None | Some(LogicalType::Integer(_)), _) if is_plain_or_decimal(descriptor) => Some(TimeScale::Epoch),
        _ => None,
    }
}

/// A column being read, and its current batch.
pub(super) struct Column {
    name: String,
    reader: ColumnReader,
    nullable: bool,
    scale: Option<TimeScale>,
    /// Decimal columns hold `value / decimal_divisor`; 1 for others.
    decimal_divisor: f64,
    batch: Batch,
}

/// The values of a batch, none where null.
enum Batch {
    Integers(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Texts(Vec<Option<ByteArray>>),
    Int96(Vec<Option<Int96>>),
}

impl Column {
    pub(super) fn open(
        file: &Arc<GuardedFile>,
        chunk: &ColumnChunkMetaData,
        n_rows: usize,
        content: Content,
    ) -> Result<Self, String> {
        let descriptor = chunk.column_descr_ptr();
        if !can_hold(&descriptor, content) || chunk.column_type() != descriptor.physical_type() {
            return Err(format!("column {} changes its type", descriptor.name()));
        }
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        if start < 0 || chunk.compressed_size() < 0 {
            return Err(format!("column {} lies at a negative place or has a negative length", descriptor.name()));
        }
        let pages = SerializedPageReader::new(file.clone(), chunk, n_rows, None).map_err(|e| e.to_string())?;
        let scale = descriptor.type_scale();
        let decimal = matches!(descriptor.logical_type_ref(), Some(LogicalType::Decimal(_)))
            || descriptor.converted_type() == ConvertedType::DECIMAL;
        Ok(Self {
            name: descriptor.name().to_owned(),
            nullable: descriptor.max_def_level() > 0,
            scale: (content == Content::Time).then(|| time_scale(&descriptor)).flatten(),
            decimal_divisor: if decimal { 10f64.powi(scale.clamp(0, 38)) } else { 1.0 },
            reader: get_column_reader(descriptor, Box::new(pages)),
            batch: Batch::Floats(Vec::new()),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next batch of up to `max_rows`, and says how many rows it has: fewer than `max_rows` only at the end.
    pub(super) fn next_batch(&mut self, max_rows: usize) -> Result<usize, String> {
        let nullable = self.nullable;
        let batch = match &mut self.reader {
            ColumnReader::Int32ColumnReader(r) => Batch::Integers(
                values(r, nullable, max_rows, &self.name)?.into_iter().map(|v| v.map(i64::from)).collect(),
            ),
            ColumnReader::Int64ColumnReader(r) => Batch::Integers(values(r, nullable, max_rows, &self.name)?),
            ColumnReader::FloatColumnReader(r) => Batch::Floats(
                values(r, nullable, max_rows, &self.name)?.into_iter().map(|v| v.map(f64::from)).collect(),
            ),
            ColumnReader::DoubleColumnReader(r) => Batch::Floats(values(r, nullable, max_rows, &self.name)?),
            ColumnReader::ByteArrayColumnReader(r) => Batch::Texts(values(r, nullable, max_rows, &self.name)?),
            ColumnReader::Int96ColumnReader(r) => Batch::Int96(values(r, nullable, max_rows, &self.name)?),
            _ => return Err(format!("column {} has a type without a use here", self.name)),
        };
        self.batch = batch;
        Ok(match &self.batch {
            Batch::Integers(v) => v.len(),
            Batch::Floats(v) => v.len(),
            Batch::Texts(v) => v.len(),
            Batch::Int96(v) => v.len(),
        })
    }

    /// Row `i` of the batch as a number, none if null.
    pub(super) fn number(&self, i: usize) -> Option<f64> {
        match &self.batch {
            Batch::Integers(v) => v[i].map(|v| v as f64 / self.decimal_divisor),
            Batch::Floats(v) => v[i],
            Batch::Texts(_) | Batch::Int96(_) => None,
        }
    }

    /// Row `i` of the batch as text, none if null or not UTF-8.
    pub(super) fn text(&self, i: usize) -> Option<&str> {
        match &self.batch {
            Batch::Texts(v) => v[i].as_ref().and_then(|v| std::str::from_utf8(v.data()).ok()),
            _ => None,
        }
    }

    /// Row `i` of the batch as nanoseconds since 1970 and the form it is written in.
    pub(super) fn time(&self, i: usize) -> Result<(i64, TimeForm), String> {
        let empty = || "is empty".to_string();
        match (&self.batch, self.scale) {
            (Batch::Integers(v), Some(TimeScale::Unit(unit_ns))) => {
                let time = v[i].ok_or_else(empty)?.checked_mul(unit_ns);
                time.map(|ns| (ns, TimeForm::Zoned)).ok_or_else(|| "lies outside the years 1677 to 2262".into())
            }
            (Batch::Integers(v), _) => {
                let value = v[i].ok_or_else(empty)?;
                parse_time(&value.to_string()).map_err(|reason| format!("{value} {reason}"))
            }
            (Batch::Int96(v), _) => {
                let value = v[i].as_ref().ok_or_else(empty)?;
                int96_ns(value)
                    .map(|ns| (ns, TimeForm::Zoned))
                    .ok_or_else(|| "lies outside the years 1677 to 2262".into())
            }
            (Batch::Texts(v), _) => {
                let value = v[i].as_ref().ok_or_else(empty)?;
                let text = std::str::from_utf8(value.data()).map_err(|_| "is not UTF-8 text".to_string())?;
                let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
                parse_time(text).map_err(|reason| format!("\"{shown}\" {reason}"))
            }
            (Batch::Floats(_), _) => Err("is a floating-point number".into()),
        }
    }
}

/// Nanoseconds within the day (8 bytes), then the Julian day (4 bytes), as Impala, Hive and Spark wrote times.
fn int96_ns(value: &Int96) -> Option<i64> {
    const JULIAN_DAY_1970: i64 = 2_440_588;
    let [low, high, day] = <[u32; 3]>::try_from(value.data()).ok()?;
    let in_day = i64::from(low) | (i64::from(high) << 32);
    (i64::from(day) - JULIAN_DAY_1970)
        .checked_mul(DAY_NS)?
        .checked_add(in_day)
        .filter(|_| (0..DAY_NS).contains(&in_day))
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    nullable: bool,
    max_rows: usize,
    name: &str,
) -> Result<Vec<Option<T::T>>, String> {
    let (mut found, mut levels) = (Vec::new(), Vec::new());
    let mut n_rows = 0;
    // The reader may stop at the end of a page: only nothing at all means the end of the column.
    while n_rows < max_rows {
        let definition = nullable.then_some(&mut levels);
        let (n, _, _) = reader
            .read_records(max_rows - n_rows, definition, None, &mut found)
            .map_err(|e| format!("column {name}: {e}"))?;
        if n == 0 {
            break;
        }
        n_rows += n;
    }
    if !nullable {
        return Ok(found.into_iter().map(Some).collect());
    }
    let mut found = found.into_iter();
    Ok(levels.into_iter().map(|level| if level > 0 { found.next() } else { None }).collect())
}
