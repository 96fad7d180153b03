//! Orders, fills, holds and costs, worked by hand. Moves and costs are sixty-fourths, so most answers are exact.

use gpu_kernels::market::account::Recent;
use gpu_kernels::market::trading::{fill, target};
use host::device::Device;
use onegraph_tests::{Case, Outcome, case};
use shared_types::market::{direction, order};
use shared_types::{BarRecord, EnvParams, MarketBar};

use crate::world::{Lab, bar64, ensure, round_params};

pub fn cases() -> Vec<Case> {
    vec![
        case("targets_by_hand", targets_by_hand),
        case("case_n_an_order_fills_on_the_next_bar_alone", case_n_an_order_fills_on_the_next_bar_alone),
        case("case_n_a_gap_through_a_limit_fills_at_the_open", case_n_a_gap_through_a_limit_fills_at_the_open),
        case("limit_orders_by_hand", limit_orders_by_hand),
        case("case_o_a_round_trip_costs_two_fees_and_the_spread", case_o_a_round_trip_costs_two_fees_and_the_spread),
        case("case_o_a_reversal_realises_the_closed_part", case_o_a_reversal_realises_the_closed_part),
        case("a_reduction_keeps_its_share_of_the_profit", a_reduction_keeps_its_share_of_the_profit),
        case("the_gap_belongs_to_the_old_position", the_gap_belongs_to_the_old_position),
        case("minimum_hold_counts_from_the_fill", minimum_hold_counts_from_the_fill),
        case("an_unfilled_limit_is_stored_as_chosen", an_unfilled_limit_is_stored_as_chosen),
        case("costs_scale_and_market_orders_alone", costs_scale_and_market_orders_alone),
        case("a_short_pays_financing_by_time", a_short_pays_financing_by_time),
        case("case_p_ruin_ends_trading_at_minus_one", case_p_ruin_ends_trading_at_minus_one),
        case("kelly_fraction_by_hand", kelly_fraction_by_hand),
    ]
}

const FULL: u8 = 2;
const LONG: [u8; 4] = [direction::LONG, FULL, order::MARKET, 0];
const SHORT: [u8; 4] = [direction::SHORT, FULL, order::MARKET, 0];
const FLAT: [u8; 4] = [direction::FLAT, FULL, order::MARKET, 0];
const HOLD: [u8; 4] = [direction::HOLD, FULL, order::MARKET, 0];

/// A bar on which nothing moves.
fn still() -> MarketBar {
    bar64(0, 0, 0, 0)
}

/// No costs.
fn free() -> EnvParams {
    EnvParams { cost_scale: 0.0, ..round_params() }
}

fn close_to(got: f32, want: f64) -> bool {
    (got as f64 - want).abs() <= 4.0 * f32::EPSILON as f64 * want.abs().max(1.0 / 64.0)
}

fn targets_by_hand(_: &Device) -> Outcome {
    for (action, cap, want) in [
        ([direction::SHORT, 0, 0, 0], 0.75, Some(-0.25)),
        ([direction::LONG, 1, 0, 0], 0.75, Some(0.5)),
        ([direction::LONG, 2, 0, 0], 0.75, Some(0.75)),
        ([direction::FLAT, 2, 0, 0], 0.75, Some(0.0)),
        ([direction::HOLD, 2, 0, 0], 0.75, None),
        ([200, 200, 200, 200], 0.75, None),
    ] {
        ensure!(target(action, cap) == want, "{action:?}: {:?}, {want:?} expected", target(action, cap));
    }
    Ok(())
}

/// Decided on bar 0, whose own prices offer a better fill; bar 1 opens 4/64 higher.
fn case_n_an_order_fills_on_the_next_bar_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let bars = [bar64(-9, 9, -9, 0), bar64(4, 5, 3, 5), still(), still()];
    let records = lab.play(&bars, &free(), 1.0, &[LONG, HOLD, HOLD])?;
    // From 68/64 to 69/64.
    ensure!(close_to(records[0].net_return, 1.0 / 68.0), "{:?}", records[0]);
    ensure!(records[0].bar == 1 && records[0].position == 1.0, "{:?}", records[0]);
    // A limit decided on bar 0 at its close does not fill on bar 0, which traded through it, nor later than bar 1.
    let limit = [direction::LONG, FULL, order::LIMIT_AT_CLOSE, 0];
    let bars = [bar64(-9, 9, -9, 0), bar64(4, 5, 3, 5), bar64(-30, 0, -30, 0), still()];
    let records = lab.play(&bars, &round_params(), 1.0, &[limit, HOLD, HOLD])?;
    ensure!(records.iter().all(|record| record.flags & BarRecord::FILLED == 0), "{records:?}");
    ensure!(records.iter().all(|record| record.net_return == 0.0), "{records:?}");
    Ok(())
}

