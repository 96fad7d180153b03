//! Walk-forward training: folds of epochs, each epoch collection, steps, a boundary, a validation and a checkpoint.
//!
//! | file | holds |
//! |---|---|
//! | [`trainer`] | what is on the device, and what can be done with it |
//! | [`step_loop`] | the hot path: what may be used between two steps |
//! | [`bookkeeping`] | what the host does with what a step told |
//! | [`skips`] | when too many updates in a row were skipped |
//! | [`collection`] | the environments' graph |
//! | [`tester`] | a checkpoint's agent on a series, for tests |
//! | [`testing`] | a run's checkpoints tested |
//! | [`dump`] | every named buffer of a step as a file of tensors |
//! | [`error`] | what may go wrong |

pub mod bookkeeping;
pub mod collection;
pub mod dump;
pub mod error;
pub mod skips;
pub mod step_loop;
pub mod tester;
pub mod testing;
pub mod trainer;

use std::ops::ControlFlow;
use std::time::Instant;

use bookkeeping::Bookkeeping;
pub use error::TrainError;
use shared_types::{BarRecord, isv};
use skips::Skips;
pub use step_loop::StepLoop;
pub use tester::Tester;
use tester::load_state;
pub use testing::Testing;
pub use trainer::{SegmentedPart, Trainer};

use crate::bench::MeasuredGraph;
use crate::config::Config;
use crate::data::Bars;
use crate::device::Device;
use crate::device::ledger::{self, Phase};
use crate::eval::backtest::Validation;
use crate::eval::evaluation::Evaluation;
use crate::eval::records::PathRecords;
use crate::eval::statistics;
use crate::interrupt::Interrupt;
use crate::market::walk_forward::{Fold, walk_forward};
use crate::metrics::{EpochMetrics, EpochTimes, QMetrics, ValidationMetrics};
use crate::progress::{Progress, Status};
use crate::ranges::{Range, range};
use crate::run::{Checkpoint, CheckpointId, CheckpointMeta, CheckpointWriter, MetricsLog, RunFolder};
use crate::step::{Published, STATS_EVERY};

/// Trades that a checkpoint's validation must have for it to be chosen.
const LEAST_TRADES: u64 = 20;
/// Decays of the exploration rate that must have gone by.
const EXPLORING_DECAYS: f64 = 3.0;

/// A run in its folder.
pub struct Run<'a> {
    /// Where it runs.
    pub device: &'a Device,
    /// The effective configuration.
    pub config: &'a Config,
    /// The bars.
    pub bars: &'a Bars,
    /// Where it leaves its files.
    pub folder: &'a RunFolder,
    /// Whether the user wants it to stop.
    pub interrupt: &'a Interrupt,
    /// What the market returns from, bar by bar, where it is a simulator that does.
    pub deviations: Option<&'a [f64]>,
}

/// How a run ended.
pub enum RunEnd {
    /// All folds were trained and tested.
    Done(Box<Evaluation>),
    /// The user stopped it; it can be resumed.
    Interrupted,
}

/// A part of an epoch: a range for profilers, and its time.
struct Part {
    started: Instant,
    _range: Range,
}

impl Part {
    fn begin(name: &'static str) -> Self {
        Self { _range: range(name), started: Instant::now() }
    }

    /// Ends it; its wall-clock seconds.
    fn seconds(self) -> f64 {
        since(self.started)
    }
}

/// Wall-clock seconds since `started`.
fn since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}

