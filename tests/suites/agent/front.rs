//! The switches of what stands in front of the trunk, the temporal block and the attention: off, the step is the one without it.

use host::agent::NetworkPolicy;
use host::config::Config;
use host::device::{Buffer, Device};
use host::eval::backtest::Policy;
use host::market::Step;
use onegraph_tests::lab::{bits, kernel_name};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::Precision;

use crate::step::{Scene, config, with_attention, with_temporal};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for part in [TEMPORAL, ATTENTION] {
        let name = |what: &str| format!("front::{}_{what}", part.name);
        cases
            .push(case(name("off_none_of_its_kernels_is_launched"), move |device| no_kernel_is_launched(device, part)));
        cases.push(case(name("off_is_the_graph_without_it"), move |device| off_is_the_graph_without_it(device, part)));
        cases.push(case(name("is_run_by_a_policy_where_it_is_on"), move |device| a_policy_runs_it(device, part)));
    }
    cases
}

/// What stands in front of the trunk.
#[derive(Clone, Copy)]
struct Part {
    /// What its kernels' names begin with.
    name: &'static str,
    with: fn(Config) -> Config,
}

const TEMPORAL: Part = Part { name: "temporal", with: with_temporal };
const ATTENTION: Part = Part { name: "attention", with: with_attention };

impl Part {
    fn has(&self, step: &Step) -> bool {
        name(step).starts_with(&format!("{}_", self.name))
    }
}

fn name(step: &Step) -> &'static str {
    kernel_name(&step.1)
}

/// On, it is run three times forwards (twice in `ddqn`, once in `forward`) and once backwards, in front of the norm; with the
/// product that gives its output's gradient, last in `forward` but for the sums over rows, that is all that it adds to the step.
fn no_kernel_is_launched(device: &Device, part: Part) -> Outcome {
    let off = Scene::new(device, config(Precision::Bf16))?.children();
    let on = Scene::new(device, (part.with)(config(Precision::Bf16)))?.children();
    ensure!(off.len() == on.len(), "{} children, {} with the part", off.len(), on.len());
    // A GPU has kernels of their own for the tensor cores.
    let kind = if device.backend_name() == "cpu" { "" } else { "_tensor" };
    let kernel = |pass: &str| format!("{}_{pass}", part.name);
    let (forward, backward) = (kernel(&format!("forward{kind}")), kernel(&format!("backward{kind}")));
    let gradient = kernel("gradient");
    for ((child, off), (child_on, on)) in off.iter().zip(&on) {
        ensure!(child == child_on, "{child} with the part off, {child_on} with it on");
        let mut others: Vec<_> = off.iter().map(name).collect();
        ensure!(!off.iter().any(|step| part.has(step)), "{child} launches the part though it is off: {others:?}");
        if *child == "forward" {
            others.insert(others.len() - 1, "matmul_nn");
        }
        let (of_part, rest): (Vec<_>, Vec<_>) = on.iter().partition(|step| part.has(step));
        let (of_part, rest): (Vec<_>, Vec<_>) =
            (of_part.into_iter().map(name).collect(), rest.into_iter().map(name).collect());
        ensure!(rest == others, "{child}: {rest:?}, {others:?} expected");
        let want = match *child {
            "ddqn" => vec![&*forward; 2],
            "forward" => vec![&*forward],
            // The pass of the causal sensitivity.
            "maintenance" => vec![&*forward],
            "adam_grad" => vec![&*backward, &*gradient],
            _ => vec![],
        };
        ensure!(of_part == want, "{child}: {of_part:?}, {want:?} expected");
        ensure!(*child != "adam_grad" || name(&on[2]) == "gradient_norm", "the norm lacks the part's gradient");
    }
    Ok(())
}

/// Everything that a step writes for the next one, its gradient and what it tells.
fn state(scene: &Scene) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (agent, memory) = (&scene.agent, &scene.memory);
    let p = &agent.parameters;
    let floats: [(&str, &Buffer<f32>); 11] = [
        ("online", &p.online.flat),
        ("target", &p.target.flat),
        ("first moments", &p.first_moments),
        ("second moments", &p.second_moments),
        ("gradient", &p.gradient),
        ("h", &memory.online.h[2]),
        ("targets", &memory.targets),
        ("spacing", &agent.spacing),
        ("bus", &agent.bus),
        ("spectral vectors", &agent.spectral.u),
        ("tree", &scene.replay.tree),
    ];
    let mut state = Vec::new();
    for (name, buffer) in floats {
        state.push((name, bits(&buffer.read()?)));
    }
    for (name, buffer) in
        [("operands", &p.online.shadow), ("target's operands", &p.target.shadow), ("u", &memory.online.u)]
    {
        state.push((name, buffer.read()?.into_iter().map(u32::from).collect()));
    }
    state.push(("counters", bytemuck::cast_slice(&agent.counters.read()?).to_vec()));
    state.push(("readback", bytemuck::cast_slice(&memory.readback.read()?).to_vec()));
    Ok(state)
}

/// Three steps by the graph of a configuration without the part, and three by the launches of one with it, of which the part's
/// kernels are left out: every bit is the same. With them it is not.
fn off_is_the_graph_without_it(device: &Device, part: Part) -> Outcome {
    let (off, on) = (config(Precision::Bf16), (part.with)(config(Precision::Bf16)));
    let (off, without, on) = (Scene::new(device, off)?, Scene::new(device, on.clone())?, Scene::new(device, on)?);
    for step in 0..3 {
        off.step()?;
        on.step()?;
        for (_, steps) in without.children() {
            without.run(steps.into_iter().filter(|step| !part.has(step)).collect())?;
        }
        let (off, without, on) = (state(&off)?, state(&without)?, state(&on)?);
        for ((name, off), (_, without)) in off.iter().zip(&without) {
            ensure!(off == without, "step {step}: {name} differ");
        }
        for ((name, off), (_, on)) in off.iter().zip(&on) {
            ensure!(
                off != on || !["h", "gradient", "online"].contains(name),
                "step {step}: the part changes no {name}"
            );
        }
    }
    Ok(())
}

/// Collection and evaluation choose by a policy's launches: the part comes first in them.
fn a_policy_runs_it(device: &Device, part: Part) -> Outcome {
    const N_ROWS: usize = 5;
    for (config, is_on) in [(config(Precision::Bf16), false), ((part.with)(config(Precision::Bf16)), true)] {
        let scene = Scene::new(device, config)?;
        let (no_draws, actions) = (device.alloc_zeroed(1)?, device.alloc_zeroed(N_ROWS)?);
        let policy = NetworkPolicy::greedy(device, &scene.agent, &no_draws);
        let rows = device.alloc_zeroed(N_ROWS * policy.state_stride())?;
        let steps = policy.act(&rows, &actions)?;
        let n_of_part = steps.iter().filter(|step| part.has(step)).count();
        ensure!(n_of_part == usize::from(is_on), "{n_of_part} launches of the part, on: {is_on}");
        ensure!(part.has(&steps[0]) == is_on, "{} comes first, on: {is_on}", name(&steps[0]));
        scene.run(steps)?;
    }
    Ok(())
}
