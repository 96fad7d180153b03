//! DBN as the vendor writes it: versions, schemas, frames, instruments, and what is undefined.

use crate::data::testing::{read_bytes, read_plainly};
use crate::data::{FaultKind, Measure, ReadOptions, Stamps};
use ::dbn::encode::dbn::Encoder;
use ::dbn::encode::{DbnEncodable, EncodeRecord};
use ::dbn::{
    BboMsg, BidAskPair, MappingInterval, Mbp1Msg, Mbp10Msg, Metadata, OhlcvMsg, RecordHeader, SType, Schema,
    SymbolMapping, SymbolMappingMsg, TradeMsg, UNDEF_PRICE, UNDEF_TIMESTAMP, rtype,
};

/// 2024-01-02T10:00:00Z.
const T: u64 = 1_704_189_600_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn metadata(version: u8, schema: Option<Schema>, instruments: &[(&str, u32)]) -> Metadata {
    let day = |day| ::time::Date::from_calendar_date(2024, ::time::Month::January, day).expect("it exists");
    let mappings = instruments.iter().map(|&(name, id)| SymbolMapping {
        raw_symbol: name.to_owned(),
        intervals: vec![MappingInterval { start_date: day(2), end_date: day(4), symbol: id.to_string() }],
    });
    Metadata::builder()
        .version(version)
        .dataset("TEST.SET")
        .schema(schema)
        .start(T)
        .stype_in(Some(SType::RawSymbol))
        .stype_out(SType::InstrumentId)
        .mappings(mappings.collect())
        .build()
}

fn file<R: DbnEncodable>(metadata: &Metadata, records: &[R]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, metadata).expect("memory is writable");
    encoder.encode_records(records).expect("memory is writable");
    bytes
}

fn header<R: ::dbn::HasRType>(rtype: u8, id: u32, time: u64) -> RecordHeader {
    RecordHeader::new::<R>(rtype, 1, id, time)
}

fn bar(id: u32, time: u64, close: i64) -> OhlcvMsg {
    let hd = header::<OhlcvMsg>(rtype::OHLCV_1M, id, time);
    let p = |units: i64| units * 1_000_000_000;
    OhlcvMsg {
        hd,
        open: p(10),
        high: p(12),
        low: p(9),
        close: if close == UNDEF_PRICE { close } else { p(close) },
        volume: 7,
    }
}

fn trade(id: u32, time: u64, price: i64, size: u32, side: u8) -> TradeMsg {
    let hd = header::<TradeMsg>(rtype::MBP_0, id, time);
    TradeMsg { hd, price, size, action: b'T' as _, side: side as _, ..TradeMsg::default() }
}

fn quote(bid_px: i64, ask_px: i64, bid_sz: u32, ask_sz: u32) -> BidAskPair {
    BidAskPair { bid_px, ask_px, bid_sz, ask_sz, ..BidAskPair::default() }
}

const PRICE: i64 = 100 * SECOND as i64;

#[test]
fn bars_of_versions_1_to_3_plain_and_zstd() {
    for version in 1..=3 {
        let metadata = metadata(version, Some(Schema::Ohlcv1M), &[("AAA", 5)]);
        let plain = file(&metadata, &[bar(5, T, 11), bar(5, T + 60 * SECOND, 12)]);
        let zstd = zstd::encode_all(&plain[..], 3).expect("memory is writable");
        for bytes in [plain, zstd] {
            let reading = read_plainly(&bytes).unwrap_or_else(|e| panic!("version {version}: {e}"));
            let source = reading.source.clone();
            assert_eq!(source.format, format!("DBN version {version}, ohlcv-1m"));
            let (bars, _) = reading.accept(2).expect("nothing is wrong");
            assert_eq!(bars.symbol.as_deref(), Some("AAA"));
            assert_eq!((bars.time_ns[0] as u64, bars.interval_ns as u64), (T, 60 * SECOND));
            assert_eq!((bars.open[0], bars.close[1], bars.volume[1]), (10.0, 12.0, 7.0));
        }
    }
}

