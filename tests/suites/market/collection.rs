//! The environments of collection and the ring they fill, against the f64 account and against transitions put together here.

use gpu_kernels::market::collector::advanced;
use host::data::Bars;
use host::device::{Buffer, Device};
use host::market::environments::Environments;
use host::market::rules::{Costs, Rules};
use host::replay::Ring;
use onegraph_tests::{Case, Failed, Outcome, case};
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use shared_types::market::{N_ACCOUNT, N_FEATURES, portfolio, state_dim};
use shared_types::{Collector, Counters, EnvParams, EnvState, MarketBar, PendingStep, isv};

use crate::trade_reference::{Account, Terms};
use crate::world::{Lab, Measured, World, bar64, bus_buffer, bytes, ensure, made_up, round_params, uniform};

pub fn cases() -> Vec<Case> {
    vec![
        case("episodes_equal_the_reference_account", episodes_equal_the_reference_account),
        case("case_f_n_step_sums_stop_at_an_episodes_end", |device| ring_holds_the_transitions(device, 3)),
        case("case_i_sums_of_one_and_eight_achieve_what_their_last_state_did", |device| {
            ring_holds_the_transitions(device, 1)?;
            ring_holds_the_transitions(device, 8)
        }),
        case("case_j_a_cut_episode_keeps_done_0_and_its_true_last_state", case_j_a_cut_episode),
        case("done_when_equity_falls_under_half", done_when_equity_falls_under_half),
        case("episodes_start_where_they_may", episodes_start_where_they_may),
        case("collector_counts_slots_and_wraps", collector_counts_slots_and_wraps),
        case("boundary_means_over_environments", boundary_means_over_environments),
        case("collection_is_the_same_bits_twice", collection_is_the_same_bits_twice),
        case("case_p_accounts_stay_finite_and_bounded", case_p_accounts_stay_finite_and_bounded),
    ]
}

const WINDOW: u32 = 4;
const CAP: f32 = 0.75;
const GAMMA: f32 = 0.97;

fn rules(n_step: u32, episode_len: u32) -> Rules {
    Rules {
        window: WINDOW,
        episode_len,
        n_step,
        min_hold: [1, 2, 4],
        lambda_dd: 0.1,
        reward_scale: 0.2,
        her_weight: 0.01,
        costs: Costs::default(),
    }
}

/// What one bar of all environments left: as a reader of the queue sees it.
struct Lived {
    rows: Vec<f32>,
    steps: Vec<PendingStep>,
    after: Vec<f32>,
}

/// Environments, a ring and a market, run bar by bar.
struct Scene<'a> {
    lab: Lab<'a>,
    world: World,
    envs: Environments,
    ring: Ring,
    bus: Buffer<f32>,
    counters: Buffer<Counters>,
    rows: Buffer<f32>,
    params: EnvParams,
}

impl<'a> Scene<'a> {
    fn new(device: &'a Device, bars: &Bars, rules: &Rules, n_envs: usize, n_slots: usize) -> Result<Self, Failed> {
        let lab = Lab::new(device)?;
        let train = 128..bars.len();
        let world = lab.world(bars, train.clone(), &rules.costs)?;
        let params = rules.params(&train, world.fitted.bar_sigma, 0x1234_5678_9abc)?;
        let envs = Environments::new(device, n_envs, rules.n_step as usize)?;
        let ring = Ring::new(device, n_slots, rules.window as usize)?;
        let mut state = crate::world::bus(CAP);
        state.entries[isv::GAMMA] = GAMMA;
        let bus = device.upload(&state.entries)?;
        let counters = device.upload(&[Counters { rng_step: 17, ..Counters::default() }])?;
        let rows = device.alloc(n_envs * state_dim(rules.window as usize).next_multiple_of(64))?;
        envs.begin_fold(&params)?;
        lab.runner().run([envs.reset(&bus)])?;
        Ok(Self { lab, world, envs, ring, bus, counters, rows, params })
    }

