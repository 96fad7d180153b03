//! Forward and backward against the reference, for every tensor.

use host::device::Device;
use onegraph_tests::lab::Lab;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::Precision;

use crate::problem::{PRECISIONS, Problem, Way, ways};

pub fn cases() -> Vec<Case> {
    vec![
        case("passes::the_output_is_the_references", the_output_is_the_references),
        case("passes::every_gradient_is_the_references", every_gradient_is_the_references),
        case("passes::two_runs_give_the_same_bits", two_runs_give_the_same_bits),
    ]
}

/// Rows that are one tile, less than one, and more than one tile with a remainder.
const N_ROWS: [usize; 3] = [1, 3, 33];

/// Relative L2 error that a tensor may have.
///
/// F32: what the design asks of every tensor; sums are at most 292 long and the chain is ten stages deep, so that rounding leaves
/// about 1e-6. Bf16: a value near a tie of bf16 falls on the other side when f32 and float64 differ by more than its distance.
/// They differ by about 2^-22 of it, and bf16's steps are 2^-8, so that one operand in some 2^12 moves by 2^-8: a relative L2 error
/// of 2^-8 2^-6 a stage, and 2^-10 with ten stages and few rows.
pub fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 2f64.powi(-10),
    }
}

/// Compares in L2, relative to the reference's norm; prints the share of the tolerance that was used.
pub fn compare(what: &str, got: &[f32], want: &[f64], tolerance: f64) -> Result<(), Failed> {
    ensure!(got.len() == want.len(), "{what}: {} elements, {} expected", got.len(), want.len());
    let square = |sum: f64, x: f64| sum + x * x;
    let size = want.iter().copied().fold(0.0, square).sqrt();
    let error = got.iter().zip(want).map(|(&got, want)| f64::from(got) - want).fold(0.0, square).sqrt();
    let share = error / (size * tolerance + 1e-30);
    ensure!(share <= 1.0, "{what}: relative error {:e}, {share:.3} of the tolerance", error / size);
    println!("{what}: {:.1}% of the tolerance used", 100.0 * share);
    Ok(())
}

fn each_problem(device: &Device, check: impl Fn(&Lab<'_>, &Problem, Precision, Way, &str) -> Outcome) -> Outcome {
    let lab = Lab::new(device)?;
    for window in [4, 8, 16] {
        for n_rows in N_ROWS {
            let problem = Problem::new(n_rows, window, (100 * window + n_rows) as u64);
            for precision in PRECISIONS {
                for way in ways(&lab, precision) {
                    let what = format!("T {window}, R {n_rows}, {precision:?}, {way:?}");
                    check(&lab, &problem, precision, way, &what)?;
                }
            }
        }
    }
    Ok(())
}

fn the_output_is_the_references(device: &Device) -> Outcome {
    each_problem(device, |lab, problem, precision, way, what| {
        let want = problem.reference(precision).output;
        let got = problem.forward(lab, precision, way)?;
        compare(&format!("output, {what}"), &got, &want.values, tolerance(precision))
    })
}

fn every_gradient_is_the_references(device: &Device) -> Outcome {
    each_problem(device, |lab, problem, precision, way, what| {
        let want = problem.reference_gradients(precision);
        let got = problem.gradients(lab, precision, way)?;
        let mut end = 0;
        for tensor in want.layout.tensors.iter().filter(|tensor| tensor.name.starts_with("temporal.")) {
            ensure!(got[end..tensor.offset].iter().all(|&gap| gap == 0.0), "the gap before {} is not 0", tensor.name);
            end = tensor.range().end;
            let (got, want) = (&got[tensor.range()], want.slice(&tensor.name));
            compare(&format!("{}, {what}", tensor.name), got, want, tolerance(precision))?;
        }
        Ok(())
    })
}

fn two_runs_give_the_same_bits(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(33, 8, 5);
    for precision in PRECISIONS {
        for way in ways(&lab, precision) {
            let run = || -> Result<_, Failed> {
                let bits = |values: Vec<f32>| onegraph_tests::lab::bits(&values);
                let output = problem.forward(&lab, precision, way)?;
                Ok((bits(output), bits(problem.gradients(&lab, precision, way)?)))
            };
            ensure!(run()? == run()?, "{precision:?}, {way:?}: two runs differ");
        }
    }
    Ok(())
}