#[test]
fn bars_of_every_length_keep_it_across_a_hole() {
    for (schema, rtype, length) in [
        (Schema::Ohlcv1S, rtype::OHLCV_1S, 1),
        (Schema::Ohlcv1M, rtype::OHLCV_1M, 60),
        (Schema::Ohlcv1H, rtype::OHLCV_1H, 3_600),
        (Schema::Ohlcv1D, rtype::OHLCV_1D, 86_400),
        (Schema::OhlcvEod, rtype::OHLCV_EOD, 86_400),
    ] {
        let start = T - T % (86_400 * SECOND);
        let bars =
            [0, 3].map(|n| OhlcvMsg { hd: header::<OhlcvMsg>(rtype, 5, start + n * length * SECOND), ..bar(5, T, 11) });
        let reading = read_plainly(&file(&metadata(3, Some(schema), &[]), &bars));
        let reading = reading.unwrap_or_else(|e| panic!("{schema:?}: {e}"));
        assert!(reading.source.format.ends_with(schema.as_str()), "{}", reading.source.format);
        assert_eq!((reading.bars.len(), reading.bars.interval_ns as u64), (2, length * SECOND), "{schema:?}");
    }
}

/// A trade of four at 100 by a seller, or the quotes around it, in every schema of ticks and every version. Trades alone
/// tell a spread once both sides have traded.
#[test]
fn ticks_of_every_schema_in_versions_1_to_3() {
    let level = || quote(PRICE - 1_000_000_000, PRICE + 1_000_000_000, 1, 1);
    let (action, side) = (b'T' as _, b'A' as _);
    let top = |rtype| Mbp1Msg {
        hd: header::<Mbp1Msg>(rtype, 5, T),
        price: PRICE,
        size: 4,
        action,
        side,
        levels: [level()],
        ..Mbp1Msg::default()
    };
    let mut levels: [BidAskPair; 10] = Default::default();
    levels[0] = level();
    let hd = header::<Mbp10Msg>(rtype::MBP_10, 5, T);
    let deep = Mbp10Msg { hd, price: PRICE, size: 4, action, side, levels, ..Mbp10Msg::default() };
    let sample = |rtype, schema| BboMsg {
        hd: header::<BboMsg>(rtype, 5, T),
        ts_recv: T + 60 * SECOND,
        levels: [level()],
        ..BboMsg::default_for_schema(schema)
    };
    for version in 1..=3 {
        let of = |schema| metadata(version, Some(schema), &[("AAA", 5)]);
        for (schema, bytes) in [
            (Schema::Trades, file(&of(Schema::Trades), &[b'B', b'A'].map(|side| trade(5, T, PRICE, 4, side)))),
            (Schema::Tbbo, file(&of(Schema::Tbbo), &[top(rtype::MBP_1)])),
            (Schema::Mbp1, file(&of(Schema::Mbp1), &[top(rtype::MBP_1)])),
            (Schema::Mbp10, file(&of(Schema::Mbp10), std::slice::from_ref(&deep))),
            (Schema::Bbo1S, file(&of(Schema::Bbo1S), &[sample(rtype::BBO_1S, Schema::Bbo1S)])),
            (Schema::Bbo1M, file(&of(Schema::Bbo1M), &[sample(rtype::BBO_1M, Schema::Bbo1M)])),
        ] {
            let reading = read_plainly(&bytes).unwrap_or_else(|e| panic!("{schema:?}, version {version}: {e}"));
            assert_eq!(reading.source.format, format!("DBN version {version}, {schema}"));
            if schema == Schema::Mbp10 {
                let shown = crate::data::inspect::Inspection::new(&reading).to_string();
                assert!(shown.contains(" trades, signed_volume, spread, microprice_offset\n"), "{shown}");
            }
            let (bars, _) = reading.accept(1).unwrap_or_else(|e| panic!("{schema:?}, version {version}: {e}"));
            assert_eq!((bars.time_ns[0] as u64, bars.interval_ns as u64), (T, 60 * SECOND), "{schema:?}");
            let (volume, signed_volume, spread) = match schema {
                Schema::Trades => (8.0, Some(vec![0.0]), 0.0),
                Schema::Bbo1S | Schema::Bbo1M => (0.0, None, 0.02),
                _ => (4.0, Some(vec![-4.0]), 0.02),
            };
            assert_eq!((bars.close[0], bars.volume[0]), (100.0, volume), "{schema:?}, version {version}");
            assert_eq!((bars.spread, bars.signed_volume), (Some(vec![spread]), signed_volume), "{schema:?}");
        }
    }
}

