//! One whole step of the graph against the float64 reference: the core agent's children, number by number.

use std::sync::Arc;

use gpu_kernels::philox;
use host::agent::Agent;
use host::agent::layout::Group;
use host::config::{Config, DataSource, Learners, Preset};
use host::device::{Buffer, Device, Module};
use host::graph::ParentGraph;
use host::images::KERNELS;
use host::market::{Runner, Step};
use host::step::{self, ControlPage, Pages, ReadbackReader, Replay, StepMemory, StepParts};
use onegraph_tests::lab::Numbers;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config as expected;
use reference::layout::Tensors;
use reference::matrix::{Matrix, dot, norm};
use reference::replay;
use reference::step as reference_step;

use shared_types::{Collector, Precision, isv, learner, stream};

use crate::{iqn, learners};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("step::unrounded_steps_are_the_references", |device| {
            steps_are_the_references(device, config(Precision::F32))
        }),
        case("step::rounded_steps_are_the_references", |device| {
            steps_are_the_references(device, config(Precision::Bf16))
        }),
        case("step::unrounded_steps_with_iqn_are_the_references", |device| {
            steps_are_the_references(device, with_iqn(config(Precision::F32)))
        }),
        case("step::rounded_steps_with_iqn_are_the_references", |device| {
            steps_are_the_references(device, with_iqn(config(Precision::Bf16)))
        }),
        case("step::unrounded_steps_with_the_temporal_block_are_the_references", |device| {
            steps_are_the_references(device, with_temporal(config(Precision::F32)))
        }),
        case("step::rounded_steps_with_the_temporal_block_are_the_references", |device| {
            steps_are_the_references(device, with_temporal(config(Precision::Bf16)))
        }),
        case("step::unrounded_steps_with_the_attention_are_the_references", |device| {
            steps_are_the_references(device, with_attention(config(Precision::F32)))
        }),
        case("step::rounded_steps_with_the_attention_are_the_references", |device| {
            steps_are_the_references(device, with_attention(config(Precision::Bf16)))
        }),
        case("step::unrounded_steps_with_temporal_block_and_attention_are_the_references", |device| {
            steps_are_the_references(device, with_both(config(Precision::F32)))
        }),
        case("step::unrounded_steps_with_iqn_and_without_a_target_are_the_references", |device| {
            let mut config = with_iqn(config(Precision::F32));
            config.learners.target_ema = false;
            steps_are_the_references(device, config)
        }),
        case("step::pruned_steps_are_the_references", |device| {
            steps_are_the_references(device, pruned(config(Precision::F32)))
        }),
        case("step::two_runs_give_the_same_bits", two_runs_give_the_same_bits),
        case("step::a_gated_step_changes_nothing_that_is_learned", a_gated_step_changes_nothing_that_is_learned),
    ];
    // What the preset has on, and no case above leaves out.
    let without: [(&str, SwitchOff); 10] = [
        ("film", |on| on.film = false),
        ("spectral", |on| on.spectral = false),
        ("depth", |on| on.depth = false),
        ("selection", |on| on.selection = false),
        ("spacing", |on| on.spacing = false),
        ("cql", |on| on.cql = false),
        ("q_statistics", |on| on.q_statistics = false),
        ("target_ema", |on| on.target_ema = false),
        ("vaccine", |on| on.vaccine = false),
        ("adaptive_clip", |on| on.adaptive_clip = false),
    ];
    cases.extend(without.map(|(name, switch_off)| {
        case(format!("step::unrounded_steps_without_{name}_are_the_references"), move |device| {
            let mut config = config(Precision::F32);
            switch_off(&mut config.learners);
            steps_are_the_references(device, config)
        })
    }));
    cases
}

/// Switches a learner off.
type SwitchOff = fn(&mut Learners);

pub const SEED: u64 = 0x0bad_cafe_1234_5678;
/// IQN's readiness as a scene begins.
const IQN_READINESS: f32 = 0.5;
/// And the first of its losses.
const IQN_FIRST_LOSS: f64 = 4.0;
/// Column of the goal.
const GOAL: usize = 4 * 24 + 15;
/// Where the ring is written next: the slots from here on are older than those before.
const HEAD: u32 = 96;

