//! The switches of the auxiliary learners: off, a step is the one that has none.

use host::agent::layout::Group;
use host::config::Config;
use host::device::{Buffer, Device};
use host::market::Step;
use onegraph_tests::lab::{bits, kernel_name};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::{Precision, isv};

use crate::learners::{bits_of, with_learners};
use crate::step::{Scene, config, with_attention, with_iqn, with_temporal};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("switches::off_none_of_their_kernels_is_launched", off_none_of_their_kernels_is_launched),
        case(
            "switches::a_bottleneck_that_reaches_nothing_changes_nothing",
            a_bottleneck_that_reaches_nothing_changes_nothing,
        ),
        case(
            "switches::without_a_target_a_step_is_that_of_a_target_equal_to_the_online_network",
            without_a_target_a_step_is_that_of_a_target_equal_to_the_online_network,
        ),
        case("switches::aux_and_post_aux_wait_for_no_one_but_forward", aux_and_post_aux_wait_for_no_one_but_forward),
    ];
    let apart: [(&str, Switch); 4] = [
        ("iql_without_modulation", |config| (config.learners.iql, config.beta_adv) = (true, 0.0)),
        ("iql_without_modulation_and_popart", |config| {
            (config.learners.iql, config.learners.popart, config.beta_adv) = (true, false, 0.0);
        }),
        ("selectivity", |config| config.learners.selectivity = true),
        ("risk", |config| (config.learners.risk, config.risk.target) = (true, -10.0)),
    ];
    cases.extend(apart.map(|(name, switch)| {
        case(format!("switches::{name}_leaves_the_rest_as_it_is"), move |device| {
            leaves_the_rest_as_it_is(device, switch)
        })
    }));
    cases
}

type Switch = fn(&mut Config);

fn kernels(scene: &Scene) -> Vec<(&'static str, Vec<&'static str>)> {
    let name = |step: &Step| kernel_name(&step.1);
    scene.children().into_iter().map(|(child, steps)| (child, steps.iter().map(name).collect())).collect()
}

/// Each learner alone adds its own kernels in its children, and nothing else; without one no child and no kernel of them is there.
fn off_none_of_their_kernels_is_launched(device: &Device) -> Outcome {
    let of = |switch: Switch| -> Result<_, Failed> {
        let mut config = config(Precision::Bf16);
        switch(&mut config);
        Ok(kernels(&Scene::new(device, config)?))
    };
    let off = of(|_| ())?;
    ensure!(!off.iter().any(|(child, _)| ["aux", "post_aux"].contains(child)), "{off:?}");
    let cases: [(Switch, &str, &[&str]); 4] = [
        (
            |config| config.learners.iql = true,
            "aux",
            &["matmul_nt", "iql_outputs", "iql_loss", "iql_hidden_gradient", "column_sums", "matmul_tn", "sum_parts"],
        ),
        (
            |config| config.learners.selectivity = true,
            "post_aux",
            &["trade_probability", "selectivity_loss", "column_partials_scaled", "column_sums"],
        ),
        (
            |config| config.learners.denoise = true,
            "post_aux",
            &["denoise_rows", "reduce_sum", "column_partials_operands", "column_sums", "matmul_tn", "sum_parts"],
        ),
        (|config| config.learners.risk = true, "post_aux", &["c51_cvar", "cvar_loss"]),
    ];
    for (switch, own_child, own) in cases {
        let mut want = off.clone();
        let at = want.iter().position(|(child, _)| *child == "adam_grad").ok_or("no adam_grad")?;
        want.insert(at, (own_child, own.to_vec()));
        for (child, kernels) in &mut want {
            match *child {
                "adam_update" => kernels.insert(0, "settle_heads"),
                "iql_modulate" if own_child == "aux" => kernels[0] = "modulated_td_bf16",
                _ => {}
            }
        }
        let got = of(switch)?;
        ensure!(got == want, "{got:?}\nexpected {want:?}");
    }
    Ok(())
}

