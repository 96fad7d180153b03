//! Values that are not finite, put into data, rewards, weights, gradients and what lies between: the step flags the stage that met
//! them, leaves everything learned alone where it must, counts, and goes on once they are gone.

use gpu_kernels::c51::row_loss;
use host::agent::layout::Group;
use host::config::{Config, DataSource, Learners, Preset};
use host::device::{Buffer, Device};
use onegraph_tests::lab::{Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::market::{BRANCH_SIZES, N_ACCOUNT, N_FEATURES, state_dim};
use shared_types::nan_flags::{
    AUX, DDQN, FORWARD, GATED, GRADIENT, INFINITE, N_STAGES, NAMES, NAN, PRIORITY, SAMPLE, UPDATE,
};
use shared_types::{Counters, isv};

use crate::learner::{Learner, Transition};

/// Where a fault is put, and what the step makes of it.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    place: Place,
    value: f32,
    /// Stages that flag it, with bits that they have; no other does.
    flags: &'static [(usize, u32)],
    gated: bool,
}

#[derive(Clone, Copy)]
enum Place {
    /// Of every transition.
    States,
    NextStates,
    Rewards,
    /// Of the trunk's first bias.
    Online,
    Target,
    FirstMoment,
    /// Behind a child of the step.
    WeightsBehindSample,
    TargetsBehindDdqn,
    GradientBehindForward,
    /// By the temporal block's output.
    BlockGradientBehindForward,
    /// TD errors of some rows, when the losses have been taken in.
    ErrorsBehindGradient,
    /// V_high of some rows.
    ValuesBehindAux,
}

const NAN_GATES: u32 = NAN | GATED;
const INF_GATES: u32 = INFINITE | GATED;
const INF: f32 = f32::INFINITY;
/// What a NaN of the online pass on s gives.
const PASS: [(usize, u32); 3] = [(FORWARD, NAN_GATES), (GRADIENT, NAN_GATES), (AUX, NAN_GATES)];

