//! Every learner, on and off. On, what it tells moves; off, that is absent or stands still, and the rest of the step is bit for bit
//! that of a graph without it.

mod switches;

use std::ops::Range;

use host::device::Device;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use switches::{Beside, Switch, switches};

use crate::program::Program;
use crate::tensors::Tensors;

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = switches()
        .map(|switch| case(format!("learners::{}_on_and_off", switch.name), move |device| on_and_off(device, switch)))
        .collect();
    cases.extend([
        case("learners::every_switch_is_looked_at", every_switch_is_looked_at),
        case("learners::the_advantage_modulates_priorities_alone", the_advantage_modulates_priorities_alone),
        case("learners::popart_without_iql_does_nothing", popart_without_iql_does_nothing),
        case("learners::pruning_that_has_not_begun_changes_nothing", pruning_that_has_not_begun_changes_nothing),
        case("learners::both_samplers_take_one_step", both_samplers_take_one_step),
        case("learners::without_alpha_all_priorities_are_1", without_alpha_all_priorities_are_1),
        case("learners::the_target_follows_at_its_rate", the_target_follows_at_its_rate),
        case("learners::weight_decay_reaches_matrices_alone", weight_decay_reaches_matrices_alone),
    ]);
    cases
}

/// Nothing but the core, of which the target network is a part.
const CORE: [&str; 22] = [
    "seed=3",
    "learners.temporal=false",
    "learners.attention=false",
    "learners.iqn=false",
    "learners.iql=false",
    "learners.popart=false",
    "learners.selectivity=false",
    "learners.denoise=false",
    "learners.risk=false",
    "learners.q_statistics=false",
    "learners.target_ema=true",
    "learners.film=false",
    "learners.spectral=false",
    "learners.depth=false",
    "learners.selection=false",
    "learners.spacing=false",
    "learners.cql=false",
    "learners.her=false",
    "learners.pruning=false",
    "learners.vaccine=false",
    "learners.adaptive_clip=false",
    "learners.causal=false",
];

/// Step `n_steps` of the core with these keys on top.
fn core_with(program: &Program, n_steps: u32, sets: &[&str]) -> Result<Tensors, Failed> {
    program.dump(n_steps, &[&CORE, sets].concat())
}

fn on_and_off(device: &Device, switch: &Switch) -> Outcome {
    let program = Program::new(device)?;
    let step = |n_steps: u32, value: bool, more: &[&str]| {
        let key = format!("learners.{}={value}", switch.name);
        core_with(&program, n_steps, &[switch.with, &[&key], more].concat())
    };
    let (on, off) = (step(switch.step, true, &[])?, step(switch.step, false, &[])?);
    (switch.shows)(&on, &off)?;
    match switch.beside {
        Beside::On => ensure_rest(&on, &off, switch.own),
        Beside::AtNothing(sets) => {
            ensure!(!rest(&on, &off, switch.own).is_empty(), "it changes nothing but what it tells");
            ensure_rest(&step(switch.step, true, sets)?, &off, switch.own)
        }
        Beside::FirstStep => {
            ensure!(!rest(&on, &off, switch.own).is_empty(), "it changes nothing but what it tells");
            ensure_rest(&step(1, true, &[])?, &step(1, false, &[])?, switch.own)
        }
        Beside::FirstBatch => {
            let first = step(1, true, &[])?.differing(&step(1, false, &[])?);
            let batch = first.iter().find(|name| name.starts_with("batch.") || name.starts_with("priority.before"));
            ensure!(batch.is_none(), "{batch:?} of the first step hangs on the learner");
            Ok(())
        }
    }
}

/// Kinds of tensors that a dump has of each parameter, and scalars that it has of each learner's update.
const OF_EACH: [&str; 14] = [
    "param.before.",
    "param.after.",
    "target.before.",
    "target.after.",
    "first_moment.before.",
    "first_moment.after.",
    "second_moment.before.",
    "second_moment.after.",
    "snapshot.before.",
    "snapshot.after.",
    "gradient.",
    "shadow.",
    "target_shadow.",
    "update.",
];

/// What a tensor is of: `trunk.in.weight` for its gradient, `isv.4` for that entry before and after.
fn subject(name: &str) -> String {
    if let Some((_, entry)) = name.strip_prefix("isv.").and_then(|rest| rest.split_once('.')) {
        return format!("isv.{entry}");
    }
    OF_EACH.iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name).to_owned()
}