#[test]
fn case_q_every_zstd_frame_is_read_and_a_cut_is_an_error() {
    let metadata = metadata(1, Some(Schema::Ohlcv1M), &[("AAA", 5)]);
    let records: Vec<OhlcvMsg> = (0..100).map(|i| bar(5, T + 60 * SECOND * i, 11)).collect();
    let plain = file(&metadata, &records);
    let header = plain.len() - 100 * size_of::<OhlcvMsg>();
    // Metadata, then the records in two frames cut in the middle of a record.
    let mut bytes = Vec::new();
    for part in [&plain[..header], &plain[header..header + 1001], &plain[header + 1001..]] {
        bytes.extend(zstd::encode_all(part, 3).expect("memory is writable"));
    }
    assert_eq!(read_plainly(&bytes).expect("three frames").bars.len(), 100);
    let error = read_plainly(&bytes[..bytes.len() - 5]).expect_err("the last frame is cut").to_string();
    assert!(error.contains("ends or is damaged"), "{error}");
    let error = read_plainly(&plain[..plain.len() - 5]).expect_err("the last record is cut").to_string();
    assert!(error.contains("record 100: the file ends inside this record"), "{error}");
    let error = read_plainly(&plain[..header]).expect_err("nothing but metadata").to_string();
    assert!(error.contains("holds no market data among its 0 records"), "{error}");
    assert!(read_plainly(&plain[..header - 5]).is_err());
    assert!(read_plainly(&plain[..5]).is_err());
}

#[test]
fn case_q_an_unterminated_symbol_is_an_error() {
    let plain = file(&metadata(2, Some(Schema::Ohlcv1M), &[("AAA", 5)]), &[bar(5, T, 11)]);
    let at = plain.windows(3).position(|w| w == b"AAA").expect("the name is in the metadata");
    let mut broken = plain;
    broken[at..at + 71].fill(b'A');
    let error = read_plainly(&broken).expect_err("71 letters in a field of 71 bytes").to_string();
    assert!(error.contains("in its metadata has no end"), "{error}");
    let mut mapping = SymbolMappingMsg::new(5, T, SType::RawSymbol, "A", SType::RawSymbol, "A", T, T).expect("short");
    mapping.stype_out_symbol.fill(b'A' as _);
    let error = read_plainly(&file(&metadata(3, None, &[]), &[mapping])).expect_err("the same in a record").to_string();
    assert!(error.contains("record 1: has a symbol without an end"), "{error}");
}

#[test]
fn case_q_undefined_times_and_prices() {
    let metadata = metadata(3, Some(Schema::Ohlcv1M), &[("AAA", 5)]);
    let bytes = file(&metadata, &[bar(5, T, 11), bar(5, UNDEF_TIMESTAMP, 11), bar(5, T + 60 * SECOND, UNDEF_PRICE)]);
    let reading = read_plainly(&bytes).expect("rows alone are at fault");
    assert_eq!(reading.repairs.undefined_times_dropped, 1);
    assert_eq!(reading.faults.counts.into_iter().collect::<Vec<_>>(), [(FaultKind::BadPrice, 1)]);
    let metadata = self::metadata(3, Some(Schema::Trades), &[("AAA", 5)]);
    let trades = [
        trade(5, T, PRICE, 1, b'B'),
        trade(5, T + 1, UNDEF_PRICE, 1, b'B'),
        trade(5, UNDEF_TIMESTAMP, PRICE, 1, b'B'),
        trade(5, T + 2, PRICE - 10_000_000, 2, b'A'),
    ];
    let (bars, repairs) = read_plainly(&file(&metadata, &trades)).and_then(|r| r.accept(1)).expect("two good trades");
    assert_eq!((repairs.undefined_times_dropped, repairs.undefined_prices_dropped), (1, 1));
    assert_eq!((bars.trades, bars.signed_volume, bars.volume), (Some(vec![2.0]), Some(vec![-1.0]), vec![3.0]));
}

