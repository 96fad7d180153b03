//! `act`.

use gpu_kernels::explore::{ActRule, act, act_shape};
use gpu_kernels::heads::N_ACTIONS;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case};
use reference::config::{BRANCH_SIZES, first_action};
use reference::philox;
use shared_types::{Collector, Counters, isv, stream};

pub fn cases() -> Vec<Case> {
    vec![
        case("act::follows_its_draws_and_its_ranks", follows_its_draws_and_its_ranks),
        case("act::explores_as_often_as_it_should", explores_as_often_as_it_should),
        case("act::evaluation_is_greedy", evaluation_is_greedy),
        case("act::ties_and_nan", ties_and_nan),
        case("act::under_the_threshold_a_greedy_direction_is_flat", under_the_threshold),
    ]
}

const SEED: [u32; 2] = [17, 4];
const FLAT: u8 = 2;

/// What stands besides the ranks.
#[derive(Clone)]
struct Scene {
    epsilon: f32,
    step: u32,
    explore: u32,
    p_trade: Vec<f32>,
    threshold: f32,
    select_from: i32,
    adam_t: i32,
}

impl Scene {
    fn at(epsilon: f32, step: u32) -> Self {
        Self { epsilon, step, explore: 1, p_trade: vec![], threshold: 0.4, select_from: 0, adam_t: 0 }
    }

    fn run(&self, lab: &Lab, ranks: &[f32]) -> Result<Vec<[u8; 4]>, Failed> {
        let mut bus = [f32::NAN; isv::LEN];
        bus[isv::EPSILON] = self.epsilon;
        let n_envs = ranks.len() / N_ACTIONS;
        let (ranks, bus, p_trade) = (lab.upload(ranks)?, lab.upload(&bus)?, lab.upload(&self.p_trade)?);
        let collector = lab.upload(&[Collector { step: self.step, ..Collector::default() }])?;
        let counters = lab.upload(&[Counters { adam_t: self.adam_t, ..Counters::default() }])?;
        let actions = lab.upload(&vec![[255u8; 4]; n_envs])?;
        let rule = ActRule {
            seed: SEED,
            explore: self.explore,
            select_threshold: self.threshold,
            select_from: self.select_from,
        };
        let launch = act::launch(
            ranks.view(),
            p_trade.view(),
            bus.view(),
            collector.view(),
            counters.view(),
            rule,
            actions.view_mut(),
        );
        lab.run(act_shape(n_envs), launch)?;
        Ok(actions.read()?)
    }
}

fn random_ranks(n_envs: usize, seed: u64) -> Vec<f32> {
    let mut numbers = Numbers::new(seed);
    (0..n_envs * N_ACTIONS).map(|_| numbers.unit() as f32 - 0.5).collect()
}

fn best(ranks: &[f32], env: usize, b: usize) -> u8 {
    let of_branch = &ranks[env * N_ACTIONS + first_action(b)..][..BRANCH_SIZES[b]];
    let exact: Vec<f64> = of_branch.iter().map(|rank| *rank as f64).collect();
    reference::activation::argmax(&exact) as u8
}

/// Whether the branch explores, and what it then takes, by the reference's generator.
fn draw(step: u32, env: usize, b: usize, epsilon: f32) -> Option<u8> {
    let (seed, element) = (SEED[0] as u64 | (SEED[1] as u64) << 32, (env * 4 + b) as u32);
    let explores = philox::uniform(seed, stream::EXPLORE, step, element) < epsilon as f64;
    let word = philox::words(seed, stream::EXPLORE_ACTION, step, element)[0];
    explores.then(|| ((word as u64 * BRANCH_SIZES[b] as u64) >> 32) as u8)
}

