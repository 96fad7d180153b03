//! The loss that the level of CVaR descends.

use gpu_kernels::heads::N_ACTIONS;
use gpu_kernels::risk::{cvar_loss, cvar_loss_shape, next_eta};
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure, host_case};
use reference::config::first_action;
use reference::risk;

use crate::scene::random_actions;

pub fn cases() -> Vec<Case> {
    vec![
        case("risk::the_loss_is_the_mean_of_what_was_taken", |device| {
            Lab::on_all_lanes(device, the_loss_is_the_mean_of_what_was_taken)
        }),
        host_case("risk::eta_stays_within_its_bounds", eta_stays_within_its_bounds),
    ]
}

fn run(lab: &Lab, ranks: &[f32], actions: &[[u8; 4]]) -> Result<f32, Failed> {
    let (ranks, actions, loss) = (lab.upload(ranks)?, lab.upload(actions)?, lab.poisoned(1)?);
    let launch = cvar_loss::launch(ranks.view(), actions.view(), loss.view_mut());
    lab.run(cvar_loss_shape(lab.lanes()), launch)?;
    Ok(loss.read()?[0])
}

/// Sums are f64, so that the result is rounded once.
fn the_loss_is_the_mean_of_what_was_taken(lab: &Lab) -> Outcome {
    for n in [1, 33, 257, 1000] {
        let mut numbers = Numbers::new(n as u64);
        let mut ranks: Vec<f32> = (0..n * N_ACTIONS).map(|_| (6.0 * numbers.unit() - 3.0) as f32).collect();
        let actions = random_actions(&mut numbers, n);
        let taken = |row: usize, b: usize| row * N_ACTIONS + first_action(b) + usize::from(actions[row][b]);
        let all = (0..n).flat_map(|row| (0..4).map(move |b| (row, b)));
        let sum: f64 = all.clone().map(|(row, b)| f64::from(ranks[taken(row, b)])).sum();
        let (got, want) = (run(lab, &ranks, &actions)?, -sum / (4 * n) as f64);
        ensure!((f64::from(got) - want).abs() <= 1e-7 * (1.0 + want.abs()), "{n} rows: {got}, {want} expected");
        // What was not taken is not in it, not even a NaN.
        let all: Vec<usize> = all.map(|(row, b)| taken(row, b)).collect();
        (0..ranks.len()).filter(|at| !all.contains(at)).for_each(|at| ranks[at] = f32::NAN);
        ensure!(run(lab, &ranks, &actions)?.to_bits() == got.to_bits(), "an action that was not taken counts");
        ranks[taken(n - 1, 3)] = f32::NAN;
        ensure!(run(lab, &ranks, &actions)?.is_nan(), "a NaN that was taken is lost");
    }
    Ok(())
}

fn eta_stays_within_its_bounds() -> Outcome {
    for (eta, loss, lr, target) in [(0.5f32, 2.0f32, 0.1f32, 1.0f32), (0.5, -1.0, 0.01, 0.5), (1.0, 3.0, 1e-3, 0.0)] {
        let want = risk::next_eta(eta.into(), loss.into(), lr.into(), target.into());
        ensure!((f64::from(next_eta(eta, loss, lr, target)) - want).abs() < 1e-6, "{want} expected");
    }
    assert_eq!((next_eta(0.5, 100.0, 0.1, 0.0), next_eta(0.5, -100.0, 0.1, 0.0)), (0.05, 1.0));
    assert_eq!([f32::NAN, f32::INFINITY].map(|loss| next_eta(0.5, loss, 0.1, 0.0)), [0.5, 0.5]);
    Ok(())
}
