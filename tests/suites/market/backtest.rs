//! Policies taken over paths by a graph, against scripts of the same actions; and the threshold rule.

use cuda_std::shape::LaunchShape;
use host::data::simulate::{self, Market, Simulation};
use host::device::{Buffer, Device};
use host::error::DeviceError;
use host::eval::EvalError;
use host::eval::backtest::{Backtest, Policy, Terms, Validation, evaluate, validate};
use host::eval::random::{RandomPaths, Tested};
use host::eval::records::PathRecords;
use host::eval::scenario::Scenario;
use host::eval::statistics;
use host::eval::threshold_rule::{Deviating, ThresholdRule, grid};
use host::images::Images;
use host::interrupt::Interrupt;
use host::market::Step;
use host::market::paths::{Baseline, N_RANDOM, baseline, median_idx, scripted};
use host::market::rules::{Costs, Rules};
use onegraph_tests::{Case, Outcome, TEST_KERNELS, case};
use shared_types::market::{N_FEATURES, direction, feature, order, state_dim};
use shared_types::{BarRecord, EnvParams, isv};
use test_kernels::policy::act_against;

use crate::world::{Lab, Measured, World, bar64, bus, ensure, made_up, round_params};

pub fn cases() -> Vec<Case> {
    vec![
        case("constant_actions_equal_their_script", constant_actions_equal_their_script),
        case("a_policy_that_reads_its_row_equals_its_script", a_policy_equals_its_script),
        case("scenarios_differ_as_they_say", scenarios_differ_as_they_say),
        case("doubled_costs_never_raise_equity", doubled_costs_never_raise_equity),
        case("a_rewound_backtest_repeats_itself", a_rewound_backtest_repeats_itself),
        case("evaluation_has_all_paths", evaluation_has_all_paths),
        case("the_median_random_path_is_that_of_all_at_once", the_median_random_path_is_that_of_all_at_once),
        case("random_paths_are_held_a_few_at_a_time", random_paths_are_held_a_few_at_a_time),
        case("validation_is_the_segments_together", validation_is_the_segments_together),
        case("the_fitted_rule_is_the_best_of_the_grid", the_fitted_rule_is_the_best),
        case("the_rule_earns_where_prices_return_and_not_where_they_do_not", the_rule_earns_where_prices_return),
    ]
}

const WINDOW: usize = 4;
/// The row, padded to a multiple of 64.
const STRIDE: usize = state_dim(WINDOW).next_multiple_of(64);
/// The last bar's one-bar return.
const COLUMN: usize = (WINDOW - 1) * N_FEATURES + feature::RETURN_1;

/// The same action at every bar.
struct Constant([u8; 4]);

impl Policy for Constant {
    fn act(&self, _: &Buffer<f32>, actions: &Buffer<[u8; 4]>) -> Result<Vec<Step>, DeviceError> {
        actions.write(&vec![self.0; actions.len()])?;
        Ok(Vec::new())
    }

    fn state_stride(&self) -> usize {
        STRIDE
    }
}

/// Against the last bar, by orders of this kind.
struct Against(u8);

impl Policy for Against {
    fn act(&self, rows: &Buffer<f32>, actions: &Buffer<[u8; 4]>) -> Result<Vec<Step>, DeviceError> {
        let launch =
            act_against::launch(rows.view(), actions.view_mut(), STRIDE as u32, COLUMN as u32, u32::from(self.0));
        Ok(vec![(LaunchShape::cover(actions.len(), 32), launch)])
    }

    fn state_stride(&self) -> usize {
        STRIDE
    }

    fn images(&self) -> &Images {
        &TEST_KERNELS
    }
}

fn rules(costs: Costs) -> Rules {
    Rules {
        window: WINDOW as u32,
        episode_len: 64,
        n_step: 3,
        min_hold: [1, 2, 4],
        lambda_dd: 0.1,
        reward_scale: 0.2,
        her_weight: 0.01,
        costs,
    }
}

/// 700 made-up bars, fitted to the first 400 after the warm-up, and their constants.
fn world(lab: &Lab<'_>) -> Result<(World, EnvParams), onegraph_tests::Failed> {
    let costs = Costs { short_financing_bp: 100.0, ..Costs::default() };
    let world = lab.world(&made_up(700, 5, Measured::Everything), 128..528, &costs)?;
    let params = rules(costs).params(&(128..528), world.fitted.bar_sigma, 1)?;
    Ok((world, params))
}

