//! IQN in the step: what the reference has of it, its gradient through h, its switch, and what a fault in it gates.

use gpu_kernels::heads::N_ACTIONS;
use gpu_kernels::iqn::QUANTILE_STRIDE;
use host::agent::layout::Group;
use host::config::Config;
use host::device::{Buffer, Device};
use host::market::Step;
use onegraph_tests::lab::{Numbers, bits, kernel_name};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::config::first_action;
use reference::double_dqn::discount;
use reference::iqn;
use reference::layout::Tensors;
use reference::matrix::{Matrix, norm};
use reference::precision::Precision::Exact;
use reference::step::{Outputs, State};
use shared_types::nan_flags::{AUX, FORWARD, GATED, GRADIENT, NAN};
use shared_types::{Precision, isv};

use crate::step::{Scene, check, config, with_iqn};

pub fn cases() -> Vec<Case> {
    vec![
        case("iqn::the_gradient_through_h_agrees_with_differences", the_gradient_through_h_agrees_with_differences),
        case("iqn::rounding_holds_the_designs_bounds", rounding_holds_the_designs_bounds),
        case("iqn::off_no_kernel_of_it_is_launched", off_no_kernel_of_it_is_launched),
        case("iqn::off_is_the_step_in_which_it_weighs_nothing", off_is_the_step_in_which_it_weighs_nothing),
        case("iqn::a_fault_in_it_gates_the_step", a_fault_in_it_gates_the_step),
    ]
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The columns of actions of quantiles `[8 B, 16]`.
fn of_actions(quantiles: &Buffer<f32>) -> Result<Vec<f32>, Failed> {
    Ok(quantiles.read()?.chunks(QUANTILE_STRIDE).flat_map(|row| row[..N_ACTIONS].to_vec()).collect())
}

/// What a step computed of IQN against the reference, whose state was `before` and is `after`; neither has any if it is off.
pub fn is_the_references(
    step: &str,
    scene: &Scene,
    before: &State,
    after: &State,
    out: &Outputs,
    (activation, gradient, objective): (f64, f64, f64),
) -> Outcome {
    let (memory, agent) = (&scene.memory, &scene.agent);
    let (Some(head), Some(pass), Some(dh)) = (&memory.iqn, &out.at.iqn_pass, &out.first.dh_iqn) else {
        let none = memory.iqn.is_none() && out.at.iqn_pass.is_none() && out.first.dh_iqn.is_none();
        ensure!(none, "{step}one of the two has no head");
        return Ok(());
    };
    let what = |name: &str| format!("{step}{name}");
    let h_next = &out.next.target.trunk.output;
    let target = if before.config.learners.target_ema { &before.target } else { &before.params };
    let next = iqn::forward(&before.config.sizes, before.config.precision, target, h_next);
    check(&what("phi"), &head.phi.read()?, &pass.phi.values, objective)?;
    check(&what("quantiles"), &of_actions(&head.quantiles)?, &pass.quantiles.values, activation)?;
    check(&what("quantiles of s', target"), &of_actions(&head.next_quantiles)?, &next.quantiles.values, activation)?;
    check(&what("L_iqn"), &memory.head_losses.read()?[1..2], &[out.at.iqn], activation)?;
    check(&what("dJ / dh of IQN"), &head.d_h.read()?, &dh.values, gradient)?;
    let readiness = agent.bus.read()?[isv::IQN_READINESS];
    ensure!(readiness > 0.1 && readiness < 0.9, "{step}a readiness of {readiness} shows little");
    check(&what("readiness"), &[readiness], &[after.readiness()], objective)?;
    let head = out.heads.iter().find(|head| head.loss == out.at.iqn).ok_or("the reference's head did not learn")?;
    let update = memory.update.read()?[2];
    ensure!(head.applied && update.gate == 0, "{step}the head's gate is {}", update.gate);
    check(&what("norm of the head's gradient"), &[update.squared_norm.sqrt()], &[head.norm], gradient)
}

/// What the head saw in a scene's step, as the reference takes it.
struct Seen {
    before: State,
    h: Matrix,
    actions: Vec<[usize; 4]>,
    targets: Vec<[Vec<f64>; 4]>,
}

impl Seen {
    /// Runs a step; h and the target quantiles are the device's own.
    fn step(scene: &Scene) -> Result<Self, Failed> {
        let before = scene.reference()?;
        scene.step()?;
        let (batch, _) = scene.batch()?;
        let head = scene.memory.iqn.as_ref().ok_or("IQN is off")?;
        let (next, next_actions) = (of_actions(&head.next_quantiles)?, scene.memory.next_actions.read()?);
        let (gamma, n_quantiles) = (before.isv.entries[isv::GAMMA], before.config.sizes.quantiles);
        let of_row = |i: usize| -> [Vec<f64>; 4] {
            let discount = discount(gamma, batch.n_steps[i], batch.dones[i]);
            std::array::from_fn(|b| {
                let column = first_action(b) + usize::from(next_actions[i][b]);
                let z = |n: usize| f64::from(next[(i * n_quantiles + n) * N_ACTIONS + column]);
                (0..n_quantiles).map(|n| batch.rewards[i] + discount * z(n)).collect()
            })
        };
        let targets = (0..batch.rewards.len()).map(of_row).collect();
        let h = wide(&scene.memory.online.h[2].read()?);
        let h = Matrix::from_values(batch.rewards.len(), before.config.sizes.hidden, h);
        Ok(Self { before, h, actions: batch.actions, targets })
    }

    /// The unrounded head on `h`, and its loss with the gradient by its quantiles.
    fn unrounded(&self, h: &Matrix) -> (iqn::IqnPass, f64, Matrix) {
        let pass = iqn::forward(&self.before.config.sizes, Exact, &self.before.params, h);
        let (loss, gradient) = iqn::loss(&pass, &self.actions, &self.targets);
        (pass, loss, gradient)
    }
}

/// Central differences, in f64, of lambda iqn_readiness L by elements of the device's own h, where its gradient by h is the device's in
/// f32: products of up to 32 terms, SiLU and its slope within 2^-20, sums over 8 levels: under 1e-5 of the gradient's largest element. The
/// loss has a continuous first derivative, its second jumps where a delta passes 0 or 1: differences are off by at most the step 1e-6
/// times it, of order of the gradient itself.
fn the_gradient_through_h_agrees_with_differences(device: &Device) -> Outcome {
    let scene = Scene::new(device, with_iqn(config(Precision::F32)))?;
    let weight = scene.config.lambda_iqn * f64::from(scene.agent.bus.read()?[isv::IQN_READINESS]);
    let seen = Seen::step(&scene)?;
    let d_h = scene.memory.iqn.as_ref().ok_or("IQN is off")?.d_h.read()?;
    let loss = |at: usize, step: f64| {
        let mut moved = seen.h.clone();
        moved.values[at] += step;
        weight * seen.unrounded(&moved).1
    };
    let largest = d_h.iter().fold(0.0f32, |largest, d| largest.max(d.abs()));
    ensure!(largest > 0.0, "no gradient");
    let (mut numbers, step) = (Numbers::new(5), 1e-6);
    for _ in 0..60 {
        let at = numbers.below(d_h.len());
        let want = (loss(at, step) - loss(at, -step)) / (2.0 * step);
        let off = (f64::from(d_h[at]) - want).abs() / f64::from(largest);
        ensure!(off <= 1e-5, "element {at}: {} by h, {want} by differences", d_h[at]);
    }
    Ok(())
}

/// At the widths of `full`, bf16 operands against the unrounded head: activations within 2%, J within 1e-4 as far as L is in it,
/// gradients within 6%, but for phi's layer.
///
/// A pre-activation of phi is off by at most 2^-8 (1 + 2^-10) sum |cos W|, since either operand is off by 2^-9 of itself; where it
/// lies nearer to 0 than that, ReLU may pass on one side and not on the other, and that element e of the gradient is there as a whole or not
/// at all. So the layer's gradient is held to 6% beside those elements, which are off by at most themselves: relative
/// 0.06 + ||e of the elements that turned|| / ||e||. About one in 2,000 turns (its error's mean, 1e-3, times twice the density of
/// pre-activations at 0, 0.3), one in 1,000 of those that pass: 3% of the norm here, and 9% for a single one of the 128 in `tiny`.
///
/// e is found from the weight's gradient: cosines of the midpoints are orthogonal over i = 0..63, of squared norm 32.
fn rounding_holds_the_designs_bounds(device: &Device) -> Outcome {
    let wide_config = Config { hidden: 512, branch_hidden: 128, ..with_iqn(config(Precision::Bf16)) };
    let scene = Scene::new(device, wide_config)?;
    let seen = Seen::step(&scene)?;
    let (config, p) = (&seen.before.config, &seen.before.params);
    let (pass, loss, gradient) = seen.unrounded(&seen.h);
    let mut grads = Tensors::zeros(&p.layout);
    let weight = config.lambda_iqn * seen.before.readiness();
    let dh = iqn::backward(&config.sizes, Exact, p, &pass, &gradient, &mut grads).map(|d| weight * d);
    let head = scene.memory.iqn.as_ref().ok_or("IQN is off")?;
    check("quantiles", &of_actions(&head.quantiles)?, &pass.quantiles.values, 2e-2)?;
    let (got_loss, objective) = (scene.memory.head_losses.read()?[1], scene.memory.totals.read()?[0].objective);
    let off = weight * (f64::from(got_loss) - loss).abs() / f64::from(objective);
    println!("L_iqn in J: {off:.1e} of 1e-4");
    ensure!(off <= 1e-4, "L_iqn puts J off by {off}");
    check("dJ / dh of IQN", &head.d_h.read()?, &dh.values, 6e-2)?;
    let (layout, got) = (&scene.agent.parameters.layout, scene.agent.parameters.gradient.read()?);
    for name in ["hidden.weight", "hidden.bias", "out.weight", "out.bias"].map(|part| format!("iqn.{part}")) {
        check(&name, &got[layout.range(&name)], grads.slice(&name), 6e-2)?;
    }

    let (width, n_levels) = (config.sizes.hidden, config.sizes.quantiles);
    let cosine = |n: usize, i: usize| (std::f64::consts::PI * i as f64 * iqn::level(n, n_levels)).cos();
    let elements = |weight: &[f64]| -> Vec<f64> {
        let e =
            |at: usize| weight[at % width * 64..][..64].iter().enumerate().map(move |(i, d)| d * cosine(at / width, i));
        (0..n_levels * width).map(|at| e(at).sum::<f64>() / 32.0).collect()
    };
    let got_e = elements(&wide(&got[layout.range("iqn.phi.weight")]));
    let want_e = elements(grads.slice("iqn.phi.weight"));
    let got_phi = wide(&head.phi.read()?);
    let (w, mut n_turned, mut turned, mut others, mut size) = (p.slice("iqn.phi.weight"), 0, 0.0f64, 0.0, 0.0);
    for at in 0..got_e.len() {
        let (got, want) = (got_phi[at], pass.phi.values[at]);
        size += want_e[at] * want_e[at];
        if (got > 0.0) == (want > 0.0) {
            others += (got_e[at] - want_e[at]).powi(2);
            continue;
        }
        let reach: f64 = (0..64).map(|i| (cosine(at / width, i) * w[at % width * 64 + i]).abs()).sum();
        ensure!(got.max(want) <= 1.01 * reach / 256.0, "element {at} turned from {want} to {got}");
        turned += got_e[at].powi(2).max(want_e[at].powi(2));
        n_turned += 1;
    }
    let (others, turned, size) = (others.sqrt(), turned.sqrt(), size.sqrt());
    println!("e: {:.1e} of 6e-2, and {n_turned} of {} turned: {:.1e}", others / size, got_e.len(), turned / size);
    ensure!(others <= 6e-2 * size, "e is off by {} where ReLU did not turn", others / size);
    let bias = grads.slice("iqn.phi.bias");
    for (part, want, size) in [("weight", grads.slice("iqn.phi.weight"), size), ("bias", bias, norm(bias))] {
        let name = format!("iqn.phi.{part}");
        check(&name, &got[layout.range(&name)], want, 6e-2 + turned / size)?;
    }
    Ok(())
}

fn name(step: &Step) -> &'static str {
    kernel_name(&step.1)
}

