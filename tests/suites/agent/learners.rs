//! The auxiliary learners in the step: IQL, selectivity, denoise, risk.

use gpu_kernels::explore::ActRule;
use host::agent::layout::Group;
use host::agent::{Learners, NetworkPolicy};
use host::config::{Config, Risk};
use host::device::{Buffer, Device};
use host::eval::backtest::Policy;
use onegraph_tests::lab::bits;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config::direction;
use reference::step::Outputs;
use shared_types::{Collector, Counters, Precision, isv, nan_flags};

use crate::step::{Scene, check, config, steps_are_the_references};

pub fn cases() -> Vec<Case> {
    vec![
        case("learners::unrounded_steps_are_the_references", |device| {
            steps_are_the_references(device, with_learners(config(Precision::F32)))
        }),
        case("learners::rounded_steps_are_the_references", |device| {
            steps_are_the_references(device, with_learners(config(Precision::Bf16)))
        }),
        case("learners::unrounded_steps_without_popart_are_the_references", |device| {
            let mut config = with_learners(config(Precision::F32));
            config.learners.popart = false;
            steps_are_the_references(device, config)
        }),
        case("learners::two_runs_give_the_same_bits", two_runs_give_the_same_bits),
        case("learners::a_gated_step_changes_nothing_that_is_learned", a_gated_step_changes_nothing_that_is_learned),
        case("learners::a_fault_of_a_head_gates_it_alone", a_fault_of_a_head_gates_it_alone),
        case("learners::under_the_threshold_the_policy_is_flat", under_the_threshold_the_policy_is_flat),
    ]
}

/// The same with the learners of this file, and a target that makes eta fall.
pub fn with_learners(mut config: Config) -> Config {
    config.risk = Risk { lr: 0.01, target: -10.0 };
    config.learners = Learners { iql: true, selectivity: true, denoise: true, risk: true, ..config.learners };
    config
}

/// What the learners that are on left of a step, beside the reference's: rows, losses, gradients, TD errors. Bounds of activations and
/// of gradients.
pub fn check_step(
    what: &dyn Fn(&str) -> String,
    scene: &Scene,
    out: &Outputs,
    [activation, gradient]: [f64; 2],
) -> Outcome {
    let (memory, aux) = (&scene.memory, &out.aux);
    let td: Vec<f32> = memory.td_errors.read()?.iter().map(|td| td.to_f32()).collect();
    let n = td.len();
    // Relabelled rows have none. A bf16 is within 2^-8 of its number.
    let relabelled = memory.batch.relabelled.read()?;
    let rows: Vec<usize> = (0..n).filter(|&row| relabelled[row] == 0).collect();
    let (got, want): (Vec<f32>, Vec<f64>) = rows.iter().map(|&row| (td[row], out.td_modulated[row])).unzip();
    check(&what("td"), &got, &want, activation + 1.0 / 256.0)?;
    let losses = memory.head_losses.read()?;
    let loss_of = |group: Group| {
        let at = host::step::LEARNER_GROUPS.iter().position(|of| *of == group).expect("it learns");
        losses[at - 1]
    };
    let expected = |group: reference::layout::Group| {
        aux.losses.iter().find(|(of, _)| *of == group).map_or(0.0, |(_, head)| head.loss)
    };
    if let Some(heads) = &memory.value_heads {
        check(&what("q"), &heads.q_taken.read()?, &aux.q, activation)?;
        let values = heads.values.read()?;
        check(&what("V_high"), &values[..n], &aux.v_high, activation)?;
        check(&what("V_low"), &values[n..], &aux.v_low, activation)?;
        let popart = scene.agent.popart.read()?[0];
        check(&what("mu"), &[popart.mean as f32], &[aux.popart.mean()], activation)?;
    }
    if let Some(learner) = &memory.selectivity {
        check(&what("P(trade)"), &learner.probability.p_trade.read()?, &aux.p_trade, activation)?;
    }
    if let Some(learner) = &memory.risk {
        check(&what("cvar_loss"), &learner.loss.read()?, &[aux.cvar_loss], activation)?;
    }
    for (group, of_reference) in [
        (Group::IqlHigh, reference::layout::Group::IqlHigh),
        (Group::IqlLow, reference::layout::Group::IqlLow),
        (Group::Selectivity, reference::layout::Group::Selectivity),
        (Group::Denoise, reference::layout::Group::Denoise),
    ] {
        check(&what(&format!("loss of {group:?}")), &[loss_of(group)], &[expected(of_reference)], gradient)?;
    }
    let got = scene.agent.parameters.gradient.read()?;
    for tensor in scene.agent.parameters.layout.tensors() {
        let heads = [Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];
        if heads.contains(&tensor.group) {
            let want = &aux.grads.flat[tensor.range()];
            check(&what(&format!("gradient of {}", tensor.name)), &got[tensor.range()], want, gradient)?;
        }
    }
    Ok(())
}