fn constant_actions_equal_their_script(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let (bus, part) = (bus(0.7), 550..650);
    for action in [[1, 0, 0, 0], [0, 2, 1, 2], [2, 2, 0, 0], [3, 1, 2, 1]] {
        let terms = Terms { params: &params, bus: &bus };
        let policy = Constant(action);
        let backtest = Backtest::continuous(device, &world.market, terms, &part, &[Scenario::Configured], &policy)?;
        let got = backtest.run(lab.runner(), &Interrupt::default())?;
        let want = scripted(lab.runner(), &world.market, &params, &bus, &part, &[action; 99])?;
        ensure!(got == want, "{action:?}: {:?}, {:?} expected", got[0][0], want[0][0]);
    }
    Ok(())
}

/// The order observe, act, step on each bar, the window's last bar, and the offsets of paths that share rows: what the policy
/// does is repeated on the host from the features, and run as a script.
fn a_policy_equals_its_script(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let (bus, part) = (bus(0.7), 540..700);
    let features = world.market.features.read()?;
    let decide = |bar: usize| match features[bar * N_FEATURES + feature::RETURN_1] {
        seen if seen > 0.0 => [direction::SHORT, 2, order::LIMIT_AT_CLOSE, 0],
        seen if seen < 0.0 => [direction::LONG, 2, order::LIMIT_AT_CLOSE, 0],
        _ => [direction::FLAT, 2, order::LIMIT_AT_CLOSE, 0],
    };
    let script: Vec<[u8; 4]> = (540..699).map(decide).collect();
    let policy = Against(order::LIMIT_AT_CLOSE);
    let terms = Terms { params: &params, bus: &bus };
    let backtest = Backtest::continuous(device, &world.market, terms, &part, &Scenario::ALL, &policy)?;
    let got = backtest.run(lab.runner(), &Interrupt::default())?;
    for (scenario, got) in Scenario::ALL.into_iter().zip(&got) {
        let (params, bus) = (scenario.params(&params), scenario.bus(&bus));
        let want = scripted(lab.runner(), &world.market, &params, &bus, &part, &script)?;
        ensure!(*got == want[0], "{scenario:?} differs from its script");
    }
    ensure!(got[0].iter().any(|record| record.flags & BarRecord::FILLED != 0), "no order filled");
    Ok(())
}

/// Long at once and for good on a price that stands still: what is lost are costs alone.
fn scenarios_differ_as_they_say(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 0, 0, 0); 20])?;
    let (params, bus) = (EnvParams { window: WINDOW as u32, ..round_params() }, bus(0.5));
    let run = |action: [u8; 4]| -> Result<Vec<PathRecords>, EvalError> {
        let terms = Terms { params: &params, bus: &bus };
        let backtest = Backtest::continuous(device, &market, terms, &(4..20), &Scenario::ALL, &Constant(action))?;
        Ok(backtest.run(lab.runner(), &Interrupt::default())?.iter().map(|path| PathRecords::of(path)).collect())
    };
    // Half spread 1/64 and taker 1/32, in and out, of half the equity: 0.046875.
    let costs: Vec<f64> = run([1, 2, 0, 0])?.iter().map(|path| path.costs).collect();
    ensure!(costs == [0.046875, 0.0234375, 0.09375, 0.046875, 0.09375], "{costs:?}");
    // By limit nothing fills on a price that stands still, unless every order is a market order.
    let fills: Vec<u64> = run([1, 2, 1, 0])?.iter().map(|path| path.n_fills).collect();
    ensure!(fills == [0, 0, 0, 1, 0], "{fills:?}");
    Ok(())
}

/// The same market orders under rising costs.
fn doubled_costs_never_raise_equity(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let policy = Against(order::MARKET);
    let (bus, scenarios) = (bus(1.0), [Scenario::HalfCosts, Scenario::Configured, Scenario::TwiceCosts]);
    for part in [530..560, 560..610, 610..700] {
        let terms = Terms { params: &params, bus: &bus };
        let backtest = Backtest::continuous(device, &world.market, terms, &part, &scenarios, &policy)?;
        let paths = backtest.run(lab.runner(), &Interrupt::default())?;
        for bars in 1..=paths[0].len() {
            let growth = |path: &[BarRecord]| {
                path[..bars].iter().map(|record| f64::from(record.net_return).ln_1p()).sum::<f64>()
            };
            let growths: Vec<f64> = paths.iter().map(|path| growth(path)).collect();
            // A return is within 2^-24 of its largest term, under 0.1: 6e-9 a bar.
            let slack = 6e-9 * bars as f64;
            ensure!(growths.is_sorted_by(|a, b| *b <= a + slack), "{part:?}, {bars} bars: {growths:?}");
        }
    }
    Ok(())
}