/// The children that each comes before or after: they write parts of the gradient of their own.
fn aux_and_post_aux_wait_for_no_one_but_forward(device: &Device) -> Outcome {
    let scene = Scene::new(device, with_learners(config(Precision::Bf16)))?;
    let description = scene.graph.description();
    let name = |at: usize| description.children[at].name.as_str();
    ensure!(!description.edges.is_empty(), "no edges");
    for edge in &description.edges {
        let pair = [name(edge.from), name(edge.to)];
        ensure!(
            pair != ["aux", "post_aux"],
            "post_aux waits for aux because of {} and {}",
            edge.from_parameter,
            edge.to_parameter
        );
    }
    for child in ["aux", "post_aux"] {
        let before: Vec<&str> =
            description.edges.iter().filter(|edge| name(edge.to) == child).map(|edge| name(edge.from)).collect();
        let after: Vec<&str> =
            description.edges.iter().filter(|edge| name(edge.from) == child).map(|edge| name(edge.to)).collect();
        ensure!(before.contains(&"forward") && after.contains(&"adam_grad"), "{child}: {before:?}, {after:?}");
    }
    Ok(())
}

/// Bits of everything that a step writes for the next one but what is the learners' own: their ranges of the flat vectors,
/// their entries of the internal state vector, their counters' fate, PopArt.
fn rest(scene: &Scene) -> Result<Vec<(&'static str, Vec<u32>)>, Failed> {
    let (agent, memory) = (&scene.agent, &scene.memory);
    let p = &agent.parameters;
    let end = p.layout.group(Group::Iqn).end;
    let mut rest = Vec::new();
    for (name, buffer) in [
        ("online", &p.online.flat),
        ("target", &p.target.flat),
        ("first moments", &p.first_moments),
        ("second moments", &p.second_moments),
        ("gradient", &p.gradient),
    ] {
        rest.push((name, bits(&buffer.read()?[..end])));
    }
    for (name, buffer) in
        [("h", &memory.online.h[2]), ("q", &memory.q), ("spacing", &agent.spacing), ("tree", &scene.replay.tree)]
    {
        rest.push((name, bits(&buffer.read()?)));
    }
    let mut bus = agent.bus.read()?;
    for entry in [isv::IQL_GAP, isv::DENOISE_EMA, isv::SELECT_RATE, isv::POPART_MEAN, isv::POPART_STD, isv::RISK_ETA] {
        bus[entry] = 0.0;
    }
    rest.push(("isv", bits(&bus)));
    rest.push(("counters", bytemuck::cast_slice(&agent.counters.read()?).to_vec()));
    rest.push(("readback", bytemuck::cast_slice(&memory.readback.read()?).to_vec()));
    Ok(rest)
}

/// h and the batch are held constant: five steps with the learner leave what five steps without it leave, and it learns meanwhile.
fn leaves_the_rest_as_it_is(device: &Device, switch: Switch) -> Outcome {
    let mut on = config(Precision::Bf16);
    // The gap is an input of FiLM from the second step on.
    on.learners.film = false;
    let off = Scene::new(device, on.clone())?;
    switch(&mut on);
    let on = Scene::new(device, on)?;
    let start = off.agent.parameters.online.flat.read()?;
    for step in 0..5 {
        off.step()?;
        on.step()?;
        for ((name, got), (_, want)) in rest(&on)?.iter().zip(&rest(&off)?) {
            ensure!(got == want, "step {step}: {name} differ");
        }
    }
    let (now, eta) = (on.agent.parameters.online.flat.read()?, on.agent.bus.read()?[isv::RISK_ETA]);
    let heads = on.agent.parameters.layout.group(Group::IqlHigh).start..now.len();
    ensure!(now[heads.clone()] != start[heads] || eta != 1.0, "the learner has not moved");
    Ok(())
}

