//! Makes bars out of ticks, and longer bars out of shorter ones.

use super::bars::{Bar, Bars, Measure, SECOND_NS};
use super::error::DataError;
use super::time::format_time;
use std::collections::BTreeMap;
use std::path::Path;

/// Lengths of bars that `--bar` takes.
pub const BAR_LENGTHS: [(&str, i64); 5] = [
    ("1s", SECOND_NS),
    ("1m", 60 * SECOND_NS),
    ("5m", 300 * SECOND_NS),
    ("1h", 3_600 * SECOND_NS),
    ("1d", 86_400 * SECOND_NS),
];

/// The bars of one instrument in the making. A tick belongs to the bar in whose half-open span its time lies; a late
/// tick still finds its bar, so the order of the input does not matter beyond ticks of one time.
#[derive(Debug)]
pub(super) struct Aggregator {
    length_ns: i64,
    bins: BTreeMap<i64, Bin>,
}

/// One bar in the making.
#[derive(Clone, Copy, Debug)]
struct Bin {
    first_record: u64,
    /// Open, high, low, close and the times of open and close; none while only quotes were seen.
    prices: Option<Prices>,
    volume: f64,
    n_trades: f64,
    signed_volume: f64,
    spread_sum: f64,
    n_spreads: f64,
    microprice_offset: f64,
    quote_time_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Prices {
    open: f64,
    high: f64,
    low: f64,
    close: f64,
    open_time_ns: i64,
    close_time_ns: i64,
}

impl Aggregator {
    pub(super) fn new(length_ns: i64) -> Self {
        Self { length_ns, bins: BTreeMap::new() }
    }

    fn bin(&mut self, record: u64, time_ns: i64) -> &mut Bin {
        let start = time_ns.div_euclid(self.length_ns).saturating_mul(self.length_ns);
        self.bins.entry(start).or_insert(Bin {
            first_record: record,
            prices: None,
            volume: 0.0,
            n_trades: 0.0,
            signed_volume: 0.0,
            spread_sum: 0.0,
            n_spreads: 0.0,
            microprice_offset: f64::NAN,
            quote_time_ns: i64::MIN,
        })
    }

    /// A price at a time, without a trade.
    pub(super) fn price(&mut self, record: u64, time_ns: i64, price: f64) {
        let prices = Prices {
            open: price,
            high: price,
            low: price,
            close: price,
            open_time_ns: time_ns,
            close_time_ns: time_ns,
        };
        self.bin(record, time_ns).take_prices(prices);
    }

    /// A trade. `signed_size` is the size with the aggressor's sign, 0 where it is unknown.
    pub(super) fn trade(&mut self, record: u64, time_ns: i64, price: f64, size: f64, signed_size: f64) {
        self.price(record, time_ns, price);
        let bin = self.bin(record, time_ns);
        bin.volume += size;
        bin.n_trades += 1.0;
        bin.signed_volume += signed_size;
    }

    /// A measured spread, as a fraction of the mid price.
    pub(super) fn spread(&mut self, record: u64, time_ns: i64, spread: f64) {
        let bin = self.bin(record, time_ns);
        bin.spread_sum += spread;
        bin.n_spreads += 1.0;
    }

    /// A quote's microprice less its mid, as a fraction of the mid.
    pub(super) fn microprice_offset(&mut self, record: u64, time_ns: i64, offset: f64) {
        let bin = self.bin(record, time_ns);
        if time_ns >= bin.quote_time_ns {
            (bin.microprice_offset, bin.quote_time_ns) = (offset, time_ns);
        }
    }