#[test]
fn case_q_an_empty_level_makes_no_quote() {
    let event = |time, action: u8, level| Mbp1Msg {
        hd: header::<Mbp1Msg>(rtype::MBP_1, 5, time),
        price: PRICE,
        size: 3,
        action: action as _,
        side: b'B' as _,
        levels: [level],
        ..Mbp1Msg::default()
    };
    let good = quote(PRICE - 1_000_000_000, PRICE + 1_000_000_000, 30, 10);
    let metadata = metadata(3, Some(Schema::Mbp1), &[("AAA", 5)]);
    let events = [
        event(T, b'T', quote(UNDEF_PRICE, PRICE, 0, 1)),
        event(T + 60 * SECOND, b'A', good),
        event(T + 61 * SECOND, b'T', quote(PRICE, UNDEF_PRICE, 1, 0)),
        event(T + 130 * SECOND, b'T', quote(UNDEF_PRICE, UNDEF_PRICE, 0, 0)),
        event(T + 131 * SECOND, b'T', quote(PRICE + 1, PRICE, 1, 1)),
    ];
    let (bars, repairs) = read_plainly(&file(&metadata, &events)).and_then(|r| r.accept(2)).expect("one good quote");
    assert_eq!(repairs.bars_before_first_quote_dropped, 1);
    assert_eq!(bars.trades, Some(vec![1.0, 2.0]));
    assert_eq!(bars.spread, Some(vec![0.02, 0.02]), "the last known quote is carried");
    // (bid 99 x ask size 10 + ask 101 x bid size 30) / 40 = 100.5.
    assert_eq!(bars.microprice_offset, Some(vec![0.005, 0.005]));
    assert_eq!(bars.interval_ns as u64, 60 * SECOND);
}

#[test]
fn ten_levels_and_sampled_quotes() {
    let mut levels: [BidAskPair; 10] = Default::default();
    levels[0] = quote(PRICE - 1_000_000_000, PRICE + 1_000_000_000, 1, 1);
    let deep = Mbp10Msg {
        hd: header::<Mbp10Msg>(rtype::MBP_10, 5, T),
        price: PRICE,
        size: 4,
        action: b'T' as _,
        side: b'A' as _,
        levels,
        ..Mbp10Msg::default()
    };
    let bytes = file(&metadata(2, Some(Schema::Mbp10), &[("AAA", 5)]), &[deep]);
    let bars = read_plainly(&bytes).expect("a trade with its book").bars;
    assert_eq!((bars.close[0], bars.signed_volume.as_deref()), (100.0, Some(&[-4.0][..])));
    assert_eq!(bars.spread, Some(vec![0.02]));
    let sample = |seconds: u64, shift: i64| BboMsg {
        hd: header::<BboMsg>(rtype::BBO_1S, 5, UNDEF_TIMESTAMP),
        ts_recv: T + seconds * SECOND,
        levels: [quote(PRICE + shift - 10_000_000, PRICE + shift + 10_000_000, 1, 1)],
        ..BboMsg::default_for_schema(Schema::Bbo1S)
    };
    let samples = [sample(59, 0), sample(60, 1_000_000_000), sample(61, -2_000_000_000)];
    let reading = read_plainly(&file(&metadata(3, Some(Schema::Bbo1S), &[("AAA", 5)]), &samples)).expect("quotes");
    // The sample of 10:01:00 closes the second before it, so it belongs to the minute of 10:00.
    assert_eq!((reading.bars.close, reading.bars.volume), (vec![101.0, 98.0], vec![0.0, 0.0]));
    assert_eq!(reading.bars.trades, None);
    assert!(reading.source.notices[0].contains("no volume"));
}

#[test]
fn trades_alone_measure_the_bounce_between_buyers_and_sellers() {
    let trades = [
        trade(5, T, PRICE, 1, b'B'),
        trade(5, T + 1, PRICE, 1, b'B'),
        trade(5, T + 2, PRICE - 1_000_000_000, 1, b'A'),
        trade(5, T + 3, PRICE - 1_000_000_000, 1, b'N'),
    ];
    let bars = read_plainly(&file(&metadata(1, Some(Schema::Trades), &[("AAA", 5)]), &trades)).expect("trades").bars;
    assert_eq!(bars.spread, Some(vec![1.0 / 99.5]));
    assert_eq!(
        (bars.measures(), bars.signed_volume),
        (vec![Measure::Trades, Measure::SignedVolume, Measure::Spread], Some(vec![1.0]))
    );
}

