//! Small runs in folders of their own, and what two of them are compared by.

use std::io::Write;
use std::path::Path;

use host::config::{Config, DataSource, Learners, Preset};
use host::data::Bars;
use host::data::simulate::Simulation;
use host::device::Device;
use host::interrupt::Interrupt;
use host::metrics::{EpochMetrics, EpochTimes};
use host::progress::{Progress, Total};
use host::run::{Checkpoint, CheckpointId, RunFolder, RunRecord};
use host::train::{Run, RunEnd, TrainError};
use onegraph_tests::{Failed, Outcome, ensure};

/// The preset `tiny` with the temporal block, the attention and IQN.
pub fn tiny() -> Config {
    let mut config = Config { seed: 3, epochs: 4, ..Config::preset(Preset::Tiny, DataSource::Simulator) };
    config.learners = Learners { temporal: true, attention: true, iqn: true, ..config.learners };
    config
}

/// The same with every learner.
pub fn with_learners(mut config: Config) -> Config {
    config.learners = Learners { iql: true, selectivity: true, denoise: true, risk: true, ..config.learners };
    config
}

/// An epoch of `tiny` on hardly more bars than its parts need, so that a run is over in a second or two.
pub fn config() -> Config {
    let mut config = Config { epochs: 1, steps_per_epoch: 8, bars_per_epoch: 16, ..tiny() };
    config.sim.bars = 1_100;
    config
}

/// The configuration's simulated market.
pub fn bars(config: &Config) -> Bars {
    Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed }.bars()
}

/// A new run's folder.
pub fn folder(path: &Path, config: &Config, device: &Device) -> Result<RunFolder, Failed> {
    let record = RunRecord::new(device, config, Some(Preset::Tiny), &bars(config));
    Ok(RunFolder::create(Some(path), config, &record)?)
}

/// Trains in `folder` from where it stands, to the end or until so many epochs over all folds are done.
pub fn train(
    device: &Device,
    config: &Config,
    bars: &Bars,
    folder: &RunFolder,
    stop_after: Option<u32>,
) -> Result<RunEnd, Failed> {
    let interrupt = Interrupt::default();
    let stop = |epochs| {
        let interrupt = interrupt.clone();
        After::new(epochs, move || {
            interrupt.request();
        })
    };
    train_until(device, config, bars, folder, &interrupt, stop_after.map(stop))
}

/// Trains in `folder` to the end, with its own error.
pub fn try_train(device: &Device, config: &Config, bars: &Bars, folder: &RunFolder) -> Result<RunEnd, TrainError> {
    let total = Total { epochs: config.folds as u32 * config.epochs, resumed_at: 0, folds: config.folds as u32 };
    let interrupt = &Interrupt::default();
    Run { device, config, bars, folder, interrupt, deviations: None }.train(&mut Progress::start(total, true))
}

/// Trains in `folder`, with `after` told of the epochs.
pub fn train_until(
    device: &Device,
    config: &Config,
    bars: &Bars,
    folder: &RunFolder,
    interrupt: &Interrupt,
    after: Option<After>,
) -> Result<RunEnd, Failed> {
    let total = Total { epochs: config.folds as u32 * config.epochs, resumed_at: 0, folds: config.folds as u32 };
    let mut progress = match after {
        Some(after) => Progress::lines(total, Box::new(after)),
        None => Progress::start(total, true),
    };
    let run = Run { device, config, bars, folder, interrupt, deviations: None };
    Ok(run.train(&mut progress)?)
}

/// A reader of progress that does something once an epoch is told.
pub struct After {
    line: String,
    told: String,
    act: Option<Box<dyn FnOnce() + Send>>,
}

impl After {
    /// Calls `act` when so many epochs over all folds are done.
    pub fn new(epochs: u32, act: impl FnOnce() + Send + 'static) -> Self {
        Self { line: format!("epoch {epochs}/"), told: String::new(), act: Some(Box::new(act)) }
    }
}

impl Write for After {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.told.push_str(&String::from_utf8_lossy(text));
        if self.told.contains(&self.line)
            && let Some(act) = self.act.take()
        {
            act();
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A checkpoint of the run.
pub fn checkpoint(folder: &RunFolder, fold: u32, epoch: u32) -> Result<Checkpoint, Failed> {
    Ok(Checkpoint::open(&folder.checkpoint_path(CheckpointId { fold, epoch }))?)
}

/// Fails unless both have the same tensors, byte by byte.
pub fn equal_tensors(got: &Checkpoint, want: &Checkpoint) -> Outcome {
    let (got_entries, want_entries) = (&got.manifest().tensors, &want.manifest().tensors);
    ensure!(!want_entries.is_empty() && got_entries.len() == want_entries.len(), "{} tensors", got_entries.len());
    for entry in want_entries {
        let bytes = |of: &Checkpoint| of.tensor(&entry.name).map(|tensor| tensor.bytes.to_vec());
        let (got, want) = (bytes(got).ok_or("a tensor is missing")?, bytes(want).ok_or("a tensor is missing")?);
        let differs = got.iter().zip(&want).position(|(a, b)| a != b);
        ensure!(got == want, "`{}` differs from byte {differs:?} of {} on", entry.name, want.len());
    }
    Ok(())
}

/// The lines of `metrics.jsonl`, without what a clock says.
pub fn metrics(folder: &RunFolder) -> Result<Vec<String>, Failed> {
    let text = std::fs::read_to_string(folder.path().join("metrics.jsonl"))?;
    let mut lines = Vec::new();
    for line in text.lines() {
        let metrics: EpochMetrics = serde_json::from_str(line)?;
        let (seconds, times) = (0.0, EpochTimes::default());
        let metrics = EpochMetrics { seconds, times, steps_per_s: 0.0, env_steps_per_s: 0.0, ..metrics };
        lines.push(serde_json::to_string(&metrics)?);
    }
    Ok(lines)
}

/// The evaluation of a run that went to its end, as it is written.
pub fn evaluation(end: RunEnd) -> Result<String, Failed> {
    match end {
        RunEnd::Done(evaluation) => Ok(serde_json::to_string_pretty(&evaluation)?),
        RunEnd::Interrupted => Err("the run was interrupted".into()),
    }
}