    /// The bars that have a price, each with its first record. A bar without a quote of its own carries the last one
    /// before it, since later ones are not known yet; bars before the first quote have NaN.
    pub(super) fn finish(self) -> impl Iterator<Item = (u64, Bar)> {
        let (mut spread, mut microprice_offset) = (f64::NAN, f64::NAN);
        self.bins.into_iter().filter_map(move |(time_ns, bin)| {
            if bin.n_spreads > 0.0 {
                spread = bin.spread_sum / bin.n_spreads;
            }
            if !bin.microprice_offset.is_nan() {
                microprice_offset = bin.microprice_offset;
            }
            let Prices { open, high, low, close, .. } = bin.prices?;
            let measured = [bin.n_trades, bin.signed_volume, spread, microprice_offset];
            Some((bin.first_record, Bar { time_ns, open, high, low, close, volume: bin.volume, measured }))
        })
    }
}

impl Bin {
    fn take_prices(&mut self, new: Prices) {
        let Some(old) = &mut self.prices else {
            self.prices = Some(new);
            return;
        };
        if new.open_time_ns < old.open_time_ns {
            (old.open, old.open_time_ns) = (new.open, new.open_time_ns);
        }
        if new.close_time_ns >= old.close_time_ns {
            (old.close, old.close_time_ns) = (new.close, new.close_time_ns);
        }
        old.high = old.high.max(new.high);
        old.low = old.low.min(new.low);
    }
}

/// Longer bars out of sorted shorter ones. An error unless every short bar lies inside one long bar.
pub(super) fn lengthen(path: &Path, bars: Bars, length_ns: i64) -> Result<Bars, DataError> {
    let step_ns = bars.interval_ns;
    if step_ns == length_ns || bars.is_empty() {
        return Ok(bars);
    }
    if step_ns == 0 || step_ns > length_ns {
        let reason = match step_ns {
            0 => "has one bar, whose length cannot be known".into(),
            _ => format!("its bars ({}) are not shorter than those asked for", length_name(step_ns)),
        };
        return Err(DataError::new(path, reason, format!("leave out --bar {}", length_name(length_ns))));
    }
    let mut aggregator = Aggregator::new(length_ns);
    for idx in 0..bars.len() {
        let bar = bars.bar(idx);
        let start = bar.time_ns;
        if start.rem_euclid(length_ns) > length_ns - step_ns {
            let reason = format!("the bar of {} lies in two bars of {}", format_time(start), length_name(length_ns));
            return Err(DataError::new(path, reason, "choose a --bar that the file's bars fill"));
        }
        let bin = aggregator.bin(idx as u64, start);
        bin.take_prices(Prices {
            open: bar.open,
            high: bar.high,
            low: bar.low,
            close: bar.close,
            open_time_ns: start,
            close_time_ns: start,
        });
        let [n_trades, signed_volume, spread, microprice_offset] = bar.measured;
        bin.volume += bar.volume;
        bin.n_trades += n_trades;
        bin.signed_volume += signed_volume;
        bin.spread_sum += spread;
        bin.n_spreads += 1.0;
        bin.microprice_offset = microprice_offset;
    }
    let mut longer = Bars::with_measures(&bars.measures());
    aggregator.finish().for_each(|(_, bar)| longer.push(&bar));
    (longer.symbol, longer.interval_ns) = (bars.symbol, length_ns);
    Ok(longer)
}

/// A length of bars for people: `5m`, `90s`, `1d`.
pub fn length_name(length_ns: i64) -> String {
    for (unit, name) in [(86_400 * SECOND_NS, "d"), (3_600 * SECOND_NS, "h"), (60 * SECOND_NS, "m"), (SECOND_NS, "s")] {
        if length_ns >= unit && length_ns % unit == 0 {
            return format!("{}{name}", length_ns / unit);
        }
    }
    if length_ns == 0 { "unknown".into() } else { format!("{length_ns}ns") }
}

/// The columns that ticks of a kind measure.
pub(super) const TRADES_AND_QUOTES: &[Measure] = &Measure::ALL;
/// Trades alone: the spread is the bounce between buyers' and sellers' trades.
pub(super) const TRADES_ONLY: &[Measure] = &[Measure::Trades, Measure::SignedVolume, Measure::Spread];
/// Quotes alone.
pub(super) const QUOTES_ONLY: &[Measure] = &[Measure::Spread, Measure::MicropriceOffset];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_in_any_order_make_the_same_bars() {
        let ticks = [(0, 10.0, 1.0), (59, 12.0, -2.0), (60, 9.0, 3.0), (61, 8.0, 1.0), (200, 11.0, 5.0)];
        let bars_of = |ticks: &[(i64, f64, f64)]| {
            let mut aggregator = Aggregator::new(60);
            for &(time, price, size) in ticks {
                aggregator.trade(1, time, price, size.abs(), size);
            }
            aggregator
                .finish()
                .map(|(_, b)| (b.time_ns, b.open, b.high, b.low, b.close, b.volume, b.measured[1]))
                .collect()
        };
        let sorted: Vec<_> = bars_of(&ticks);
        assert_eq!(
            sorted,
            [
                (0, 10.0, 12.0, 10.0, 12.0, 3.0, -1.0),
                (60, 9.0, 9.0, 8.0, 8.0, 4.0, 4.0),
                (180, 11.0, 11.0, 11.0, 11.0, 5.0, 5.0)
            ]
        );
        let mut reversed = ticks;
        reversed.reverse();
        assert_eq!(bars_of(&reversed), sorted);
    }

    #[test]
    fn a_bar_without_a_quote_carries_the_last_one_and_never_a_later_one() {
        let mut aggregator = Aggregator::new(10);
        for time in [1, 11, 21, 31] {
            aggregator.trade(1, time, 5.0, 1.0, 0.0);
        }
        aggregator.spread(2, 12, 0.1);
        aggregator.spread(2, 13, 0.3);
        aggregator.spread(3, 35, 0.7);
        let spreads: Vec<f64> = aggregator.finish().map(|(_, bar)| bar.measured[2]).collect();
        assert!(spreads[0].is_nan());
        assert_eq!(spreads[1..], [0.2, 0.2, 0.7]);
    }

    fn minutes(starts: &[i64]) -> Bars {
        let mut bars = Bars::default();
        for (i, &start) in starts.iter().enumerate() {
            let p = 10.0 + i as f64;
            bars.push(&Bar {
                time_ns: start,
                open: p,
                high: p + 2.0,
                low: p - 1.0,
                close: p + 1.0,
                volume: 1.0,
                measured: [f64::NAN; Measure::COUNT],
            });
        }
        bars.interval_ns = bars.commonest_step_ns();
        bars
    }

    #[test]
    fn longer_bars_hold_whole_shorter_ones() {
        let longer = lengthen("x".as_ref(), minutes(&[0, 1, 2, 5, 6, 7]), 5).expect("minutes fill five");
        assert_eq!((longer.time_ns, longer.open, longer.close), (vec![0, 5], vec![10.0, 13.0], vec![13.0, 16.0]));
        assert_eq!((longer.high, longer.low, longer.volume), (vec![14.0, 17.0], vec![9.0, 12.0], vec![3.0, 3.0]));
        assert!(lengthen("x".as_ref(), minutes(&[0, 2, 4, 6]), 5).is_err(), "the third straddles 5");
        assert!(lengthen("x".as_ref(), minutes(&[0, 7, 14]), 5).is_err(), "longer already");
    }
}