    /// One bar, with actions drawn from `seed` and the step.
    fn live(&self, seed: u32, step: usize) -> Result<Lived, Failed> {
        let n_envs = self.envs.n_envs();
        let actions: Vec<[u8; 4]> = (0..n_envs).map(|env| action(seed, step, env)).collect();
        self.envs.actions.write(&actions)?;
        let runner = self.lab.runner();
        runner.run([self.envs.observe(&self.world.market, &self.bus, &self.rows)])?;
        runner.run([self.envs.step(&self.world.market, &self.bus)])?;
        let place = step % self.params.n_step as usize * n_envs;
        let steps = self.envs.queue.slice(place..place + n_envs).read()?;
        let accounts = self.envs.accounts.slice(2 * place * N_ACCOUNT..2 * (place + n_envs) * N_ACCOUNT).read()?;
        let after = accounts.chunks(N_ACCOUNT).skip(1).step_by(2).flatten().copied().collect();
        if step + 1 >= self.params.n_step as usize {
            runner.run([self.envs.insert(&self.world.market, &self.bus, &self.counters, &self.ring)])?;
        }
        runner.run([self.envs.advance(&self.ring)])?;
        Ok(Lived { rows: self.rows.read()?, steps, after })
    }
}

fn action(seed: u32, step: usize, env: usize) -> [u8; 4] {
    let draw = |branch: u32, n: f64| (uniform(seed, step * 4096 + env, 100 + branch) * n) as u8;
    [draw(0, 4.0), draw(1, 3.0), draw(2, 3.0), draw(3, 3.0)]
}

/// 33 environments, 90 bars, episodes of 20: action as stored, reward, achieved and every portfolio feature against the f64
/// account that starts where the episode does; and what is seen next is what was left, unless the episode ended.
///
/// Tolerances: a bar's return is a sum of few moves under 0.05, each within 2^-24 of itself: 1e-8, against sigma 2e-3 that
/// is 5e-6 of a reward's unit; a whole episode's equity 20 times that over sqrt(20) sigma. 1e-4 covers both.
fn episodes_equal_the_reference_account(device: &Device) -> Outcome {
    let (n_envs, rules) = (33, rules(3, 20));
    let bars = made_up(600, 11, Measured::Everything);
    let scene = Scene::new(device, &bars, &rules, n_envs, 4096)?;
    let terms = Terms {
        half_spread: 1e-4,
        taker: 2e-4,
        maker: 1e-4,
        min_hold: rules.min_hold,
        kelly_cap: CAP as f64,
        epsilon: 0.25,
        sigma: scene.params.bar_sigma as f64,
        lambda_dd: 0.1,
        episode_len: 20,
    };
    let fresh = |state: &EnvState| Account::new(state.bar as usize, state.length);
    let mut accounts: Vec<Account> = scene.envs.states.read()?.iter().map(fresh).collect();
    let mut seen: Vec<Option<Vec<f32>>> = vec![None; n_envs];
    let (mut n_ends, mut n_fills, mut n_locked) = (0, 0, 0);
    for step in 0..90 {
        let lived = scene.live(5, step)?;
        let states = scene.envs.states.read()?;
        for env in 0..n_envs {
            let what = format!("environment {env}, step {step}");
            let row = &lived.rows[env * lived.rows.len() / n_envs..][..state_dim(WINDOW as usize)];
            if let Some(expected) = &seen[env] {
                ensure!(row[96..] == expected[..], "{what}: sees another account than was left");
            }
            let pending = lived.steps[env];
            ensure!(pending.bar as usize == accounts[env].bar, "{what}: bar {}", pending.bar);
            let lock = accounts[env].hold_left > 0;
            let want = accounts[env].step(&bars, &terms, action(5, step, env));
            (n_fills, n_locked) = (n_fills + want.filled as u32, n_locked + lock as u32);
            ensure!(pending.action == want.stored, "{what}: stored {:?}, {want:?}", pending.action);
            near(pending.reward, want.reward, &what)?;
            near(pending.achieved, accounts[env].achieved(&terms), &what)?;
            let after = &lived.after[env * N_ACCOUNT..][..N_ACCOUNT];
            for (index, feature) in accounts[env].features(&terms).into_iter().enumerate() {
                near(after[index], feature, &format!("{what}, portfolio feature {index}"))?;
            }
            ensure!(after[portfolio::GOAL] == pending.goal && (0.0..=2.0).contains(&pending.goal), "{what}: goal");
            let cut = accounts[env].steps == accounts[env].length;
            ensure!(
                pending.end == if cut { PendingStep::CUT } else { PendingStep::GOES_ON },
                "{what}: {}",
                pending.end
            );
            seen[env] = (!cut).then(|| after.to_vec());
            if cut {
                n_ends += 1;
                accounts[env] = fresh(&states[env]);
                ensure!(states[env].length == 20 && states[env].position == 0.0, "{what}: {:?}", states[env]);
            }
        }
    }
    ensure!(
        n_ends > 2 * n_envs && n_fills > 500 && n_locked > 200,
        "{n_ends} ends, {n_fills} fills, {n_locked} locked"
    );
    Ok(())
}

