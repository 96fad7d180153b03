//! A hundred updates skipped in a row: training stops, says why, and leaves what was learned.

use host::config::Config;
use host::device::Device;
use host::market::walk_forward::walk_forward;
use host::run::RunFolder;
use host::train::skips::MOST_SKIPPED;
use host::train::{TrainError, Trainer};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};

use crate::learner::unchecked;
use crate::runs::{bars, checkpoint, config, folder, metrics, try_train};

pub fn cases() -> Vec<Case> {
    vec![
        case("skips::a_hundred_skipped_updates_stop_training", a_hundred_skipped_updates_stop_training),
        case("skips::what_was_learned_before_them_is_kept", what_was_learned_before_them_is_kept),
    ]
}

/// What no skipped step changes.
const LEARNED: [&str; 5] = ["online", "target", "first_moments", "second_moments", "spacing"];

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
        if LEARNED.contains(&name) {
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

/// A learning rate that throws the weights so far with the first updates that no later step has a finite objective:
/// training stops in the third epoch, and its checkpoint, behind three boundaries, has the weights, targets and moments
/// of the last applied update.
fn what_was_learned_before_them_is_kept(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = Config { epochs: 8, steps_per_epoch: 40, lr: 1e30, ..config() };
    let (parent, bars) = (tempfile::tempdir()?, bars(&config));
    let mut trainer = Trainer::new(device, &config, &bars)?;
    trainer.begin_fold(&walk_forward(bars.len(), config.folds, config.episode_len as usize)?[0])?;
    trainer.warm_up()?;
    trainer.collect(u64::from(config.bars_per_epoch))?;
    let learned = |trainer: &Trainer| -> Result<Vec<(&'static str, Vec<u8>)>, Failed> {
        let state = trainer.agent.state().into_iter().filter(|(name, _)| LEARNED.contains(name));
        state.map(|(name, buffer)| Ok((name, buffer.read_bytes()?))).collect()
    };
    let (fresh, mut applied) = (learned(&trainer)?, 0);
    for step in 1..=10 {
        trainer.step()?;
        trainer.finish_steps()?;
        let counters = trainer.published().ok_or("nothing was published")?.counters;
        ensure!(counters.adam_t >= applied, "step {step} took an update back");
        applied = counters.adam_t;
    }
    ensure!((1..10).contains(&applied), "{applied} of 10 updates applied: not some good ones and then none");
    let want = learned(&trainer)?;
    ensure!(want.iter().zip(&fresh).any(|(want, fresh)| want != fresh), "nothing was learned before");

    let run = folder(&parent.path().join("run"), &config, device)?;
    let (steps, last, id) = match try_train(device, &config, &bars, &run) {
        Err(TrainError::Skipped { steps, last, id, .. }) => (steps, last, id),
        Err(error) => return Err(Failed::from(error)),
        Ok(_) => return Err("training went on without a single update".into()),
    };
    ensure!((MOST_SKIPPED..=120).contains(&steps) && u64::from(steps) + applied as u64 == last, "{steps} up to {last}");
    let left = checkpoint(&run, id.fold, id.epoch)?;
    for (name, want) in want {
        let tensor = left.tensor(name).ok_or("a tensor is missing")?;
        ensure!(tensor.bytes == want, "`{name}` is not what the last applied update left");
        if name != "spacing" {
            let finite = want.as_chunks::<4>().0.iter().all(|&word| f32::from_le_bytes(word).is_finite());
            ensure!(finite, "`{name}` is not finite");
        }
    }
    Ok(())
}
