//! Orders, fills and what they do to a position: one bar of one environment.
//!
//! With close_t = 1, x the fill price - 1, m the next close - 1, w the position before and w' after it, all costs as
//! fractions:
//!
//! equity_{t+1} / equity_t = (1 + w x - financing) (1 - fee |w' - w|) (1 + w' ((1 + m) / (1 + x) - 1))
//!
//! or 1 + w m - financing without a fill. A decision on bar t fills on bar t + 1 alone:
//!
//! | order | fills | price | fee |
//! |---|---|---|---|
//! | market, buy (sell) | always | open plus (minus) half spread | taker |
//! | limit L, buy | if low <= L - half spread | min(L, open) | maker |
//! | limit L, sell | if high >= L + half spread | max(L, open) | maker |
//!
//! L is close_t, or half of the half spread from it towards the market (a buy higher, a sell lower). The half spread is the
//! decision bar's where the limit is placed, and the fill bar's where the fill is judged and priced.
//!
//! f32 suffices: every term is a small move with its own relative precision (2^-24), never a difference of prices, so a
//! bar's return is within a few 2^-24 of its largest term; a path's sum of returns is taken on the host in f64.

use shared_types::market::{SIZES, direction, order};
use shared_types::{BarRecord, EnvParams, EnvState, MarketBar};

/// Share of the equity that is always left, so that its logarithm is finite: a factor at or under it is ruin.
pub const LEAST_FACTOR: f32 = 1e-6;

/// How an order was filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Price / close of the decision bar - 1.
    pub price: f32,
    /// Fee, of the value traded.
    pub fee: f32,
    /// Spread paid, of the value traded.
    pub spread: f32,
}

/// The position that an action asks for; `None` for no order.
#[inline]
pub fn target(action: [u8; 4], kelly_cap: f32) -> Option<f32> {
    let size = choice(SIZES, action[1]) * kelly_cap;
    match action[0] {
        direction::SHORT => Some(-size),
        direction::LONG => Some(size),
        direction::FLAT => Some(0.0),
        _ => None,
    }
}

/// A branch's choice; the last one for an index past it. By comparison: an index would put the array into local memory.
#[inline]
fn choice<T: Copy>(values: [T; 3], index: u8) -> T {
    let [first, second, third] = values;
    match index {
        0 => first,
        1 => second,
        _ => third,
    }
}

/// What the order decided on the bar `decided` gets on the next bar, `next`.
#[inline]
pub fn fill(buys: bool, kind: u8, decided: &MarketBar, next: &MarketBar, params: &EnvParams) -> Option<Fill> {
    let sign = if buys { 1.0 } else { -1.0 };
    let half_spread = next.half_spread * params.cost_scale;
    let (taker, maker) = (params.taker * params.cost_scale, params.maker * params.cost_scale);
    if kind == order::MARKET {
        let price = next.open + sign * half_spread * (1.0 + next.open);
        return Some(Fill { price, fee: taker, spread: half_spread });
    }
    let limit = if kind == order::LIMIT_AT_CLOSE { 0.0 } else { sign * 0.5 * decided.half_spread * params.cost_scale };
    let reached = if buys { next.low <= limit - half_spread } else { next.high >= limit + half_spread };
    let price = if buys { limit.min(next.open) } else { limit.max(next.open) };
    reached.then_some(Fill { price, fee: maker, spread: 0.0 })
}

