//! Times as files write them: ISO 8601 with or without a zone, dates alone, and epochs told apart by magnitude.

use super::bars::{DAY_NS, SECOND_NS};
use chrono::{DateTime, NaiveDate, SecondsFormat};

/// How a file writes its times. One file uses one form; a second one is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// A date alone; the bar starts at 00:00 UTC.
    Date,
    /// Date and time without a zone, taken as UTC.
    DateTime,
    /// Date and time with a zone.
    Zoned,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis,
    /// Microseconds since 1970.
    Micros,
    /// Nanoseconds since 1970.
    Nanos,
}

impl TimeForm {
    /// The form in words.
    pub fn name(self) -> &'static str {
        match self {
            TimeForm::Date => "a date alone",
            TimeForm::DateTime => "date and time without a zone",
            TimeForm::Zoned => "date and time with a zone",
            TimeForm::Seconds => "epoch seconds",
            TimeForm::Millis => "epoch milliseconds",
            TimeForm::Micros => "epoch microseconds",
            TimeForm::Nanos => "epoch nanoseconds",
        }
    }
}

/// A time for people: `2024-07-01T23:58:00Z`, with a fraction only where there is one.
pub fn format_time(time_ns: i64) -> String {
    DateTime::from_timestamp_nanos(time_ns).to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Reads one time. The error says what is wrong with the text, without the text itself.
pub fn parse_time(text: &str) -> Result<(i64, TimeForm), String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the time is empty".into());
    }
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if n_digits == text.len() {
        return parse_digits(text);
    }
    let rest = &text[n_digits..];
    if n_digits >= 9 && rest.starts_with('.') && rest[1..].bytes().all(|b| b.is_ascii_digit()) {
        return parse_epoch(&text[..n_digits], &rest[1..]);
    }
    parse_calendar(text)
}

/// Digits alone: a compact date (8), a compact date and time (14), else an epoch.
fn parse_digits(text: &str) -> Result<(i64, TimeForm), String> {
    let compact_date = |digits: &str| {
        let date = date_ns(digits[..4].parse().ok()?, digits[4..6].parse().ok()?, digits[6..8].parse().ok()?)?;
        Some(date).filter(|&ns| ns >= 0)
    };
    match text.len() {
        8 => {
            if let Some(ns) = compact_date(text) {
                return Ok((ns, TimeForm::Date));
            }
        }
        12 => {
            // 202401311530 is 2024-01-31 15:30, and as milliseconds a day in 1976: no telling which is meant.
            let year = text[..4].parse::<i32>().unwrap_or(0);
            if (1990..2100).contains(&year) && compact_date(text).is_some() && clock_ns(&text[8..]).is_ok() {
                return Err("may be YYYYMMDDhhmm or epoch milliseconds".into());
            }
        }
        14 => {
            if let (Some(date), Ok(clock)) = (compact_date(text), clock_ns(&text[8..])) {
                return Ok((date + clock, TimeForm::DateTime));
            }
        }
        _ => {}
    }
    parse_epoch(text, "")
}

/// An epoch whose unit follows from its magnitude: each unit's range starts in March 1973 and ends where the next
/// finer unit's starts, so no number has two readings.
fn parse_epoch(whole: &str, fraction: &str) -> Result<(i64, TimeForm), String> {
    let out_of_range = || "is no epoch between 1973 and 2262 in seconds, ms, us or ns".to_string();
    let value: u64 = whole.parse().map_err(|_| out_of_range())?;
    let (form, scale) = match value {
        100_000_000..100_000_000_000 => (TimeForm::Seconds, 1_000_000_000),
        100_000_000_000..100_000_000_000_000 => (TimeForm::Millis, 1_000_000),
        100_000_000_000_000..100_000_000_000_000_000 => (TimeForm::Micros, 1_000),
        100_000_000_000_000_000.. => (TimeForm::Nanos, 1),
        _ => return Err(out_of_range()),
    };
    let base = i64::try_from(value).ok().and_then(|v| v.checked_mul(scale)).ok_or_else(out_of_range)?;
    let mut weight = scale;
    let mut part = 0;
    for digit in fraction.bytes().map(|b| i64::from(b - b'0')) {
        weight /= 10;
        if weight == 0 && digit != 0 {
            return Err("has a fraction finer than a nanosecond".into());
        }
        part += digit * weight;
    }
    base.checked_add(part).map(|ns| (ns, form)).ok_or_else(out_of_range)
}