/// Buy limit 0, open -8/64: filled at the open, the better price. Sell mirrored.
fn case_n_a_gap_through_a_limit_fills_at_the_open(_: &Device) -> Outcome {
    let params = round_params();
    for (buys, next, want) in [(true, bar64(-8, -7, -9, -8), -8.0), (false, bar64(8, 9, 7, 8), 8.0)] {
        let got = fill(buys, order::LIMIT_AT_CLOSE, &still(), &next, &params).ok_or("not filled")?;
        ensure!(got.price == want / 64.0 && got.fee == params.maker && got.spread == 0.0, "{got:?}");
    }
    Ok(())
}

/// Half spread 1/64. At the close: L = 0, filled from low <= -1/64. Inside: L = +1/128 for a buy, filled from
/// low <= -1/128. Sells mirrored.
fn limit_orders_by_hand(_: &Device) -> Outcome {
    let params = round_params();
    let unit = 1.0 / 256.0;
    for (kind, open, low, want) in [
        (order::LIMIT_AT_CLOSE, 2, -4, Some(0)),
        (order::LIMIT_AT_CLOSE, 2, -3, None),
        (order::LIMIT_AT_CLOSE, -1, -4, Some(-1)),
        (order::LIMIT_INSIDE, 4, -2, Some(2)),
        (order::LIMIT_INSIDE, 4, -1, None),
        (order::LIMIT_INSIDE, 1, -2, Some(1)),
        (order::LIMIT_INSIDE, -4, -4, Some(-4)),
    ] {
        for buys in [true, false] {
            let side = if buys { unit } else { -unit };
            let (open, far) = (open as f32 * side, low as f32 * side);
            let next = MarketBar { open, high: open.max(far), low: open.min(far), ..still() };
            let got = fill(buys, kind, &still(), &next, &params).map(|fill| fill.price);
            let want = want.map(|price| price as f32 * side);
            ensure!(got == want, "buys {buys}, order {kind}, open {open}, far {far}: {got:?}, {want:?} expected");
        }
    }
    // The limit is placed by the half spread of the bar that decides, 4/64, and judged by the one of the bar that fills.
    let decided = MarketBar { half_spread: 4.0 / 64.0, ..still() };
    let got = fill(true, order::LIMIT_INSIDE, &decided, &bar64(3, 3, 1, 2), &params).map(|fill| fill.price);
    ensure!(got == Some(2.0 / 64.0), "{got:?}");
    Ok(())
}

/// Flat price, half spread 1/64, taker 1/32: in at 65/64, out at 63/64, a fee each: (31/32)^2 63/65. Then with the usual
/// costs, 1 bp and 2 bp: 6 bp, less what compounding saves.
fn case_o_a_round_trip_costs_two_fees_and_the_spread(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let total = |records: &[BarRecord]| records.iter().map(|r| 1.0 + r.net_return as f64).product::<f64>();
    for (first, name) in [(LONG, "long"), (SHORT, "short")] {
        let records = lab.play(&[still(); 5], &round_params(), 1.0, &[first, FLAT, HOLD, HOLD])?;
        let (buy, sell) = (65.0 / 64.0, 63.0 / 64.0);
        // A short sells at 63/64 and is marked at 1, then buys at 65/64.
        let want = if first == LONG {
            (31.0f64 / 32.0).powi(2) * sell / buy
        } else {
            (31.0f64 / 32.0).powi(2) * (1.0 - (1.0 / sell - 1.0)) * (1.0 - (buy - 1.0))
        };
        ensure!((total(&records) / want - 1.0).abs() < 4e-7, "{name}: {} for {want}", total(&records));
        ensure!(records[1].flags & BarRecord::CLOSED != 0, "{:?}", records[1]);
        ensure!(records[0].turnover == 1.0 && records[1].turnover == 1.0, "{name}");
        ensure!(records[0].cost == 3.0 / 64.0 && records[1].cost == 3.0 / 64.0, "{name}: {:?}", records[0]);
        ensure!(records[2..].iter().all(|record| record.net_return == 0.0), "{name}: costs after the trip");
    }
    let params = EnvParams { taker: 2e-4, ..round_params() };
    let bar = MarketBar { half_spread: 1e-4, ..MarketBar::default() };
    let records = lab.play(&[bar; 5], &params, 1.0, &[LONG, FLAT, HOLD, HOLD])?;
    let want = (1.0f64 - 2e-4).powi(2) * (1.0 - 1e-4) / (1.0 + 1e-4);
    ensure!((total(&records) - want).abs() < 1e-9, "{} for {want}", total(&records));
    Ok(())
}