/// Bit for bit, with every part that a target pass has: where there is a target, it is made the online network before each step.
fn without_a_target_a_step_is_that_of_a_target_equal_to_the_online_network(device: &Device) -> Outcome {
    let mut config = with_iqn(with_attention(with_temporal(with_learners(config(Precision::Bf16)))));
    let on = Scene::new(device, config.clone())?;
    config.learners.target_ema = false;
    let off = Scene::new(device, config)?;
    let (p, u) = (&on.agent.parameters, &on.agent.spectral.u);
    let same = |what: &str, got: &Buffer<f32>, want: &Buffer<f32>| -> Outcome {
        let (got, want) = (got.read()?, want.read()?);
        // Without the target's part, which comes last.
        ensure!(bits(&got) == bits(&want[..got.len()]), "{what} differ");
        Ok(())
    };
    for step in 0..4 {
        p.target.flat.write(&p.online.flat.read()?[..p.target.flat.len()])?;
        p.target.shadow.write(&p.online.shadow.read()?[..p.target.shadow.len()])?;
        let online_u = &u.read()?[..u.len() / 2];
        u.write(&[online_u, online_u].concat())?;
        on.step()?;
        off.step()?;
        for (name, of) in [
            ("targets", (|scene| &scene.memory.targets) as fn(&Scene) -> &Buffer<f32>),
            ("heads of the target pass", |scene| &scene.memory.target_next.heads),
            ("h", |scene| &scene.memory.online.h[2]),
            ("row losses", |scene| &scene.memory.row_losses),
            ("gradient", |scene| &scene.agent.parameters.gradient),
            ("parameters", |scene| &scene.agent.parameters.online.flat),
            ("first moments", |scene| &scene.agent.parameters.first_moments),
            ("second moments", |scene| &scene.agent.parameters.second_moments),
            ("spectral vectors", |scene| &scene.agent.spectral.u),
            ("spectral scales", |scene| &scene.agent.spectral.scales),
            ("spacing", |scene| &scene.agent.spacing),
            ("internal state vectors", |scene| &scene.agent.bus),
            ("priorities", |scene| &scene.replay.tree),
        ] {
            same(&format!("step {step}: {name}"), of(&off), of(&on))?;
        }
        let of_iqn = |scene: &Scene| scene.memory.iqn.as_ref().map(|iqn| bits_of(&iqn.next_quantiles)).transpose();
        ensure!(of_iqn(&off)? == of_iqn(&on)?, "step {step}: target quantiles differ");
        let operands = |scene: &Scene| scene.agent.parameters.online.shadow.read();
        ensure!(operands(&off)? == operands(&on)?, "step {step}: operands differ");
    }
    let target = &off.agent.parameters.target;
    ensure!(target.flat.is_empty() && target.shadow.is_empty(), "a target network where there is none");
    Ok(())
}

/// With W_in's columns of the bottleneck at 0 and without a step between, the passes are those of a net without it; and the
/// learner does not touch the gradient of anything but those columns.
fn a_bottleneck_that_reaches_nothing_changes_nothing(device: &Device) -> Outcome {
    let mut on = config(Precision::Bf16);
    let off = Scene::new(device, on.clone())?;
    on.learners.denoise = true;
    let on = Scene::new(device, on)?;
    let bottleneck = 168..200;
    for scene in [&off, &on] {
        let p = &scene.agent.parameters;
        for buffer in [&p.online.flat, &p.target.flat] {
            let mut values = buffer.read()?;
            for row in values[p.layout.range("trunk.in.weight")].chunks_mut(200) {
                row[bottleneck.clone()].fill(0.0);
            }
            buffer.write(&values)?;
        }
        p.refresh_operands()?;
        scene.step()?;
    }
    for (name, of) in [("h of s' on the target net", 0), ("targets", 1), ("h", 2), ("q", 3), ("row losses", 4)] {
        let pick = |scene: &Scene| {
            let m = &scene.memory;
            bits_of([&m.target_next.h[2], &m.targets, &m.online.h[2], &m.q, &m.row_losses][of])
        };
        ensure!(pick(&on)? == pick(&off)?, "{name} differ");
    }
    let u = |scene: &Scene| -> Result<Vec<u16>, Failed> { Ok(scene.memory.online.u.read()?) };
    for (on, off) in u(&on)?.chunks(200).zip(u(&off)?.chunks(200)) {
        ensure!(on[..168] == off[..168], "another part of u changed");
        ensure!(off[bottleneck.clone()].iter().all(|&x| x == 0), "a bottleneck that is off is not 0");
        ensure!(on[bottleneck.clone()].iter().any(|&x| x != 0), "a bottleneck that is on is 0");
    }
    let gradient = |scene: &Scene| -> Result<Vec<f32>, Failed> {
        let p = &scene.agent.parameters;
        let mut gradient = p.gradient.read()?;
        for row in gradient[p.layout.range("trunk.in.weight")].chunks_mut(200) {
            row[bottleneck.clone()].fill(0.0);
        }
        gradient.truncate(p.layout.group(Group::Iqn).end);
        Ok(gradient)
    };
    ensure!(bits(&gradient(&on)?) == bits(&gradient(&off)?), "the gradient of something else changed");
    Ok(())
}
