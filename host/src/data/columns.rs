//! Which column is which: names in any order and usual spelling.

use super::bars::Measure;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Time,
    Date,
    Clock,
    Open,
    High,
    Low,
    Close,
    Volume,
    Symbol,
    Measured(Measure),
}

/// Position of each column in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) time: TimeColumns,
    /// Open, high, low, close.
    pub(super) prices: [usize; 4],
    pub(super) volume: usize,
    pub(super) symbol: Option<usize>,
    pub(super) measured: [Option<usize>; Measure::COUNT],
    /// What was taken where several would do.
    pub(super) notices: Vec<String>,
}

/// Where the time stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeColumns {
    /// In one column.
    One(usize),
    /// A date and a time of day.
    DateAndClock(usize, usize),
}

/// Accepted names in lower case without anything but letters and digits, the surest first: the first one present wins.
/// Names that carry a unit are taken only in that unit, since a plain "spread" is price, points or basis points.
const NAMES: &[(Role, &[&str])] = &[
    (
        Role::Time,
        &[
            "timestamp",
            "datetime",
            "tsevent",
            "ts",
            "opentime",
            "opentimestamp",
            "starttime",
            "bartime",
            "unixtime",
            "unix",
            "epoch",
            "gmttime",
            "utctime",
            "timestamputc",
            "datetimeutc",
            "indexlevel0",
        ],
    ),
    (Role::Date, &["date", "day", "tradingday", "tradedate", "dt", "d"]),
    (Role::Clock, &["time", "hour", "t"]),
    (Role::Open, &["open", "o", "openprice", "openingprice"]),
    (Role::High, &["high", "h", "highprice"]),
    (Role::Low, &["low", "l", "lowprice"]),
    (Role::Close, &["close", "c", "closeprice", "closingprice", "last"]),
    (Role::Volume, &["volume", "vol", "v", "basevolume", "tradedvolume", "totalvolume", "tickvolume", "tickvol"]),
    (Role::Symbol, &["symbol", "ticker", "instrument", "rawsymbol"]),
    (Role::Measured(Measure::Trades), &["trades", "tradecount", "ntrades", "numberoftrades", "numtrades"]),
    (Role::Measured(Measure::SignedVolume), &["signedvolume", "orderflow"]),
    (Role::Measured(Measure::Spread), &["spreadfraction"]),
    (Role::Measured(Measure::MicropriceOffset), &["micropriceoffset"]),
];

fn normalised(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl Columns {
    /// Finds each column by name. The error names what is missing and what is there, or the two that collide.
    pub(super) fn find<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let names: Vec<String> = names.into_iter().map(|n| n.trim().to_owned()).collect();
        let plain: Vec<String> = names.iter().map(|n| normalised(n)).collect();
        let position = |role: Role| -> Result<Option<usize>, String> {
            let spellings = NAMES.iter().find(|(r, _)| *r == role).map_or(&[][..], |(_, spellings)| spellings);
            for spelling in spellings {
                let mut hits = plain.iter().enumerate().filter(|(_, name)| name == spelling).map(|(i, _)| i);
                if let Some(first) = hits.next() {
                    return match hits.next() {
                        None => Ok(Some(first)),
                        Some(second) => {
                            Err(format!("columns \"{}\" and \"{}\" have the same name", names[first], names[second]))
                        }
                    };
                }
            }
            Ok(None)
        };
        let mut missing = Vec::new();
        let mut need = |role: Role, name: &'static str| -> Result<usize, String> {
            let found = position(role)?;
            if found.is_none() {
                missing.push(name);
            }
            Ok(found.unwrap_or(0))
        };
        let time = match (position(Role::Time)?, position(Role::Date)?, position(Role::Clock)?) {
            (Some(time), _, _) | (None, Some(time), None) | (None, None, Some(time)) => TimeColumns::One(time),
            (None, Some(date), Some(clock)) => TimeColumns::DateAndClock(date, clock),
            (None, None, None) => TimeColumns::One(need(Role::Time, "timestamp")?),
        };
        let prices = [
            need(Role::Open, "open")?,
            need(Role::High, "high")?,
            need(Role::Low, "low")?,
            need(Role::Close, "close")?,
        ];
        let volume = need(Role::Volume, "volume")?;
        if !missing.is_empty() {
            return Err(missing_columns(&missing, &names));
        }
        let mut measured = [None; Measure::COUNT];
        for measure in Measure::ALL {
            measured[measure as usize] = position(Role::Measured(measure))?;
        }
        let symbol = position(Role::Symbol)?;
        let mut used: Vec<usize> = prices.into_iter().chain([volume]).chain(symbol).collect();
        used.extend(measured.iter().flatten());
        match time {
            TimeColumns::One(time) => used.push(time),
            TimeColumns::DateAndClock(date, clock) => used.extend([date, clock]),
        }
        let notices = passed_over(&names, &plain, &used);
        Ok(Self { time, prices, volume, symbol, measured, notices })
    }

    /// The measured columns present.
    pub(super) fn measures(&self) -> Vec<Measure> {
        Measure::ALL.into_iter().filter(|&m| self.measured[m as usize].is_some()).collect()
    }
}