/// The preset `tiny`, without the learners that have a switch of their own in the cases.
pub fn config(precision: Precision) -> Config {
    let mut config = Config::preset(Preset::Tiny, DataSource::Simulator);
    config.seed = SEED;
    config.precision = precision;
    config.capacity = 256;
    config.batch = 33;
    config.causal.every = 2;
    for learner in [
        &mut config.learners.temporal,
        &mut config.learners.attention,
        &mut config.learners.iqn,
        &mut config.learners.iql,
        &mut config.learners.selectivity,
        &mut config.learners.denoise,
        &mut config.learners.risk,
    ] {
        *learner = false;
    }
    config
}

/// The same with IQN's head.
pub fn with_iqn(mut config: Config) -> Config {
    config.learners.iqn = true;
    config
}

/// The same with the temporal block.
pub fn with_temporal(mut config: Config) -> Config {
    config.learners.temporal = true;
    config
}

/// The same with the attention.
pub fn with_attention(mut config: Config) -> Config {
    config.learners.attention = true;
    config
}

pub fn with_both(config: Config) -> Config {
    with_attention(with_temporal(config))
}

/// The same with masks that are renewed in every step.
pub fn pruned(config: Config) -> Config {
    Config { prune: host::config::Prune { final_sparsity: 0.5, start: 0, end: 3, every: 1 }, ..config }
}

/// What of the reference corresponds to it.
fn expected_config(config: &Config) -> expected::Config {
    let sizes = expected::Sizes::new(config.window as usize, config.hidden, config.branch_hidden, config.atoms);
    let on = &config.learners;
    let learners = expected::Learners {
        temporal: config.learners.temporal,
        iql: on.iql,
        popart: on.popart,
        selectivity: on.selectivity,
        denoise: on.denoise,
        risk: on.risk,
        q_statistics: on.q_statistics,
        target_ema: on.target_ema,
        attention: config.learners.attention,
        film: on.film,
        spectral: on.spectral,
        depth: on.depth,
        selection: on.selection,
        spacing: on.spacing,
        cql: on.cql,
        iqn: config.learners.iqn,
        adaptive_clip: on.adaptive_clip,
        vaccine: config.learners.vaccine,
        pruning: config.prunes(),
        causal: config.learners.causal,
    };
    let steps = config.steps_per_fold();
    expected::Config {
        precision: match config.precision {
            Precision::F32 => reference::precision::Precision::Exact,
            Precision::Bf16 => reference::precision::Precision::Bf16,
        },
        atom_bounds: (config.v_min, config.v_max),
        alpha_cql: config.alpha_cql,
        lambda_iqn: config.lambda_iqn,
        vaccine_weight: config.vaccine.weight,
        causal_every: config.causal.every.into(),
        prune: expected::PruneSchedule {
            final_sparsity: config.prune.final_sparsity,
            start: config.prune.start.into(),
            end: config.prune.end.into(),
            every: config.prune.every.into(),
        },
        reward_scale: config.reward_scale,
        her_weight: config.market_rules().her_weight,
        select_threshold: config.select.threshold,
        denoise_noise: config.denoise.noise,
        risk_lr: config.risk.lr,
        risk_target: config.risk.target,
        beta_adv: config.beta_adv,
        lr: config.lr,
        clip: config.clip,
        tau: (config.tau_init, config.tau_final),
        total_steps: steps,
        anneal_steps: steps,
        ..expected::Config::new(sizes, learners)
    }
}

pub struct Scene {
    pub graph: ParentGraph,
    stream: host::device::Stream,
    pub agent: Agent,
    pub replay: Replay,
    collector: Buffer<Collector>,
    pub memory: StepMemory,
    pub reader: ReadbackReader,
    pages: Arc<Pages>,
    module: Module,
    device: Device,
    pub config: Config,
}