/// Whether a name or what it is of is one of `own`, or begins with one that ends in a dot.
fn is_own(name: &str, own: &[&str]) -> bool {
    let subject = subject(name);
    own.iter().any(|own| {
        let matches = |name: &str| if own.ends_with('.') { name.starts_with(own) } else { name == *own };
        matches(name) || matches(&subject)
    })
}

/// Names of what differs and is not `own`.
fn rest(one: &Tensors, other: &Tensors, own: &[&str]) -> Vec<String> {
    one.differing(other).into_iter().filter(|name| !is_own(name, own)).collect()
}

fn ensure_rest(one: &Tensors, other: &Tensors, own: &[&str]) -> Outcome {
    let rest = rest(one, other, own);
    ensure!(rest.is_empty(), "it reaches {rest:?}");
    Ok(())
}

/// Whether a step moves a tensor of the parameters.
fn moves(step: &Tensors, tensor: &str) -> Result<bool, Failed> {
    Ok(step.values(&format!("param.before.{tensor}"))? != step.values(&format!("param.after.{tensor}"))?)
}

/// Fails unless a step with the learner moves a tensor, and one without it leaves it as it was.
fn ensure_learns(on: &Tensors, off: &Tensors, tensor: &str) -> Outcome {
    ensure!(moves(on, tensor)?, "{tensor} does not learn");
    ensure!(!moves(off, tensor)?, "{tensor} moves though it is off");
    Ok(())
}

/// Fails unless the learner fills its columns of u, and they are 0 without it.
fn ensure_part_of_u(on: &Tensors, off: &Tensors, columns: Range<usize>) -> Outcome {
    let filled = |step: &Tensors| -> Result<bool, Failed> {
        Ok(step.values("online.u")?.chunks(200).any(|row| row[columns.clone()].iter().any(|x| *x != 0.0)))
    };
    ensure!(filled(on)? && !filled(off)?, "columns {columns:?} of u");
    Ok(())
}

/// Fails unless the names are in the dump of a step with the learner alone.
fn ensure_only_on(on: &Tensors, off: &Tensors, names: &[&str]) -> Outcome {
    for name in names {
        ensure!(on.has(name) && !off.has(name), "{name}: {} on, {} off", on.has(name), off.has(name));
    }
    Ok(())
}

/// A learner that comes to the configuration must come to this table.
fn every_switch_is_looked_at(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &["sim.bars=1100", "epochs=1", "steps_per_epoch=1", "bars_per_epoch=4"])?;
    let config = std::fs::read_to_string(program.path("run").join("config.toml"))?;
    let table = config.split("[learners]").nth(1).ok_or("no table of learners")?.split("\n[").next().unwrap_or("");
    let lines = table.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut keys: Vec<&str> = lines.filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim()).collect();
    let mut looked_at: Vec<&str> = switches().map(|switch| switch.name).collect();
    keys.sort_unstable();
    looked_at.sort_unstable();
    ensure!(keys == looked_at, "{keys:?} are switches, {looked_at:?} are looked at");
    ensure!(CORE.len() - 1 == keys.len(), "the core does not say whether a learner is on");
    Ok(())
}

/// td exp(clip(beta adv, -ln 4, ln 4)) in the first step: nothing but TD errors and priorities hangs on beta, and a factor is at
/// most 4. Both TD errors are rounded to bf16, 2^-9 of themselves each.
fn the_advantage_modulates_priorities_alone(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let of = |beta: &str| core_with(&program, 1, &["learners.iql=true", "learners.popart=true", beta]);
    let (modulated, plain) = (of("beta_adv=1")?, of("beta_adv=0")?);
    ensure_rest(&modulated, &plain, &["td_errors", "priority.after", "priority.total", "priority.max"])?;
    let std = modulated.one("iql.std")?;
    let (td, plain_td) = (modulated.values("td_errors")?, plain.values("td_errors")?);
    let (q, v) = (modulated.values("q_taken")?, modulated.values("v_high")?);
    ensure!(td != plain_td, "no TD error is modulated");
    for row in 0..td.len() {
        let factor = ((q[row] - v[row]) / (std + 1e-6)).exp().clamp(0.25, 4.0);
        let (want, bound) = (plain_td[row] * factor, 2.1 * 2f64.powi(-9));
        ensure!((td[row] - want).abs() <= bound * want.abs() + 1e-5, "row {row}: {}, {want} expected", td[row]);
    }
    Ok(())
}