/// Columns beside those `used` that hold the same by their names: which of them is meant is the file's secret.
fn passed_over(names: &[String], plain: &[String], used: &[usize]) -> Vec<String> {
    let mut notices = Vec::new();
    for (_, spellings) in NAMES {
        let of_role = |&column: &usize| spellings.contains(&plain[column].as_str());
        let Some(&taken) = used.iter().find(|column| of_role(column)) else { continue };
        for other in (0..names.len()).filter(|column| of_role(column) && !used.contains(column)) {
            let (taken, other) = (&names[taken], &names[other]);
            notices.push(format!(
                "column \"{taken}\" is taken and \"{other}\" passed over; rename the one that is not meant"
            ));
        }
    }
    notices
}

fn missing_columns(missing: &[&str], names: &[String]) -> String {
    let plural = if missing.len() > 1 { "s" } else { "" };
    let mut present: String = names.join(", ").chars().filter(|c| !c.is_control()).take(200).collect();
    if present.is_empty() {
        present = "nothing".into();
    }
    let headless = !names.is_empty() && names.iter().any(|n| n.parse::<f64>().is_ok());
    let hint = if headless { " (the first line looks like data, not like names)" } else { "" };
    format!("no column{plural} {} among: {present}{hint}", missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_and_usual_spelling() {
        let columns =
            Columns::find(["Volume BTC", "Vol.", " CLOSE ", "<LOW>", "High", "o", "Date"]).expect("all are there");
        assert_eq!(columns.time, TimeColumns::One(6));
        assert_eq!(columns.prices, [5, 4, 3, 2]);
        assert_eq!(columns.volume, 1);
        let columns = Columns::find(["date", "time", "open", "high", "low", "close", "Adj Close", "volume", "ticker"]);
        let columns = columns.expect("all are there");
        assert_eq!(columns.time, TimeColumns::DateAndClock(0, 1));
        assert_eq!((columns.prices[3], columns.symbol), (5, Some(8)));
    }

    #[test]
    fn a_missing_column_is_named_beside_those_present() {
        let error = Columns::find(["timestamp", "open", "hi", "low", "price"]).expect_err("three are missing");
        assert_eq!(error, "no columns high, close, volume among: timestamp, open, hi, low, price");
        let error = Columns::find(["1640995200", "1", "2"]).expect_err("there are no names");
        assert!(error.ends_with("looks like data, not like names)"), "{error}");
    }

    #[test]
    fn two_columns_of_one_name_are_not_guessed_between() {
        assert!(Columns::find(["timestamp", "open", "high", "low", "close", "Close", "volume"]).is_err());
    }
}