impl Scene {
    /// A ring of random transitions with random priorities, lively parameters.
    pub fn new(device: &Device, config: Config) -> Result<Self, Failed> {
        let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
        let runner = Runner { device, module: &module, stream: &stream };
        let agent = Agent::new(device, &config)?;
        agent.restart(runner)?;
        let mut numbers = Numbers::new(7);
        let mut signed = |scale: f64| (scale * (2.0 * numbers.unit() - 1.0)) as f32;
        let layout = agent.parameters.layout.clone();
        let networks = [&agent.parameters.online, &agent.parameters.target].map(|network| &network.flat);
        for (buffer, n) in networks.into_iter().zip([layout.n_elements(), layout.target().end]) {
            // The same draws where there is no target.
            let mut values = buffer.read()?;
            values.resize(n, 0.0);
            for tensor in layout.tensors().iter().filter(|tensor| tensor.range().end <= n) {
                values[tensor.range()].iter_mut().for_each(|value| *value += signed(0.2));
            }
            buffer.write(&values[..buffer.len()])?;
        }
        agent.parameters.refresh_operands()?;
        agent.spacing.write(&(0..agent.spacing.len()).map(|_| signed(1.0)).collect::<Vec<_>>())?;
        runner.run([agent.update_atoms()])?;
        if config.learners.iqn {
            // As after many steps: at the first step's readiness of 0 the trunk would learn nothing of IQN.
            let mut bus = agent.bus.read()?;
            bus[isv::IQN_READINESS] = IQN_READINESS;
            agent.bus.write(&bus)?;
            agent.seeded.write(&[1 << isv::IQN_READINESS])?;
            agent.iqn_averages.write(&[IQN_FIRST_LOSS * f64::from(1.0 - IQN_READINESS), IQN_FIRST_LOSS])?;
        }

        let replay = Replay::new(device, config.capacity, config.window as usize)?;
        let ring = &replay.ring;
        let fill = |buffer: &Buffer<f32>, values: &mut dyn FnMut() -> f32| -> Outcome {
            Ok(buffer.write(&(0..buffer.len()).map(|_| values()).collect::<Vec<_>>())?)
        };
        fill(&ring.states, &mut || signed(2.0))?;
        fill(&ring.next_states, &mut || signed(2.0))?;
        fill(&ring.rewards, &mut || signed(1.5))?;
        fill(&ring.achieved, &mut || signed(1.0))?;
        let mut numbers = Numbers::new(8);
        let sizes = shared_types::market::BRANCH_SIZES;
        let actions: Vec<[u8; 4]> = (0..config.capacity).map(|_| sizes.map(|size| numbers.below(size) as u8)).collect();
        ring.actions.write(&actions)?;
        ring.dones.write(&(0..config.capacity).map(|slot| u8::from(slot % 11 == 3)).collect::<Vec<_>>())?;
        ring.discount_powers.write(&(0..config.capacity).map(|slot| 1.0 + (slot % 3) as f32).collect::<Vec<_>>())?;
        // Episodes of seven bars, those of environment e numbered e, e + E, and so on in the order in which they were written.
        let n_envs = config.environments;
        let episode = |slot: usize| {
            let written = (slot + config.capacity - HEAD as usize) % config.capacity;
            (written / n_envs / 7 * n_envs + written % n_envs) as u32
        };
        ring.episode_ids.write(&(0..config.capacity).map(episode).collect::<Vec<_>>())?;
        ring.achieved.write(&(0..config.capacity).map(|_| 2.0 * numbers.unit() as f32).collect::<Vec<_>>())?;
        let mut tree = vec![0.0f32; replay.tree.len()];
        tree[config.capacity..].iter_mut().for_each(|leaf| *leaf = 0.1 + numbers.unit() as f32);
        replay.tree.write(&tree)?;
        runner.run(replay.tree_memory().build())?;

        let memory = StepMemory::new(device, &config, &agent)?;
        let pages = Pages::new(device)?;
        let control = ControlPage::new(pages.clone());
        control.set_lr(config.lr as f32);
        control.set_clip(config.clip as f32);
        control.set_beta0(config.per.beta0 as f32);
        let collector = device.upload(&[Collector { head: HEAD, ..Collector::default() }])?;
        let parts = StepParts {
            device,
            config: &config,
            agent: &agent,
            replay: &replay,
            collector: &collector,
            memory: &memory,
            pages: &pages,
        };
        let graph = step::compose(&parts)?;
        let (reader, device) = (ReadbackReader::new(pages.clone()), device.clone());
        Ok(Self { graph, stream, agent, replay, collector, memory, reader, pages, module, device, config })
    }

    pub fn step(&self) -> Outcome {
        self.graph.launch(&self.stream)?;
        Ok(self.stream.synchronize()?)
    }

    /// The children that the graph was captured from.
    pub fn children(&self) -> Vec<(&'static str, Vec<Step>)> {
        let Self { device, config, agent, replay, collector, memory, pages, .. } = self;
        step::children(&StepParts { device, config, agent, replay, collector, memory, pages })
    }

