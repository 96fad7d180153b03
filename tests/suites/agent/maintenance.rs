//! `maintenance`: beside what it does not need, and without a part that is switched off.

use host::config::Config;
use host::device::Device;
use host::graph::GraphDescription;
use onegraph_tests::lab::{bits, kernel_name};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{Counters, Precision, isv};

use crate::learners::with_learners;
use crate::step::{Scene, config, pruned, with_both, with_iqn};

pub fn cases() -> Vec<Case> {
    vec![
        case("maintenance::waits_for_the_targets_alone", waits_for_the_targets_alone),
        case("maintenance::a_step_begins_with_its_counters_alone", a_step_begins_with_its_counters_alone),
        case("maintenance::off_nothing_of_the_spacing_remains", off_nothing_of_the_spacing_remains),
        case("maintenance::off_nothing_of_the_sensitivities_remains", off_nothing_of_the_sensitivities_remains),
        case("maintenance::a_gated_step_leaves_the_spacing", a_gated_step_leaves_the_spacing),
        case("maintenance::only_what_is_due_is_done", only_what_is_due_is_done),
    ]
}

/// Children whose kernels run before each child's, by the edges.
fn ancestors(description: &GraphDescription) -> Vec<Vec<usize>> {
    let mut ancestors: Vec<Vec<usize>> = Vec::new();
    for child in 0..description.children.len() {
        let before = description.edges.iter().filter(|edge| edge.to == child);
        let mut all: Vec<usize> = before.flat_map(|edge| [&[edge.from], &ancestors[edge.from][..]].concat()).collect();
        all.sort_unstable();
        all.dedup();
        ancestors.push(all);
    }
    ancestors
}

/// Every further beginning would cost the host about a microsecond a launch.
fn a_step_begins_with_its_counters_alone(device: &Device) -> Outcome {
    let core = config(Precision::Bf16);
    for config in [core.clone(), pruned(with_learners(with_iqn(with_both(core))))] {
        let scene = Scene::new(device, config)?;
        let description = scene.graph.description();
        let begins: Vec<&str> = (0..description.children.len())
            .filter(|&child| description.edges.iter().all(|edge| edge.to != child))
            .map(|child| description.children[child].name.as_str())
            .collect();
        ensure!(begins == ["counters"], "{begins:?} wait for nothing");
    }
    Ok(())
}

/// Also with pruning, whose sparsity `adam_grad` tells the bus, and with every learner. Nothing but the update waits for it.
fn waits_for_the_targets_alone(device: &Device) -> Outcome {
    let core = config(Precision::Bf16);
    for config in [core.clone(), pruned(with_learners(with_iqn(with_both(core))))] {
        let scene = Scene::new(device, config)?;
        let description = scene.graph.description();
        let name = |child: usize| description.children[child].name.as_str();
        let at = |of: &str| description.children.iter().position(|child| child.name == of).ok_or("no such child");
        let (ancestors, maintenance) = (ancestors(description), at("maintenance")?);
        let before: Vec<&str> = ancestors[maintenance].iter().map(|&child| name(child)).collect();
        ensure!(before == ["counters", "per_sample", "spectral", "ddqn"], "it waits for {before:?}");
        let waits = |child: &usize| ancestors[*child].contains(&maintenance);
        let after: Vec<&str> = (0..ancestors.len()).filter(waits).map(name).collect();
        ensure!(after == ["adam_update", "per_priority"], "{after:?} wait for it");
        ensure!(ancestors[at("adam_update")?].contains(&at("adam_grad")?), "the update does not wait for the gate");
    }
    Ok(())
}

fn without(switch_off: fn(&mut Config)) -> Config {
    let mut config = config(Precision::Bf16);
    switch_off(&mut config);
    config
}

/// Kernels of `maintenance`, none where there is no such child.
fn kernels(scene: &Scene) -> Vec<&'static str> {
    let children = scene.children();
    let steps = children.iter().filter(|(child, _)| *child == "maintenance").flat_map(|(_, steps)| steps);
    steps.map(|(_, launch)| kernel_name(launch)).collect()
}

