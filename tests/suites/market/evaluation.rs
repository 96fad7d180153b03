//! Evaluation paths and baselines.

use gpu_kernels::market::evaluation::{RANDOM, baseline_action};
use host::device::Device;
use host::market::paths::{Baseline, N_RANDOM, Paths, baseline, median_idx, scripted};
use host::market::rules::{Costs, Rules};
use onegraph_tests::{Case, Outcome, case};
use shared_types::market::{N_ACCOUNT, portfolio};
use shared_types::{BarRecord, EnvParams, EnvState, MarketBar};

use crate::trade_reference::{Account, Terms};
use crate::world::{Lab, Measured, bar64, bus, ensure, made_up, round_params, uniform};

pub fn cases() -> Vec<Case> {
    vec![
        case("a_path_equals_the_reference_account", a_path_equals_the_reference_account),
        case("a_path_restarts_its_account_and_keeps_its_position", a_path_restarts_its_account),
        case("the_last_position_is_closed_at_the_last_close", the_last_position_is_closed_at_the_last_close),
        case("segments_tile_the_part", segments_tile_the_part),
        case("buy_and_hold_trades_once", buy_and_hold_trades_once),
        case("flat_earns_nothing", flat_earns_nothing),
        case("random_draws_each_direction_on_each_path", random_draws_each_direction_on_each_path),
        case("median_idx_by_hand", median_idx_by_hand),
    ]
}

fn action(bar: usize) -> [u8; 4] {
    let draw = |branch: u32, n: f64| (uniform(31, bar, 300 + branch) * n) as u8;
    [draw(0, 4.0), draw(1, 3.0), draw(2, 3.0), draw(3, 3.0)]
}

/// 400 bars of scripted actions: every bar's return, turnover and cost against the f64 account. Tolerance: a few moves under
/// 0.1, each within 2^-24 of itself: 2e-8.
fn a_path_equals_the_reference_account(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let bars = made_up(560, 21, Measured::Everything);
    let costs = Costs { taker_bp: 3.0, maker_bp: 0.5, ..Costs::default() };
    let world = lab.world(&bars, 128..560, &costs)?;
    let rules = Rules {
        window: 4,
        episode_len: 64,
        n_step: 3,
        min_hold: [1, 3, 9],
        lambda_dd: 0.1,
        reward_scale: 0.2,
        her_weight: 0.01,
        costs,
    };
    let params = rules.params(&(128..560), world.fitted.bar_sigma, 1)?;
    let paths = Paths::continuous(device, &params, &bus(0.6), &(150..551))?;
    ensure!(paths.n_steps() == 400, "{} steps", paths.n_steps());
    let terms = Terms {
        half_spread: 1e-4,
        taker: 3e-4,
        maker: 0.5e-4,
        min_hold: rules.min_hold,
        kelly_cap: 0.6f32 as f64,
        epsilon: 0.0,
        sigma: params.bar_sigma as f64,
        lambda_dd: 0.1,
        episode_len: 64,
    };
    let mut account = Account::new(150, 64);
    let mut want = Vec::new();
    for bar in 150..550 {
        paths.actions.write(&[action(bar)])?;
        lab.runner().run([paths.step(&world.market)])?;
        want.push(account.step(&bars, &terms, action(bar)));
    }
    let records = paths.records()?;
    for (record, want) in records.iter().zip(&want).take(399) {
        let near = |got: f32, want: f64| (got as f64 - want).abs() <= 2e-8;
        let fine = near(record.net_return, want.net_return)
            && near(record.turnover / 8.0, want.turnover / 8.0)
            && near(record.cost, want.cost)
            && record.action == want.stored
            && (record.flags & BarRecord::FILLED != 0) == want.filled;
        ensure!(fine, "{record:?}, {want:?} expected");
    }
    ensure!(records[399].position == 0.0, "{:?}", records[399]);
    // The same actions as a script, twice side by side, in one launch.
    let script: Vec<[u8; 4]> = (0..800).map(|row| action(150 + row % 400)).collect();
    let whole = scripted(lab.runner(), &world.market, &params, &bus(0.6), &(150..551), &script)?;
    ensure!(whole == [records.clone(), records.clone()], "a script does something else than its steps");
    // Once more, after the end: nothing changes.
    lab.runner().run([paths.step(&world.market)])?;
    ensure!(paths.records()? == records, "a finished path went on");
    Ok(())
}

