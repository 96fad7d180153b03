//! Gradients against differences of the forward pass itself.

use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::Precision;

use crate::problem::{Problem, Way, n_threads};

pub fn cases() -> Vec<Case> {
    vec![case("differences::gradients_are_slopes_of_the_output", gradients_are_slopes_of_the_output)]
}

/// J = sum of doutput times output.
fn objective(lab: &Lab<'_>, problem: &Problem) -> Result<f64, Failed> {
    let output = problem.forward(lab, Precision::F32, Way::Plain(n_threads(lab)[0]))?;
    Ok(output.iter().zip(&problem.doutput.values).map(|(&y, d)| f64::from(y) * d).sum())
}

/// Four elements of each tensor, by differences of fourth order with a step of 1/64: truncation is of order h^4 = 6e-8 times a fifth
/// derivative, and the rounding of J, 5 rows of 64 outputs of order 1, about 2e-6 / h = 1e-4 absolute.
fn gradients_are_slopes_of_the_output(device: &Device) -> Outcome {
    const STEP: f64 = 1.0 / 64.0;
    let lab = Lab::new(device)?;
    let problem = Problem::new(5, 8, 71);
    let mut numbers = Numbers::new(72);
    let gradients = problem.gradients(&lab, Precision::F32, Way::Plain(n_threads(&lab)[0]))?;
    for tensor in problem.parameters.layout.tensors.iter().filter(|tensor| tensor.name.starts_with("attention.")) {
        for _ in 0..4 {
            let at = tensor.offset + numbers.below(tensor.len());
            let mut moved = problem.clone();
            let mut value_at = |shift: f64| {
                moved.parameters.flat[at] = f64::from((problem.parameters.flat[at] + shift) as f32);
                objective(&lab, &moved)
            };
            let near = value_at(STEP)? - value_at(-STEP)?;
            let far = value_at(2.0 * STEP)? - value_at(-2.0 * STEP)?;
            let (slope, gradient) = ((8.0 * near - far) / (12.0 * STEP), f64::from(gradients[at - problem.first()]));
            let (error, allowed) = ((slope - gradient).abs(), 3e-4 + 2e-3 * slope.abs());
            let what = format!("{}, element {}", tensor.name, at - tensor.offset);
            ensure!(error <= allowed, "{what}: gradient {gradient}, slope {slope}");
            println!("{what}: {:.1}% of the tolerance used", 100.0 * error / allowed);
        }
    }
    Ok(())
}
