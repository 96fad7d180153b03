//! CSV as it is found.

use crate::data::testing::{read_bytes, read_plainly, some_bars};
use crate::data::{Bars, FaultKind, Place, ReadOptions, Stamps, write_bars};

const PLAIN: &str = "timestamp,open,high,low,close,volume\n\
    2024-01-02T10:00:00Z,1,4,0.5,2,10\n\
    2024-01-02T10:01:00Z,2,5,1.5,3,20\n\
    2024-01-02T10:02:00Z,3,6,2.5,4,30\n";

fn bars(text: &str) -> Bars {
    let reading = read_plainly(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    reading.accept(0).unwrap_or_else(|e| panic!("{e}\n{text}")).0
}

fn error(text: &str) -> String {
    let reading = read_plainly(text.as_bytes());
    let error = reading.and_then(|r| r.accept(0)).expect_err(text).to_string();
    // The path is a temporary one.
    error.split_once(", ").map_or(error.clone(), |(_, rest)| rest.to_owned())
}

#[test]
fn every_dialect_reads_as_the_same_bars() {
    let plain = bars(PLAIN);
    assert_eq!((plain.len(), plain.interval_ns), (3, 60_000_000_000));
    assert_eq!(
        (plain.open[1], plain.high[1], plain.low[1], plain.close[1], plain.volume[1]),
        (2.0, 5.0, 1.5, 3.0, 20.0)
    );
    let dialects = [
        PLAIN.replace('\n', "\r\n"),
        PLAIN.replace(',', ";"),
        PLAIN.replace(',', "\t"),
        PLAIN.replace(',', " , "),
        format!("\u{feff}{PLAIN}"),
        PLAIN.trim_end().to_owned(),
        PLAIN.replace("timestamp", "\"ts_event\"").replace("2024", "\"2024").replace("Z,", "Z\","),
        PLAIN.replace("timestamp,open,high,low,close,volume", "Date,Open,High,Low,Close,Vol."),
        PLAIN.replace("2024-01-02T", "2024-01-02 ").replace('Z', "+00:00"),
    ];
    for text in &dialects {
        assert_eq!(bars(text), plain, "{text}");
    }
}

#[test]
fn epochs_of_every_unit_and_split_dates() {
    let plain = bars(PLAIN);
    for zeros in ["", "000", "000000", "000000000"] {
        let mut text = String::from("time,open,high,low,close,volume\n");
        for (i, row) in ["1,4,0.5,2,10", "2,5,1.5,3,20", "3,6,2.5,4,30"].iter().enumerate() {
            text += &format!("{}{zeros},{row}\n", 1_704_189_600 + 60 * i);
        }
        assert_eq!(bars(&text), plain, "{text}");
    }
    let split = PLAIN.replace('T', ",").replace('Z', "").replace("timestamp", "<DATE>,<TIME>");
    assert_eq!(bars(&split), plain, "{split}");
}

#[test]
fn columns_come_in_any_order_among_others() {
    let text = "Adj Close,Volume,Close,note,Low,High,Open,Date\n9,10,2,\"a, \"\"b\"\"\nc\",0.5,4,1,2024-01-02\n\
                9,20,3,,1.5,5,2,2024-01-03\n";
    let bars = bars(text);
    assert_eq!((bars.open[0], bars.close[1], bars.interval_ns), (1.0, 3.0, crate::data::DAY_NS));
}

#[test]
fn faults_name_line_reason_and_remedy() {
    let with = |row: &str| format!("{PLAIN}{row}\n");
    for (row, kind, says) in [
        ("2024-01-02T10:03:00Z,nan,6,2,4,1", FaultKind::BadPrice, "line 5: open NaN is not a finite price above 0"),
        ("2024-01-02T10:03:00Z,3,6,2,-4,1", FaultKind::BadPrice, "line 5: close -4 is not a finite price above 0"),
        ("2024-01-02T10:03:00Z,3,1,2,3,1", FaultKind::HighBelowLow, "line 5: high 1 is below low 2"),
        ("2024-01-02T10:03:00Z,3,6,2,7,1", FaultKind::OutsideRange, "line 5: close 7 lies outside low 2 to high 6"),
        ("2024-01-02T10:01:00Z,2,5,1.5,3,21", FaultKind::ConflictingTimes, "line 5: differs from line 3"),
        (
            "2024-01-02 10:03:00,3,6,2,4,1",
            FaultKind::MixedTimes,
            "is date and time without a zone, line 2 has date and time with a zone",
        ),
        ("1704189780,3,6,2,4,1", FaultKind::MixedTimes, "is epoch seconds"),
        ("03.01.2024,3,6,2,4,1", FaultKind::BadTime, "line 5: time \"03.01.2024\" is not year-month-day"),
        ("2024-01-02T10:03:00Z,3,6,2,\"4,5\",1", FaultKind::NotANumber, "line 5: close \"4,5\" is not a number"),
        ("2024-01-02T10:03:00Z,3,6,2,4,", FaultKind::NotANumber, "line 5: volume \"\" is not a number"),
        ("2024-01-02T10:03:00Z,3,6,2", FaultKind::Malformed, "line 5: has 4 fields, the header 6"),
        ("2024-01-02T10:03:00Z,3,6,2,4,1,", FaultKind::Malformed, "line 5: has 7 fields, the header 6"),
        (
            "\"2024-01-02T10:03:00Z,3,6,2,4,1",
            FaultKind::Malformed,
            "line 5: has 1 field, the header 6; is a quote opened and not closed?",
        ),
    ] {
        let text = with(row);
        let reading = read_plainly(text.as_bytes()).expect("only a row is at fault");
        assert_eq!(reading.faults.counts.keys().collect::<Vec<_>>(), [&kind], "{row}");
        assert_eq!(reading.faults.examples[0].place, Place::Line(5), "{row}");
        let error = error(&text);
        assert!(error.contains(says) && error.contains(kind.remedy()), "{error}");
    }
}

#[test]
fn lines_are_those_an_editor_shows() {
    let text = PLAIN
        .replace("10:00:00Z,1,4", "10:00:00Z,1,0")
        .replace("timestamp", "note,timestamp")
        .replace("\n2024", "\n\"a\nb\",2024");
    assert!(error(&text).starts_with("line 2: high 0"), "{}", error(&text));
    // A quote that nothing closes: the line on which it is opened, however the file ends.
    for text in [PLAIN.to_owned(), PLAIN.trim_end().to_owned(), PLAIN.replace('\n', "\r\n")] {
        let text = text.replacen("\n2024", "\n\"2024", 1);
        assert!(
            error(&text).starts_with("line 2: has 1 field, the header 6; is a quote"),
            "{text:?}: {}",
            error(&text)
        );
    }
    for end in ["\n", ""] {
        let blank =
            PLAIN.trim_end().replace("\n2024-01-02T10:02", "\n\n\n2024-01-02T10:02").replace("3,6,2.5", "3,6,0") + end;
        for text in [blank.clone(), blank.replace('\n', "\r\n"), format!("\u{feff}{blank}")] {
            assert!(error(&text).starts_with("line 6: low 0"), "{text:?}: {}", error(&text));
        }
    }
}

#[test]
fn exact_duplicates_and_disorder_are_mended_and_counted() {
    let mut lines: Vec<&str> = PLAIN.lines().collect();
    lines.swap(1, 3);
    lines.push(lines[2]);
    let (bars, repairs) =
        read_plainly(lines.join("\n").as_bytes()).and_then(|r| r.accept(0)).expect("both are certain");
    assert_eq!(bars.open, [1.0, 2.0, 3.0]);
    assert_eq!((repairs.duplicates_dropped, repairs.out_of_order_sorted), (1, 3));
}

#[test]
fn files_that_are_no_bars_say_what_they_are() {
    for (bytes, says) in [
        (&b""[..], "the file is empty"),
        (b"\xFF\xFEt\0i\0", "UTF-16"),
        (b"timestamp open high\n", "no comma, semicolon or tab"),
        (b"\0\x01\x02\x03,,,", "neither text nor Parquet nor DBN"),
        (b"1704189600,1,4,0.5,2,10\n", "the first line looks like data"),
        (b"timestamp,open,high,low,close\n", "no column volume among: timestamp, open, high, low, close"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"PK\x03\x04", "zip"),
    ] {
        let error = read_plainly(bytes).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn too_few_bars_are_refused() {
    let error = read_plainly(PLAIN.as_bytes()).and_then(|r| r.accept(4)).expect_err("there are 3").to_string();
    assert!(error.contains("has 3 bars, fewer than the 4 that are needed at least"), "{error}");
}

#[test]
fn a_file_without_rows_is_refused_in_every_format() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["none.csv", "none.parquet"] {
        let path = folder.path().join(name);
        write_bars(&path, &Bars::default()).expect("the folder has room");
        let error = crate::data::read(&path, &ReadOptions::default()).expect_err(name);
        assert!(error.bad_input && error.to_string().contains("has no rows; give a file"), "{error}");
    }
}

#[test]
fn case_r_instruments_are_told_apart() {
    let text = "symbol,timestamp,open,high,low,close,volume\nB,2024-01-02,1,4,0.5,2,10\nA,2024-01-02,5,9,4,7,1\n\
                B,2024-01-03,2,5,1.5,3,20\nA,2024-01-03,6,9,4,7,1\n";
    let choose = |symbol: &str| {
        let options = ReadOptions { symbol: Some(symbol.into()), ..ReadOptions::default() };
        read_bytes(text.as_bytes(), &options).and_then(|r| r.accept(0)).map(|(bars, _)| bars).map_err(|e| e.to_string())
    };
    assert_eq!(choose("A").expect("A is there").open, [5.0, 6.0]);
    assert_eq!(choose("B").expect("B is there").open, [1.0, 2.0]);
    let none = choose("C").expect_err("C is not there");
    assert!(none.contains("has no instrument \"C\"; it has: A, B"), "{none}");
    let open = read_plainly(text.as_bytes()).expect_err("the choice is open").to_string();
    assert!(open.contains("holds 2 instruments: A, B; choose one with --symbol"), "{open}");
    let options = ReadOptions { symbol: Some("A".into()), ..ReadOptions::default() };
    assert!(read_bytes(PLAIN.as_bytes(), &options).is_err(), "a file without names has no A");
}

#[test]
fn end_stamps_and_longer_bars() {
    let options = ReadOptions { stamps: Stamps::End, ..ReadOptions::default() };
    let shifted = read_bytes(PLAIN.as_bytes(), &options).expect("three bars").bars;
    let plain = bars(PLAIN);
    assert_eq!(shifted.time_ns.iter().map(|t| t + 60_000_000_000).collect::<Vec<_>>(), plain.time_ns);
    let options = ReadOptions { bar_ns: Some(300_000_000_000), ..ReadOptions::default() };
    let longer = read_bytes(PLAIN.as_bytes(), &options).expect("minutes fill five").bars;
    assert_eq!(
        (longer.open, longer.high, longer.low, longer.close, longer.volume),
        (vec![1.0], vec![6.0], vec![0.5], vec![4.0], vec![60.0])
    );
}

#[test]
fn a_row_without_end_is_refused_in_bounded_memory() {
    let mut text = PLAIN.as_bytes().to_vec();
    text.extend_from_slice(b"2024-01-02T10:03:00Z,\"");
    text.resize(text.len() + (1 << 22), b'1');
    let error = read_plainly(&text).expect_err("a quote never closes").to_string();
    assert!(error.contains("line 5") && error.contains("a row is longer than 64 KiB"), "{error}");
}

#[test]
fn a_cut_number_is_noticed() {
    let cut = read_plainly(&PLAIN.as_bytes()[..PLAIN.len() - 2]).expect("the row still parses");
    assert!(cut.source.notices[0].contains("may have been cut"));
    assert!(read_plainly(PLAIN.as_bytes()).expect("whole").source.notices.is_empty());
}

#[test]
fn written_bars_read_back_bit_for_bit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["bars.csv", "bars.parquet"] {
        let path = folder.path().join(name);
        write_bars(&path, &some_bars(1000)).expect("the folder has room");
        let (bars, repairs) = crate::data::read(&path, &ReadOptions::default()).and_then(|r| r.accept(0)).expect(name);
        assert_eq!(bars, some_bars(1000), "{name}");
        assert_eq!(repairs.total(), 0);
    }
    let error = write_bars(&folder.path().join("bars.xlsx"), &some_bars(1)).expect_err("no such format");
    assert!(error.bad_input);
    let error = write_bars(&folder.path().join("no/such/folder/x.csv"), &some_bars(1)).expect_err("no such folder");
    assert!(error.bad_input && error.to_string().contains("name a file in a folder that exists"), "{error}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("it is there").collect();
    assert_eq!(left.len(), 2, "nothing half-written stays behind: {left:?}");
}
