//! No look-ahead: a future that is replaced changes no bit of what came before.

use std::ops::Range;

use host::data::Bars;
use host::device::Device;
use host::market::paths::Paths;
use host::market::rules::{Costs, Rules};
use onegraph_tests::{Case, Failed, Outcome, case};
use shared_types::market::N_FEATURES;

use crate::world::{Lab, Measured, World, bits, bus, bytes, ensure, made_up, uniform};

pub fn cases() -> Vec<Case> {
    vec![
        case("i8_features_do_not_see_the_future", i8_features_do_not_see_the_future),
        case("case_m_a_bar_enters_features_when_it_has_ended", case_m_a_bar_enters_features_when_it_has_ended),
        case("i8_bars_after_the_training_part_fit_nothing", i8_bars_after_the_training_part_fit_nothing),
        case("i8_orders_fills_and_returns_do_not_see_the_future", i8_orders_fills_and_returns),
    ]
}

/// `past` up to bar `from`, `future`'s bars from it on at three times the price; and bar `from` trades no volume, or some
/// where there was none, so that a peek at whether it does is seen too.
fn joined(past: &Bars, future: &Bars, from: usize) -> Bars {
    let mut bars = past.clone();
    let factor = 3.0 * past.close[from - 1] / future.close[from - 1];
    for t in from..bars.len() {
        bars.time_ns[t] = future.time_ns[t] - future.time_ns[from - 1] + past.time_ns[from - 1];
        bars.open[t] = future.open[t] * factor;
        bars.high[t] = future.high[t] * factor;
        bars.low[t] = future.low[t] * factor;
        bars.close[t] = future.close[t] * factor;
        bars.volume[t] = 7.0 * future.volume[t] + 1.0;
    }
    bars.volume[from] = if past.volume[from] > 0.0 { 0.0 } else { 1000.0 };
    let columns = |bars: &mut Bars| {
        [&mut bars.trades, &mut bars.signed_volume, &mut bars.spread, &mut bars.microprice_offset].map(std::mem::take)
    };
    let (mut own, other) = (columns(&mut bars), columns(&mut future.clone()));
    for (own, other) in own.iter_mut().zip(&other) {
        if let (Some(own), Some(other)) = (own, other) {
            own[from..].copy_from_slice(&other[from..]);
        }
    }
    [bars.trades, bars.signed_volume, bars.spread, bars.microprice_offset] = own;
    bars
}

fn world(lab: &Lab, bars: &Bars, train: Range<usize>) -> Result<World, Failed> {
    Ok(lab.world(bars, train, &Costs::default())?)
}

/// Unscaled features of every bar before the one that is replaced, for several such bars, with and without measures; and the
/// replaced bars' own features do change, so the comparison can fail.
fn i8_features_do_not_see_the_future(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for measured in [Measured::Nothing, Measured::Everything] {
        let (past, future) = (made_up(420, 41, measured), made_up(420, 42, measured));
        let raw = |bars: &Bars| -> Result<Vec<f64>, Failed> { Ok(world(&lab, bars, 128..420)?.series.raw.read()?) };
        let want = raw(&past)?;
        for from in (129..420).step_by(29) {
            let got = raw(&joined(&past, &future, from))?;
            let end = from * N_FEATURES;
            ensure!(bytes(&got[..end]) == bytes(&want[..end]), "{measured:?}: bars before {from} see it");
            ensure!(bytes(&got[end..]) != bytes(&want[end..]), "{measured:?}: bar {from} does not count");
        }
    }
    Ok(())
}

/// Every feature of bar t is of bars that ended with it or before: a change of bar t + 1 alone leaves bar t, one of bar t
/// changes it (return, range and volatility at least), whichever bar of a longer window t is.
fn case_m_a_bar_enters_features_when_it_has_ended(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let bars = made_up(260, 43, Measured::Everything);
    let raw = |bars: &Bars| -> Result<Vec<f64>, Failed> { Ok(world(&lab, bars, 128..260)?.series.raw.read()?) };
    let want = raw(&bars)?;
    for t in [150, 179, 180, 181, 239] {
        let mut changed = bars.clone();
        changed.close[t] *= 1.01;
        changed.high[t] = changed.high[t].max(changed.close[t]);
        changed.volume[t] += 1.0;
        let got = raw(&changed)?;
        let row = |values: &[f64], t: usize| values[t * N_FEATURES..(t + 1) * N_FEATURES].to_vec();
        ensure!(row(&got, t - 1) == row(&want, t - 1), "bar {} sees bar {t}", t - 1);
        let n_changed = row(&got, t).iter().zip(row(&want, t)).filter(|(got, want)| *got != want).count();
        ensure!(n_changed >= 12, "bar {t} changes {n_changed} of its own features");
    }
    Ok(())
}