fn a_rewound_backtest_repeats_itself(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let policy = Against(order::MARKET);
    let (bus, other) = (bus(0.4), bus(0.9));
    let terms = Terms { params: &params, bus: &bus };
    let first = 530..600;
    let backtest = Backtest::segments(device, &world.market, terms, &first, &policy)?;
    let before = backtest.run(lab.runner(), &Interrupt::default())?;
    backtest.rewind(Terms { params: &params, bus: &other }, &(610..680))?;
    let elsewhere = backtest.run(lab.runner(), &Interrupt::default())?;
    let fresh =
        Backtest::segments(device, &world.market, Terms { params: &params, bus: &other }, &(610..680), &policy)?;
    ensure!(
        elsewhere == fresh.run(lab.runner(), &Interrupt::default())?,
        "another part after a rewind is not that part"
    );
    backtest.rewind(terms, &first)?;
    ensure!(
        backtest.run(lab.runner(), &Interrupt::default())? == before,
        "the same part is another one after a rewind"
    );
    Ok(())
}

fn evaluation_has_all_paths(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let (part, bus) = (550..600, bus(0.25));
    let never = &Interrupt::default();
    let got = evaluate(lab.runner(), &world.market, &params, &bus, &part, &Against(order::MARKET), never)?;
    ensure!(got.part == part && got.kelly_cap == bus.entries[isv::KELLY_CAP], "{:?}", got.part);
    let paths = got.agent.iter().chain(&got.buy_and_hold);
    ensure!(paths.clone().all(|path| path.returns.len() == 49), "paths of another length");
    ensure!((got.agent.len(), got.buy_and_hold.len()) == (5, 5), "paths are missing");
    ensure!(got.buy_and_hold[0].n_trades == 1 && got.buy_and_hold[0].n_fills == 1, "{:?}", got.buy_and_hold[0]);
    // Held at the cap, and at 1 under the scenario that lifts it.
    let exposures = [got.buy_and_hold[0].exposure, got.buy_and_hold[4].exposure];
    ensure!(exposures == [0.25 * 48.0, 48.0], "{exposures:?}");
    Ok(())
}

/// Two folds on terms of their own: every path whole, joined, and ranked, is what comes out of some at a time, bit for bit. Of one fold
/// alone it is another path.
fn the_median_random_path_is_that_of_all_at_once(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let tests = [(540..600, 0.4), (600..680, 0.9)].map(|(part, cap)| Tested { part, params, bus: bus(cap) });
    let bars_a_year = 1e4;
    let all = |test: &Tested| -> Result<Vec<PathRecords>, DeviceError> {
        let Tested { part, params, bus } = test;
        let who = Baseline::Random { first: 0, n_paths: N_RANDOM };
        let paths = baseline(lab.runner(), &world.market, params, bus, part, who)?;
        Ok(paths.iter().map(|path| PathRecords::of(path)).collect())
    };
    let (first, second) = (all(&tests[0])?, all(&tests[1])?);
    let joined: Vec<PathRecords> = first.iter().zip(&second).map(|(a, b)| PathRecords::joined([a, b])).collect();
    let median = |paths: &[PathRecords]| {
        let sharpes: Vec<f64> = paths.iter().map(|path| statistics::sharpe(&path.returns64(), bars_a_year)).collect();
        median_idx(&sharpes)
    };
    ensure!(median(&joined) != median(&first), "the folds together have another median than the first");
    let want = &joined[median(&joined)];
    let never = Interrupt::default();
    let random = RandomPaths::new(lab.runner(), &world.market, &tests, &never);
    ensure!(random.median(bars_a_year)? == *want, "not the median path of all");
    for n_paths in [1, 7, 99, 100, 250] {
        let got = random.median_of_runs(bars_a_year, n_paths)?;
        ensure!(got == *want, "{n_paths} at a time");
    }
    Ok(())
}