fn popart_without_iql_does_nothing(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let of = |popart: &str| core_with(&program, 2, &[popart]);
    ensure_rest(&of("learners.popart=true")?, &of("learners.popart=false")?, &[])
}

/// Its launches are in the graph, where without `prune.final` they are not; nothing but the masks, of ones, is another step's.
fn pruning_that_has_not_begun_changes_nothing(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let later = ["prune.final=0.5", "prune.start=100", "prune.end=200", "prune.every=1"];
    let of = |pruning: &str| core_with(&program, 3, &[&later[..], &[pruning]].concat());
    let (on, off) = (of("learners.pruning=true")?, of("learners.pruning=false")?);
    let masks = on.values("masks")?;
    ensure!(!masks.is_empty() && masks.iter().all(|word| *word == f64::from(u32::MAX)), "a mask before its step");
    ensure_rest(&on, &off, &["masks"])
}

/// Of 512 priorities in 4,096 slots the samplers' roundings leave nothing to see in three steps.
fn both_samplers_take_one_step(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let of = |sampler: &str| core_with(&program, 3, &[sampler]);
    ensure_rest(&of("per.sampler=tree")?, &of("per.sampler=scan")?, &[])
}

/// The exponent of the priorities is 0: they are 1 before and after, the weights too.
fn without_alpha_all_priorities_are_1(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    // Behind 40 steps some are drawn for the second time.
    let (uniform, prioritized) = (core_with(&program, 40, &["per.alpha=0"])?, core_with(&program, 40, &[])?);
    for name in ["priority.before", "priority.after", "batch.weights"] {
        let are_1 = |step: &Tensors| -> Result<bool, Failed> { Ok(step.values(name)?.iter().all(|p| *p == 1.0)) };
        ensure!(are_1(&uniform)?, "{name} without alpha");
        ensure!(!are_1(&prioritized)?, "{name} with alpha 0.6");
    }
    Ok(())
}

/// theta' += tau (theta - theta') from the parameters before the update: at a rate of 1 the target is they, within the three roundings
/// of the move; at the least rate that f32 has it stands.
fn the_target_follows_at_its_rate(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let at_1 = core_with(&program, 2, &["tau_init=1", "tau_final=1"])?;
    let at_0 = core_with(&program, 2, &["tau_init=1e-40", "tau_final=1e-40"])?;
    let tensor = "trunk.block0.w1";
    let of = |step: &Tensors, kind: &str| step.values(&format!("{kind}.{tensor}"));
    let health = 0.5 + 0.5 * at_1.one("scalars.health_at_epoch")?;
    let (before, target, now) = (of(&at_1, "target.before")?, of(&at_1, "target.after")?, of(&at_1, "param.before")?);
    ensure!(of(&at_1, "param.before")? != of(&at_1, "param.after")? && before != now, "nothing is learned");
    for (index, target) in target.iter().enumerate() {
        let want = before[index] + health * (now[index] - before[index]);
        let bound = 3.0 * 2f64.powi(-24) * (want.abs() + (now[index] - before[index]).abs());
        ensure!((target - want).abs() <= bound, "element {index}: {target}, {want} expected");
    }
    ensure!(of(&at_0, "target.after")? == of(&at_0, "target.before")?, "the target moves at no rate");
    Ok(())
}

/// In the first step decay is all that differs, and it differs in matrices alone.
fn weight_decay_reaches_matrices_alone(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let of = |decay: &str| core_with(&program, 1, &[decay]);
    let (decayed, plain) = (of("weight_decay=1")?, of("weight_decay=0")?);
    let names = rest(&decayed, &plain, &["theta.weight_decay"]);
    ensure!(names.iter().any(|name| name == "param.after.trunk.in.weight"), "nothing decays: {names:?}");
    for name in names {
        let is_matrix = name.ends_with(".weight") || name.ends_with(".w1") || name.ends_with(".w2");
        let is_parameter = ["param.after.", "shadow."].iter().any(|kind| name.starts_with(kind));
        ensure!(is_matrix && is_parameter, "{name} decays");
    }
    Ok(())
}