    /// Launches without a graph.
    pub fn run(&self, steps: Vec<Step>) -> Outcome {
        Runner { device: &self.device, module: &self.module, stream: &self.stream }.run(steps)?;
        Ok(self.stream.synchronize()?)
    }

    /// The reference's agent with the device's parameters.
    pub fn reference(&self) -> Result<reference_step::State, Failed> {
        let config = expected_config(&self.config);
        let mut state = reference_step::State::new(config, SEED, self.config.e_start, stream::SPECTRAL);
        let agent = &self.agent;
        let into = |tensors: &mut Tensors, buffer: &Buffer<f32>| -> Outcome {
            for (to, from) in tensors.flat.iter_mut().zip(buffer.read()?) {
                *to = f64::from(from);
            }
            Ok(())
        };
        into(&mut state.params, &agent.parameters.online.flat)?;
        into(&mut state.target, &agent.parameters.target.flat)?;
        let u = agent.spectral.u.read()?;
        let mut u = u.iter().map(|&x| f64::from(x));
        for vectors in [&mut state.online_u, &mut state.target_u].into_iter().take(agent.spectral.n_networks) {
            vectors.iter_mut().flatten().for_each(|x| *x = u.next().expect("as many elements"));
        }
        let (k, spacing) = (self.config.atoms - 1, agent.spacing.read()?);
        state.spacing = spacing.chunks(k).map(|branch| branch.iter().map(|&x| f64::from(x)).collect()).collect();
        state.refresh_atoms();
        if self.config.learners.iqn {
            let [ema, first] = agent.iqn_averages.read()?[..] else { unreachable!("two averages") };
            state.iqn.ema_and_first = Some((ema, first));
            state.isv.entries[isv::IQN_READINESS] = state.readiness();
        }
        Ok(state)
    }

    /// What was sampled in the last step, as the reference takes it.
    pub fn batch(&self) -> Result<(reference_step::Batch, reference_step::Draws), Failed> {
        let (ring, batch) = (&self.replay.ring, &self.memory.batch);
        let indices = batch.indices.read()?;
        let width = self.agent.sizes().state_dim();
        let n = indices.len();
        let rows = |from: &[f32]| {
            Matrix::from_fn(n, width, |row, column| f64::from(from[indices[row] as usize * width + column]))
        };
        let (mut states, mut next_states) = (rows(&ring.states.read()?), rows(&ring.next_states.read()?));
        let (actions, rewards) = (ring.actions.read()?, ring.rewards.read()?);
        let (dones, powers) = (ring.dones.read()?, ring.discount_powers.read()?);
        let of = |values: &[f32]| indices.iter().map(|&slot| f64::from(values[slot as usize])).collect::<Vec<_>>();
        let step = self.agent.counters.read()?[0].rng_step as u32;
        let seed = [SEED as u32, (SEED >> 32) as u32];
        let uniform = |block: u32| f64::from(philox::uniform(seed, stream::DEPTH, step, block));
        let draws = reference_step::Draws {
            depth_uniforms: (0..2).map(uniform).collect(),
            denoise_normals: Matrix::from_fn(n, 24, |row, f| {
                f64::from(philox::normal(seed, stream::DENOISE, step, (row * 24 + f) as u32))
            }),
            causal_uniform: philox::uniform(seed, stream::CAUSAL, step, 0).into(),
        };
        let (mut rewards, achieved) = (of(&rewards), ring.achieved.read()?);
        let episodes = ring.episode_ids.read()?;
        let place =
            replay::Ring { capacity: episodes.len(), n_environments: self.config.environments, head: HEAD as usize };
        let mut relabelled = vec![false; n];
        for (row, &slot) in indices.iter().enumerate().filter(|_| self.config.learners.her) {
            let uniform = |stream| f64::from(philox::uniform(seed, stream, step, row as u32));
            let donor = place.donor(slot as usize, &episodes, uniform(stream::HER_DONOR));
            let Some(donor) = donor.filter(|_| uniform(stream::HER_PICK) < self.config.her.ratio) else { continue };
            let (own, new) = (f64::from(achieved[slot as usize]), f64::from(achieved[donor]));
            let (scale, weight) = (self.config.reward_scale, self.config.her.weight);
            rewards[row] = replay::relabelled_reward(rewards[row], states[(row, GOAL)], new, own, scale, weight);
            (states[(row, GOAL)], next_states[(row, GOAL)], relabelled[row]) = (new, new, true);
        }
        let batch = reference_step::Batch {
            states,
            next_states,
            actions: indices.iter().map(|&slot| actions[slot as usize].map(usize::from)).collect(),
            rewards,
            dones: indices.iter().map(|&slot| dones[slot as usize] == 1).collect(),
            n_steps: of(&powers).iter().map(|&n| n as u32).collect(),
            achieved: of(&achieved),
            weights: batch.weights.read()?.into_iter().map(f64::from).collect(),
            relabelled,
        };
        Ok((batch, draws))
    }
}