/// Of a part whose records no machine can hold, those of one path are asked for, not those of all.
fn random_paths_are_held_a_few_at_a_time(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let market = lab.bars_alone(&[bar64(0, 1, -1, 1); 40])?;
    let test = Tested { part: 0..(1 << 45) + 1, params: round_params(), bus: bus(1.0) };
    match RandomPaths::new(lab.runner(), &market, &[test], &Interrupt::default()).median(1e4) {
        Err(EvalError::Device(DeviceError::OutOfMemory { requested, .. })) => {
            ensure!(requested == (1 << 45) * size_of::<BarRecord>(), "{requested} bytes were asked for");
        }
        other => return Err(format!("not out of memory: {:?}", other.map(|path| path.returns.len())).into()),
    }
    Ok(())
}

fn validation_is_the_segments_together(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params) = world(&lab)?;
    let (part, bus) = (530..690, bus(0.6));
    let policy = Against(order::MARKET);
    let got = validate(lab.runner(), &world.market, &params, &bus, &part, 1e4, &policy)?;
    let (mut returns, mut n_trades) = (Vec::new(), 0);
    for segment in [530..595, 594..659, 658..690] {
        let terms = Terms { params: &params, bus: &bus };
        let backtest = Backtest::continuous(device, &world.market, terms, &segment, &[Scenario::Configured], &policy)?;
        let path = PathRecords::of(&backtest.run(lab.runner(), &Interrupt::default())?[0]);
        returns.extend(path.returns64());
        n_trades += path.n_trades;
    }
    let log_growth = statistics::log_growth(&returns);
    let want = Validation { sharpe: statistics::sharpe(&returns, 1e4), n_trades, log_growth };
    ensure!(got == want, "{got:?}, {want:?} expected");
    Ok(())
}

/// What the threshold rule needs of a simulated market of 3,000 bars.
fn simulated(lab: &Lab<'_>, market: Market) -> Result<(World, EnvParams, Vec<f64>), onegraph_tests::Failed> {
    let bars = Simulation { market, n_bars: 3_000, seed: 4 }.bars();
    let world = lab.world(&bars, 128..2_000, &Costs::default())?;
    let params = rules(Costs::default()).params(&(128..2_000), world.fitted.bar_sigma, 1)?;
    Ok((world, params, simulate::deviations(&bars)))
}

fn the_fitted_rule_is_the_best(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (world, params, deviations) = simulated(&lab, Market::MeanReverting)?;
    let bus = bus(0.5);
    let never = &Interrupt::default();
    let here =
        Deviating { market: &world.market, params: &params, bus: &bus, deviations: &deviations, interrupt: never };
    let train = 128..700;
    let fitted = here.fit(lab.runner(), &train)?;
    let seen = &deviations[train.clone()];
    let std = (seen.iter().map(|x| x * x).sum::<f64>() / seen.len() as f64).sqrt();
    let growth = |rule: ThresholdRule| -> Result<f64, EvalError> {
        Ok(statistics::log_growth(&here.run(lab.runner(), &[rule], &train)?[0].returns64()))
    };
    let best = growth(fitted)?;
    let mut is_there = false;
    for rule in grid(std) {
        is_there |= rule == fitted;
        ensure!(growth(rule)? <= best, "{rule:?} earns more than {fitted:?}");
    }
    ensure!(is_there, "{fitted:?} is not of the grid");
    Ok(())
}

/// The stationary deviation is 39 basis points and a round trip costs 6: on the returning market a bar's mean is a large
/// part of its sigma, and 1,000 bars show it; on a random walk with the same costs the best of the grid loses, or trades
/// little, on bars that it was not fitted to.
fn the_rule_earns_where_prices_return(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let run = |market: Market| -> Result<f64, onegraph_tests::Failed> {
        let (world, params, deviations) = simulated(&lab, market)?;
        let bus = bus(0.5);
        let never = &Interrupt::default();
        let here =
            Deviating { market: &world.market, params: &params, bus: &bus, deviations: &deviations, interrupt: never };
        let test = here.test(lab.runner(), &(128..1_900), &(2_000..3_000))?;
        let returns = test.records.returns64();
        let per_bar = statistics::sharpe(&returns, 1.0);
        println!("{market:?}: {:?}, ratio a bar {per_bar:.4}, {} trades", test.rule, test.records.n_trades);
        Ok(per_bar)
    };
    // One standard error of a per-bar ratio over 999 bars is 0.032.
    let (returning, walk) = (run(Market::MeanReverting)?, run(Market::RandomWalk)?);
    ensure!(returning > 0.1, "{returning} a bar where prices return");
    ensure!(walk < 0.1, "{walk} a bar on a random walk");
    Ok(())
}