pub fn bits_of(buffer: &Buffer<f32>) -> Result<Vec<u32>, Failed> {
    Ok(bits(&buffer.read()?))
}

/// Bits of all parameters, moments, PopArt, priorities.
fn learned(scene: &Scene) -> Result<Vec<Vec<u32>>, Failed> {
    let p = &scene.agent.parameters;
    let buffers = [&p.online.flat, &p.target.flat, &p.first_moments, &p.second_moments, &scene.replay.tree];
    let mut learned: Vec<Vec<u32>> = buffers.into_iter().map(bits_of).collect::<Result<_, _>>()?;
    learned.push(bytemuck::cast_slice(&scene.agent.popart.read()?).to_vec());
    Ok(learned)
}

fn two_runs_give_the_same_bits(device: &Device) -> Outcome {
    let run = || -> Result<_, Failed> {
        let scene = Scene::new(device, with_learners(config(Precision::Bf16)))?;
        (0..4).try_for_each(|_| scene.step())?;
        Ok((learned(&scene)?, bits_of(&scene.agent.bus)?))
    };
    ensure!(run()? == run()?, "two runs from one seed differ");
    Ok(())
}

fn a_gated_step_changes_nothing_that_is_learned(device: &Device) -> Outcome {
    let mut config = with_learners(config(Precision::Bf16));
    // The sensitivities are measured in a gated step as well.
    config.causal.every = 100;
    let scene = Scene::new(device, config)?;
    scene.step()?;
    let (before, bus) = (learned(&scene)?, scene.agent.bus.read()?);
    scene.replay.ring.rewards.write(&vec![f32::NAN; scene.config.capacity])?;
    scene.step()?;
    ensure!(learned(&scene)? == before, "a gated step changed something");
    let counters: [i32; 8] = bytemuck::cast(scene.agent.counters.read()?[0]);
    // IQN and the attention are off: their counters only rise.
    ensure!(counters == [1, 1, 1, 1, 1, 2, 2, 2], "{counters:?}");
    let after = scene.agent.bus.read()?;
    for entry in (0..12).chain([14, 15, 16, 19, 20, 22, 45]) {
        ensure!(after[entry].to_bits() == bus[entry].to_bits(), "ISV {entry} changed");
    }
    scene.replay.ring.rewards.write(&vec![0.25; scene.config.capacity])?;
    scene.step()?;
    ensure!(learned(&scene)? != before, "training does not go on");
    Ok(())
}