/// Long at 64/64, up to 72/64; the reversal fills 4/64 of 72/64 higher: the long earned 8/64 + 4/64 of equity, and what
/// the short does from there is not in it.
fn case_o_a_reversal_realises_the_closed_part(device: &Device) -> Outcome {
    let bars = [still(), bar64(0, 8, 0, 8), bar64(4, 5, -8, -8), bar64(0, 16, 0, 16), still()];
    let records = Lab::new(device)?.play(&bars, &free(), 1.0, &[LONG, SHORT, HOLD, HOLD])?;
    ensure!(records[0].flags & BarRecord::CLOSED == 0, "{:?}", records[0]);
    ensure!(records[1].flags & BarRecord::CLOSED != 0, "{:?}", records[1]);
    ensure!(records[1].closed_return == 12.0 / 64.0, "{:?}", records[1]);
    ensure!(records[1].turnover == 2.0 && records[1].position == -1.0, "{:?}", records[1]);
    let want = (1.0 + 4.0 / 64.0) * (1.0 + 12.0 / 68.0) - 1.0;
    ensure!(close_to(records[1].net_return, want), "{:?}, {want} expected", records[1]);
    ensure!(close_to(records[2].net_return, -16.0 / 64.0), "{:?}", records[2]);
    // Closed at the end: the short's own 12/68 - 16/64, without the long's.
    let last = records[3];
    ensure!(close_to(last.closed_return, 12.0 / 68.0 - 16.0 / 64.0), "{last:?}");
    ensure!(last.position == 0.0 && last.flags & BarRecord::CLOSED != 0, "{last:?}");
    Ok(())
}

/// From 1 to 1/3 after a rise of 6/64: the trade goes on, and two thirds of the value are traded.
fn a_reduction_keeps_its_share_of_the_profit(device: &Device) -> Outcome {
    let bars = [still(), bar64(0, 6, 0, 6), still(), still()];
    let third = [direction::LONG, 0, order::MARKET, 0];
    let records = Lab::new(device)?.play(&bars, &free(), 1.0, &[LONG, third, HOLD])?;
    ensure!(records[1].flags == BarRecord::FILLED, "{:?}", records[1]);
    ensure!((records[1].turnover - 2.0 / 3.0).abs() < 1e-7, "{:?}", records[1]);
    ensure!((records[1].position - 1.0 / 3.0).abs() < 1e-7, "{:?}", records[1]);
    ensure!(records[2].closed_return == 6.0 / 64.0, "{:?}", records[2]);
    Ok(())
}

/// Long over a gap of 8/64 and out at that open: the gap is earned whole, what follows not.
fn the_gap_belongs_to_the_old_position(device: &Device) -> Outcome {
    let bars = [still(), still(), bar64(8, 8, -20, -20), still()];
    let records = Lab::new(device)?.play(&bars, &free(), 0.5, &[LONG, FLAT, HOLD])?;
    ensure!(records[1].net_return == 4.0 / 64.0, "{:?}", records[1]);
    Ok(())
}

/// Hold 4, filled on bar 1: decisions on bars 1, 2, 3 are ignored and stored as `hold`, the one on bar 4 fills on bar 5.
/// Hold 1: the next decision counts.
fn minimum_hold_counts_from_the_fill(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let long_4 = [direction::LONG, FULL, order::MARKET, 2];
    let short_1 = [direction::SHORT, 1, order::MARKET, 0];
    let records =
        lab.play(&[still(); 9], &free(), 1.0, &[long_4, short_1, short_1, short_1, short_1, FLAT, HOLD, HOLD])?;
    let stored: Vec<[u8; 4]> = records.iter().map(|record| record.action).collect();
    let ignored = [direction::HOLD, 1, order::MARKET, 0];
    ensure!(stored[..6] == [long_4, ignored, ignored, ignored, short_1, FLAT], "{stored:?}");
    let positions: Vec<f32> = records.iter().map(|record| record.position).collect();
    ensure!(positions[..6] == [1.0, 1.0, 1.0, 1.0, -2.0 / 3.0, 0.0], "{positions:?}");
    Ok(())
}