fn follows_its_draws_and_its_ranks(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_envs, step) in [(0, 1), (1, 0), (3, 7), (33, 8), (257, 9)] {
        let ranks = random_ranks(n_envs, step as u64);
        let got = Scene::at(0.3, step).run(&lab, &ranks)?;
        for (env, action) in got.iter().enumerate() {
            for (b, &choice) in action.iter().enumerate() {
                let want = draw(step, env, b, 0.3).unwrap_or_else(|| best(&ranks, env, b));
                assert_eq!(choice, want, "environment {env}, branch {b}");
            }
        }
    }
    Ok(())
}

/// Counts within five standard errors: epsilon (1 - 1/n) leave the greedy action, and each other is as frequent. Branches draw
/// on their own, and another step draws anew.
fn explores_as_often_as_it_should(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_envs, epsilon) = (20_000usize, 0.4f32);
    let ranks: Vec<f32> =
        (0..n_envs).flat_map(|_| [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]).collect();
    let got = Scene::at(epsilon, 5).run(&lab, &ranks)?;
    let near = |count: usize, p: f64, what: &str| {
        let n = n_envs as f64;
        let error = (n * p * (1.0 - p)).sqrt();
        assert!((count as f64 - n * p).abs() < 5.0 * error, "{what}: {count} of {n}, {p} expected");
    };
    for b in 0..4 {
        for choice in 1..BRANCH_SIZES[b] {
            let count = got.iter().filter(|action| action[b] as usize == choice).count();
            near(count, epsilon as f64 / BRANCH_SIZES[b] as f64, &format!("branch {b}, action {choice}"));
        }
    }
    let left = |b: usize| epsilon as f64 * (1.0 - 1.0 / BRANCH_SIZES[b] as f64);
    near(got.iter().filter(|a| a[0] != 0 && a[1] != 0).count(), left(0) * left(1), "two branches at once");
    let later = Scene::at(epsilon, 6).run(&lab, &ranks)?;
    near(got.iter().zip(&later).filter(|(a, b)| a[2] != 0 && b[2] != 0).count(), left(2) * left(2), "two steps");
    Ok(())
}

fn evaluation_is_greedy(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let ranks = random_ranks(300, 2);
    let want: Vec<[u8; 4]> = (0..300).map(|env| std::array::from_fn(|b| best(&ranks, env, b))).collect();
    assert_eq!(Scene { explore: 0, ..Scene::at(1.0, 3) }.run(&lab, &ranks)?, want, "explore 0");
    assert_eq!(Scene::at(0.0, 3).run(&lab, &ranks)?, want, "epsilon 0");
    Ok(())
}

fn ties_and_nan(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let nan = f32::NAN;
    let ranks =
        [[2.0; 13], [nan; 13], [nan, -3.0, nan, -3.0, 1.0, nan, 2.0, nan, nan, f32::NEG_INFINITY, 0.0, 0.0, 1.0]];
    let got = Scene::at(0.0, 0).run(&lab, ranks.as_flattened())?;
    assert_eq!(got, [[0; 4], [0; 4], [1, 2, 2, 2]]);
    Ok(())
}

/// An explored direction stays, and so do the other branches; the rule holds from its update on; a P(trade) at the threshold
/// trades.
fn under_the_threshold(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let ranks = random_ranks(200, 4);
    let p_trade: Vec<f32> = (0..200).map(|env| [0.1, 0.4, 0.9][env % 3]).collect();
    let scene = Scene { p_trade, select_from: 50, adam_t: 50, ..Scene::at(0.5, 12) };
    let free = Scene { p_trade: vec![], ..scene.clone() }.run(&lab, &ranks)?;
    let got = scene.run(&lab, &ranks)?;
    for (env, (got, free)) in got.iter().zip(&free).enumerate() {
        let flat = env % 3 == 0 && draw(12, env, 0, 0.5).is_none();
        assert_eq!(*got, [if flat { FLAT } else { free[0] }, free[1], free[2], free[3]], "environment {env}");
    }
    assert_eq!(Scene { adam_t: 49, ..scene.clone() }.run(&lab, &ranks)?, free, "not yet");
    assert_eq!(Scene { threshold: 0.0, ..scene }.run(&lab, &ranks)?, free, "no threshold");
    Ok(())
}