/// ||got - want|| / ||want||, over two lists.
fn relative(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f64| x * x;
    let off: f64 = got.iter().zip(want).map(|(&got, want)| square(f64::from(got) - want)).sum();
    let size: f64 = want.iter().map(|&x| square(x)).sum();
    if size == 0.0 { off.sqrt() } else { (off / size).sqrt() }
}

fn cosine(got: &[f32], want: &[f64]) -> f64 {
    let got: Vec<f64> = got.iter().map(|&x| f64::from(x)).collect();
    dot(&got, want) / (norm(&got) * norm(want))
}

pub fn check(what: &str, got: &[f32], want: &[f64], bound: f64) -> Outcome {
    let off = relative(got, want);
    println!("{what}: {off:.1e} of {bound:.0e}");
    ensure!(off <= bound, "{what} is off by {off:e} relative, bound {bound:e}");
    Ok(())
}

/// Bounds of the design: unrounded, 1e-5 for every tensor; with bf16 operands J 1e-4, activations 2%, gradients 6%.
///
/// After an update a parameter is compared by its move: Adam's first moves are lr times the gradient's sign, so an element whose
/// gradient is nearly 0 may move the other way; the parameters themselves are compared, which such moves change by lr.
pub fn steps_are_the_references(device: &Device, config: Config) -> Outcome {
    let precision = config.precision;
    let learners = config.learners.clone();
    let scene = Scene::new(device, config)?;
    let mut state = scene.reference()?;
    let (activation, gradient, objective, parameter) = match precision {
        Precision::F32 => (1e-5, 1e-5, 1e-5, 1e-5),
        Precision::Bf16 => (2e-2, 6e-2, 1e-4, 1e-2),
    };
    for step in 0..3 {
        let priorities_before = scene.replay.tree.read()?;
        scene.step()?;
        let (batch, draws) = scene.batch()?;
        let before = state.clone();
        let out = reference_step::step(&mut state, &batch, &draws);
        ensure!(!out.gated, "the reference's step {step} is gated");
        let (memory, agent) = (&scene.memory, &scene.agent);
        let what = |name: &str| format!("step {step}, {name}");
        let goals = |rows: &[f32], width: usize| -> Vec<f32> { rows.chunks(width).map(|row| row[GOAL]).collect() };
        let want: Vec<f64> = (0..batch.relabelled.len()).map(|row| batch.states[(row, GOAL)]).collect();
        let stride = agent.sizes().state_stride();
        ensure!(batch.relabelled.contains(&true), "step {step} relabels no row");
        check(&what("goals"), &goals(&memory.batch.states.read()?, stride), &want, 0.0)?;
        check(&what("rewards"), &memory.batch.rewards.read()?, &batch.rewards, 1e-6)?;
        for (name, got, want) in [
            ("online", &memory.online, &out.at.pass),
            ("online on s'", &memory.online_next, &out.next.online),
            ("target on s'", &memory.target_next, &out.next.target),
        ] {
            ensure!(got.temporal.is_some() == want.temporal.is_some(), "{name}: one of the two has no temporal block");
            if let (Some(got), Some(want)) = (&got.temporal, &want.temporal) {
                let name = what(&format!("temporal block, {name}"));
                check(&name, &got.output.read()?, &want.output.values, activation)?;
            }
            ensure!(got.attention.is_some() == want.attention.is_some(), "{name}: one of the two has no attention");
            if let (Some(got), Some(want)) = (&got.attention, &want.attention) {
                let name = what(&format!("attention, {name}"));
                check(&name, &got.output.read()?, &want.output.values, activation)?;
            }
        }
        check(&what("h"), &memory.online.h[2].read()?, &out.at.pass.trunk.output.values, activation)?;
        check(
            &what("h of s', target"),
            &memory.target_next.h[2].read()?,
            &out.next.target.trunk.output.values,
            activation,
        )?;
        let per_row = |matrices: &[Matrix]| -> Vec<f64> {
            (0..batch.actions.len()).flat_map(|row| matrices.iter().flat_map(move |m| m.row(row).to_vec())).collect()
        };
        check(&what("Q"), &memory.q.read()?, &per_row(&out.at.pass.distributions.q), activation)?;
        check(&what("targets"), &memory.targets.read()?, &per_row(&out.next.targets), activation)?;
        let totals = memory.totals.read()?[0];
        check(&what("J"), &[totals.objective], &[out.at.total], objective)?;
        check(&what("mse"), &[totals.mse], &[out.at.losses.mse], activation)?;
        iqn::is_the_references(
            &format!("step {step}, "),
            &scene,
            &before,
            &state,
            &out,
            (activation, gradient, objective),
        )?;
        let got = agent.parameters.gradient.read()?;
        for tensor in agent.parameters.layout.tensors() {
            let want = &out.first.params.flat[tensor.range()];
            let got = &got[tensor.range()];
            let learns = want.iter().any(|&x| x != 0.0);
            let switches =
                [("temporal.", learners.temporal), ("attention.", learners.attention), ("iqn.", learners.iqn)];
            for (_, on) in switches.into_iter().filter(|(part, _)| tensor.name.starts_with(part)) {
                ensure!(learns == on, "the reference's gradient of {}", tensor.name);
                ensure!(learns || got.iter().all(|&x| x == 0.0), "{} learns though it is off", tensor.name);
            }
            if learns {
                check(&what(&format!("gradient of {}", tensor.name)), got, want, gradient)?;
            }
        }
        let theta = agent.parameters.layout.group(Group::Theta);
        let cosine = cosine(&got[theta.clone()], &out.first.params.flat[theta]);
        ensure!(cosine >= 0.999, "step {step}: the gradient's cosine is {cosine}");
        ensure!(out.causal.is_some() == (step == 1), "step {step} measures sensitivities");
        if let (Some(want), Some(got)) = (&out.causal, &memory.causal) {
            check(&what("sensitivities"), &got.sensitivity.read()?, want, activation)?;
        }
        learners::check_step(&what, &scene, &out, [activation, gradient])?;
        let published = scene.reader.read().ok_or("nothing was published")?;
        ensure!(published.step == step + 1, "step {} was published", published.step);
        check(&what("norm"), &[published.readback.grad_norm_sq.sqrt()], &[out.update.norm], gradient)?;
        if let Some(head) = out.heads.iter().find(|head| head.group == reference::layout::Group::Attention) {
            let update = memory.update.read()?[learner::ATTENTION];
            check(&what("the attention's norm"), &[update.squared_norm.sqrt()], &[head.norm], gradient)?;
            check(&what("the attention's scale"), &[update.gradient_scale], &[head.scale], gradient)?;
            let attention = agent.parameters.layout.group(Group::Attention);
            let flat = agent.parameters.online.flat.read()?;
            check(
                &what("the attention's parameters"),
                &flat[attention.clone()],
                &state.params.flat[attention],
                parameter,
            )?;
            ensure!(head.applied && published.counters.attn_t == step as i32 + 1, "{:?}", published.counters);
        }
        check(&what("parameters"), &agent.parameters.online.flat.read()?, &state.params.flat, parameter)?;
        let target = agent.parameters.target.flat.read()?;
        check(&what("target"), &target, &state.target.flat[..target.len()], parameter)?;
        let bus = agent.bus.read()?;
        check(&what("isv"), &bus[..24], &state.isv.entries[..24], activation)?;
        check(&what("eta"), &bus[isv::RISK_ETA..][..1], &state.isv.entries[isv::RISK_ETA..][..1], activation)?;
        let td: Vec<f64> = memory.td_errors.read()?.iter().map(|td| td.to_f64()).collect();
        let priorities = scene.replay.tree.read()?;
        let indices = memory.batch.indices.read()?;
        for (row, &slot) in indices.iter().enumerate() {
            ensure!(td[row].is_nan() == batch.relabelled[row], "row {row}: td {}", td[row]);
            let leaf = |tree: &[f32]| f64::from(tree[scene.config.capacity + slot as usize]);
            let of_slot = indices.iter().zip(&td).filter(|(other, td)| **other == slot && td.is_finite());
            let best = of_slot.map(|(_, td)| (td.abs() + 1e-6).powf(0.6)).reduce(f64::max);
            let (leaf, want) = (leaf(&priorities), best.unwrap_or_else(|| leaf(&priorities_before)));
            ensure!((leaf - want).abs() <= 1e-5 * want, "row {row}: leaf {leaf}, {want} expected");
        }
        if precision == Precision::Bf16 || learners.temporal && learners.attention || !learners.target_ema {
            // Rounding makes the two drift apart, and so does an element whose gradient is nearly 0 and that moves the other way, of
            // which more parameters have more, and which without a target network the targets follow at once; each step is compared
            // from the same parameters.
            state = resumed(&scene, state)?;
        }
    }
    Ok(())
}

