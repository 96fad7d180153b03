//! The priorities that an epoch's boundary works out anew.

use host::config::Config;
use host::device::Device;
use host::market::walk_forward::walk_forward;
use host::train::Trainer;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};

use crate::learner::unchecked;
use crate::runs::{bars, config, with_learners};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "rescoring::a_transition_that_was_just_scored_keeps_its_priority",
            a_transition_that_was_just_scored_keeps_its_priority,
        ),
        case("rescoring::the_stalest_and_no_others_are_scored", the_stalest_and_no_others_are_scored),
        case("rescoring::with_every_learner_priorities_are_not_modulated", priorities_are_not_modulated),
    ]
}

/// A network that stands still: a step's change is lost in the rounding, and every pass sees the whole depth.
fn still(config: Config) -> Config {
    let mut config = Config { lr: 1e-30, weight_decay: 0.0, ..config };
    config.learners.depth = false;
    config.learners.spectral = false;
    config
}

/// What the ring says of each filled slot: when it was scored, its priority.
struct Slots {
    scored: Vec<u32>,
    priorities: Vec<f32>,
    root: f32,
}

impl Slots {
    fn of(trainer: &Trainer, n_filled: usize) -> Result<Self, Failed> {
        let (tree, scored) = (trainer.replay.tree.read()?, trainer.replay.ring.last_scored.read()?);
        let leaves = &tree[tree.len() / 2..];
        ensure!(leaves[n_filled..].iter().all(|&leaf| leaf == 0.0), "an empty slot has a priority");
        Ok(Self { scored: scored[..n_filled].to_vec(), priorities: leaves[..n_filled].to_vec(), root: tree[1] })
    }
}

fn trainer(device: &Device, config: &Config) -> Result<Trainer, Failed> {
    let bars = bars(config);
    let folds = walk_forward(bars.len(), config.folds, config.episode_len as usize)?;
    let mut trainer = Trainer::new(device, config, &bars)?;
    trainer.begin_fold(&folds[0])?;
    trainer.warm_up()?;
    Ok(trainer)
}

/// The step's own TD errors and those of a re-scoring are the same numbers where the network is.
fn a_transition_that_was_just_scored_keeps_its_priority(device: &Device) -> Outcome {
    let mut config = still(config());
    config.per.rescore = config.capacity as u32;
    let mut trainer = trainer(&unchecked(device), &config)?;
    let n_filled = trainer.replay.tree.read()?[config.capacity..].iter().filter(|&&leaf| leaf > 0.0).count();
    let before = Slots::of(&trainer, n_filled)?;
    ensure!(before.priorities.iter().all(|&priority| priority == 1.0), "new transitions have the highest priority");
    for _ in 0..3 {
        trainer.step()?;
    }
    trainer.finish_steps()?;
    let stepped = Slots::of(&trainer, n_filled)?;
    trainer.rescore()?;
    let rescored = Slots::of(&trainer, n_filled)?;

    ensure!(rescored.scored.iter().all(|&step| step == 3), "a transition was passed over");
    let drawn: Vec<usize> = (0..n_filled).filter(|&slot| stepped.scored[slot] > 0).collect();
    ensure!(!drawn.is_empty() && drawn.len() < n_filled, "{} of {n_filled} were drawn", drawn.len());
    for &slot in &drawn {
        let (step, anew) = (stepped.priorities[slot], rescored.priorities[slot]);
        ensure!(step == anew, "slot {slot}: {step} by the step, {anew} anew");
    }
    let untouched = (0..n_filled).filter(|&slot| rescored.priorities[slot] == before.priorities[slot]).count();
    ensure!(untouched == 0, "{untouched} transitions still have the priority that they entered with");
    let sum: f64 = rescored.priorities.iter().map(|&priority| f64::from(priority)).sum();
    ensure!((f64::from(rescored.root) / sum - 1.0).abs() < 1e-5, "root {}, leaves {sum}", rescored.root);
    Ok(())
}

/// As many as asked for, not a whole number of batches, oldest first and lower slots first.
fn the_stalest_and_no_others_are_scored(device: &Device) -> Outcome {
    let mut config = still(config());
    config.per.rescore = 3 * config.batch as u32 + 5;
    let mut trainer = trainer(&unchecked(device), &config)?;
    let n_filled = trainer.replay.tree.read()?[config.capacity..].iter().filter(|&&leaf| leaf > 0.0).count();
    for _ in 0..4 {
        trainer.step()?;
    }
    trainer.finish_steps()?;
    let stepped = Slots::of(&trainer, n_filled)?;
    trainer.rescore()?;
    let rescored = Slots::of(&trainer, n_filled)?;

    let mut stalest: Vec<usize> = (0..n_filled).collect();
    stalest.sort_by_key(|&slot| stepped.scored[slot]);
    let (taken, left) = stalest.split_at(config.per.rescore as usize);
    ensure!(!left.is_empty(), "all {n_filled} were taken");
    for &slot in taken {
        ensure!(rescored.scored[slot] == 4, "slot {slot}, scored at step {}, was passed over", stepped.scored[slot]);
    }
    for &slot in left {
        ensure!(rescored.scored[slot] == stepped.scored[slot], "slot {slot} was scored");
        ensure!(rescored.priorities[slot] == stepped.priorities[slot], "slot {slot} has another priority");
    }
    Ok(())
}

/// The step modulates the TD errors by IQL's advantage, by up to a factor of 4 either way; a re-scoring does not: it gives the priorities
/// that one gives whose modulation is switched off by beta_adv 0.
fn priorities_are_not_modulated(device: &Device) -> Outcome {
    let priorities = |beta_adv: f64| -> Result<[Vec<f32>; 2], Failed> {
        let mut config = still(with_learners(config()));
        (config.per.rescore, config.beta_adv) = (config.capacity as u32, beta_adv);
        // Priorities say what is drawn, and the averages of what was drawn are in FiLM's input.
        config.learners.film = false;
        let mut trainer = trainer(&unchecked(device), &config)?;
        let n_filled = trainer.replay.tree.read()?[config.capacity..].iter().filter(|&&leaf| leaf > 0.0).count();
        trainer.step()?;
        trainer.finish_steps()?;
        let stepped = Slots::of(&trainer, n_filled)?.priorities;
        trainer.rescore()?;
        Ok([stepped, Slots::of(&trainer, n_filled)?.priorities])
    };
    let ([stepped, rescored], [plain_stepped, plain_rescored]) = (priorities(1.0)?, priorities(0.0)?);
    ensure!(stepped != plain_stepped, "the step does not modulate");
    ensure!(rescored == plain_rescored, "the re-scoring modulates");
    Ok(())
}
