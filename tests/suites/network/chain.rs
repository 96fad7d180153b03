//! Trunk and branches in a row, forwards and backwards: the kernels, with every matrix product in f64 on the host between them, against
//! the reference's passes.

mod pass;

use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Outcome, case, ensure};
use reference::config::{BRANCH_SIZES, Sizes};
use reference::layout::{Init, Layout, Tensors};
use reference::matrix::{Matrix, dot, norm};
use reference::trunk::{TrunkContext, film_inputs};
use reference::{branches, trunk};
use shared_types::Precision;
use std::sync::Arc;

use self::pass::{Network, Pass};
use super::support::{matrix, normals, of_reference, wide};

pub fn cases() -> Vec<Case> {
    vec![
        case("chain::in_f32_every_tensor_is_within_1e_5", in_f32_every_tensor_is_within_1e_5),
        case("chain::in_bf16_every_tensor_is_near_the_rounded_reference", in_bf16_every_tensor_is_near),
        case("chain::of_preset_full", of_preset_full),
        case("chain::two_runs_give_the_same_bits", two_runs_give_the_same_bits),
    ]
}

/// A network with random parameters, all of them f32, and what goes into a pass.
fn network(sizes: Sizes, n_rows: usize, depth: [f32; 2], precision: Precision) -> Network {
    let layout = Arc::new(Layout::new(&sizes));
    let mut parameters = Tensors::zeros(&layout);
    let mut numbers = Numbers::new((sizes.hidden * 1000 + n_rows) as u64);
    for tensor in layout.tensors.iter().filter(|t| ["trunk.", "film.", "branch."].iter().any(|p| t.name.starts_with(p)))
    {
        let scale = if tensor.shape.len() == 2 { 1.0 / (tensor.fan_in() as f64).sqrt() } else { 0.2 };
        let start = if tensor.init == Init::One { 1.0 } else { 0.0 };
        let values = normals(&mut numbers, tensor.len(), scale);
        parameters
            .slice_mut(&tensor.name)
            .copy_from_slice(&wide(&values).iter().map(|x| f64::from((start + x) as f32)).collect::<Vec<_>>());
    }
    let bus: Vec<f32> = normals(&mut numbers, 64, 1.0).into_iter().map(f32::abs).collect();
    Network {
        u: normals(&mut numbers, n_rows * 200, 1.0),
        dlogits: BRANCH_SIZES.map(|n| normals(&mut numbers, n_rows * n * sizes.atoms, 1.0)),
        extra: normals(&mut numbers, n_rows * sizes.hidden, 0.3),
        scales: (0..5).map(|i| f64::from(1.0 - 0.1 * i as f32)).collect(),
        sizes,
        precision,
        parameters,
        bus,
        depth,
    }
}

/// The reference's (logits, gradients, du) of the same network.
fn reference_pass(network: &Network, precision: reference::precision::Precision) -> (Vec<Matrix>, Tensors, Matrix) {
    let (s, p) = (&network.sizes, &network.parameters);
    let context = TrunkContext {
        film: Some(film_inputs(&wide(&network.bus))),
        scales: network.scales.clone(),
        depth: network.depth.map(f64::from).to_vec(),
    };
    let u = matrix(&network.u, s.input().width);
    let trunk_pass = trunk::forward(s, precision, p, &u, &context);
    let branches_pass = branches::forward(s, precision, p, &trunk_pass.output, true);
    let dlogits: Vec<Matrix> = network.dlogits.iter().zip(BRANCH_SIZES).map(|(d, n)| matrix(d, n * s.atoms)).collect();
    let mut gradients = Tensors::zeros(&p.layout);
    let mut dh = branches::backward(s, precision, p, &branches_pass, &dlogits, &mut gradients);
    dh.add(&matrix(&network.extra, s.hidden));
    let du = trunk::backward(s, precision, p, (&trunk_pass, &context), &dh, &mut gradients);
    (branches_pass.logits, gradients, du)
}

/// |got - want| / |want|, 0 when both are 0.
fn distance(got: &[f64], want: &[f64]) -> f64 {
    let difference: Vec<f64> = got.iter().zip(want).map(|(got, want)| got - want).collect();
    if norm(&difference) == 0.0 { 0.0 } else { norm(&difference) / norm(want) }
}

/// Whether a gradient is a sum of operands, whose rounding does not cancel as its terms may.
fn of_operands(name: &str) -> bool {
    name.ends_with(".b1") || name.starts_with("branch.") && name.ends_with(".bias")
}

