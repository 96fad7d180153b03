//! Forward and backward against the reference, for every tensor.

use std::cell::RefCell;

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

/// Windows and rows: one row, and tiles that are not full or have a remainder. Heads of an odd number of bars are among them (4, 12), a row
/// that is a tile (64), and one that fills it by half (36).
const SIZES: [(usize, usize); 11] =
    [(4, 1), (4, 19), (8, 1), (8, 3), (8, 11), (12, 1), (12, 7), (16, 5), (36, 2), (64, 1), (64, 2)];

/// Relative L2 error that a tensor may have.
///
/// F32: what the design asks of every tensor; sums are at most 64 long and the chain is twelve stages deep, so that rounding leaves
/// about 1e-6. Bf16: a value near a tie of bf16 falls on the other side when f32 and float64 differ by more than its distance.
/// They differ by about 2^-22 of it, and bf16's steps are 2^-8, so that one operand in some 2^12 moves by 2^-8. A query or key that
/// moves so moves its scores, here up to 10, by up to 10 2^-8, and with them the weights of its row, one of some ten: 2^-8. Twice that for
/// several at once.
fn tolerance(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 2f64.powi(-7),
    }
}

/// Error that half of all tensors may have with rounded operands, since most rows have no operand that moves. A product that rounded at
/// another place would be off by some 2^-9 in every tensor.
const MEDIAN: f64 = 1.0 / 4096.0;

/// Compares in L2, relative to the reference's norm; prints the share of the tolerance that was used. Returns the relative error.
pub fn compare(what: &str, got: &[f32], want: &[f64], tolerance: f64) -> Result<f64, Failed> {
    ensure!(got.len() == want.len(), "{what}: {} elements, {} expected", got.len(), want.len());
    let square = |sum: f64, x: f64| sum + x * x;
    let size = want.iter().copied().fold(0.0, square).sqrt();
    let error = got.iter().zip(want).map(|(&got, want)| f64::from(got) - want).fold(0.0, square).sqrt();
    let share = error / (size * tolerance + 1e-30);
    ensure!(share <= 1.0, "{what}: relative error {:e}, {share:.3} of the tolerance", error / size);
    println!("{what}: {:.1}% of the tolerance used", 100.0 * share);
    Ok(share * tolerance)
}

fn each_problem(device: &Device, check: impl Fn(&Lab<'_>, &Problem, Precision, Way, &str) -> Outcome) -> Outcome {
    let lab = Lab::new(device)?;
    for (window, n_rows) in SIZES {
        let problem = Problem::new(n_rows, window, (100 * window + n_rows) as u64);
        for precision in PRECISIONS {
            for way in ways(&lab, precision, window) {
                let what = format!("T {window}, R {n_rows}, {precision:?}, {way:?}");
                check(&lab, &problem, precision, way, &what)?;
            }
        }
    }
    Ok(())
}

fn the_output_is_the_references(device: &Device) -> Outcome {
    each_problem(device, |lab, problem, precision, way, what| {
        let want = problem.reference(precision).output;
        let got = problem.forward(lab, precision, way)?;
        compare(&format!("output, {what}"), &got, &want.values, tolerance(precision)).map(drop)
    })
}

fn every_gradient_is_the_references(device: &Device) -> Outcome {
    let errors = RefCell::new(Vec::new());
    each_problem(device, |lab, problem, precision, way, what| {
        let want = problem.reference_gradients(precision);
        let got = problem.gradients(lab, precision, way)?;
        let (first, mut end) = (problem.first(), 0);
        for tensor in want.layout.tensors.iter().filter(|tensor| tensor.name.starts_with("attention.")) {
            let range = tensor.offset - first..tensor.range().end - first;
            ensure!(got[end..range.start].iter().all(|&gap| gap == 0.0), "the gap before {} is not 0", tensor.name);
            end = range.end;
            let (name, want) = (format!("{}, {what}", tensor.name), want.slice(&tensor.name));
            let error = compare(&name, &got[range], want, tolerance(precision))?;
            if precision == Precision::Bf16 {
                errors.borrow_mut().push(error);
            }
        }
        ensure!(got[end..].iter().all(|&gap| gap == 0.0), "the gap at the end is not 0");
        Ok(())
    })?;
    let mut errors = errors.into_inner();
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    ensure!(median <= MEDIAN, "half of all tensors are off by {median:e} or more");
    Ok(())
}

fn two_runs_give_the_same_bits(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let problem = Problem::new(19, 8, 5);
    for precision in PRECISIONS {
        for way in ways(&lab, precision, problem.sizes.window) {
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