/// Scales, bar sigma and volatility table come of the training part (128 to 299) alone, so the scaled features and the
/// environments' bars before bar 300 are the same bits whatever follows.
fn i8_bars_after_the_training_part_fit_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let past = made_up(500, 44, Measured::Everything);
    let changed = joined(&past, &made_up(500, 45, Measured::Everything), 300);
    let (one, other) = (world(&lab, &past, 128..300)?, world(&lab, &changed, 128..300)?);
    ensure!(one.fitted == other.fitted, "something else was fitted");
    let features =
        |world: &World| -> Result<_, Failed> { Ok(bits(&world.market.features.read()?[..300 * N_FEATURES])) };
    ensure!(features(&one)? == features(&other)?, "scaled features differ");
    let (bars, others) = (one.market.bars.read()?, other.market.bars.read()?);
    ensure!(bytes(&bars[..300]) == bytes(&others[..300]), "the environments' bars differ");
    let whole = world(&lab, &changed, 128..500)?;
    ensure!(whole.fitted != one.fitted, "a longer training part fits nothing else: the test shows nothing");
    Ok(())
}

/// A path whose decisions depend on what it sees: with the future replaced from bar 330 on, what it saw up to bar 329, what
/// it ordered, and what it earned up to bar 329 are the same bits.
fn i8_orders_fills_and_returns(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let past = made_up(500, 46, Measured::Everything);
    let changed = joined(&past, &made_up(500, 47, Measured::Everything), 330);
    let rules = Rules {
        window: 4,
        episode_len: 16,
        n_step: 3,
        min_hold: [1, 2, 4],
        lambda_dd: 0.1,
        reward_scale: 0.2,
        her_weight: 0.01,
        costs: Costs::default(),
    };
    let run = |bars: &Bars| -> Result<_, Failed> {
        let world = world(&lab, bars, 128..300)?;
        let params = rules.params(&(128..300), world.fitted.bar_sigma, 3)?;
        let paths = Paths::continuous(device, &params, &bus(0.8), &(300..400))?;
        let rows = device.alloc::<f32>(128)?;
        let mut seen = Vec::new();
        for step in 0..paths.n_steps() {
            lab.runner().run([paths.observe(&world.market, &rows)])?;
            let row = rows.read()?;
            // Follows the last bar's first features and the account, as a network would.
            let mood = row[72..112].iter().sum::<f32>() + uniform(48, step, 0) as f32;
            let choice = |n: i32| (mood * 8.0).abs() as i32 / n;
            paths.actions.write(&[[choice(1) % 4, choice(4) % 3, choice(5) % 3, choice(7) % 3].map(|c| c as u8)])?;
            lab.runner().run([paths.step(&world.market)])?;
            seen.extend(row);
        }
        Ok((seen, paths.records()?))
    };
    let ((seen, records), (others_seen, others)) = (run(&past)?, run(&changed)?);
    // Record 0 is of bar 301; decision 29 is made on bar 329 and fills on the first bar that differs.
    ensure!(bits(&seen[..30 * 128]) == bits(&others_seen[..30 * 128]), "what was seen differs");
    ensure!(bytes(&records[..29]) == bytes(&others[..29]), "what was done or earned differs");
    ensure!(records[29].action == others[29].action, "the decision before the first new bar differs");
    ensure!(bytes(&records[29..]) != bytes(&others[29..]), "the future does not count: the test shows nothing");
    ensure!(records[..29].iter().filter(|record| record.turnover > 0.0).count() > 5, "it hardly trades");
    Ok(())
}
