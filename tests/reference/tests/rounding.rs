//! What rounding the operands of products to bf16 does to a step, apart from everything else that kernels do.

mod support;

use reference::config::{Config, Learners, Sizes};
use reference::layout::Group;
use reference::matrix::{dot, norm};
use reference::precision::Precision;
use reference::step::{Outputs, State, step};
use support::*;

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

/// Prints the relative error of each tensor, and returns (J, the worst activation, the worst gradient, the cosine of theta's).
fn compare(sizes: Sizes, n_batch: usize) -> (f64, f64, f64, f64) {
    let exact = outputs(sizes, n_batch, Precision::Exact);
    let rounded = outputs(sizes, n_batch, Precision::Bf16);
    let (mut activation, mut gradient) = (0.0f64, 0.0f64);
    for (want, got) in exact.named().iter().zip(rounded.named()) {
        let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| want.name.starts_with(prefix));
        if norm(&want.values) == 0.0 || !is(&["grad.", "u", "h", "logits."]) {
            continue;
        }
        let error = relative(&got.values, &want.values);
        println!("{:40} {error:.2e}", want.name);
        match is(&["grad."]) {
            true => gradient = gradient.max(error),
            false => activation = activation.max(error),
        }
    }
    let (a, b) = (exact.first.params.group(Group::Theta), rounded.first.params.group(Group::Theta));
    let loss = (rounded.at.total / exact.at.total - 1.0).abs();
    (loss, activation, gradient, dot(a, b) / (norm(a) * norm(b)))
}

/// Each operand is off by at most 2^-9 of itself, so a product of n terms by about 2^-9 sqrt(2) of its terms' root sum of squares;
/// ten products deep that is 2^-9 sqrt(20) = 0.9%. The bounds are section 6.4's, which are for `full`; small sizes average less.
#[test]
fn rounded_operands_keep_the_step_near_the_exact_one() {
    let (loss, activation, gradient, cosine) = compare(Sizes::TINY, 32);
    println!("J {loss:.1e} of 1e-4, activations {activation:.1e} of 2e-2, gradients {gradient:.1e}, cosine {cosine}");
    assert!(loss > 0.0, "rounding does something");
    assert!(loss < 1e-4 && activation < 2e-2 && cosine > 0.999);
}

/// The same on `full` with 32 rows: minutes in a debug build of this crate, seconds in a release one.
#[test]
#[ignore = "half a minute"]
fn rounded_operands_on_full() {
    let (loss, activation, gradient, cosine) = compare(Sizes::FULL, 32);
    println!("J {loss:.1e}, activations {activation:.1e}, gradients {gradient:.1e}, cosine {cosine}");
    assert!(loss < 1e-4 && activation < 2e-2 && gradient < 6e-2 && cosine > 0.999);
}
