//! A run's checkpoints tested: each on its own fold's test part, or one of them on bars that the run never had.

use std::ops::Range;

use shared_types::market::WARM_UP_BARS;

use super::TrainError;
use super::tester::{Returning, Tester};
use crate::config::Config;
use crate::data::Bars;
use crate::device::Device;
use crate::eval::evaluation::{Evaluation, FoldTest, Selection, Times};
use crate::eval::random::Tested;
use crate::interrupt::Interrupt;
use crate::market::walk_forward::{LEAST_TEST_BARS, walk_forward};
use crate::metrics::EpochMetrics;
use crate::run::{Checkpoint, CheckpointId, RunFolder};

/// Checkpoints, and the bars that they are tested on.
#[derive(Clone, Copy)]
pub struct Testing<'a> {
    /// Where the tests run.
    pub device: &'a Device,
    /// The run's configuration.
    pub config: &'a Config,
    /// The run's bars, or others.
    pub bars: &'a Bars,
    /// The run's folder.
    pub folder: &'a RunFolder,
    /// What the market returns from, bar by bar, where it is a simulator that does.
    pub deviations: Option<&'a [f64]>,
    /// Whether the user wants the tests to stop.
    pub interrupt: &'a Interrupt,
}

/// Fewest bars that can be tested as a whole: indicators settle, and a test or a window and an episode follow.
pub fn least_bars(config: &Config) -> usize {
    WARM_UP_BARS + LEAST_TEST_BARS.max(config.window as usize + config.episode_len as usize)
}

impl Testing<'_> {
    /// The checkpoint of a fold that validation chose.
    pub fn best_of(&self, fold: u32) -> Result<CheckpointId, TrainError> {
        self.folder.best_checkpoint(fold)?.ok_or(TrainError::NoCandidate(fold))
    }

    /// Tests each of `checkpoints`, in the order of their folds, on its own fold's test part. `epochs` says how they were
    /// chosen.
    pub fn on_own_tests(
        &self,
        checkpoints: &[CheckpointId],
        epochs: &[EpochMetrics],
    ) -> Result<Evaluation, TrainError> {
        let folds = walk_forward(self.bars.len(), self.config.folds, self.config.episode_len as usize)?;
        let mut tester = Tester::new(self.device, self.config, self.bars, self.interrupt)?;
        let (mut tests, mut terms) = (Vec::new(), Vec::new());
        for &id in checkpoints {
            let checkpoint = Checkpoint::open(&self.folder.checkpoint_path(id))?;
            let fold = folds.get(id.fold as usize - 1).ok_or_else(|| TrainError::Checkpoint {
                path: checkpoint.path().to_owned(),
                reason: format!("it is of fold {}, and the configuration has {}", id.fold, folds.len()),
            })?;
            tester.load(&checkpoint)?;
            let returning = self.deviations.map(|deviations| Returning { deviations, train: &fold.train });
            tests.push(tester.test(&fold.test, selection(id, epochs), returning)?);
            terms.push(tester.terms(&fold.test)?);
        }
        self.judge(&tester, &tests, &terms)
    }

    /// Tests `checkpoint` on all bars behind the indicators' warm-up, as one path. Nothing is fitted to them.
    pub fn on_all_bars(&self, checkpoint: CheckpointId, epochs: &[EpochMetrics]) -> Result<Evaluation, TrainError> {
        let mut tester = Tester::new(self.device, self.config, self.bars, self.interrupt)?;
        tester.load(&Checkpoint::open(&self.folder.checkpoint_path(checkpoint))?)?;
        let part: Range<usize> = WARM_UP_BARS..self.bars.len();
        let test = tester.test(&part, selection(checkpoint, epochs), None)?;
        self.judge(&tester, &[test], &[tester.terms(&part)?])
    }

    /// The tests' numbers, with the random baseline on their terms. The bars that it trades are the same whichever checkpoint was
    /// loaded last.
    fn judge(&self, tester: &Tester, tests: &[FoldTest], terms: &[Tested]) -> Result<Evaluation, TrainError> {
        let times = Times { time_ns: &self.bars.time_ns, interval_ns: self.bars.interval_ns };
        let bars_a_year = times.bars_a_year(terms.iter().map(|test| &test.part));
        let random = tester.random(terms, bars_a_year)?;
        Ok(Evaluation::new(tests, &random, times, self.config.seed))
    }
}

fn selection(chosen: CheckpointId, epochs: &[EpochMetrics]) -> Selection {
    let of_fold = || epochs.iter().filter(|epoch| epoch.fold == chosen.fold);
    let eligible = |epoch: &&EpochMetrics| epoch.validation.as_ref().is_some_and(|v| v.eligible);
    let metrics = of_fold().find(|epoch| epoch.epoch == chosen.epoch);
    let validation = metrics.and_then(|epoch| epoch.validation.as_ref());
    Selection {
        fold: Some(chosen.fold),
        epoch: Some(chosen.epoch.into()),
        n_candidates: Some(of_fold().filter(eligible).count() as u64),
        train_sharpe: metrics.and_then(|epoch| epoch.train_sharpe),
        validation_sharpe: validation.map(|validation| validation.sharpe),
        validation_trades: validation.map(|validation| validation.trades),
        best_validation_sharpe: of_fold()
            .filter(eligible)
            .filter_map(|epoch| epoch.validation.as_ref().map(|validation| validation.sharpe))
            .reduce(f64::max),
    }
}