/// `YYYY-MM-DD` (or with `/`, `.`, or nothing), then optionally `T` or a space, a clock and a zone.
fn parse_calendar(text: &str) -> Result<(i64, TimeForm), String> {
    let unknown = || {
        if let Some(reason) = no_such_date(text) {
            reason
        } else if text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && text.contains(['/', '-', '.']) {
            "is not year-month-day; day and month cannot be told apart in other orders".to_string()
        } else {
            "is not a time".to_string()
        }
    };
    if !text.is_ascii() {
        return Err("is not a time".into());
    }
    let (date, rest) = split_date(text).ok_or_else(unknown)?;
    let rest = match rest.strip_prefix(['T', 't', ' ']) {
        Some(rest) => rest.trim_start(),
        None if rest.is_empty() => return Ok((date, TimeForm::Date)),
        None => return Err(unknown()),
    };
    let zone_start = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(rest.len());
    let clock = clock_ns(&rest[..zone_start])?;
    let zone = rest[zone_start..].trim();
    let form = if zone.is_empty() { TimeForm::DateTime } else { TimeForm::Zoned };
    let time = date.checked_add(clock).and_then(|ns| ns.checked_sub(zone_ns(zone)?));
    match time {
        Some(ns) => Ok((ns, form)),
        None if zone_ns(zone).is_none() => Err(format!("has the unknown zone \"{zone}\"")),
        None => Err("lies outside the years 1677 to 2262".into()),
    }
}

/// Why a text that has the form of a date is none.
fn no_such_date(text: &str) -> Option<String> {
    let (parts, _) = date_parts(text)?;
    let [year, month, day] = parts;
    let date = NaiveDate::from_ymd_opt(year as i32, month, day);
    Some(if date.is_none() { "is no day of the calendar".into() } else { "lies outside the years 1677 to 2262".into() })
}

/// The date at the front, and what follows it.
fn split_date(text: &str) -> Option<(i64, &str)> {
    let ([year, month, day], rest) = date_parts(text)?;
    Some((date_ns(year as i32, month, day)?, rest))
}