/// Whether a launch of the step may write a byte of the spacing.
fn writes_the_spacing(scene: &Scene) -> bool {
    let spacing = scene.agent.spacing.view().memory().clone();
    let children = scene.children();
    let mut claims = children.iter().flat_map(|(_, steps)| steps).flat_map(|(_, launch)| launch.claims());
    claims.any(|claim| claim.range.overlaps(&spacing))
}

fn off_nothing_of_the_spacing_remains(device: &Device) -> Outcome {
    let on = Scene::new(device, config(Precision::Bf16))?;
    ensure!(kernels(&on).contains(&"atom_spacing") && writes_the_spacing(&on), "on, it is not there");
    let off = Scene::new(device, without(|config| config.learners.spacing = false))?;
    let rest: Vec<_> = kernels(&on).into_iter().filter(|kernel| *kernel != "atom_spacing").collect();
    ensure!(kernels(&off) == rest, "{:?}", kernels(&off));
    ensure!(!writes_the_spacing(&off), "a launch reaches the spacing");
    ensure!(off.memory.proposed_spacing.is_empty(), "it has memory");
    let neither = without(|config| (config.learners.spacing, config.learners.causal) = (false, false));
    let neither = Scene::new(device, neither)?;
    ensure!(neither.children().iter().all(|(child, _)| *child != "maintenance"), "a child without work");
    due_step(&neither, 100)
}

fn off_nothing_of_the_sensitivities_remains(device: &Device) -> Outcome {
    let off = Scene::new(device, without(|config| config.learners.causal = false))?;
    ensure!(kernels(&off) == ["atom_spacing"] && off.memory.causal.is_none(), "{:?}", kernels(&off));
    due_step(&off, 100)?;
    ensure!(off.agent.bus.read()?[isv::CAUSAL_MEAN] == 0.0, "the bus has a mean");
    Ok(())
}

/// The step with this rng_step.
fn due_step(scene: &Scene, rng_step: i32) -> Outcome {
    let counters = scene.agent.counters.read()?[0];
    scene.agent.counters.write(&[Counters { rng_step: rng_step - 1, ..counters }])?;
    scene.step()
}

/// Targets of a gated step may be anything, and so may what is proposed. The next step that is due moves it.
fn a_gated_step_leaves_the_spacing(device: &Device) -> Outcome {
    let scene = Scene::new(device, config(Precision::Bf16))?;
    let spacing = || -> Result<Vec<u32>, Failed> { Ok(bits(&scene.agent.spacing.read()?)) };
    let (before, rewards) = (spacing()?, scene.replay.ring.rewards.read()?);
    scene.replay.ring.rewards.write(&vec![f32::NAN; scene.config.capacity])?;
    due_step(&scene, 50)?;
    ensure!(scene.memory.gate.read()? == [1], "the step is not gated");
    ensure!(scene.memory.due.read()?[shared_types::due::SPACING] == 50, "nothing is due");
    ensure!(spacing()? == before, "a gated step moved the spacing");
    scene.replay.ring.rewards.write(&rewards)?;
    due_step(&scene, 99)?;
    ensure!(spacing()? == before, "a step that is not due moved the spacing");
    due_step(&scene, 100)?;
    let after = scene.agent.spacing.read()?;
    ensure!(bits(&after) != before && after.iter().all(|width| width.is_finite()), "{after:?}");
    Ok(())
}

/// Both kinds in step 150 of every third and every fiftieth, the one in step 100, the other in step 51; neither in step 52.
fn only_what_is_due_is_done(device: &Device) -> Outcome {
    let mut config = config(Precision::Bf16);
    config.causal.every = 3;
    for (rng_step, measures, moves) in [(52, false, false), (51, true, false), (100, false, true), (150, true, true)] {
        let scene = Scene::new(device, config.clone())?;
        let before = scene.agent.spacing.read()?;
        due_step(&scene, rng_step)?;
        let published = scene.reader.read().ok_or("nothing was published")?;
        let (mean, told) = (scene.agent.bus.read()?[isv::CAUSAL_MEAN], published.readback.causal_mean_sens);
        ensure!((mean != 0.0) == measures && mean == told, "step {rng_step}: {mean} in the bus, {told} told");
        ensure!((scene.agent.spacing.read()? != before) == moves, "step {rng_step}: the spacing");
    }
    Ok(())
}
