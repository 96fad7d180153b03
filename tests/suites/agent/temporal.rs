//! The switch of the temporal block: off, the step is the one that has no block.

use host::agent::NetworkPolicy;
use host::device::{Buffer, Device};
use host::eval::backtest::Policy;
use host::market::Step;
use onegraph_tests::lab::bits;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::Precision;

use crate::step::{Scene, config, with_temporal};

pub fn cases() -> Vec<Case> {
    vec![
        case("temporal::off_no_kernel_of_the_block_is_launched", off_no_kernel_of_the_block_is_launched),
        case("temporal::off_is_the_graph_without_the_block", off_is_the_graph_without_the_block),
        case("temporal::a_policy_runs_the_block_where_it_is_on", a_policy_runs_the_block_where_it_is_on),
    ]
}

fn name(step: &Step) -> &'static str {
    step.1.info().name
}

fn is_of_the_block(step: &Step) -> bool {
    name(step).starts_with("temporal_")
}

/// On, the block is run three times forwards (twice in `ddqn`, once in `forward`) and once backwards, in front of the norm; with the
/// product that gives its output's gradient, last in `forward` but for the sums over rows, that is all that it adds to the step.
fn off_no_kernel_of_the_block_is_launched(device: &Device) -> Outcome {
    let off = Scene::new(device, config(Precision::Bf16))?.children();
    let on = Scene::new(device, with_temporal(config(Precision::Bf16)))?.children();
    ensure!(off.len() == on.len(), "{} children, {} with the block", off.len(), on.len());
    let kernels = if device.backend_name() == "cpu" { "" } else { "_tensor" };
    let (forward, backward) = (format!("temporal_forward{kernels}"), format!("temporal_backward{kernels}"));
    for ((child, off), (child_on, on)) in off.iter().zip(&on) {
        ensure!(child == child_on, "{child} with the block off, {child_on} with it on");
        let mut others: Vec<_> = off.iter().map(name).collect();
        ensure!(!off.iter().any(is_of_the_block), "{child} launches the block though it is off: {others:?}");
        if *child == "forward" {
            others.insert(others.len() - 1, "matmul_nn");
        }
        let (of_block, rest): (Vec<_>, Vec<_>) = on.iter().partition(|step| is_of_the_block(step));
        let (of_block, rest): (Vec<_>, Vec<_>) =
            (of_block.into_iter().map(name).collect(), rest.into_iter().map(name).collect());
        ensure!(rest == others, "{child}: {rest:?}, {others:?} expected");
        let want = match *child {
            "ddqn" => vec![&*forward; 2],
            "forward" => vec![&*forward],
            "adam_grad" => vec![&*backward, "temporal_gradient"],
            _ => vec![],
        };
        ensure!(of_block == want, "{child}: {of_block:?}, {want:?} expected");
        ensure!(*child != "adam_grad" || name(&on[2]) == "gradient_norm", "the norm lacks the block's gradient");
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

/// Three steps by the graph of a configuration without the block, and three by the launches of one with it, of which the block's
/// kernels are left out: every bit is the same. With them it is not.
fn off_is_the_graph_without_the_block(device: &Device) -> Outcome {
    let (off, on) = (config(Precision::Bf16), with_temporal(config(Precision::Bf16)));
    let (off, without, on) = (Scene::new(device, off)?, Scene::new(device, on.clone())?, Scene::new(device, on)?);
    for step in 0..3 {
        off.step()?;
        on.step()?;
        for (_, steps) in without.children() {
            without.run(steps.into_iter().filter(|step| !is_of_the_block(step)).collect())?;
        }
        let (off, without, on) = (state(&off)?, state(&without)?, state(&on)?);
        for ((name, off), (_, without)) in off.iter().zip(&without) {
            ensure!(off == without, "step {step}: {name} differ");
        }
        for ((name, off), (_, on)) in off.iter().zip(&on) {
            ensure!(
                off != on || !["h", "gradient", "online"].contains(name),
                "step {step}: the block changes no {name}"
            );
        }
    }
    Ok(())
}

/// Collection and evaluation choose by a policy's launches: the block comes first in them.
fn a_policy_runs_the_block_where_it_is_on(device: &Device) -> Outcome {
    const N_ROWS: usize = 5;
    for (config, is_on) in [(config(Precision::Bf16), false), (with_temporal(config(Precision::Bf16)), true)] {
        let scene = Scene::new(device, config)?;
        let (no_draws, actions) = (device.alloc_zeroed(1)?, device.alloc_zeroed(N_ROWS)?);
        let policy = NetworkPolicy::greedy(device, &scene.agent, &no_draws);
        let rows = device.alloc_zeroed(N_ROWS * policy.state_stride())?;
        let steps = policy.act(&rows, &actions)?;
        let n_of_block = steps.iter().filter(|step| is_of_the_block(step)).count();
        ensure!(n_of_block == usize::from(is_on), "{n_of_block} launches of the block, on: {is_on}");
        ensure!(is_of_the_block(&steps[0]) == is_on, "{} comes first, on: {is_on}", name(&steps[0]));
        scene.run(steps)?;
    }
    Ok(())
}