/// A weight of one head is no number: that head stays and takes back its count, the other learners move. V_high's fault reaches the
/// modulation, so that every row keeps its priority.
fn a_fault_of_a_head_gates_it_alone(device: &Device) -> Outcome {
    for (group, tensor, keeps_priorities) in [
        (Group::IqlHigh, "iql_high.hidden.bias", true),
        (Group::IqlLow, "iql_low.hidden.bias", false),
        (Group::Selectivity, "select.bias", false),
        (Group::Denoise, "denoise.decoder.bias", false),
    ] {
        let scene = Scene::new(device, with_learners(config(Precision::Bf16)))?;
        let p = &scene.agent.parameters;
        let mut values = p.online.flat.read()?;
        values[p.layout.range(tensor).start] = f32::NAN;
        p.online.flat.write(&values)?;
        let tree = bits_of(&scene.replay.tree)?;
        scene.step()?;
        let after = p.online.flat.read()?;
        for other in [Group::Theta, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise] {
            let range = p.layout.group(other);
            let moments = p.first_moments.read()?;
            let moved = moments[range.clone()].iter().any(|&m| m != 0.0);
            ensure!(moved == (other != group), "a fault of {tensor}: {other:?} moved: {moved}");
            ensure!(other == group || after[range].iter().all(|w| w.is_finite()), "{tensor}'s fault is in {other:?}");
        }
        let counters = scene.agent.counters.read()?[0];
        let of = |counters: &Counters| {
            [counters.adam_t, counters.iql_t, counters.iql_low_t, counters.sel_t, counters.denoise_t]
        };
        let at = [Group::Theta, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];
        let want = at.map(|other| i32::from(other != group));
        ensure!(of(&counters) == want, "a fault of {tensor}: {counters:?}");
        let flags = scene.reader.read().ok_or("nothing was published")?.readback.nan_flags;
        ensure!(flags[nan_flags::AUX] & nan_flags::GATED != 0, "{flags:?}");
        ensure!((bits_of(&scene.replay.tree)? == tree) == keeps_priorities, "priorities after a fault of {tensor}");
        ensure!(scene.agent.bus.read()?.iter().all(|entry| entry.is_finite()), "the bus after a fault of {tensor}");
    }
    Ok(())
}

/// Evaluation obeys from the start, collection from its update on; P(trade) of every row lies on one side of the threshold.
fn under_the_threshold_the_policy_is_flat(device: &Device) -> Outcome {
    const N_ROWS: usize = 9;
    let mut on = config(Precision::Bf16);
    on.learners.selectivity = true;
    let scene = Scene::new(device, on)?;
    let (agent, p) = (&scene.agent, &scene.agent.parameters);
    let rows = device.upload(&scene.replay.ring.states.read()?[..N_ROWS * agent.sizes().state_stride()])?;
    let collector = device.upload(&[Collector::default()])?;
    let actions_of = |policy: &NetworkPolicy<'_>| -> Result<Vec<[u8; 4]>, Failed> {
        let actions = device.upload(&[[255u8; 4]; N_ROWS])?;
        scene.run(policy.act(&rows, &actions)?)?;
        Ok(actions.read()?)
    };
    let with_bias = |bias: f32| -> Outcome {
        let mut values = p.online.flat.read()?;
        values[p.layout.range("select.weight")].fill(0.0);
        values[p.layout.range("select.bias").start] = bias;
        Ok(p.online.flat.write(&values)?)
    };
    // P(trade) 0.4 is a logit of -0.405.
    with_bias(-0.3)?;
    let free = actions_of(&NetworkPolicy::greedy(device, agent, &collector))?;
    ensure!(free.iter().any(|action| action[0] != direction::FLAT as u8), "the net is flat by itself: {free:?}");
    with_bias(-0.5)?;
    let flat: Vec<[u8; 4]> =
        free.iter().map(|&[_, size, order, hold]| [direction::FLAT as u8, size, order, hold]).collect();
    ensure!(actions_of(&NetworkPolicy::greedy(device, agent, &collector))? == flat, "evaluation trades");
    // Exploration 0, so that every draw is greedy.
    let mut bus = agent.bus.read()?;
    bus[isv::EPSILON] = 0.0;
    agent.bus.write(&bus)?;
    let rule = ActRule { seed: [1, 2], explore: 1, select_threshold: agent.select_threshold, select_from: 10 };
    for (adam_t, want) in [(9, &free), (10, &flat)] {
        agent.counters.write(&[Counters { adam_t, ..Counters::default() }])?;
        let got = actions_of(&NetworkPolicy::new(device, agent, rule, &collector))?;
        ensure!(got == *want, "collection after {adam_t} updates: {got:?}, {want:?} expected");
    }
    Ok(())
}