/// What the head adds to a child, in order.
fn added(child: &str) -> &'static [&'static str] {
    match child {
        "ddqn" => &["iqn_phi", "iqn_product", "matmul_nt", "matmul_nt"],
        "forward" => &[
            "iqn_phi",
            "iqn_product",
            "matmul_nt",
            "matmul_nt",
            "iqn_loss",
            "iqn_total",
            "matmul_nn",
            "matmul_tn",
            "sum_parts",
            "matmul_tn",
            "sum_parts",
            "column_partials_operands",
            "column_partials_operands",
            "column_sums",
            "matmul_nn",
            "iqn_product_backward",
            "iqn_phi_gradient",
        ],
        _ => &[],
    }
}

/// Each child of the step without the head is the child of the step with it, less one stretch of launches.
fn off_no_kernel_of_it_is_launched(device: &Device) -> Outcome {
    let off = Scene::new(device, config(Precision::Bf16))?.children();
    let on = Scene::new(device, with_iqn(config(Precision::Bf16)))?.children();
    ensure!(off.len() == on.len(), "{} children, {} with the head", off.len(), on.len());
    for ((child, off), (child_on, on)) in off.iter().zip(&on) {
        ensure!(child == child_on, "{child} without the head, {child_on} with it");
        let (off, mut on): (Vec<_>, Vec<_>) = (off.iter().map(name).collect(), on.iter().map(name).collect());
        ensure!(!off.iter().any(|name| name.contains("iqn")), "{child} launches the head though it is off: {off:?}");
        if let Some(first) = on.iter().position(|name| *name == "iqn_phi") {
            let of_head: Vec<_> = on.drain(first..first + added(child).len()).collect();
            ensure!(of_head == added(child), "{child}: the head's launches are {of_head:?}");
        }
        ensure!(on == off, "{child}: {on:?} besides the head, {off:?} expected");
    }
    Ok(())
}