impl Run<'_> {
    /// Trains every fold from where the folder's latest checkpoint stands, and tests the best checkpoint of each.
    pub fn train(&self, progress: &mut Progress) -> Result<RunEnd, TrainError> {
        let Some(log) = self.learn(progress)? else { return Ok(RunEnd::Interrupted) };
        let testing = self.testing();
        let folds = 1..=self.config.folds as u32;
        let best = folds.map(|fold| testing.best_of(fold)).collect::<Result<Vec<_>, _>>()?;
        let evaluation = unless_interrupted(testing.on_own_tests(&best, log.epochs()))?;
        Ok(evaluation.map_or(RunEnd::Interrupted, |evaluation| RunEnd::Done(Box::new(evaluation))))
    }

    /// Trains every fold from where the folder's latest checkpoint stands; what every epoch told, unless the user stopped it. An epoch
    /// that is under way is then left out: a resumption begins it anew, from the checkpoint of the one before. Where that one is in no
    /// checkpoint, the epoch is ended and saved first.
    pub fn learn(&self, progress: &mut Progress) -> Result<Option<MetricsLog>, TrainError> {
        unless_interrupted(self.learn_folds(progress))
    }

    fn learn_folds(&self, progress: &mut Progress) -> Result<MetricsLog, TrainError> {
        let folds = walk_forward(self.bars.len(), self.config.folds, self.config.episode_len as usize)?;
        let setup = range("setup");
        let mut trainer = Trainer::new(self.device, self.config, self.bars)?;
        drop(setup);
        let latest = self.folder.latest_checkpoint()?;
        let mut log = self.folder.metrics(latest.as_ref().map(|checkpoint| checkpoint.meta().id))?;
        let seconds_before = latest.as_ref().map_or(0.0, |checkpoint| checkpoint.meta().seconds);
        let started = Instant::now();
        let (mut resumed, mut checkpoint_s, mut skips) = (latest, 0.0, Skips::default());
        trainer.heed(self.interrupt);
        for (index, fold) in folds.iter().enumerate() {
            let number = index as u32 + 1;
            if resumed.as_ref().is_some_and(|checkpoint| checkpoint.meta().id.fold > number) {
                continue;
            }
            let setup = range("setup");
            trainer.begin_fold(fold)?;
            drop(setup);
            let mut epoch = 0;
            match resumed.take() {
                Some(checkpoint) => {
                    load(&mut trainer, &checkpoint, self.config)?;
                    epoch = checkpoint.meta().id.epoch;
                }
                None => {
                    let _warm_up = range("warm_up");
                    trainer.warm_up()?;
                }
            }
            while epoch < self.config.epochs {
                epoch += 1;
                let _epoch = range("epoch");
                let id = CheckpointId { fold: number, epoch };
                let (mut metrics, status) = self.epoch(&mut trainer, fold, id, &log, &mut skips, progress)?;
                let score = metrics.validation.as_ref().filter(|validation| validation.eligible).map(|v| v.sharpe);
                let seconds = seconds_before + since(started);
                (metrics.times.checkpoint_s, metrics.seconds) = (checkpoint_s, seconds);
                // Before the checkpoint: a resumption cuts a line too many, and could not make up for one too few.
                log.append(metrics)?;
                let checkpoint = Part::begin("checkpoint");
                self.keep(&trainer, id, score, seconds, skips.too_many())?;
                checkpoint_s = checkpoint.seconds();
                progress.epoch(&status);
                if skips.too_many() {
                    return Err(TrainError::Skipped {
                        steps: skips.in_a_row(),
                        last: trainer.steps_done(),
                        causes: skips.causes(),
                        id,
                        checkpoint: self.folder.checkpoint_path(id),
                    });
                }
                let never = Interrupt::default();
                trainer.heed(if self.folder.can_go_on_from(id) { self.interrupt } else { &never });
                trainer.interrupt().check()?;
            }
        }
        self.measure_graph(&trainer);
        Ok(log)
    }

    /// Leaves the step's graph with its times in the folder. By now everything that is kept has been written, so the steps that this
    /// takes change nothing; and a run that is trained is not lost over its times.
    fn measure_graph(&self, trainer: &Trainer) {
        let measured = MeasuredGraph::take(trainer).map_err(TrainError::from);
        if let Err(error) = measured.and_then(|graph| Ok(self.folder.write_graph(&graph)?)) {
            tracing::warn!("the step's children were not timed, so the report will not show its graph: {error}");
        }
    }

    fn testing(&self) -> Testing<'_> {
        let Self { device, config, bars, folder, deviations, interrupt } = *self;
        Testing { device, config, bars, folder, deviations, interrupt }
    }

    /// Collects, steps and validates: what was measured, and what is shown of it. The steps end early when too many were skipped, the
    /// whole epoch when the trainer heeds an interrupt.
    fn epoch(
        &self,
        trainer: &mut Trainer,
        fold: &Fold,
        id: CheckpointId,
        log: &MetricsLog,
        skips: &mut Skips,
        progress: &mut Progress,
    ) -> Result<(EpochMetrics, Status), TrainError> {
        let _between = ledger::phase(Phase::EpochBoundary);
        let stop = trainer.interrupt().clone();
        let (mut times, bars) = (EpochTimes::default(), u64::from(self.config.bars_per_epoch));
        let collect = Part::begin("collect");
        trainer.collect(bars)?;
        times.collect_s = collect.seconds();
        let env_steps_per_s = (bars * self.config.environments as u64) as f64 / times.collect_s;

        let steps = Part::begin("steps");
        let started = steps.started;
        let mut status = self.status(id, env_steps_per_s, log);
        let steps_before = trainer.steps_done();
        let mut bookkeeping = Bookkeeping { status: &mut status, progress, skips, steps_before, started };
        let see = |published: &Published| {
            if stop.requested() { ControlFlow::Break(()) } else { bookkeeping.see(published) }
        };
        let _ended = trainer.step_loop().run(self.config.steps_per_epoch, see)?;
        trainer.finish_steps()?;
        stop.check()?;
        // The device may have been many steps behind the last look.
        if let Some(published) = trainer.published() {
            let _ = bookkeeping.see(&published);
        }
        let steps_done = trainer.steps_done() - steps_before;
        times.train_s = steps.seconds();

        let boundary = Part::begin("boundary");
        trainer.boundary()?;
        times.rescore_s = boundary.seconds();
        let rescoring = Part::begin("re-scoring");
        trainer.rescore()?;
        times.rescore_s += rescoring.seconds();

        let validating = Part::begin("validation");
        let validation = trainer.trade_segments(SegmentedPart::Validation, &fold.validation)?;
        let n_bars = fold.validation.len().min(fold.train.len());
        let training = fold.train.end - n_bars..fold.train.end;
        let train_records = trainer.trade_segments(SegmentedPart::Training, &training)?;
        times.validate_s = validating.seconds();

        let mut metrics = self.metrics(trainer, id)?;
        metrics.actions = trainer.action_mix(bars)?;
        metrics.env_steps_per_s = env_steps_per_s;
        metrics.steps_per_s = steps_done as f64 / times.train_s;
        metrics.train_sharpe = Some(Validation::of(&train_records, self.bars_a_year()).sharpe);
        metrics.validation = Some(self.validation(&validation, id, log));
        metrics.times = times;
        (status.loss, status.steps_per_s) = (metrics.loss, metrics.steps_per_s);
        status.validation_sharpe = metrics.validation.as_ref().map(|validation| validation.sharpe);
        status.epochs_done += 1;
        tracing::debug!(fold = id.fold, epoch = id.epoch, loss = metrics.loss, "epoch");
        Ok((metrics, status))
    }

    /// Saves the epoch's checkpoint if it is due, the run stops, or it is the best of its fold.
    fn keep(
        &self,
        trainer: &Trainer,
        id: CheckpointId,
        score: Option<f64>,
        seconds: f64,
        stops: bool,
    ) -> Result<(), TrainError> {
        let _checkpoint = ledger::phase(Phase::Checkpoint);
        let resumable = id.epoch.is_multiple_of(self.config.checkpoint_every)
            || id.epoch == self.config.epochs
            || self.interrupt.requested()
            || stops;
        if resumable || self.is_best(id.fold, score)? {
            let config_fingerprint = self.config.fingerprint();
            let step = trainer.steps_done();
            let meta = CheckpointMeta { id, step, resumable, validation_score: score, seconds, config_fingerprint };
            save(trainer, self.folder, meta)?;
        }
        Ok(())
    }

    /// Whether a score is above those of the fold's checkpoints.
    fn is_best(&self, fold: u32, score: Option<f64>) -> Result<bool, TrainError> {
        let Some(score) = score else { return Ok(false) };
        Ok(self.folder.best_score(fold)?.is_none_or(|best| score > best))
    }

    fn status(&self, id: CheckpointId, env_steps_per_s: f64, log: &MetricsLog) -> Status {
        let before = log.epochs().last().and_then(|epoch| epoch.validation.as_ref());
        Status {
            epochs_done: (id.fold - 1) * self.config.epochs + id.epoch - 1,
            fold: id.fold,
            env_steps_per_s,
            validation_sharpe: before.map(|validation| validation.sharpe),
            ..Status::default()
        }
    }

    fn metrics(&self, trainer: &Trainer, id: CheckpointId) -> Result<EpochMetrics, TrainError> {
        let published = trainer.published().ok_or(TrainError::NothingPublished)?;
        let (readback, bus) = (published.readback, trainer.bus()?.entries);
        let entry = |index: usize| f64::from(bus[index]);
        let on = &self.config.learners;
        let has_q = on.q_statistics && published.step >= STATS_EVERY;
        Ok(EpochMetrics {
            fold: id.fold,
            epoch: id.epoch,
            step: trainer.steps_done(),
            loss: readback.total_loss.into(),
            mse: readback.mse_loss.into(),
            grad_norm: f64::from(readback.grad_norm_sq).sqrt(),
            q: has_q.then(|| QMetrics {
                mean: readback.q_mean.into(),
                min: readback.q_min.into(),
                max: readback.q_max.into(),
                variance: readback.q_variance.into(),
                avg_max: readback.avg_max_q.into(),
            }),
            causal_mean: readback.causal_mean_sens.into(),
            gamma: entry(isv::GAMMA),
            tau: on.target_ema.then(|| entry(isv::TAU)),
            epsilon: entry(isv::EPSILON),
            kelly_cap: entry(isv::KELLY_CAP),
            health: entry(isv::HEALTH),
            risk_eta: entry(isv::RISK_ETA),
            skipped: bus[isv::SKIPPED_UPDATES] as u64,
            ..EpochMetrics::default()
        })
    }

    fn bars_a_year(&self) -> f64 {
        statistics::bars_a_year(&self.bars.time_ns, self.bars.interval_ns)
    }

    /// The last epoch counts as a candidate when no earlier one did.
    fn validation(&self, records: &[BarRecord], id: CheckpointId, log: &MetricsLog) -> ValidationMetrics {
        let path = PathRecords::of(records);
        let all = Validation::of(records, self.bars_a_year());
        let exploring = f64::from(id.epoch) <= EXPLORING_DECAYS * self.config.decay;
        let mut of_fold = log.epochs().iter().filter(|epoch| epoch.fold == id.fold);
        let none_before = !of_fold.any(|epoch| epoch.validation.as_ref().is_some_and(|v| v.eligible));
        let returns = path.returns64();
        ValidationMetrics {
            sharpe: all.sharpe,
            total_return: all.log_growth.exp_m1(),
            max_drawdown: statistics::max_drawdown(&returns),
            trades: all.n_trades,
            hit_rate: path.n_wins as f64 / path.n_trades.max(1) as f64,
            exposure: path.exposure / path.returns.len().max(1) as f64,
            turnover: path.turnover,
            costs: path.costs,
            limit_fill_rate: path.n_limit_fills as f64 / path.n_limits.max(1) as f64,
            eligible: (!exploring && all.n_trades >= LEAST_TRADES) || (id.epoch == self.config.epochs && none_before),
        }
    }
}

/// None for work that the user stopped.
fn unless_interrupted<T>(end: Result<T, TrainError>) -> Result<Option<T>, TrainError> {
    match end {
        Ok(value) => Ok(Some(value)),
        Err(TrainError::Interrupted(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes everything that the run needs to go on, or the agent alone.
fn save(trainer: &Trainer, folder: &RunFolder, meta: CheckpointMeta) -> Result<(), TrainError> {
    let mut writer = CheckpointWriter::new(folder)?;
    for (name, buffer) in if meta.resumable { trainer.state() } else { trainer.agent_state() } {
        writer = writer.tensor(name, buffer.dtype(), &[buffer.n_elements()], &buffer.read_bytes()?)?;
    }
    writer.finish(meta)?;
    Ok(())
}

/// Takes over all that a checkpoint to go on from holds, in place.
pub fn load(trainer: &mut Trainer, checkpoint: &Checkpoint, config: &Config) -> Result<(), TrainError> {
    load_state(trainer.state(), checkpoint, config)?;
    trainer.resume_at(checkpoint.meta().step)
}