#[test]
fn case_r_instruments_by_name_by_id_and_by_mapping_record() {
    let metadata = metadata(1, Some(Schema::Ohlcv1M), &[("AAA", 5), ("BBB", 6)]);
    let bytes = file(&metadata, &[bar(6, T, 11), bar(5, T, 12), bar(6, T + 60 * SECOND, 10)]);
    let choose = |symbol: &str| {
        let options = ReadOptions { symbol: Some(symbol.into()), ..ReadOptions::default() };
        read_bytes(&bytes, &options).map(|r| r.bars.close).map_err(|e| e.to_string())
    };
    assert_eq!(choose("AAA"), Ok(vec![12.0]));
    assert_eq!(choose("BBB"), Ok(vec![11.0, 10.0]));
    assert_eq!(choose("6"), Ok(vec![11.0, 10.0]));
    assert!(choose("CCC").expect_err("no CCC").contains("has no instrument \"CCC\"; it has: AAA, BBB"));
    let open = read_plainly(&bytes).expect_err("the choice is open").to_string();
    assert!(open.contains("holds 2 instruments: AAA, BBB"), "{open}");
    // Outside of its mapping's days an id has no name.
    let late = file(&metadata, &[bar(5, T + 5 * 86_400 * SECOND, 12)]);
    assert_eq!(read_plainly(&late).expect("one instrument").bars.symbol.as_deref(), Some("5"));
    // In a live stream's file names come among the records.
    let metadata = self::metadata(3, None, &[]);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, &metadata).expect("memory is writable");
    let mapping = SymbolMappingMsg::new(5, T, SType::RawSymbol, "LIVE", SType::RawSymbol, "LIVE", T, T);
    encoder.encode_record(&mapping.expect("a short name")).expect("memory is writable");
    encoder.encode_record(&bar(5, T, 11)).expect("memory is writable");
    assert_eq!(read_plainly(&bytes).expect("one instrument").bars.symbol.as_deref(), Some("LIVE"));
}

#[test]
fn what_cannot_be_read_says_so() {
    let mixed = {
        let mut bytes = file(&metadata(3, None, &[]), &[bar(5, T, 11)]);
        let one = trade(5, T, PRICE, 1, b'B');
        let more = file(&metadata(3, None, &[]), &[one]);
        bytes.extend_from_slice(&more[more.len() - size_of::<TradeMsg>()..]);
        bytes
    };
    let error = read_plainly(&mixed).expect_err("bars and trades").to_string();
    assert!(error.contains("record 2: is Mbp0, the records before are Ohlcv1M"), "{error}");
    let mut newer = file(&metadata(3, Some(Schema::Ohlcv1M), &[]), &[bar(5, T, 11)]);
    newer[3] = 9;
    let error = read_plainly(&newer).expect_err("there is no version 9").to_string();
    assert!(error.contains("is DBN version 9; versions 1 to 3 are read"), "{error}");
    newer[3] = 3;
    newer[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read_plainly(&newer).expect_err("4 GiB of metadata").to_string();
    assert!(error.contains("over the limit"), "{error}");
    let options = ReadOptions { stamps: Stamps::End, ..ReadOptions::default() };
    let bytes = file(&metadata(3, Some(Schema::Ohlcv1M), &[]), &[bar(5, T, 11), bar(5, T + 60 * SECOND, 11)]);
    assert!(read_bytes(&bytes, &options).is_err(), "DBN stamps the start");
    let lone = read_plainly(&file(&metadata(3, Some(Schema::Ohlcv1M), &[]), &[bar(5, T, 11)])).expect("one bar");
    assert_eq!(lone.bars.interval_ns as u64, 60 * SECOND, "the schema tells the length of a lone bar");
    assert!(read_plainly(&zstd::encode_all(&b"a,b\n1,2\n"[..], 3).expect("memory is writable")).is_err());
}