fn near(got: f32, want: f64, what: &str) -> Outcome {
    ensure!((got as f64 - want).abs() <= 1e-4 * (1.0 + want.abs()), "{what}: {got}, {want} expected");
    Ok(())
}

/// The ring after 70 bars of 33 environments, wrapped, against transitions put together from what was lived: for each
/// decision the rewards up to n bars or the episode's end, and the state that truly followed.
fn ring_holds_the_transitions(device: &Device, n_step: u32) -> Outcome {
    let (n_envs, n_slots, n_bars) = (33usize, 1000usize, 70usize);
    let scene = Scene::new(device, &made_up(600, 12, Measured::Nothing), &rules(n_step, 10), n_envs, n_slots)?;
    let lived: Vec<Lived> = (0..n_bars).map(|step| scene.live(6, step)).collect::<Result<_, _>>()?;
    let (width, market_width) = (state_dim(WINDOW as usize), WINDOW as usize * N_FEATURES);
    let features = scene.world.market.features.read()?;
    let ring = &scene.ring;
    let (states, next_states) = (ring.states.read()?, ring.next_states.read()?);
    let (actions, rewards, dones) = (ring.actions.read()?, ring.rewards.read()?, ring.dones.read()?);
    let (episodes, powers) = (ring.episode_ids.read()?, ring.discount_powers.read()?);
    let (achieved, scored) = (ring.achieved.read()?, ring.last_scored.read()?);

    let n_decisions = n_bars + 1 - n_step as usize;
    let mut lengths = vec![0; 9];
    for row in (n_decisions * n_envs).saturating_sub(n_slots)..n_decisions * n_envs {
        let (decision, env, slot) = (row / n_envs, row % n_envs, row % n_slots);
        let what = format!("decision {decision} of environment {env}");
        let ended = |step: usize| lived[step].steps[env].end != PendingStep::GOES_ON;
        let last =
            (decision..decision + n_step as usize).find(|&step| ended(step)).unwrap_or(decision + n_step as usize - 1);
        let (first, end) = (lived[decision].steps[env], lived[last].steps[env]);
        ensure!(first.episode == end.episode, "{what}: crosses episodes");
        lengths[last - decision + 1] += 1;

        let stride = lived[decision].rows.len() / n_envs;
        let seen = &lived[decision].rows[env * stride..][..stride];
        ensure!(states[slot * width..][..width] == seen[..width], "{what}: another state than was seen");
        ensure!(seen[width..].iter().all(|&value| value == 0.0), "{what}: padding");
        let window_end = (end.bar as usize + 2) * N_FEATURES;
        let next = &next_states[slot * width..][..width];
        ensure!(next[..market_width] == features[window_end - market_width..window_end], "{what}: next window");
        ensure!(next[market_width..] == lived[last].after[env * N_ACCOUNT..][..N_ACCOUNT], "{what}: next account");

        let sum =
            (decision..=last).rev().fold(0.0f64, |sum, step| lived[step].steps[env].reward as f64 + GAMMA as f64 * sum);
        let want = 0.2 * (sum - 0.01 * (first.goal as f64 - end.achieved as f64).abs());
        ensure!(
            (rewards[slot] as f64 - want).abs() <= 1e-5 * (1.0 + want.abs()),
            "{what}: {} for {want}",
            rewards[slot]
        );
        ensure!(actions[slot] == first.action && episodes[slot] == first.episode, "{what}: action or episode");
        ensure!(powers[slot] == (last - decision + 1) as f32, "{what}: power {}", powers[slot]);
        ensure!(achieved[slot] == end.achieved && scored[slot] == 17 && dones[slot] == 0, "{what}: scalars");
    }
    ensure!(lengths[1..=n_step as usize].iter().all(|&n| n > 0), "lengths of sums: {lengths:?}");
    let collector = scene.envs.collector.read()?[0];
    let head = (n_decisions * n_envs % n_slots) as u32;
    ensure!(collector == Collector { step: 70, head, filled: 1000, reserved: 0 }, "{collector:?}");
    let slots: Vec<u32> = (0..n_envs).map(|env| (((n_decisions - 1) * n_envs + env) % n_slots) as u32).collect();
    ensure!(scene.envs.slots.read()? == slots, "slots");
    Ok(())
}

