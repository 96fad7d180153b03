//! The five-state chain of [`reference::chain`]: the step's graph learns its exact solution.

use gpu_kernels::c51::c51_q;
use gpu_kernels::lanes::row_shape;
use host::agent::Pass;
use host::config::{Config, DataSource, Preset};
use host::device::Device;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::chain::{Chain, N_DIRECTIONS, N_STATES, Values};
use shared_types::isv;
use shared_types::market::{BRANCH_SIZES, N_FEATURES};

use crate::learner::{Learner, Transition, unchecked};

pub fn cases() -> Vec<Case> {
    vec![
        case("chain::one_step_targets_give_the_optimal_values", |device| learns(device, 1, 20, [700, 250])),
        case("chain::three_step_targets_give_their_fixed_point", |device| learns(device, 3, 320, [350, 200])),
    ]
}

/// Copies of each path, so that every idle branch takes each of its actions equally often along it.
const N_COPIES: usize = 9;
/// Actions of all branches.
const N_ACTIONS: usize = 13;

/// The preset `tiny` but for what would bias the values that are compared: no CQL, no stochastic depth, no goal. Priorities have alpha 0,
/// since the fixed point of several steps is that of the uniform behaviour, which prioritized draws are not, whose bias importance
/// weights take away only where beta has reached 1. Atoms reach as far as the chain's values.
fn config(batch: usize) -> Config {
    let mut config = Config::preset(Preset::Tiny, DataSource::Simulator);
    config.seed = 5;
    config.capacity = 4096;
    config.batch = batch;
    config.alpha_cql = 0.0;
    config.depth_keep_last = 1.0;
    config.learners.her = false;
    config.learners.iqn = false;
    config.per.alpha = 0.0;
    (config.v_min, config.v_max) = (-10.0, 10.0);
    (config.tau_init, config.tau_final) = (0.2, 0.2);
    config
}

/// A state's row: one-hot in the last bar's first five features.
fn row_of(state: usize, width: usize, window: usize) -> Vec<f32> {
    let mut row = vec![0.0; width];
    row[(window - 1) * N_FEATURES + state] = 1.0;
    row
}

/// Every path of n steps from every state, which is the uniform behaviour's distribution without noise. Copies of one path lie side by
/// side, and so do paths that begin alike: each of as many strata as there are beginnings gives a batch one of them.
fn transitions(chain: &Chain, n: u32, width: usize, window: usize) -> Vec<Transition> {
    let mut all = Vec::new();
    for path in 0..N_STATES * N_DIRECTIONS.pow(n) * N_COPIES {
        let (copy, path) = (path % N_COPIES, path / N_COPIES);
        let direction = |k: u32| path / N_DIRECTIONS.pow(n - 1 - k) % N_DIRECTIONS;
        let start = path / N_DIRECTIONS.pow(n);
        let (mut state, mut reward) = (start, 0.0);
        for k in 0..n {
            reward += chain.gamma.powi(k as i32) * chain.reward(state, direction(k));
            state = Chain::next(state, direction(k));
        }
        all.push(Transition {
            state: row_of(start, width, window),
            next_state: row_of(state, width, window),
            actions: [direction(0), copy % 3, copy / 3, (copy + copy / 3) % 3].map(|action| action as u8),
            reward: reward as f32,
            n,
        });
    }
    all
}