/// Episodes of 4 bars on a price that rises 1/64 a bar: after each fourth bar equity and progress start over, the position,
/// what it earned and the bars held do not.
fn a_path_restarts_its_account(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 1, 0, 1); 12])?;
    let params = EnvParams { episode_len: 4, cost_scale: 0.0, ..round_params() };
    let paths = Paths::continuous(device, &params, &bus(1.0), &(0..12))?;
    let mut seen = Vec::new();
    for step in 0..10 {
        paths.actions.write(&[[if step == 0 { 1 } else { 3 }, 2, 0, 0]])?;
        lab.runner().run([paths.step(&market)])?;
        let (state, account) = (paths.states.read()?[0], paths.portfolio.read()?);
        ensure!(account.len() == N_ACCOUNT && account[portfolio::GOAL] == 1.0, "{account:?}");
        ensure!(account[portfolio::EPSILON] == 0.0, "{account:?}");
        let gained = state.log_equity as f64 / (65.0f64 / 64.0).ln();
        ensure!((gained - state.steps as f64).abs() < 1e-4, "{state:?}");
        seen.push((state.steps, account[portfolio::PROGRESS], state.bars_held, state.position));
    }
    let want = |step: u32| (step % 4, (step % 4) as f32 / 4.0, step, 1.0);
    ensure!(seen == (1..=10).map(want).collect::<Vec<_>>(), "{seen:?}");
    Ok(())
}

/// Long 1/2 to the end: on the last bar 1/2 (half spread + taker) is paid, each on what the other left.
fn the_last_position_is_closed_at_the_last_close(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let still = bar64(0, 0, 0, 0);
    let records = lab.play(&[still; 4], &round_params(), 0.5, &[[1, 2, 0, 0], [3, 0, 0, 0], [3, 0, 0, 0]])?;
    ensure!(records[1].net_return == 0.0, "{:?}", records[1]);
    let want = (1.0 - 0.5 / 64.0) * (1.0 - 0.5 / 32.0) - 1.0;
    ensure!((records[2].net_return as f64 - want).abs() < 1e-8, "{:?}, {want} expected", records[2]);
    ensure!(records[2].turnover == 0.5 && records[2].cost == 0.5 * 3.0 / 64.0, "{:?}", records[2]);
    ensure!(records[1].position == 0.5 && records[2].position == 0.0, "{records:?}");
    Ok(())
}

/// A part of 11 bars in segments of 4: 4 + 4 + 2 records, in the bars' order, each segment starting and ending flat.
fn segments_tile_the_part(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 1, -1, 1); 40])?;
    let params = EnvParams { episode_len: 4, ..round_params() };
    let paths = Paths::segments(device, &params, &bus(1.0), &(20..31))?;
    ensure!((paths.n_paths(), paths.n_steps()) == (3, 4), "{} paths, {} steps", paths.n_paths(), paths.n_steps());
    for _ in 0..paths.n_steps() {
        paths.actions.write(&[[1, 2, 0, 0]; 3])?;
        lab.runner().run([paths.step(&market)])?;
    }
    let records = paths.records()?;
    let bars: Vec<u32> = records.iter().map(|record| record.bar).collect();
    ensure!(bars == (21..31).collect::<Vec<u32>>(), "{bars:?}");
    let closed: Vec<u32> = records.iter().filter(|r| r.flags & BarRecord::CLOSED != 0).map(|r| r.bar).collect();
    ensure!(closed == [24, 28, 30], "{closed:?}");
    ensure!([0, 4, 8].iter().all(|&first| records[first].turnover == 1.0), "a segment does not start flat");
    let finished = paths.states.read()?.iter().all(|state| state.status & EnvState::FINISHED != 0);
    ensure!(finished, "a path has not ended");
    Ok(())
}