/// Episodes of 1 bar: every transition is cut, done stays 0, its next state is the bar after its own with the account of the
/// episode that ended, never the one that starts next.
fn case_j_a_cut_episode(device: &Device) -> Outcome {
    let scene = Scene::new(device, &made_up(400, 13, Measured::Nothing), &rules(3, 1), 5, 64)?;
    let lived: Vec<Lived> = (0..12).map(|step| scene.live(7, step)).collect::<Result<_, _>>()?;
    let (dones, powers) = (scene.ring.dones.read()?, scene.ring.discount_powers.read()?);
    let (width, next_states) = (state_dim(WINDOW as usize), scene.ring.next_states.read()?);
    for row in 0..50 {
        let (step, env) = (row / 5, row % 5);
        ensure!(lived[step].steps[env].end == PendingStep::CUT, "step {step} is not cut");
        ensure!(dones[row] == 0 && powers[row] == 1.0, "row {row}: done {}, n {}", dones[row], powers[row]);
        let account = &next_states[row * width + 96..][..N_ACCOUNT];
        ensure!(account[portfolio::PROGRESS] == 1.0, "row {row}: progress {}", account[portfolio::PROGRESS]);
        let fresh = &lived[step + 1].rows[env * lived[0].rows.len() / 5 + 96..][..N_ACCOUNT];
        ensure!(fresh[portfolio::PROGRESS] == 0.0, "row {row}: the next episode has begun already");
    }
    Ok(())
}

/// Long at full size; the price falls by 1/4 a bar: 0.5625 of the start after two bars, 0.42 after three: done there.
fn done_when_equity_falls_under_half(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let params = EnvParams { cost_scale: 0.0, last_bar: 39, episode_len: 20, ..round_params() };
    let market = lab.bars_alone(&[bar64(0, 0, -16, -16); 40])?;
    let envs = Environments::new(device, 1, 3)?;
    let bus = bus_buffer(device, 1.0)?;
    envs.begin_fold(&params)?;
    lab.runner().run([envs.reset(&bus)])?;
    let state = EnvState { bar: 5, length: 20, ..envs.states.read()?[0] };
    envs.states.write(&[state])?;
    let mut ends = Vec::new();
    for step in 0..4 {
        envs.actions.write(&[[if step == 0 { 1 } else { 3 }, 2, 0, 0]])?;
        lab.runner().run([envs.step(&market, &bus)])?;
        ends.push(envs.queue.read()?[step % 3].end);
        let collector = advanced(envs.collector.read()?[0], 3, 1, 8);
        envs.collector.write(&[collector])?;
    }
    ensure!(ends[..3] == [PendingStep::GOES_ON, PendingStep::GOES_ON, PendingStep::DONE], "{ends:?}");
    let next = envs.states.read()?[0];
    ensure!(next.position == 0.0 && next.log_equity == 0.0 && next.steps == 1, "{next:?}");
    Ok(())
}