/// How often a sum of rounded operands may be smaller than its terms together.
const CANCELLATION: f64 = 4.0;

/// Every tensor's relative distance from the reference; fails above `activations` for logits, `gradients` for the rest.
fn compare(
    network: &Network,
    pass: &Pass,
    precision: reference::precision::Precision,
    activations: f64,
    gradients: f64,
) -> Outcome {
    let (logits, want, du) = reference_pass(network, precision);
    let what = format!("H {}, {} rows, {:?}", network.sizes.hidden, network.n_rows(), network.precision);
    let mut worst = (0.0, String::new());
    let mut judge = |name: &str, got: &[f64], want: &[f64], bound: f64| -> Outcome {
        let distance = distance(got, want);
        let bound = if of_operands(name) { CANCELLATION * bound } else { bound };
        ensure!(distance <= bound, "{what}: {name} is {distance:.2e} off, {bound:.0e} allowed");
        if distance > worst.0 {
            worst = (distance, name.to_owned());
        }
        Ok(())
    };
    for (got, want) in pass.logits.iter().zip(&logits) {
        judge("logits", &got.values, &want.values, activations)?;
    }
    judge("du", &pass.du.values, &du.values, gradients)?;
    for tensor in &want.layout.tensors {
        judge(&tensor.name, pass.gradients.slice(&tensor.name), want.slice(&tensor.name), gradients)?;
    }
    let (got, want) = (&pass.gradients.flat, &want.flat);
    let cosine = dot(got, want) / (norm(got) * norm(want));
    ensure!(cosine >= 0.999, "{what}: the gradient's cosine is {cosine}");
    println!("{what}: {:.2e} off at most, at {}; the gradient's cosine is 1 - {:.1e}", worst.0, worst.1, 1.0 - cosine);
    Ok(())
}

/// (hidden, branch_hidden, rows, masks).
const SHAPES: [(usize, usize, usize, [f32; 2]); 5] = [
    (8, 4, 1, [1.0, 1.0]),
    (8, 4, 33, [1.0, 1.0]),
    (32, 16, 257, [1.0, 0.0]),
    (64, 32, 3, [0.0, 1.0]),
    (64, 32, 33, [0.95, 0.9]),
];

/// The design's bound for `precision = "f32"`.
fn in_f32_every_tensor_is_within_1e_5(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (hidden, branch_hidden, n_rows, depth) in SHAPES {
        let network = network(Sizes::new(4, hidden, branch_hidden, 51), n_rows, depth, Precision::F32);
        for &lanes in lab.row_lanes() {
            let pass = network.run(&lab, lanes)?;
            compare(&network, &pass, of_reference(Precision::F32), 1e-5, 1e-5)?;
        }
    }
    Ok(())
}

/// Against the reference that rounds the same operands. An f32 that is off by 40 units falls on the other side of a rounding in
/// 2 x 40 x 2^-24 / 2^-8 = 1 of 800 operands, which is then 2^-8 off: together 2^-8 / sqrt(800) = 1.4e-4 of a large tensor, and up to
/// 2^-8 of a small one. Beside the reference that rounds nothing, the design's bounds for `full` hold.
fn in_bf16_every_tensor_is_near(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (hidden, branch_hidden, n_rows, depth) in SHAPES {
        let network = network(Sizes::new(4, hidden, branch_hidden, 51), n_rows, depth, Precision::Bf16);
        for &lanes in lab.row_lanes() {
            let pass = network.run(&lab, lanes)?;
            compare(&network, &pass, of_reference(Precision::Bf16), 2f64.powi(-8), 2f64.powi(-8))?;
            compare(&network, &pass, of_reference(Precision::F32), 0.02, 0.06)?;
        }
    }
    Ok(())
}

fn of_preset_full(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (precision, bound) in [(Precision::F32, 1e-5), (Precision::Bf16, 2f64.powi(-8))] {
        let network = network(Sizes::FULL, 33, [1.0, 1.0], precision);
        for &lanes in lab.row_lanes() {
            let pass = network.run(&lab, lanes)?;
            compare(&network, &pass, of_reference(precision), bound, bound)?;
        }
    }
    Ok(())
}

fn two_runs_give_the_same_bits(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let network = network(Sizes::SMALL, 33, [1.0, 1.0], Precision::Bf16);
    for &lanes in lab.row_lanes() {
        let (first, second) = (network.run(&lab, lanes)?, network.run(&lab, lanes)?);
        assert_eq!(first.gradients, second.gradients);
        assert_eq!(first.du, second.du);
    }
    Ok(())
}
