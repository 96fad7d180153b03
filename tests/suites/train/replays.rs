//! Replays of the step's graph: what they draw, and that they are the step without the graph.

use host::config::{Config, DataSource, Learners, Preset, Sampler};
use host::device::{Device, DeviceChoice};
use onegraph_tests::lab::{Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::market::{BRANCH_SIZES, state_dim};

use crate::learner::{Learner, Transition};
use crate::runs::with_learners;

pub fn cases() -> Vec<Case> {
    vec![
        case("replays::case_k_two_replays_draw_different_numbers", case_k_two_replays_draw_different_numbers),
        case("replays::both_samplers_draw_the_same", both_samplers_draw_the_same),
        case("replays::case_k_replay_k_is_step_k_without_the_graph", |device| {
            case_k_replay_k_is_step_k_without_the_graph(device, config(9))
        }),
        case("replays::case_k_replay_k_is_step_k_without_the_graph_with_every_learner", |device| {
            case_k_replay_k_is_step_k_without_the_graph(device, with_learners(config(9)))
        }),
        case("replays::i4_whole_numbers_are_those_of_the_cpu", i4_whole_numbers_are_those_of_the_cpu),
        case("replays::draws_follow_the_priorities_of_the_step_before", draws_follow_the_priorities),
    ]
}

const CAPACITY: usize = 64;

fn config(batch: usize) -> Config {
    let preset = Config::preset(Preset::Tiny, DataSource::Simulator);
    let mut config = Config { seed: 0xfeed_0123_4567, capacity: CAPACITY, batch, depth_keep_last: 0.5, ..preset };
    // Relabelled rows keep their priority, which hides what these tests look at.
    let learners = config.learners;
    config.learners = Learners { her: false, temporal: true, attention: true, iqn: true, ..learners };
    config
}

fn transitions(config: &Config, reward_of: impl Fn(usize) -> f32) -> Vec<Transition> {
    let mut numbers = Numbers::new(17);
    let mut row = |_| 2.0 * numbers.unit() as f32 - 1.0;
    let width = state_dim(config.window as usize);
    let rows = (0..CAPACITY).map(|slot| {
        let state: Vec<f32> = (0..width).map(&mut row).collect();
        let next_state = (0..width).map(&mut row).collect();
        let actions = BRANCH_SIZES.map(|size| (slot % size) as u8);
        Transition { state, next_state, actions, reward: reward_of(slot), n: 1 + slot as u32 % 3 }
    });
    rows.collect()
}

fn learner(device: &Device, config: Config) -> Result<Learner, Failed> {
    let transitions = transitions(&config, |slot| (slot as f32 * 0.7).sin());
    Learner::new(device, config, &transitions)
}

/// Indices of the draws and the masks of stochastic depth. Equal masks in all of six replays have a chance of 2 in 10^3 at keep
/// probabilities of 0.75 and 0.5, and the seed is fixed.
fn case_k_two_replays_draw_different_numbers(device: &Device) -> Outcome {
    let learner = learner(device, config(9))?;
    let (mut draws, mut masks) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        learner.steps(1)?;
        draws.push(learner.memory.batch.indices.read()?);
        masks.push(bits(&learner.agent.scalars.read()?[0].depth_mask));
    }
    for (k, pair) in draws.windows(2).enumerate() {
        ensure!(pair[0] != pair[1], "replays {k} and {} drew {:?}", k + 1, pair[0]);
    }
    ensure!(masks.iter().any(|mask| *mask != masks[0]), "one depth mask in six replays");
    Ok(())
}

/// Everything that a step writes for the next one, and what it drew.
fn state(learner: &Learner) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (p, replay, memory) = (&learner.agent.parameters, &learner.replay, &learner.memory);
    let mut state = vec![("draws", memory.batch.indices.read()?)];
    for (name, buffer) in [
        ("online", &p.online.flat),
        ("target", &p.target.flat),
        ("first moments", &p.first_moments),
        ("second moments", &p.second_moments),
        ("spacing", &learner.agent.spacing),
        ("snapshot", &learner.agent.snapshot),
        ("isv", &learner.agent.bus),
        ("tree", &replay.tree),
        ("max priority", &replay.max_priority),
    ] {
        state.push((name, bits(&buffer.read()?)));
    }
    state.push(("popart", bytemuck::cast_slice(&learner.agent.popart.read()?).to_vec()));
    state.push(("counters", bytemuck::cast_slice(&learner.agent.counters.read()?).to_vec()));
    state.push(("readback", bytemuck::cast_slice(&learner.memory.readback.read()?).to_vec()));
    Ok(state)
}