/// 5,000 environments: first lengths cover \[1, episode_len\], start bars \[first, last - episode_len\], goals \[0, 2\], and
/// episodes have identities of their own. With m possible values, one is missed with probability (1 - 1/m)^5000 < e^-50.
fn episodes_start_where_they_may(device: &Device) -> Outcome {
    let params = EnvParams { first_bar: 100, last_bar: 180, episode_len: 30, ..round_params() };
    let lab = Lab::new(device)?;
    let envs = Environments::new(device, 5000, 3)?;
    envs.begin_fold(&params)?;
    lab.runner().run([envs.reset(&bus_buffer(device, 1.0)?)])?;
    let states = envs.states.read()?;
    let span = |values: Vec<u32>| (values.iter().min().copied(), values.iter().max().copied());
    let bars = span(states.iter().map(|state| state.bar).collect());
    ensure!(bars == (Some(100), Some(150)), "start bars {bars:?}");
    let lengths = span(states.iter().map(|state| state.length).collect());
    ensure!(lengths == (Some(1), Some(30)), "lengths {lengths:?}");
    ensure!(states.iter().all(|state| (0.0..2.0).contains(&state.goal)), "a goal is outside [0, 2]");
    let mean = states.iter().map(|state| state.goal as f64).sum::<f64>() / 5000.0;
    // Deviation of the mean: 2 / sqrt(12 * 5000) = 0.008; five of them.
    ensure!((mean - 1.0).abs() < 0.041, "mean goal {mean}");
    let mut ids: Vec<u32> = states.iter().map(|state| state.episode).collect();
    ids.dedup();
    ensure!(ids.len() == 5000, "episodes share an identity");
    Ok(())
}

fn collector_counts_slots_and_wraps(_: &Device) -> Outcome {
    let mut collector = Collector::default();
    let mut lived = Vec::new();
    for _ in 0..5 {
        collector = advanced(collector, 3, 4, 10);
        lived.push((collector.step, collector.head, collector.filled));
    }
    ensure!(lived == [(1, 0, 0), (2, 0, 0), (3, 4, 4), (4, 8, 8), (5, 2, 10)], "{lived:?}");
    Ok(())
}

/// 300 environments, more than the 256 partial sums, against a plain mean; tolerance: 300 additions in f32, 300 * 2^-24.
fn boundary_means_over_environments(device: &Device) -> Outcome {
    let scene = Scene::new(device, &made_up(500, 14, Measured::Nothing), &rules(3, 40), 300, 1024)?;
    for step in 0..45 {
        scene.live(8, step)?;
    }
    let at_health = |health: f32| -> Result<Vec<f32>, Failed> {
        let mut bus = scene.bus.read()?;
        bus[isv::HEALTH] = health;
        scene.bus.write(&bus)?;
        scene.lab.runner().run(scene.envs.boundary(&scene.world.market, &scene.bus))?;
        Ok(scene.bus.read()?)
    };
    let bus = at_health(1.0)?;
    let (bars, states) = (scene.world.market.bars.read()?, scene.envs.states.read()?);
    let returns = scene.envs.returns.read()?;
    let mean = |value: &dyn Fn(usize) -> f64| (0..300).map(value).sum::<f64>() / 300.0;
    let bar_of = |env: usize| bars[states[env].bar as usize];
    let kelly = |env: usize| {
        if states[env].n_returns < 20 {
            return 1.0;
        }
        let recent: Vec<f64> = (0..20).map(|slot| returns[slot * 300 + env] as f64).collect();
        let (m, s) = crate::feature_reference::mean_std(&recent);
        if s < 1e-6 { 1.0 } else { (0.5 * m / (s * s + 1e-8)).clamp(0.0, 1.0) }
    };
    for (index, want) in [
        (isv::REGIME_VOLATILITY, mean(&|env| bar_of(env).regime_volatility as f64)),
        (isv::REGIME_TREND, mean(&|env| bar_of(env).regime_trend as f64)),
        (isv::KELLY_CAP, mean(&kelly).max(0.1)),
    ] {
        ensure!((bus[index] as f64 - want).abs() < 1e-4, "entry {index} is {}, {want} expected", bus[index]);
    }
    ensure!(bus[isv::REGIME_VOLATILITY] > 0.0 && bus[isv::KELLY_CAP] < 1.0, "the test shows nothing");
    for health in [0.75f32, 0.01] {
        let (got, want) = (at_health(health)?[isv::KELLY_CAP], (health as f64 * mean(&kelly)).max(0.1));
        ensure!((got as f64 - want).abs() < 1e-4, "at health {health} the cap is {got}, {want} expected");
        ensure!((want > 0.1) == (health == 0.75), "a cap of {want} at health {health} shows nothing");
    }
    Ok(())
}

