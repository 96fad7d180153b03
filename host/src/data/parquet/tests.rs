//! Parquet as other programs write it.

use super::*;
use crate::data::testing::{read_bytes, read_plainly, some_bars};
use ::parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int32Type, Int96, Int96Type};
use ::parquet::file::writer::SerializedColumnWriter;
use ::parquet::schema::parser::parse_message_type;

/// 2024-01-02T10:00:00Z in seconds.
const T: i64 = 1_704_189_600;

type Fill<'a> = &'a dyn Fn(&mut SerializedColumnWriter<'_>) -> Result<usize, ParquetError>;

/// A file of one row group, written column by column.
fn table(schema: &str, compression: Compression, columns: &[Fill<'_>]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).expect("the test's schema"));
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).expect("memory is writable");
    let mut group = writer.next_row_group().expect("memory is writable");
    for fill in columns {
        let mut column = group.next_column().expect("memory is writable").expect("as many as the schema has");
        fill(&mut column).expect("the test's values");
        column.close().expect("memory is writable");
    }
    group.close().expect("memory is writable");
    writer.close().expect("memory is writable");
    bytes
}

fn with_time(time: &str, compression: Compression, fill: Fill<'_>) -> Vec<u8> {
    let schema = format!(
        "message m {{ REQUIRED FLOAT close; REQUIRED DOUBLE Open; OPTIONAL DOUBLE High; REQUIRED INT32 low (DECIMAL(9, 1)); \
         REQUIRED INT64 volume; {time} }}"
    );
    table(
        &schema,
        compression,
        &[
            &|c| c.typed::<FloatType>().write_batch(&[2.0, 3.0, 4.0], None, None),
            &|c| c.typed::<DoubleType>().write_batch(&[1.0, 2.0, 3.0], None, None),
            &|c| c.typed::<DoubleType>().write_batch(&[4.0, 5.0, 6.0], Some(&[1, 1, 1]), None),
            &|c| c.typed::<Int32Type>().write_batch(&[5, 15, 25], None, None),
            &|c| c.typed::<Int64Type>().write_batch(&[10, 20, 30], None, None),
            fill,
        ],
    )
}

#[test]
fn times_of_every_type_and_numbers_of_every_width() {
    let scaled = |scale: i64| (0..3).map(|i| (T + 60 * i) * scale).collect::<Vec<i64>>();
    let (s, ms, us, ns) = (scaled(1), scaled(1_000), scaled(1_000_000), scaled(1_000_000_000));
    let ints = |values: &'static [i64]| values;
    let leak = |values: Vec<i64>| ints(Box::leak(values.into_boxed_slice()));
    let (s, ms, us, ns) = (leak(s), leak(ms), leak(us), leak(ns));
    let texts: Vec<ByteArray> = (0..3).map(|i| format!("2024-01-02 10:0{i}:00").into_bytes().into()).collect();
    let int96: Vec<Int96> = (0..3)
        .map(|i| {
            let in_day = (10 * 3600 + 60 * i) * SECOND_NS_U64;
            let mut value = Int96::new();
            value.set_data(in_day as u32, (in_day >> 32) as u32, 2_440_588 + 19_724);
            value
        })
        .collect();
    let files = [
        with_time("REQUIRED INT64 ts (TIMESTAMP(NANOS, true));", Compression::SNAPPY, &|c| {
            c.typed::<Int64Type>().write_batch(ns, None, None)
        }),
        with_time("OPTIONAL INT64 ts (TIMESTAMP(MICROS, false));", Compression::UNCOMPRESSED, &|c| {
            c.typed::<Int64Type>().write_batch(us, Some(&[1, 1, 1]), None)
        }),
        with_time("REQUIRED INT64 ts (TIMESTAMP_MILLIS);", Compression::ZSTD(ZstdLevel::default()), &|c| {
            c.typed::<Int64Type>().write_batch(ms, None, None)
        }),
        with_time("REQUIRED INT64 date;", Compression::SNAPPY, &|c| c.typed::<Int64Type>().write_batch(s, None, None)),
        with_time("REQUIRED BYTE_ARRAY time (UTF8);", Compression::SNAPPY, &|c| {
            c.typed::<ByteArrayType>().write_batch(&texts, None, None)
        }),
        with_time("REQUIRED INT96 Timestamp;", Compression::SNAPPY, &|c| {
            c.typed::<Int96Type>().write_batch(&int96, None, None)
        }),
    ];
    for (i, bytes) in files.iter().enumerate() {
        let (bars, _) = read_plainly(bytes).and_then(|r| r.accept(3)).unwrap_or_else(|e| panic!("file {i}: {e}"));
        assert_eq!(bars.time_ns, ns, "file {i}");
        assert_eq!(
            (bars.open[2], bars.high[2], bars.low[2], bars.close[2], bars.volume[2]),
            (3.0, 6.0, 2.5, 4.0, 30.0)
        );
    }
    let daily = with_time("REQUIRED INT32 date (DATE);", Compression::SNAPPY, &|c| {
        c.typed::<Int32Type>().write_batch(&[19_724, 19_725, 19_726], None, None)
    });
    let (bars, _) = read_plainly(&daily).and_then(|r| r.accept(3)).expect("dates alone");
    assert_eq!((bars.time_ns[0], bars.interval_ns), ((T - 36_000) * 1_000_000_000, crate::data::DAY_NS));
}

const SECOND_NS_U64: u64 = 1_000_000_000;

#[test]
fn an_empty_field_is_a_fault_of_its_row() {
    let bytes = with_time("OPTIONAL INT64 ts (TIMESTAMP_MILLIS);", Compression::SNAPPY, &|c| {
        c.typed::<Int64Type>().write_batch(&[T * 1000, T * 1000 + 60_000], Some(&[1, 0, 1]), None)
    });
    let error = read_plainly(&bytes).and_then(|r| r.accept(0)).expect_err("row 2 has no time").to_string();
    assert!(error.contains("row 2: time is empty"), "{error}");
}

#[test]
fn columns_of_the_wrong_type_are_named() {
    let float_time = with_time("REQUIRED DOUBLE ts;", Compression::SNAPPY, &|c| {
        c.typed::<DoubleType>().write_batch(&[1.0, 2.0, 3.0], None, None)
    });
    let error = read_plainly(&float_time).expect_err("a time is no floating-point number").to_string();
    assert!(error.contains("column ts holds DOUBLE, not times"), "{error}");
    let no_time = with_time("REQUIRED DOUBLE x;", Compression::SNAPPY, &|c| {
        c.typed::<DoubleType>().write_batch(&[1.0, 2.0, 3.0], None, None)
    });
    let error = read_plainly(&no_time).expect_err("there is no time").to_string();
    assert!(error.contains("no column timestamp among: close, Open, High, low, volume, x"), "{error}");
}

#[test]
fn case_r_instruments_in_a_column() {
    let schema =
        "message m { REQUIRED INT64 ts; REQUIRED DOUBLE o; REQUIRED DOUBLE h; REQUIRED DOUBLE l; REQUIRED DOUBLE c;
                  REQUIRED DOUBLE v; OPTIONAL BYTE_ARRAY ticker (UTF8); }";
    let one: Fill<'_> = &|c| c.typed::<DoubleType>().write_batch(&[1.0, 2.0, 3.0], None, None);
    let names: Vec<ByteArray> = ["B", "A", "B"].iter().map(|s| s.as_bytes().to_vec().into()).collect();
    let bytes = table(
        schema,
        Compression::SNAPPY,
        &[&|c| c.typed::<Int64Type>().write_batch(&[T, T, T + 60], None, None), one, one, one, one, one, &|c| {
            c.typed::<ByteArrayType>().write_batch(&names, Some(&[1, 1, 1]), None)
        }],
    );
    let options = |symbol: &str| ReadOptions { symbol: Some(symbol.into()), ..ReadOptions::default() };
    assert_eq!(read_bytes(&bytes, &options("B")).expect("B is there").bars.close, [1.0, 3.0]);
    assert!(read_plainly(&bytes).expect_err("the choice is open").to_string().contains("2 instruments: A, B"));
    assert!(read_bytes(&bytes, &options("C")).expect_err("no C").to_string().contains("it has: A, B"));
}

#[test]
fn case_s_every_cut_is_an_error() {
    let mut whole = Vec::new();
    write(&some_bars(3000), &mut whole).expect("memory is writable");
    assert_eq!(read_plainly(&whole).expect("whole").bars.len(), 3000);
    for sixteenth in 0..16 {
        let cut = &whole[..whole.len() * sixteenth / 16];
        assert!(read_plainly(cut).is_err(), "cut at {sixteenth}/16");
    }
    assert!(read_plainly(&whole[..whole.len() - 1]).is_err());
}

#[test]
fn row_groups_follow_each_other() {
    let mut bytes = Vec::new();
    let long = some_bars(GROUP_ROWS + BATCH_ROWS + 7);
    write(&long, &mut bytes).expect("memory is writable");
    assert_eq!(read_plainly(&bytes).expect("whole").bars, long);
}