fn case_k_replay_k_is_step_k_without_the_graph(device: &Device, config: Config) -> Outcome {
    let (replayed, launched) = (learner(device, config.clone())?, learner(device, config)?);
    for k in 1..=4 {
        replayed.steps(1)?;
        launched.step_without_graph()?;
        for ((name, got), (_, want)) in state(&replayed)?.into_iter().zip(state(&launched)?) {
            ensure!(got == want, "step {k}: {name} of the replay and of the launches differ");
        }
    }
    Ok(())
}

/// Draws, goals taken over, depth masks, counters: what is whole numbers is the same on every device. Priorities are all 1 in the
/// first step; from the second on they are rounded by each device's own sums.
fn i4_whole_numbers_are_those_of_the_cpu(device: &Device) -> Outcome {
    let whole_numbers = |device: &Device| -> Result<_, Failed> {
        let mut config = config(33);
        config.learners.her = true;
        let learner = Learner::new(device, config.clone(), &transitions(&config, |slot| (slot as f32).sin()))?;
        learner.replay.ring.episode_ids.write(&(0..CAPACITY as u32).map(|slot| slot % 16).collect::<Vec<_>>())?;
        learner.steps(1)?;
        let batch = &learner.memory.batch;
        let first =
            (batch.indices.read()?, batch.relabelled.read()?, bits(&learner.agent.scalars.read()?[0].depth_mask));
        learner.steps(2)?;
        Ok((first, learner.agent.counters.read()?))
    };
    let (got, want) = (whole_numbers(device)?, whole_numbers(&Device::open(DeviceChoice::Cpu)?)?);
    ensure!(got.0.1.contains(&1), "no row took another goal");
    ensure!(got == want, "{got:?}\n{want:?} on the CPU");
    Ok(())
}

/// The configured sampler is the one that draws: from running sums the same slots come as from the tree, up to the rounding of its
/// sums, of which 64 priorities leave none to see, and so the same step.
fn both_samplers_draw_the_same(device: &Device) -> Outcome {
    let of = |sampler| -> Result<Learner, Failed> {
        let mut config = config(9);
        config.per.sampler = sampler;
        let transitions = transitions(&config, |slot| (slot as f32 * 0.7).sin());
        Learner::new(device, config, &transitions)
    };
    let (tree, scan) = (of(Sampler::Tree)?, of(Sampler::Scan)?);
    let kernels = |learner: &Learner| learner.graph.description().n_kernels();
    ensure!(kernels(&scan) == kernels(&tree) + 4, "{} and {} kernels", kernels(&scan), kernels(&tree));
    for k in 1..=4 {
        tree.steps(1)?;
        scan.steps(1)?;
        for ((name, got), (_, want)) in state(&scan)?.into_iter().zip(state(&tree)?) {
            ensure!(got == want, "step {k}: {name} of the two samplers differ");
        }
    }
    Ok(())
}

/// One transition pays what no other does, all else is worth nothing. With as many strata as slots the first step draws each slot
/// once, all priorities being 1; from the second on that one has most of the mass, and its share of the draws is its share of the mass.
fn draws_follow_the_priorities(device: &Device) -> Outcome {
    const SURPRISE: u32 = 41;
    let config = config(CAPACITY);
    let transitions = transitions(&config, |slot| if slot as u32 == SURPRISE { 50.0 } else { 0.0 });
    let learner = Learner::new(device, config, &transitions)?;
    let drawn = || -> Result<usize, Failed> {
        Ok(learner.memory.batch.indices.read()?.into_iter().filter(|slot| *slot == SURPRISE).count())
    };
    learner.steps(1)?;
    let before = drawn()?;
    ensure!(before == 1, "at equal priorities it was drawn {before} times of {CAPACITY}");
    let tree = learner.replay.tree.read()?;
    let share = f64::from(tree[CAPACITY + SURPRISE as usize]) / f64::from(tree[1]);
    learner.steps(1)?;
    let after = drawn()?;
    println!("share of the mass {share:.3}, drawn {after} times of {CAPACITY}");
    ensure!(share > 0.25, "a reward that no atom reaches has {share} of the mass");
    // Stratified: all strata within its mass, and at most the two at its ends besides.
    ensure!((after as f64 - share * CAPACITY as f64).abs() <= 2.0, "drawn {after} times at {share} of the mass");
    Ok(())
}