/// Takes an environment over the next bar: order, fill, profit, holds. The episode's account is not touched.
///
/// `action` is what was chosen; while a minimum hold runs, what is executed and recorded is `hold`.
#[inline]
pub fn trade(
    state: &mut EnvState,
    mut action: [u8; 4],
    kelly_cap: f32,
    decided: &MarketBar,
    next: &MarketBar,
    params: &EnvParams,
) -> BarRecord {
    if state.hold_left > 0 {
        action[0] = direction::HOLD;
        state.hold_left -= 1;
    }
    state.last_direction = action[0] as u32;
    state.bar += 1;
    let mut record = BarRecord { bar: state.bar, action, ..BarRecord::default() };

    let before = state.position;
    let financing = (-before).max(0.0) * params.short_financing * params.cost_scale * next.elapsed_years;
    let mut equity = Equity { change: 0.0, ruined: false };
    record.cost = financing;

    let asked = target(action, kelly_cap).filter(|after| *after != before);
    let kind = if params.flags & EnvParams::MARKET_ORDERS_ONLY != 0 { order::MARKET } else { action[2] };
    if asked.is_some() && kind != order::MARKET {
        record.flags |= BarRecord::LIMIT;
    }
    let filled = asked.and_then(|after| Some((after, fill(after > before, kind, decided, next, params)?)));

    match filled {
        None => {
            equity.multiply(before * next.close - financing);
            state.unrealised += before * next.close;
            state.trade_return += before * next.close - financing;
            state.bars_held += (before != 0.0) as u32;
        }
        Some((after, fill)) => {
            let traded = (after - before).abs();
            let gap = before * fill.price;
            let rest = after * ((next.close - fill.price) / (1.0 + fill.price));
            equity.multiply(gap - financing);
            equity.multiply(-fill.fee * traded);
            equity.multiply(rest);

            record.flags |= BarRecord::FILLED;
            record.turnover = traded;
            record.cost += (fill.fee + fill.spread) * traded;
            state.hold_left = choice(params.min_hold, action[3]).saturating_sub(1);
            state.position = after;

            let goes_on = before * after > 0.0;
            if goes_on {
                let kept = (after.abs() / before.abs()).min(1.0);
                state.unrealised = (state.unrealised + gap) * kept + rest;
                state.trade_return += gap - financing - fill.fee * traded + rest;
                state.bars_held += 1;
            } else {
                if before != 0.0 {
                    record.flags |= BarRecord::CLOSED;
                    record.closed_return = state.trade_return + gap - financing - fill.fee * before.abs();
                }
                state.unrealised = rest;
                state.trade_return = rest - fill.fee * after.abs();
                state.bars_held = (after != 0.0) as u32;
            }
        }
    }
    if equity.ruined {
        wipe_out(state, &mut record);
    }
    record.net_return = equity.change;
    record.position = state.position;
    record
}

/// Closes the position at the close of the bar that `record` is of, less half spread and taker fee: the end of a path.
#[inline]
pub fn close_out(state: &mut EnvState, record: &mut BarRecord, bar: &MarketBar, params: &EnvParams) {
    let held = state.position.abs();
    if held == 0.0 {
        return;
    }
    let (spread, fee) = (bar.half_spread * params.cost_scale, params.taker * params.cost_scale);
    let mut equity = Equity { change: record.net_return, ruined: false };
    equity.multiply(-spread * held);
    equity.multiply(-fee * held);
    record.net_return = equity.change;
    record.turnover += held;
    record.cost += (spread + fee) * held;
    record.closed_return = state.trade_return - (spread + fee) * held;
    record.flags |= BarRecord::CLOSED | BarRecord::FILLED;
    record.position = 0.0;
    flatten(state);
    if equity.ruined {
        wipe_out(state, record);
    }
}

fn wipe_out(state: &mut EnvState, record: &mut BarRecord) {
    if state.position != 0.0 {
        record.closed_return = state.trade_return;
    }
    record.flags |= BarRecord::RUINED | BarRecord::CLOSED;
    flatten(state);
}

fn flatten(state: &mut EnvState) {
    state.position = 0.0;
    state.unrealised = 0.0;
    state.trade_return = 0.0;
    state.bars_held = 0;
}

/// Equity's change so far, of its value at the bar's start. Once lost it stays lost: a second factor under zero would
/// otherwise make it positive again.
struct Equity {
    change: f32,
    ruined: bool,
}

impl Equity {
    /// Multiplies by 1 + `change`.
    #[inline]
    fn multiply(&mut self, change: f32) {
        self.change += change + self.change * change;
        if self.ruined || 1.0 + change <= LEAST_FACTOR || 1.0 + self.change <= LEAST_FACTOR {
            *self = Self { change: LEAST_FACTOR - 1.0, ruined: true };
        }
    }
}