/// Trains with targets of n steps, and holds each value of the direction branch to 2% of its own exact one. The batch has
/// every path once: with fewer, the noise of draws is about the tolerance.
fn learns(device: &Device, n: u32, batch: usize, n_steps: [usize; 2]) -> Outcome {
    let device = unchecked(device);
    let (chain, config) = (Chain::default(), config(batch));
    let (width, window) = (shared_types::market::state_dim(config.window as usize), config.window as usize);
    let lr = config.lr as f32;
    let learner = Learner::new(&device, config, &transitions(&chain, n, width, window))?;
    let mut bus = learner.agent.bus.read()?;
    bus[isv::GAMMA] = chain.gamma as f32;
    learner.agent.bus.write(&bus)?;
    // A lower rate at the end: Adam's noise at the first one is about the tolerance.
    for (factor, n) in [1.0, 0.1].into_iter().zip(n_steps) {
        learner.control.set_lr(factor * lr);
        learner.steps(n)?;
    }
    let published = learner.reader.read().ok_or("nothing was published")?;
    ensure!(published.counters.adam_t as usize == n_steps.iter().sum::<usize>(), "{:?}", published.counters);

    let (q, exact) = (values(&learner, width, window)?, chain.fixed_point(n));
    let top = exact.iter().flatten().fold(0.0f64, |top, q| top.max(q.abs()));
    let (off, at) = worst(&q, &exact);
    println!("direction: {:.2}%", 100.0 * off);
    ensure!(off <= 0.02, "state {}, direction {}: off by {:.2}%; Q {q:.3?} of {exact:.3?}", at.0, at.1, 100.0 * off);
    for (state, exact) in exact.iter().enumerate() {
        // The lead of the best direction over the others is what the policy lives by.
        let best = |row: &[f64]| (0..N_DIRECTIONS).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
        let (got, want) = (best(&q[state][..N_DIRECTIONS]), best(exact));
        let tied = |a: usize, b: usize| (exact[a] - exact[b]).abs() < 0.04 * top;
        ensure!(
            got.zip(want).is_some_and(|(a, b)| tied(a, b)),
            "state {state}: direction {got:?} is best, not {want:?}"
        );
    }

    let idle = chain.idle_value();
    let off = (0..N_STATES).flat_map(|s| q[s][N_DIRECTIONS..].iter().map(move |q| (s, q)));
    let off = off.map(|(s, q)| (q - idle[s]).abs()).fold(0.0, f64::max);
    println!("idle branches: {:.2}% of the greatest value", 100.0 * off / top);
    // A batch has few of the idle actions, so that the greatest of their values is above the true one by the noise of draws.
    ensure!(off <= 0.05 * top, "idle branches: off by {off:.3} of {top:.3}; Q {q:.3?} of {idle:.3?}");
    Ok(())
}

/// Q of every state, \[5, 13\], by the pass that evaluation takes.
fn values(learner: &Learner, width: usize, window: usize) -> Result<[[f64; N_ACTIONS]; N_STATES], Failed> {
    let (agent, device) = (&learner.agent, learner.device());
    let stride = agent.sizes().state_stride();
    let mut rows = Vec::new();
    for state in 0..N_STATES {
        rows.extend(row_of(state, width, window));
        rows.resize((state + 1) * stride, 0.0);
    }
    let rows = device.upload(&rows)?;
    let pass = Pass::new(device, &agent.parameters, N_STATES, &agent.learners)?;
    let q = device.alloc_zeroed(N_STATES * N_ACTIONS)?;
    let greedy = device.alloc_zeroed(N_STATES)?;
    let mut steps = agent.spectral.iterate(&agent.parameters);
    steps.extend(pass.forward(&rows, &agent.parameters.online, &agent.parameters.online.flat, &agent.keep, &agent.bus));
    let mean = c51_q::launch(pass.heads.view(), agent.atoms.view(), agent.columns(), q.view_mut(), greedy.view_mut());
    steps.push((row_shape(N_STATES, device.row_lanes()), mean));
    learner.runner().run(steps)?;
    let q = q.read()?;
    Ok(std::array::from_fn(|s| std::array::from_fn(|a| f64::from(q[s * N_ACTIONS + a]))))
}

/// The greatest error of the direction branch, of the exact value there, and where it is.
fn worst(q: &[[f64; N_ACTIONS]; N_STATES], exact: &Values) -> (f64, (usize, usize)) {
    let mut worst = (0.0, (0, 0));
    for state in 0..N_STATES {
        for action in 0..BRANCH_SIZES[0] {
            let off = (q[state][action] / exact[state][action] - 1.0).abs();
            // A NaN must not pass for a small error.
            if off.is_nan() || off > worst.0 {
                worst = (if off.is_nan() { f64::INFINITY } else { off }, (state, action));
            }
        }
    }
    worst
}