fn buy_and_hold_trades_once(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 1, 0, 1); 30])?;
    let paths = baseline(lab.runner(), &market, &round_params(), &bus(0.5), &(4..20), Baseline::BuyAndHold)?;
    ensure!(paths.len() == 1 && paths[0].len() == 15, "{} paths", paths.len());
    let records = &paths[0];
    let traded: Vec<f32> = records.iter().map(|record| record.turnover).collect();
    let mut want = vec![0.0; 15];
    (want[0], want[14]) = (0.5, 0.5);
    ensure!(traded == want, "{traded:?}");
    // Bought at 65/64 of the open, marked at the close, which is there too: the fee alone.
    ensure!(records[0].net_return == -1.0 / 64.0, "{:?}", records[0]);
    ensure!(records[1..14].iter().all(|record| record.net_return == 0.5 / 64.0), "{records:?}");
    Ok(())
}

fn flat_earns_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 9, -9, 3); 30])?;
    let paths = baseline(lab.runner(), &market, &round_params(), &bus(1.0), &(0..30), Baseline::Flat)?;
    let idle = |r: &BarRecord| r.net_return == 0.0 && r.turnover == 0.0 && r.cost == 0.0 && r.flags == 0;
    ensure!(paths.len() == 1 && paths[0].iter().all(idle), "{paths:?}");
    Ok(())
}

/// 100 paths of 59 bars: each direction on a quarter of the bars, no two paths alike, full size by market order, and
/// another minimum hold in the rules does not reach it. Five deviations of a share of 5,900: 5 sqrt(3/16/5900) = 0.028.
fn random_draws_each_direction_on_each_path(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let bars: Vec<MarketBar> = (0..60).map(|t| bar64(0, 3, -3, (t % 5) - 2)).collect();
    let market = lab.bars_alone(&bars)?;
    let params = EnvParams { min_hold: [15; 3], ..round_params() };
    let all = Baseline::Random { first: 0, n_paths: N_RANDOM };
    let paths = baseline(lab.runner(), &market, &params, &bus(1.0), &(0..60), all)?;
    ensure!(paths.len() == N_RANDOM, "{} paths", paths.len());
    // A few of them by themselves are the same paths.
    for (first, n_paths) in [(0, 1), (31, 3), (99, 1)] {
        let who = Baseline::Random { first, n_paths };
        let some = baseline(lab.runner(), &market, &params, &bus(1.0), &(0..60), who)?;
        ensure!(some == paths[first..first + n_paths], "{n_paths} paths from {first} on differ");
    }
    let mut counts = [0u32; 4];
    for (path, records) in paths.iter().enumerate() {
        for record in records {
            ensure!(
                record.action == baseline_action(RANDOM, false, path as u32, record.bar - 1, &params),
                "{record:?}"
            );
            counts[record.action[0] as usize] += 1;
        }
    }
    ensure!(counts.iter().all(|&n| (n as f64 / 5900.0 - 0.25).abs() < 0.028), "{counts:?}");
    for (index, records) in paths.iter().enumerate() {
        ensure!(paths[..index].iter().all(|other| other != records), "path {index} repeats another");
    }
    Ok(())
}

fn median_idx_by_hand(_: &Device) -> Outcome {
    ensure!(median_idx(&[3.0]) == 0, "of one");
    ensure!(median_idx(&[3.0, -1.0, 2.0]) == 2, "of three");
    ensure!(median_idx(&[4.0, 1.0, 3.0, 2.0]) == 3, "of four: the lower of the two in the middle");
    Ok(())
}