fn collection_is_the_same_bits_twice(device: &Device) -> Outcome {
    let run = || -> Result<_, Failed> {
        let scene = Scene::new(device, &made_up(500, 15, Measured::Everything), &rules(3, 12), 65, 256)?;
        for step in 0..40 {
            scene.live(9, step)?;
        }
        let mut all = bytes(&scene.ring.states.read()?).to_vec();
        all.extend_from_slice(bytes(&scene.ring.next_states.read()?));
        all.extend_from_slice(bytes(&scene.ring.rewards.read()?));
        all.extend_from_slice(bytes(&scene.envs.states.read()?));
        Ok(all)
    };
    ensure!(run()? == run()?, "two runs differ");
    Ok(())
}

/// Whatever the bars (moves up to a thousandfold and down to nothing) and the actions: returns, rewards, accounts and
/// features are finite, the position stays within the cap, and it does not change while a hold runs.
fn case_p_accounts_stay_finite_and_bounded(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let inputs = (any::<u32>(), 0.1f32..=1.0, 0.0f32..=2.0, 0.0f32..0.25);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&inputs, |(seed, cap, cost_scale, half_spread)| {
        wild(&lab, seed, cap, cost_scale, half_spread)
            .map_err(|failed| TestCaseError::fail(failed.message().unwrap_or("failed").to_owned()))
    });
    outcome.map_err(|error| Failed::from(error.to_string()))
}

fn wild(lab: &Lab, seed: u32, cap: f32, cost_scale: f32, half_spread: f32) -> Outcome {
    let bars: Vec<MarketBar> = (0..120).map(|t| wild_bar(seed, t, half_spread)).collect();
    let market = lab.bars_alone(&bars)?;
    let params = EnvParams { cost_scale, last_bar: 119, episode_len: 40, lambda_dd: 0.1, ..round_params() };
    let envs = Environments::new(lab.device, 33, 3)?;
    let bus = bus_buffer(lab.device, cap)?;
    envs.begin_fold(&params)?;
    lab.runner().run([envs.reset(&bus)])?;
    for step in 0..80 {
        let actions: Vec<[u8; 4]> = (0..33).map(|env| action(seed, step, env)).collect();
        envs.actions.write(&actions)?;
        let before = envs.states.read()?;
        lab.runner().run([envs.step(&market, &bus)])?;
        let (states, accounts) = (envs.states.read()?, envs.portfolio.read()?);
        let steps = &envs.queue.read()?[step % 3 * 33..][..33];
        for env in 0..33 {
            let what = format!("seed {seed}, environment {env}, step {step}: {:?}", states[env]);
            ensure!(steps[env].reward.abs() <= 10.0 && steps[env].achieved.is_finite(), "{what}, {:?}", steps[env]);
            ensure!(states[env].position.abs() <= cap && states[env].log_equity.is_finite(), "{what}");
            let account = &accounts[env * N_ACCOUNT..][..N_ACCOUNT];
            ensure!(account.iter().all(|value| value.abs() <= 5.0), "{what}, {account:?}");
            if before[env].hold_left > 0 && steps[env].end == PendingStep::GOES_ON {
                ensure!(states[env].position == before[env].position, "{what}: traded in a hold");
                ensure!(steps[env].action[0] == 3 && steps[env].action[1..] == actions[env][1..], "{what}: stored");
            }
        }
        envs.collector.write(&[advanced(envs.collector.read()?[0], 3, 33, 99)])?;
    }
    Ok(())
}

/// Mostly small moves; one bar in twenty jumps to the ends of what a bar may hold.
fn wild_bar(seed: u32, t: usize, half_spread: f32) -> MarketBar {
    let price = |what: u32| match uniform(seed, t, 200 + what) {
        draw if draw < 0.02 => -0.999_999,
        draw if draw < 0.04 => 1e6,
        draw if draw < 0.06 => 999.0,
        draw => (draw as f32 - 0.5) / 16.0,
    };
    let (open, close) = (price(0), price(1));
    let (high, low) = (open.max(close).max(price(2)), open.min(close).min(price(3)));
    MarketBar { open, high, low, close, half_spread, ..MarketBar::default() }
}