/// Everything that a step writes for the next one, IQN's own tensors and averages aside.
fn state(scene: &Scene) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (agent, memory) = (&scene.agent, &scene.memory);
    let p = &agent.parameters;
    let of_head = p.layout.group(Group::Iqn);
    let mut state = Vec::new();
    for (name, buffer) in [
        ("online", &p.online.flat),
        ("target", &p.target.flat),
        ("first moments", &p.first_moments),
        ("second moments", &p.second_moments),
        ("gradient", &p.gradient),
    ] {
        let mut values = bits(&buffer.read()?);
        let end = of_head.end.min(values.len());
        values.drain(of_head.start..end);
        state.push((name, values));
    }
    let mut bus = bits(&agent.bus.read()?);
    bus[isv::IQN_READINESS] = 0;
    state.push(("bus", bus));
    for (name, buffer) in [
        ("h", &memory.online.h[2]),
        ("targets", &memory.targets),
        ("spacing", &agent.spacing),
        ("spectral vectors", &agent.spectral.u),
        ("tree", &scene.replay.tree),
    ] {
        state.push((name, bits(&buffer.read()?)));
    }
    state.push(("readback", bytemuck::cast_slice(&memory.readback.read()?).to_vec()));
    Ok(state)
}

/// Three steps without the head, with it at lambda_iqn 0, and with it as it is. A product with 0 is 0, and a 0 added changes no bit of
/// what is not 0: the first two agree in every bit of what both have. The third does not.
fn off_is_the_step_in_which_it_weighs_nothing(device: &Device) -> Outcome {
    let off = Scene::new(device, config(Precision::Bf16))?;
    let on = Scene::new(device, with_iqn(config(Precision::Bf16)))?;
    let weightless = Scene::new(device, Config { lambda_iqn: 0.0, ..with_iqn(config(Precision::Bf16)) })?;
    let head = |scene: &Scene| -> Result<Vec<u32>, Failed> {
        let p = &scene.agent.parameters;
        Ok(bits(&p.online.flat.read()?[p.layout.group(Group::Iqn)]))
    };
    let at_first = head(&off)?;
    for step in 0..3 {
        [&off, &on, &weightless].into_iter().try_for_each(Scene::step)?;
        let counters = |scene: &Scene| -> Result<_, Failed> { Ok(scene.agent.counters.read()?[0]) };
        ensure!(counters(&off)? == counters(&weightless)?, "step {step}: counters differ");
        let (off, weightless, on) = (state(&off)?, state(&weightless)?, state(&on)?);
        for ((name, off), (_, weightless)) in off.iter().zip(&weightless) {
            ensure!(off == weightless, "step {step}: {name} differ");
        }
        for ((name, off), (_, on)) in off.iter().zip(&on) {
            ensure!(
                off != on || !["gradient", "online", "readback"].contains(name),
                "step {step}: IQN changes no {name}"
            );
        }
    }
    ensure!(head(&off)? == at_first, "the head learns though it is off");
    ensure!(head(&weightless)? != at_first, "the head does not learn");
    Ok(())
}