/// Year, month and day at the front, if they have the form of a date, and what follows them.
fn date_parts(text: &str) -> Option<([u32; 3], &str)> {
    let separator = text.as_bytes().get(4)?;
    let (year, month, day, end) = if separator.is_ascii_digit() {
        (text.get(..4)?, text.get(4..6)?, text.get(6..8)?, 8)
    } else {
        if !matches!(separator, b'-' | b'/' | b'.') || text.as_bytes().get(7) != Some(separator) {
            return None;
        }
        (text.get(..4)?, text.get(5..7)?, text.get(8..10)?, 10)
    };
    if [year, month, day].iter().any(|part| !part.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    Some(([year.parse().ok()?, month.parse().ok()?, day.parse().ok()?], &text[end..]))
}

/// Midnight UTC of a date; none if the calendar or 64-bit nanoseconds lack it.
fn date_ns(year: i32, month: u32, day: u32) -> Option<i64> {
    let days = i64::from(NaiveDate::from_ymd_opt(year, month, day)?.to_epoch_days());
    days.checked_mul(DAY_NS)
}

/// Nanoseconds since midnight of `hh:mm`, `hh:mm:ss`, `hh:mm:ss.fraction`, `hhmm` or `hhmmss`.
fn clock_ns(text: &str) -> Result<i64, String> {
    let bad = || "has no clock of the form hh:mm, hh:mm:ss or hh:mm:ss.fraction".to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<&str> = if whole.contains(':') {
        whole.split(':').collect()
    } else if matches!(whole.len(), 4 | 6) {
        (0..whole.len() / 2).map(|i| &whole[2 * i..2 * i + 2]).collect()
    } else {
        return Err(bad());
    };
    if !matches!(parts.len(), 2 | 3) || (parts.len() == 2 && !fraction.is_empty()) {
        return Err(bad());
    }
    let mut seconds = 0;
    for (i, part) in parts.iter().enumerate() {
        let length_fits = part.len() == 2 || (i == 0 && part.len() == 1);
        let value = part.parse::<i64>().ok().filter(|_| length_fits && part.bytes().all(|b| b.is_ascii_digit()));
        let value = value.filter(|&v| v < if i == 0 { 24 } else { 60 }).ok_or_else(bad)?;
        seconds = seconds * 60 + value;
    }
    if parts.len() == 2 {
        seconds *= 60;
    }
    let mut weight = SECOND_NS;
    let mut nanoseconds = 0;
    for digit in fraction.bytes() {
        weight /= 10;
        match digit {
            b'0'..=b'9' if weight > 0 || digit == b'0' => nanoseconds += i64::from(digit - b'0') * weight,
            _ => return Err(bad()),
        }
    }
    Ok(seconds * SECOND_NS + nanoseconds)
}

/// The zone's offset east of UTC; an empty zone is UTC.
fn zone_ns(zone: &str) -> Option<i64> {
    if zone.is_empty() || ["Z", "UTC", "GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc)) {
        return Some(0);
    }
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = zone[1..].chars().filter(|&c| c != ':').collect();
    let shape_is_known = matches!((digits.len(), zone.len() - 1), (2, 2) | (4, 4) | (4, 5));
    if !shape_is_known || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits.get(2..4).unwrap_or("00").parse().unwrap_or(0);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60 * SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2022-01-01T04:00:00Z.
    const T: i64 = 1_641_009_600_000_000_000;

    #[test]
    fn one_moment_in_every_spelling() {
        for (text, form) in [
            ("2022-01-01T04:00:00Z", TimeForm::Zoned),
            ("2022-01-01 04:00:00+00:00", TimeForm::Zoned),
            ("2022-01-01T09:30:00.000+0530", TimeForm::Zoned),
            ("2021-12-31 23:00:00 -05", TimeForm::Zoned),
            ("2022-01-01 04:00:00 UTC", TimeForm::Zoned),
            ("2022-01-01T04:00", TimeForm::DateTime),
            ("2022/01/01 4:00:00.000000000", TimeForm::DateTime),
            ("2022.01.01 04:00", TimeForm::DateTime),
            ("20220101 040000", TimeForm::DateTime),
            ("20220101T0400", TimeForm::DateTime),
            ("20220101040000", TimeForm::DateTime),
            ("1641009600", TimeForm::Seconds),
            ("1641009600.0", TimeForm::Seconds),
            ("1641009600000", TimeForm::Millis),
            ("1641009600000000", TimeForm::Micros),
            ("1641009600000000000", TimeForm::Nanos),
        ] {
            assert_eq!(parse_time(text), Ok((T, form)), "{text}");
        }
        assert_eq!(parse_time("2022-01-01"), Ok((T - 4 * 3600 * SECOND_NS, TimeForm::Date)));
        assert_eq!(parse_time("20220101"), Ok((T - 4 * 3600 * SECOND_NS, TimeForm::Date)));
        assert_eq!(parse_time("1641009600.123456789"), Ok((T + 123_456_789, TimeForm::Seconds)));
    }

    #[test]
    fn what_has_no_certain_meaning_is_refused() {
        for text in [
            "",
            "time",
            "01/02/2022",
            "1/2/2022 10:00",
            "02.01.2022",
            "2022-13-01",
            "2022-02-30",
            "2022-01-01T24:00",
            "2022-01-01T23:60",
            "2022-01-01 10:00 PM",
            "2022-01-01T10:00 EST",
            "202201010400",
            "12345",
            "99999999999999999999",
            "9999-01-01",
            "2022-01-01T",
            "2022-01-01x",
            "2022-01/01",
            "1641009600.0000000001",
            "-1641009600",
            "1.64e9",
            "２０２２",
            "2022-01-01T10:00:00.+01:00x",
            "2022-01-01T10:00+1",
        ] {
            assert!(parse_time(text).is_err(), "{text} read as {:?}", parse_time(text));
        }
    }

    #[test]
    fn printed_times_read_back() {
        for ns in [0, T, T + 1, T + 123_000_000] {
            assert_eq!(parse_time(&format_time(ns)).map(|t| t.0), Ok(ns));
        }
    }
}
