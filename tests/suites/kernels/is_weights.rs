//! `per_is_weights`.

use gpu_kernels::is_weights::{per_is_weights, per_is_weights_shape};
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, Tolerance};
use onegraph_tests::{Case, Outcome, case};
use shared_types::StepScalars;

pub fn cases() -> Vec<Case> {
    vec![
        case("is_weights::by_hand", |device| Lab::on_all_lanes(device, by_hand)),
        case("is_weights::follow_the_papers_formula_at_every_size", |device| {
            Lab::on_all_lanes(device, follow_the_papers_formula_at_every_size)
        }),
        case("is_weights::no_row_writes_nothing", |device| Lab::on_all_lanes(device, no_row_writes_nothing)),
    ]
}

fn weights(lab: &Lab, priorities: &[f32], beta: f32) -> Result<Vec<f32>, DeviceError> {
    let priorities = lab.upload(priorities)?;
    let scalars = lab.upload(&[StepScalars { beta, ..StepScalars::default() }])?;
    let weights = lab.poisoned(priorities.len())?;
    let launch = per_is_weights::launch(priorities.view(), scalars.view(), weights.view_mut());
    lab.run(per_is_weights_shape(lab.lanes()), launch)?;
    weights.read()
}

fn by_hand(lab: &Lab) -> Outcome {
    assert_eq!(weights(lab, &[4.0, 1.0, 16.0], 1.0)?, [0.25, 1.0, 0.0625]);
    assert_eq!(weights(lab, &[4.0, 1.0, 16.0], 0.0)?, [1.0; 3]);
    assert_eq!(weights(lab, &[0.3], 0.7)?, [1.0]);
    Ok(())
}

/// w_k = (n P_k)^-beta / max, from the probabilities themselves. The quotient rounds once, which beta <= 1 does not enlarge,
/// and the power is off by one unit in the last place: 1.5 x 2^-23.
fn follow_the_papers_formula_at_every_size(lab: &Lab) -> Outcome {
    for n in [1usize, 2, 31, 33, 1000, 1023, 1025, 8192, 20_003] {
        let mut numbers = Numbers::new(n as u64);
        let priorities: Vec<f32> = (0..n).map(|_| numbers.heavy()).collect();
        let (slots, mass, beta) = (1e6f64, 3e7f64, 0.4 + 0.6 * numbers.unit() as f32);
        let raw: Vec<f64> =
            priorities.iter().map(|&priority| (slots * priority as f64 / mass).powf(-beta as f64)).collect();
        let largest = raw.iter().cloned().fold(0.0, f64::max);
        let want: Vec<f64> = raw.iter().map(|weight| weight / largest).collect();
        let got = weights(lab, &priorities, beta)?;
        assert!(got.contains(&1.0), "n = {n}: the largest weight is 1");
        Tolerance { absolute: 0.0, relative: 1.5 * 2f64.powi(-23) }.check(&format!("{n} weights"), &got, &want)?;
    }
    Ok(())
}

fn no_row_writes_nothing(lab: &Lab) -> Outcome {
    assert!(weights(lab, &[], 0.5)?.is_empty());
    Ok(())
}