fn an_unfilled_limit_is_stored_as_chosen(device: &Device) -> Outcome {
    let limit = [direction::SHORT, 1, order::LIMIT_INSIDE, 2];
    let records = Lab::new(device)?.play(&[still(); 4], &round_params(), 1.0, &[limit, LONG, HOLD])?;
    ensure!(records[0].action == limit && records[0].flags == BarRecord::LIMIT, "{:?}", records[0]);
    ensure!(records[0].turnover == 0.0 && records[0].cost == 0.0, "{:?}", records[0]);
    // And no hold began.
    ensure!(records[1].action == LONG && records[1].position == 1.0, "{:?}", records[1]);
    Ok(())
}

fn costs_scale_and_market_orders_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (scale, want) in [(0.5, 1.5 / 64.0), (2.0, 6.0 / 64.0)] {
        let params = EnvParams { cost_scale: scale, ..round_params() };
        let records = lab.play(&[still(); 3], &params, 1.0, &[LONG, HOLD])?;
        ensure!(records[0].cost == want, "{scale}: {:?}", records[0]);
    }
    let params = EnvParams { flags: EnvParams::MARKET_ORDERS_ONLY, ..round_params() };
    let limit = [direction::LONG, FULL, order::LIMIT_INSIDE, 0];
    let records = lab.play(&[still(); 3], &params, 1.0, &[limit, HOLD])?;
    ensure!(records[0].flags == BarRecord::FILLED && records[0].action == limit, "{:?}", records[0]);
    Ok(())
}

/// 1/8 a year on a short of 1, half a year a bar: 1/16 from the second bar on; a long pays nothing.
fn a_short_pays_financing_by_time(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let params = EnvParams { short_financing: 0.125, taker: 0.0, ..round_params() };
    let bar = MarketBar { elapsed_years: 0.5, ..MarketBar::default() };
    let records = lab.play(&[bar; 4], &params, 1.0, &[SHORT, HOLD, HOLD])?;
    let returns: Vec<f32> = records.iter().map(|record| record.net_return).collect();
    ensure!(returns == [0.0, -0.0625, -0.0625], "{returns:?}");
    let records = lab.play(&[bar; 4], &params, 1.0, &[LONG, HOLD, HOLD])?;
    ensure!(records.iter().all(|record| record.net_return == 0.0), "{records:?}");
    Ok(())
}

/// Short through a price that rises a thousandfold: the equity is lost once, and two negative factors do not revive it.
fn case_p_ruin_ends_trading_at_minus_one(device: &Device) -> Outcome {
    let jump = MarketBar { open: 999.0, high: 999.0, low: 0.0, close: 999.0, ..still() };
    let bars = [still(), still(), jump, still(), jump, still()];
    for second in [HOLD, LONG, FLAT] {
        let records = Lab::new(device)?.play(&bars, &round_params(), 1.0, &[SHORT, second, LONG, LONG, SHORT])?;
        ensure!(records[1].net_return == -1.0 && records[1].position == 0.0, "{:?}", records[1]);
        ensure!(records[1].flags & BarRecord::RUINED != 0, "{:?}", records[1]);
        ensure!(
            records[2..].iter().all(|r| r.net_return == 0.0 && r.position == 0.0 && r.turnover == 0.0),
            "{records:?}"
        );
    }
    Ok(())
}

/// Twenty returns of mean m and deviation d: 0.5 m / d^2, between 0 and 1; 1 when young or flat.
fn kelly_fraction_by_hand(_: &Device) -> Outcome {
    let of = |n: u32, high: f32, low: f32| Recent::of(n, |slot| if slot % 2 == 0 { high } else { low }).kelly();
    // Mean 1/1024, deviation 1/16: 0.5 * 256 / 1024 = 1/8, less 1e-8 of 1/256.
    let (mean, off) = (1.0 / 1024.0, 1.0 / 16.0);
    ensure!((of(20, mean + off, mean - off) - 0.125).abs() < 1e-6, "{}", of(20, mean + off, mean - off));
    ensure!(of(1000, off - mean, -off - mean) == 0.0, "a losing environment bets");
    ensure!(of(20, 0.02, 0.01) == 1.0, "the cap of 1");
    ensure!(of(19, off, -off) == 1.0, "under 20 bars");
    ensure!(of(20, 0.001, 0.001) == 1.0, "flat");
    Ok(())
}
