//! The whole agent: every learner in one step, and its gradient against differences of what it descends.

use host::agent::layout::Group;
use host::config::Config;
use host::device::Device;
use onegraph_tests::lab::Numbers;
use onegraph_tests::{Case, Outcome, case, ensure};
use reference::layout::Tensors;
use reference::objective::{Constants, Objective, objective};
use reference::precision::Precision::Exact;
use reference::step::step;
use reference::trunk::{TrunkContext, depth_masks, film_inputs, keep_probabilities};
use reference::{denoise, iql, matrix, network, selectivity, spectral};
use shared_types::Precision;

use crate::learners::with_learners;
use crate::step::{Scene, config, steps_are_the_references, with_both, with_iqn};

pub fn cases() -> Vec<Case> {
    vec![
        case("whole::unrounded_steps_are_the_references", |device| {
            steps_are_the_references(device, whole(config(Precision::F32)))
        }),
        case("whole::rounded_steps_are_the_references", |device| {
            steps_are_the_references(device, whole(config(Precision::Bf16)))
        }),
        case("whole::gradients_agree_with_differences", gradients_agree_with_differences),
    ]
}

/// The same with every learner that has a switch of its own in the cases.
fn whole(config: Config) -> Config {
    with_iqn(with_both(with_learners(config)))
}

/// Each tensor of theta and of the attention against J, those of a head against its own loss: the device's gradient g times a
/// direction d against the central difference along d, in float64, of the reference's value at the device's parameters.
///
/// The elements of d are +-1, so that the mean square of (g - slope) d over all d is the squared norm of what g is off by: three
/// directions that stay within 1e-4 of g's norm show a relative error of that order. Of the 1e-4, g may use 1e-5 (section 6.4); a
/// difference over 1e-5 in norm leaves 1e-10 of third derivatives and 1e-10 of J's rounding.
fn gradients_agree_with_differences(device: &Device) -> Outcome {
    const LENGTH: f64 = 1e-5;
    let scene = Scene::new(device, whole(config(Precision::F32)))?;
    let mut before = scene.reference()?;
    // FiLM's inputs as after many steps: in the first all are 0, so that W_isv would have no gradient.
    let mut bus = scene.agent.bus.read()?;
    for (entry, value) in bus[..12].iter_mut().enumerate() {
        *value = 0.25 + 0.125 * entry as f32;
        before.isv.entries[entry] = f64::from(*value);
    }
    scene.agent.bus.write(&bus)?;
    scene.step()?;
    let (batch, draws) = scene.batch()?;
    let out = step(&mut before.clone(), &batch, &draws);
    let reference_config = &before.config;
    let keep = keep_probabilities(reference_config.sizes.blocks, reference_config.depth_keep_last);
    let context = TrunkContext {
        film: Some(film_inputs(&before.isv.entries)),
        scales: out.spectra[0].iter().map(|one| spectral::scale(one.sigma, reference_config.sigma_max)).collect(),
        depth: depth_masks(&draws.depth_uniforms, &keep),
    };
    ensure!(context.depth.contains(&1.0), "every block is left out, so that none is tested");
    let value = |p: &Tensors, heads: &Tensors| -> Objective {
        let constants = Constants {
            states: &batch.states,
            actions: &batch.actions,
            weights: &batch.weights,
            targets: &out.next.targets,
            quantile_targets: out.next.quantile_targets.as_deref(),
            atoms: &before.atoms,
            context: &context,
            heads,
            readiness: before.readiness(),
        };
        objective(reference_config, p, &constants)
    };
    let (aux, h) = (&out.aux, &out.at.pass.trunk.output);
    let normalised: Vec<f64> = aux.q.iter().map(|q| aux.popart.normalised(*q)).collect();
    let clean = network::last_bar_of(&reference_config.sizes, &batch.states);
    let noisy = clean.zip(&draws.denoise_normals, |x, noise| x + reference_config.denoise_noise * noise);
    let expectile_loss =
        |p: &Tensors, name: &str, expectile: f64| iql::loss(&iql::forward(Exact, p, name, h), expectile, &normalised).0;
    // What the learner of a group descends, at parameters of which that group's alone are moved.
    let loss = |group: Group, p: &Tensors| match group {
        Group::Theta | Group::Attention => value(p, &before.params).total,
        Group::Iqn => value(&before.params, p).iqn,
        Group::IqlHigh => expectile_loss(p, "iql_high", reference_config.expectiles.0),
        Group::IqlLow => expectile_loss(p, "iql_low", reference_config.expectiles.1),
        Group::Selectivity => selectivity::loss(p, h, &aux.labels, &mut Tensors::zeros(&p.layout)).loss,
        Group::Denoise => denoise::loss(Exact, p, &noisy, &clean, &mut Tensors::zeros(&p.layout)),
    };
    let gradient = scene.agent.parameters.gradient.read()?;
    let (mut numbers, mut n_checked) = (Numbers::new(31), 0);
    let tensors = scene.agent.parameters.layout.tensors();
    for tensor in tensors {
        let own: Vec<f64> = gradient[tensor.range()].iter().map(|&g| f64::from(g)).collect();
        let size = matrix::norm(&own);
        let is_left_out =
            |(block, mask): (usize, &f64)| *mask == 0.0 && tensor.name.contains(&format!(".block{block}."));
        if context.depth.iter().enumerate().any(is_left_out) {
            ensure!(size == 0.0, "{} has a gradient though its block is left out", tensor.name);
            continue;
        }
        ensure!(size > 1e-6, "{}: the gradient is zero ({size:e}), so that nothing is tested", tensor.name);
        let is_iql = [Group::IqlHigh, Group::IqlLow].contains(&tensor.group);
        let start = if is_iql { &aux.rescaled } else { &before.params };
        let length = LENGTH / (own.len() as f64).sqrt();
        for direction in 0..3 {
            let signs: Vec<f64> = own.iter().map(|_| if numbers.below(2) == 0 { 1.0 } else { -1.0 }).collect();
            let at = |length: f64| {
                let mut moved = start.clone();
                moved.flat[tensor.range()].iter_mut().zip(&signs).for_each(|(w, sign)| *w += length * sign);
                loss(tensor.group, &moved)
            };
            let slope = (at(length) - at(-length)) / (2.0 * length);
            let off = (slope - matrix::dot(&own, &signs)).abs() / size;
            println!("{}, direction {direction}: {off:.1e} of 1e-4", tensor.name);
            ensure!(off <= 1e-4, "{}, direction {direction}: off by {off:e} of its norm {size:e}", tensor.name);
        }
        n_checked += 1;
    }
    ensure!(n_checked + 5 >= tensors.len(), "{n_checked} of {} tensors were checked", tensors.len());
    Ok(())
}
