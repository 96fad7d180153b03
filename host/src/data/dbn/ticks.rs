//! Trades and quotes on their way into bars.

use super::{Kind, price_of};
use crate::data::aggregate::{Aggregator, QUOTES_ONLY, TRADES_AND_QUOTES, TRADES_ONLY};
use crate::data::error::Place;
use crate::data::faults::FaultKind;
use crate::data::intake::Intake;
use ::dbn::{BboMsg, BidAskPair, Mbp1Msg, Mbp10Msg, RecordRef, TradeMsg, UNDEF_PRICE, UNDEF_TIMESTAMP};

/// The ticks of one instrument.
#[derive(Debug)]
pub(super) struct Ticks {
    kind: Kind,
    aggregator: Aggregator,
    intake: Intake,
    /// The last trade whose aggressor is known: its price and whether the buyer was it.
    last_aggressor: Option<(f64, bool)>,
    n_taken: u64,
}

/// A trade as all schemas hold it.
struct Trade {
    price: i64,
    size: u32,
    side: u8,
}

impl Ticks {
    pub(super) fn new(kind: Kind, bar_ns: i64) -> Self {
        let measures = match kind {
            Kind::Trades => TRADES_ONLY,
            Kind::Bbo => QUOTES_ONLY,
            Kind::Ohlcv | Kind::Mbp1 | Kind::Mbp10 => TRADES_AND_QUOTES,
        };
        let intake = Intake::new(measures, Place::Record);
        Self { kind, aggregator: Aggregator::new(bar_ns), intake, last_aggressor: None, n_taken: 0 }
    }

    /// Records taken so far.
    pub(super) fn n_taken(&self) -> u64 {
        self.n_taken
    }

    /// The time that puts a record into its bar: that of the event; for `bbo`, the last nanosecond of the interval
    /// that it closes, since a sample of 10:01:00 tells what held until then. None if the record is cut.
    pub(super) fn time_of(kind: Kind, record: &RecordRef<'_>) -> Option<u64> {
        match kind {
            Kind::Bbo => {
                let end = record.try_get::<BboMsg>().ok()?.ts_recv;
                Some(if end == UNDEF_TIMESTAMP { end } else { end.saturating_sub(1) })
            }
            _ => Some(record.header().ts_event),
        }
    }

    /// The time as it is used here. Undefined ones are counted as dropped, those past 2262 as faults.
    pub(super) fn defined_time(&mut self, number: u64, time: u64) -> Option<i64> {
        let time_ns = i64::try_from(time).ok();
        if time == UNDEF_TIMESTAMP {
            self.intake.repairs.undefined_times_dropped += 1;
        } else if time_ns.is_none() {
            self.intake.fault(number, FaultKind::BadTime, || "time lies outside the years 1970 to 2262".into());
        }
        time_ns
    }

    /// Takes a record in. None if it is cut.
    pub(super) fn take(&mut self, number: u64, time_ns: i64, record: &RecordRef<'_>) -> Option<()> {
        const TRADE: u8 = b'T';
        let (trade, quote) = match self.kind {
            Kind::Trades => {
                let m: &TradeMsg = record.try_get().ok()?;
                (Some(Trade { price: m.price, size: m.size, side: m.side as u8 }), None)
            }
            Kind::Mbp1 => {
                let m: &Mbp1Msg = record.try_get().ok()?;
                let trade = Trade { price: m.price, size: m.size, side: m.side as u8 };
                (Some(trade).filter(|_| m.action as u8 == TRADE), Some(&m.levels[0]))
            }
            Kind::Mbp10 => {
                let m: &Mbp10Msg = record.try_get().ok()?;
                let trade = Trade { price: m.price, size: m.size, side: m.side as u8 };
                (Some(trade).filter(|_| m.action as u8 == TRADE), Some(&m.levels[0]))
            }
            Kind::Bbo => (None, Some(&record.try_get::<BboMsg>().ok()?.levels[0])),
            Kind::Ohlcv => return None,
        };
        self.n_taken += 1;
        if let Some(trade) = trade {
            self.take_trade(number, time_ns, &trade);
        }
        if let Some(quote) = quote {
            self.take_quote(number, time_ns, quote);
        }
        Some(())
    }

    fn take_trade(&mut self, number: u64, time_ns: i64, trade: &Trade) {
        if trade.price == UNDEF_PRICE {
            self.intake.repairs.undefined_prices_dropped += 1;
            return;
        }
        let (price, size) = (price_of(trade.price), f64::from(trade.size));
        let buyer = match trade.side {
            b'B' => Some(true),
            b'A' => Some(false),
            _ => None,
        };
        let signed_size = buyer.map_or(0.0, |buyer| if buyer { size } else { -size });
        self.aggregator.trade(number, time_ns, price, size, signed_size);
        if let (Kind::Trades, Some(buyer)) = (self.kind, buyer) {
            self.take_bounce(number, time_ns, price, buyer);
        }
    }

    /// Without quotes, what a buyer paid less what a seller got, from one trade to the next, is the spread.
    fn take_bounce(&mut self, number: u64, time_ns: i64, price: f64, buyer: bool) {
        if let Some((last_price, last_buyer)) = self.last_aggressor.replace((price, buyer))
            && buyer != last_buyer
        {
            let paid_more = if buyer { price - last_price } else { last_price - price };
            self.aggregator.spread(number, time_ns, paid_more.max(0.0) / ((price + last_price) / 2.0));
        }
    }

    /// A side without a price is an empty level and makes no quote; nor does a crossed book.
    fn take_quote(&mut self, number: u64, time_ns: i64, quote: &BidAskPair) {
        let (bid, ask) = (quote.bid_px, quote.ask_px);
        if bid == UNDEF_PRICE || ask == UNDEF_PRICE || bid <= 0 || ask < bid {
            return;
        }
        let (bid, ask) = (price_of(bid), price_of(ask));
        let (bid_size, ask_size) = (f64::from(quote.bid_sz), f64::from(quote.ask_sz));
        let mid = (bid + ask) / 2.0;
        self.aggregator.spread(number, time_ns, (ask - bid) / mid);
        // The microprice leans towards the side with less size waiting (Stoikov 2018, the weighted mid).
        let sizes = bid_size + ask_size;
        let microprice = if sizes > 0.0 { (bid * ask_size + ask * bid_size) / sizes } else { mid };
        self.aggregator.microprice_offset(number, time_ns, (microprice - mid) / mid);
        if self.kind == Kind::Bbo {
            self.aggregator.price(number, time_ns, mid);
        }
    }

    /// The bars. Those before the first quote are dropped and counted: no spread is known for them.
    pub(super) fn into_bars(mut self) -> Intake {
        for (number, bar) in self.aggregator.finish() {
            let [_, _, spread, microprice_offset] = bar.measured;
            let has_quote = !spread.is_nan() && (self.kind == Kind::Trades || !microprice_offset.is_nan());
            if has_quote {
                self.intake.push(number, &bar);
            } else {
                self.intake.repairs.bars_before_first_quote_dropped += 1;
            }
        }
        self.intake
    }
}