/// A NaN in the head's weights reaches L, so J and the gradient through h: nothing is learned in the step, the flags say where, and
/// when it is gone training goes on.
fn a_fault_in_it_gates_the_step(device: &Device) -> Outcome {
    let scene = Scene::new(device, with_iqn(config(Precision::Bf16)))?;
    scene.step()?;
    let p = &scene.agent.parameters;
    let learned = || -> Result<Vec<Vec<u32>>, Failed> {
        let buffers = [&p.online.flat, &p.target.flat, &p.first_moments, &p.second_moments, &scene.replay.tree];
        let mut all = Vec::new();
        for buffer in buffers {
            all.push(bits(&buffer.read()?));
        }
        all.push(scene.agent.iqn_averages.read()?.iter().map(|average| average.to_bits() as u32).collect());
        all.push(bits(&scene.agent.bus.read()?[isv::IQN_READINESS..=isv::IQN_READINESS]));
        Ok(all)
    };
    let bias = p.layout.range("iqn.out.bias");
    let good = p.online.flat.slice(bias.clone()).read()?;
    p.online.flat.slice(bias.clone()).write(&vec![f32::NAN; bias.len()])?;
    let before = learned()?;
    scene.step()?;
    ensure!(learned()? == before, "a gated step changed something");
    let told = scene.reader.read().ok_or("nothing was published")?;
    for stage in [FORWARD, AUX, GRADIENT] {
        let found = told.readback.nan_flags[stage];
        ensure!(found & (NAN | GATED) == NAN | GATED, "stage {stage} has {found}");
    }
    ensure!((told.counters.adam_t, told.counters.iqn_t, told.counters.rng_step) == (1, 1, 2), "{:?}", told.counters);
    p.online.flat.slice(bias).write(&good)?;
    scene.step()?;
    let told = scene.reader.read().ok_or("nothing was published")?;
    ensure!(told.readback.nan_flags == [0; 7] && told.counters.iqn_t == 2, "training does not go on: {told:?}");
    ensure!(learned()? != before, "training does not go on");
    Ok(())
}
