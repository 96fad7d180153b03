//! A hundred updates skipped in a row: training stops, says why, and leaves what was learned.

use host::config::Config;
use host::device::Device;
use host::run::RunFolder;
use host::train::skips::MOST_SKIPPED;
use host::train::{TrainError, Trainer};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};

use crate::learner::unchecked;
use crate::runs::{bars, checkpoint, config, folder, metrics, try_train};

pub fn cases() -> Vec<Case> {
    vec![case("skips::a_hundred_skipped_updates_stop_training", a_hundred_skipped_updates_stop_training)]
}

/// Rewards that are no numbers from the first transition on, so that no update is ever applied: 40 steps an epoch, the hundredth
/// skipped one is in the third.
fn a_hundred_skipped_updates_stop_training(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = Config { epochs: 8, steps_per_epoch: 40, reward_scale: f64::NAN, ..config() };
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let run = folder(&parent.path().join("run"), &config, device)?;
    let error = match try_train(device, &config, &bars, &run) {
        Err(error @ TrainError::Skipped { .. }) => error,
        Err(error) => return Err(Failed::from(error)),
        Ok(_) => return Err("training went on without a single update".into()),
    };
    ensure!(!error.is_bad_input(), "the work failed, not the arguments");
    let TrainError::Skipped { steps, last, .. } = &error else { unreachable!("matched above") };
    // On a GPU the host may see it as late as the epoch's end.
    ensure!((MOST_SKIPPED..=120).contains(steps) && u64::from(*steps) == *last, "{steps} skipped up to step {last}");
    if device.backend_name() == "cpu" {
        ensure!(*steps == MOST_SKIPPED, "{steps} skipped, seen after every step");
    }
    let text = error.to_string();
    for part in ["fold 1", "fold-1-epoch-00003", "NaN in sample", "forward", "--resume", "`lr`", "data inspect"] {
        ensure!(text.contains(part), "{part} is not in: {text}");
    }

    // Nothing was learned from them: the checkpoint has a fresh agent's weights, and a run can be gone on with from it.
    let left = checkpoint(&run, 1, 3)?;
    ensure!(left.meta().resumable && left.meta().step == *last, "{:?}", left.meta());
    let fresh = Trainer::new(device, &config, &bars)?;
    fresh.agent.restart(fresh.runner())?;
    for (name, buffer) in fresh.agent.state() {
        if ["online", "target", "first_moments", "second_moments", "spacing"].contains(&name) {
            let tensor = left.tensor(name).ok_or("a tensor is missing")?;
            ensure!(tensor.bytes == buffer.read_bytes()?, "`{name}` changed");
        }
    }
    ensure!(metrics(&run)?.len() == 3, "an epoch that was cut short has its line too");
    let again = RunFolder::open(run.path())?;
    match try_train(device, &config, &bars, &again) {
        Err(TrainError::Skipped { .. }) => Ok(()),
        _ => Err("gone on with, it does not stop again".into()),
    }
}
