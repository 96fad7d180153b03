//! What rounding the operands of products to bf16 does to a step, apart from everything else that kernels do.

use crate::support::*;
use reference::config::{Config, Learners, Sizes};
use reference::layout::Group;
use reference::matrix::{dot, norm};
use reference::precision::Precision;
use reference::step::{Outputs, State, step};

fn outputs(sizes: Sizes, n_batch: usize, precision: Precision) -> Outputs {
    let config = Config { precision, ..Config::new(sizes, Learners::FULL) };
    let (batch, draws) = random_batch(&sizes, n_batch, 4);
    let mut state = State::new(config, 9, 1.0, 11);
    state.isv.entries[..12].copy_from_slice(&[3.0, 2.9, 1.0, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.5, 0.1, 0.01]);
    step(&mut state, &batch, &draws)
}

fn relative(got: &[f64], want: &[f64]) -> f64 {
    norm(&got.iter().zip(want).map(|(g, w)| g - w).collect::<Vec<_>>()) / norm(want)
}

/// Relative errors of a rounded step against the exact one.
struct Errors {
    loss: f64,
    /// Worst activation.
    activation: f64,
    /// Worst gradient tensor but W_phi and its bias.
    gradient: f64,
    /// W_phi's gradient.
    phi: f64,
    /// Share of phi's elements whose ReLU opens in one of the two steps alone.
    flipped: f64,
    /// Of theta's gradients.
    cosine: f64,
}

fn compare(sizes: Sizes, n_batch: usize) -> Errors {
    let exact = outputs(sizes, n_batch, Precision::Exact);
    let rounded = outputs(sizes, n_batch, Precision::Bf16);
    let (mut activation, mut gradient, mut phi) = (0.0f64, 0.0f64, 0.0f64);
    for (want, got) in exact.named().iter().zip(rounded.named()) {
        let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| want.name.starts_with(prefix));
        if norm(&want.values) == 0.0 || !is(&["grad.", "u", "h", "logits."]) {
            continue;
        }
        let error = relative(&got.values, &want.values);
        println!("{:40} {error:.2e}", want.name);
        let worst = match want.name.as_str() {
            "grad.iqn.phi.weight" | "grad.iqn.phi.bias" => &mut phi,
            name if name.starts_with("grad.") => &mut gradient,
            _ => &mut activation,
        };
        *worst = worst.max(error);
    }
    let open = |o: &Outputs| o.at.iqn_pass.as_ref().expect("IQN is on").phi.map(|x| f64::from(u8::from(x > 0.0)));
    let flips = open(&exact).zip(&open(&rounded), |a, b| (a - b).abs()).values;
    let (a, b) = (exact.first.params.group(Group::Theta), rounded.first.params.group(Group::Theta));
    let errors = Errors {
        loss: (rounded.at.total / exact.at.total - 1.0).abs(),
        activation,
        gradient,
        phi,
        flipped: flips.iter().sum::<f64>() / flips.len() as f64,
        cosine: dot(a, b) / (norm(a) * norm(b)),
    };
    let Errors { loss, activation, gradient, phi, flipped, cosine } = errors;
    println!(
        "J {loss:.1e} of 1e-4, activations {activation:.1e} of 2e-2, gradients {gradient:.1e} of 6e-2, cosine {cosine}"
    );
    println!("W_phi {phi:.1e}, {flipped:.1e} of its ReLUs flipped");
    errors
}

fn assert_within_the_designs_bounds(errors: &Errors) {
    assert!(errors.loss > 0.0, "rounding does something");
    assert!(errors.loss < 1e-4 && errors.activation < 2e-2 && errors.gradient < 6e-2 && errors.cosine > 0.999);
    // A flipped ReLU takes or gives an element of phi's gradient whole, and phi is the same for all rows, so that no batch averages
    // it away: with a share f flipped, of which half were open, the error is about sqrt(2 f), beside the products' own 2%.
    assert!(errors.phi < 2e-2 + 2.0 * (2.0 * errors.flipped).sqrt(), "{} {}", errors.phi, errors.flipped);
}

/// Each operand is off by at most 2^-9 of itself, so that a product of n independent terms is off by about 2^-9 of its size, and ten
/// products deep by 2^-9 sqrt(20) = 0.9%. The bounds are section 6.4's.
#[test]
fn rounded_operands_keep_the_step_near_the_exact_one() {
    assert_within_the_designs_bounds(&compare(Sizes::TINY, 32));
}

/// The same on `full` with 32 rows.
#[test]
#[ignore = "half a minute"]
fn rounded_operands_on_full() {
    assert_within_the_designs_bounds(&compare(Sizes::FULL, 32));
}