/// The reference's agent after the device's parameters were taken over.
fn resumed(scene: &Scene, before: reference_step::State) -> Result<reference_step::State, Failed> {
    let now = scene.reference()?;
    Ok(reference_step::State {
        params: now.params,
        target: now.target,
        online_u: now.online_u,
        target_u: now.target_u,
        iqn: now.iqn,
        ..before
    })
}

fn two_runs_give_the_same_bits(device: &Device) -> Outcome {
    let run = || -> Result<(Vec<u32>, Vec<u32>), Failed> {
        let scene = Scene::new(device, with_iqn(with_both(config(Precision::Bf16))))?;
        (0..4).try_for_each(|_| scene.step())?;
        let bits = |buffer: &Buffer<f32>| -> Result<Vec<u32>, Failed> {
            Ok(buffer.read()?.into_iter().map(f32::to_bits).collect())
        };
        Ok((bits(&scene.agent.parameters.online.flat)?, bits(&scene.replay.tree)?))
    };
    ensure!(run()? == run()?, "two runs from one seed differ");
    Ok(())
}

/// A NaN reward of every transition: the loss is not finite, so parameters, moments, targets, priorities and averages stay; the
/// step is counted and flagged.
fn a_gated_step_changes_nothing_that_is_learned(device: &Device) -> Outcome {
    let mut config = with_both(config(Precision::Bf16));
    // The sensitivities are measured in a gated step as well.
    config.causal.every = 100;
    let scene = Scene::new(device, config)?;
    scene.step()?;
    let p = &scene.agent.parameters;
    let learned = || -> Result<Vec<Vec<u32>>, Failed> {
        let buffers = [&p.online.flat, &p.target.flat, &p.first_moments, &p.second_moments, &scene.replay.tree];
        let buffers = buffers.into_iter().chain([&scene.agent.spacing]);
        buffers.map(|buffer| Ok(buffer.read()?.into_iter().map(f32::to_bits).collect())).collect()
    };
    let (before, bus) = (learned()?, scene.agent.bus.read()?);
    scene.replay.ring.rewards.write(&vec![f32::NAN; scene.config.capacity])?;
    scene.step()?;
    ensure!(learned()? == before, "a gated step changed something");
    let counters = scene.agent.counters.read()?[0];
    ensure!((counters.adam_t, counters.attn_t, counters.rng_step) == (1, 1, 2), "{counters:?}");
    let published = scene.reader.read().ok_or("nothing was published")?;
    let flags = published.readback.nan_flags;
    ensure!(flags[0] != 0 && flags[1] != 0 && flags[2] != 0, "{flags:?}");
    let after = scene.agent.bus.read()?;
    for entry in (0..12).chain([14, 22]) {
        ensure!(after[entry].to_bits() == bus[entry].to_bits(), "ISV {entry} changed");
    }
    ensure!(after[13] == 1.0 && after[12] < bus[12], "skipped {} health {}", after[13], after[12]);
    scene.replay.ring.rewards.write(&vec![0.25; scene.config.capacity])?;
    scene.step()?;
    ensure!(learned()? != before, "training does not go on");
    ensure!(scene.reader.read().ok_or("nothing")?.readback.nan_flags == [0; 7], "flags stay set");
    Ok(())
}