const FAULTS: [Fault; 21] = [
    Fault {
        name: "nan_in_states",
        place: Place::States,
        value: f32::NAN,
        flags: &[(SAMPLE, NAN), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "infinity_in_states",
        place: Place::States,
        value: INF,
        flags: &[(SAMPLE, INFINITE), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "nan_in_next_states",
        place: Place::NextStates,
        value: f32::NAN,
        flags: &[(SAMPLE, NAN), (DDQN, NAN), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "nan_in_rewards",
        place: Place::Rewards,
        value: f32::NAN,
        flags: &[(SAMPLE, NAN), (DDQN, NAN), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "infinity_in_rewards",
        place: Place::Rewards,
        value: INF,
        flags: &[(SAMPLE, INFINITE)],
        gated: false,
    },
    Fault { name: "nan_in_a_weight", place: Place::Online, value: f32::NAN, flags: &PASS, gated: true },
    Fault { name: "infinity_in_a_weight", place: Place::Online, value: INF, flags: &PASS, gated: true },
    Fault {
        name: "nan_in_a_target_weight",
        place: Place::Target,
        value: f32::NAN,
        flags: &[(DDQN, NAN), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "infinity_in_a_target_weight",
        place: Place::Target,
        value: INF,
        flags: &[(DDQN, NAN), PASS[0], PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "nan_in_importance_weights",
        place: Place::WeightsBehindSample,
        value: f32::NAN,
        flags: &PASS,
        gated: true,
    },
    Fault {
        name: "infinity_in_importance_weights",
        place: Place::WeightsBehindSample,
        value: INF,
        flags: &[(FORWARD, INF_GATES), PASS[1], PASS[2]],
        gated: true,
    },
    Fault { name: "nan_in_targets", place: Place::TargetsBehindDdqn, value: f32::NAN, flags: &PASS, gated: true },
    Fault {
        name: "infinity_in_targets",
        place: Place::TargetsBehindDdqn,
        value: INF,
        flags: &[(FORWARD, INF_GATES), PASS[1], PASS[2]],
        gated: true,
    },
    Fault {
        name: "nan_in_the_gradient",
        place: Place::GradientBehindForward,
        value: f32::NAN,
        flags: &[(GRADIENT, NAN_GATES)],
        gated: true,
    },
    Fault {
        name: "infinity_in_the_gradient",
        place: Place::GradientBehindForward,
        value: INF,
        flags: &[(GRADIENT, INF_GATES)],
        gated: true,
    },
    Fault {
        name: "nan_in_the_gradient_by_the_temporal_block",
        place: Place::BlockGradientBehindForward,
        value: f32::NAN,
        flags: &[(GRADIENT, NAN_GATES)],
        gated: true,
    },
    Fault {
        name: "nan_in_a_moment",
        place: Place::FirstMoment,
        value: f32::NAN,
        flags: &[(UPDATE, NAN)],
        gated: false,
    },
    Fault {
        name: "infinity_in_a_moment",
        place: Place::FirstMoment,
        value: INF,
        // m + (1 - beta) (g - m) of an infinite m.
        flags: &[(UPDATE, NAN)],
        gated: false,
    },
    Fault {
        name: "nan_in_td_errors",
        place: Place::ErrorsBehindGradient,
        value: f32::NAN,
        flags: &[(PRIORITY, NAN)],
        gated: false,
    },
    Fault {
        name: "infinity_in_td_errors",
        place: Place::ErrorsBehindGradient,
        value: INF,
        flags: &[(PRIORITY, INFINITE)],
        gated: false,
    },
    Fault {
        name: "nan_in_values",
        place: Place::ValuesBehindAux,
        value: f32::NAN,
        flags: &[(PRIORITY, NAN)],
        gated: false,
    },
];

/// Every stage has a fault that it flags.
const _: () = {
    let (mut met, mut fault) = (0u32, 0);
    while fault < FAULTS.len() {
        let flags = FAULTS[fault].flags;
        let mut at = 0;
        while at < flags.len() {
            met |= 1 << flags[at].0;
            at += 1;
        }
        fault += 1;
    }
    assert!(met == (1 << N_STAGES) - 1);
};

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FAULTS
        .into_iter()
        .map(|fault| case(format!("faults::i5_{}", fault.name), move |device| a_fault_is_met(device, fault)))
        .collect();
    cases.push(case(
        "faults::i5_a_td_error_that_is_none_keeps_its_priority",
        a_td_error_that_is_none_keeps_its_priority,
    ));
    cases.push(case(
        "faults::i5_a_nan_in_the_gradient_by_the_attention_gates_it_alone",
        a_nan_in_the_gradient_by_the_attention_gates_it_alone,
    ));
    cases
}

const CAPACITY: usize = 64;
const BATCH: usize = 32;

/// Every learner, IQN where it is asked for.
fn learner(device: &Device, iqn: bool) -> Result<Learner, Failed> {
    let preset = Config::preset(Preset::Tiny, DataSource::Simulator);
    let mut config = Config { seed: 11, capacity: CAPACITY, batch: BATCH, ..preset };
    let learners = config.learners;
    let (temporal, attention, iql, selectivity, denoise, risk) = (true, true, true, true, true, true);
    config.learners = Learners { temporal, attention, iqn, iql, selectivity, denoise, risk, ..learners };
    let mut numbers = Numbers::new(23);
    let mut row = |_| 2.0 * numbers.unit() as f32 - 1.0;
    let width = state_dim(config.window as usize);
    let transitions = (0..CAPACITY).map(|slot| {
        let (state, next_state) = ((0..width).map(&mut row).collect(), (0..width).map(&mut row).collect());
        let actions = BRANCH_SIZES.map(|size| (slot % size) as u8);
        Transition { state, next_state, actions, reward: (slot as f32 * 0.7).sin(), n: 1 + slot as u32 % 3 }
    });
    let transitions: Vec<Transition> = transitions.collect();
    let learner = Learner::new(device, config, &transitions)?;
    learner.steps(2)?;
    Ok(learner)
}

/// Weights, targets, moments, spacing, priorities: what a gated step leaves alone.
fn learned(learner: &Learner) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (p, replay) = (&learner.agent.parameters, &learner.replay);
    let mut learned = Vec::new();
    for (name, buffer) in [
        ("online", &p.online.flat),
        ("target", &p.target.flat),
        ("first moments", &p.first_moments),
        ("second moments", &p.second_moments),
        ("spacing", &learner.agent.spacing),
        ("snapshot", &learner.agent.snapshot),
        ("priorities", &replay.tree),
        ("highest priority", &replay.max_priority),
    ] {
        learned.push((name, bits(&buffer.read()?)));
    }
    Ok(learned)
}

/// Puts `value` at `at`; what stood there.
fn put(buffer: &Buffer<f32>, at: impl IntoIterator<Item = usize>, value: f32) -> Result<Vec<f32>, Failed> {
    let before = buffer.read()?;
    let mut values = before.clone();
    at.into_iter().for_each(|at| values[at] = value);
    buffer.write(&values)?;
    Ok(before)
}

/// A step with the fault, and the fault taken back where it would stay. `learned` as it stood between the two.
fn faulty_step(learner: &Learner, fault: Fault) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (p, ring, memory) = (&learner.agent.parameters, &learner.replay.ring, &learner.memory);
    let bias = p.layout.range("trunk.in.bias").start;
    let width = ring.states.len() / CAPACITY;
    // The last bar's first feature, which every network reads.
    let every_row = || (0..CAPACITY).map(|slot| slot * width + width - N_ACCOUNT - N_FEATURES);
    let staying = |buffer: &Buffer<f32>, at: Vec<usize>| -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
        let before = put(buffer, at.iter().copied(), fault.value)?;
        let as_it_stood = learned(learner)?;
        learner.steps(1)?;
        let mut after = buffer.read()?;
        at.iter().for_each(|&at| after[at] = before[at]);
        let result = unchanged(learner, fault, &as_it_stood);
        buffer.write(&after)?;
        result.map(|()| as_it_stood)
    };
    let rows_behind =
        |child: &str, buffer: &Buffer<f32>, at: &[usize]| -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
            let as_it_stood = learned(learner)?;
            let put = || put(buffer, at.iter().copied(), fault.value).map(drop);
            learner.step_with(|name| if name == child { put() } else { Ok(()) })?;
            unchanged(learner, fault, &as_it_stood).map(|()| as_it_stood)
        };
    let behind = |child: &str, buffer: &Buffer<f32>, at: usize| rows_behind(child, buffer, &[at]);
    // Some of them relabelled, some not; the other rows write their priorities.
    let half = || 0..BATCH / 2;
    match fault.place {
        Place::States => staying(&ring.states, every_row().collect()),
        Place::NextStates => staying(&ring.next_states, every_row().collect()),
        Place::Rewards => staying(&ring.rewards, (0..CAPACITY).collect()),
        Place::Online => staying(&p.online.flat, vec![bias]),
        Place::Target => staying(&p.target.flat, vec![bias]),
        Place::FirstMoment => staying(&p.first_moments, vec![bias]),
        Place::WeightsBehindSample => behind("per_sample", &memory.batch.weights, 3),
        Place::TargetsBehindDdqn => behind("ddqn", &memory.targets, 7),
        Place::GradientBehindForward => behind("forward", &p.gradient, bias),
        Place::BlockGradientBehindForward => {
            let block = memory.backward.temporal.as_ref().ok_or("the temporal block is off")?;
            behind("forward", &block.d_output, 70)
        }
        Place::ErrorsBehindGradient => {
            let at: Vec<usize> = half().map(|row| row * row_loss::N + row_loss::TD).collect();
            rows_behind("adam_grad", &memory.row_losses, &at)
        }
        Place::ValuesBehindAux => {
            let heads = memory.value_heads.as_ref().ok_or("IQL is off")?;
            rows_behind("aux", &heads.values, &half().collect::<Vec<_>>())
        }
    }
}

/// After a gated step everything learned is as it stood; after another, everything but what the fault sits in has moved.
fn unchanged(learner: &Learner, fault: Fault, as_it_stood: &[(&'static str, Vec<u32>)]) -> Outcome {
    for ((name, before), (_, after)) in as_it_stood.iter().zip(learned(learner)?) {
        if fault.gated {
            ensure!(after == *before, "{name} changed in a gated step");
        } else if ["online", "target", "second moments", "priorities"].contains(name) {
            ensure!(after != *before, "{name} stood still in a step that is not gated");
        }
    }
    Ok(())
}

fn a_fault_is_met(device: &Device, fault: Fault) -> Outcome {
    // IQN's targets are not clipped to outer atoms: with it an infinite reward gates its step.
    let learner = learner(device, !matches!(fault.place, Place::Rewards))?;
    let state = |learner: &Learner| -> Result<_, Failed> {
        Ok((learner.agent.counters.read()?[0], learner.agent.bus.read()?[isv::SKIPPED_UPDATES]))
    };
    let (counters, skipped) = state(&learner)?;
    faulty_step(&learner, fault)?;
    let (after, skipped_after) = state(&learner)?;
    let told = learner.reader.read().ok_or("nothing was published")?;
    let named = |flags: [u32; N_STAGES]| format!("{:?}", NAMES.iter().zip(flags).collect::<Vec<_>>());
    let flags = told.readback.nan_flags;
    for (stage, &found) in flags.iter().enumerate() {
        let want = fault.flags.iter().find(|(of, _)| *of == stage).map_or(0, |(_, bits)| *bits);
        ensure!(
            found & want == want && (found != 0) == (want != 0),
            "{} has no {want}: {}",
            NAMES[stage],
            named(flags)
        );
    }
    ensure!(flags.iter().any(|found| found & GATED != 0) == fault.gated, "gated: {}", named(flags));
    let applied = i32::from(!fault.gated);
    ensure!(
        after.rng_step == counters.rng_step + 1 && told.step == after.rng_step as u32,
        "{after:?} after {counters:?}"
    );
    let counted = |of: Counters| [of.adam_t, of.attn_t, of.iql_t, of.iql_low_t];
    ensure!(counted(after) == counted(counters).map(|t| t + applied), "{after:?} after {counters:?}");
    ensure!(skipped_after == skipped + (1 - applied) as f32, "{skipped_after} skipped after {skipped}");

    // The fault is gone: the next step is one like any other.
    let before = learned(&learner)?;
    learner.steps(1)?;
    let told = learner.reader.read().ok_or("nothing was published")?;
    ensure!(told.readback.nan_flags == [0; N_STAGES], "flags of the step behind: {}", named(told.readback.nan_flags));
    ensure!(told.counters.adam_t == after.adam_t + 1 && told.readback.total_loss.is_finite(), "{told:?}");
    for ((name, before), (_, after)) in before.iter().zip(learned(&learner)?) {
        let finite = after.iter().all(|word| f32::from_bits(*word).is_finite());
        ensure!(finite, "{name} is not finite");
        ensure!(after != *before || ["spacing", "highest priority"].contains(name), "{name} stands still");
    }
    Ok(())
}

/// The attention has a gate of its own: its parameters and moments stay and its counter is taken back, while everything else learns.
fn a_nan_in_the_gradient_by_the_attention_gates_it_alone(device: &Device) -> Outcome {
    let learner = learner(device, true)?;
    let p = &learner.agent.parameters;
    let attention = p.layout.group(Group::Attention);
    let of_attention = || -> Result<Vec<Vec<u32>>, Failed> {
        let buffers = [&p.online.flat, &p.first_moments, &p.second_moments];
        buffers.into_iter().map(|buffer| Ok(bits(&buffer.read()?[attention.clone()]))).collect()
    };
    let theta = || -> Result<Vec<u32>, Failed> { Ok(bits(&p.online.flat.read()?[p.layout.group(Group::Theta)])) };
    let (before, theta_before, counters) = (of_attention()?, theta()?, learner.agent.counters.read()?[0]);
    learner.step_with(|name| {
        if name == "forward" {
            let backward = learner.memory.backward.attention.as_ref().ok_or("the attention is off")?;
            put(&backward.d_output, [70], f32::NAN)?;
        }
        Ok(())
    })?;
    let after = learner.agent.counters.read()?[0];
    ensure!(of_attention()? == before, "the attention changed");
    ensure!(theta()? != theta_before, "theta stood still");
    ensure!((after.attn_t, after.adam_t) == (counters.attn_t, counters.adam_t + 1), "{after:?} after {counters:?}");
    let flags = learner.reader.read().ok_or("nothing was published")?.readback.nan_flags;
    let want: [bool; N_STAGES] = std::array::from_fn(|stage| stage == AUX);
    ensure!(flags.map(|found| found != 0) == want && flags[AUX] & NAN_GATES == NAN_GATES, "{flags:?}");
    learner.steps(1)?;
    ensure!(of_attention()? != before, "the attention does not go on");
    ensure!(learner.agent.counters.read()?[0].attn_t == counters.attn_t + 1, "the next update is not counted");
    Ok(())
}

/// Only the row's own: all others get theirs.
fn a_td_error_that_is_none_keeps_its_priority(device: &Device) -> Outcome {
    let learner = learner(device, true)?;
    let leaves = || -> Result<Vec<u32>, Failed> { Ok(bits(&learner.replay.tree.read()?[CAPACITY..2 * CAPACITY])) };
    let before = leaves()?;
    let drawn = |indices: &[u32], slot: u32| indices.iter().filter(|index| **index == slot).count();
    let kept = std::cell::Cell::new(None);
    learner.step_with(|name| {
        if name == "iql_modulate" {
            let indices = learner.memory.batch.indices.read()?;
            let alone =
                (0..indices.len()).find(|&row| drawn(&indices, indices[row]) == 1).ok_or("no slot drawn once")?;
            learner.memory.td_errors.slice(alone..alone + 1).write(&[half::bf16::NAN])?;
            kept.set(Some((indices[alone], indices)));
        }
        Ok(())
    })?;
    let (slot, indices) = kept.take().ok_or("no child of that name")?;
    let after = leaves()?;
    let (mut moved, kept) = (0, |at: u32| before[at as usize] == after[at as usize]);
    for at in 0..CAPACITY as u32 {
        let may_move = at != slot && indices.contains(&at);
        ensure!(
            may_move || kept(at),
            "the leaf of slot {at} moved, {} draws, the row without an error has {slot}",
            drawn(&indices, at)
        );
        moved += usize::from(!kept(at));
    }
    ensure!(moved > 1, "{moved} leaves moved");
    Ok(())
}
