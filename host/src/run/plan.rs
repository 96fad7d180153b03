//! Everything that training needs, checked before it begins.

use std::path::{Path, PathBuf};

use super::checkpoint::Checkpoint;
use super::error::RunError;
use super::folder::RunFolder;
use super::record::{DataFile, DataRecord, RunRecord};
use crate::config::{Config, ConfigError, MemoryError, MemoryEstimate};
use crate::data::simulate::{Market, Simulation, deviations};
use crate::data::{self, Bars, DataError, ReadOptions};
use crate::device::{self, Device};
use crate::error::DeviceError;
use crate::market::walk_forward::{WalkForwardError, walk_forward};
use crate::text::{shown, shown_path};

/// Fewest bars that can be split at all: those before a test and the shortest test.
pub(crate) const LEAST_BARS: usize = 1_000;

/// A series to train on.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBars {
    /// The instrument, or else the file's name, or the simulated market's; unique within a plan.
    pub name: String,
    /// Its bars.
    pub bars: Bars,
    /// What must be known of them, each with the file's name.
    pub notes: Vec<String>,
}

/// A run that is gone on with.
#[derive(Debug)]
pub struct Resume {
    /// Its folder.
    pub folder: RunFolder,
    /// Its newest checkpoint that is whole; none if it was stopped before the first.
    pub checkpoint: Option<Checkpoint>,
}

/// What training was asked for, checked: configuration, data, device, folder.
pub struct TrainPlan {
    /// The effective configuration.
    pub config: Config,
    /// The series, each long enough for the walk-forward.
    pub bars: Vec<NamedBars>,
    /// The device, with room for the run.
    pub device: Device,
    /// What the run's folder says of its start.
    pub record: RunRecord,
    /// Folder for a new run; none for one under `runs`.
    pub out: Option<PathBuf>,
    /// The run that is gone on with; none for a new one.
    pub resume: Option<Resume>,
}

/// Why training cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The run's folder, or a file that the run began with.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A market file.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device's memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A series that the walk-forward cannot split.
    #[error("{}: {source}", shown(name))]
    WalkForward {
        /// The series.
        name: String,
        /// Why.
        source: WalkForwardError,
    },
    /// Arguments that do not fit each other.
    #[error("{0}")]
    Usage(String),
}

impl PlanError {
    /// Whether what was asked for is at fault (exit code 2), not the machine (exit code 1).
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Config(_) | Self::Memory(_) | Self::WalkForward { .. } | Self::Usage(_) => true,
            Self::Run(error) => error.bad_input,
            Self::Data(error) => error.bad_input,
            Self::Device(error) => error.is_bad_input(),
        }
    }
}

impl TrainPlan {
    /// The run's folder: made for a new run, else the one that is gone on with.
    pub fn folder(&self) -> Result<RunFolder, RunError> {
        match &self.resume {
            Some(resume) => Ok(resume.folder.clone()),
            None => RunFolder::create(self.out.as_deref(), &self.config, &self.record),
        }
    }

    /// The one series that a run trades.
    pub fn series(&self) -> Result<&NamedBars, PlanError> {
        match &self.bars[..] {
            [series] => Ok(series),
            all => {
                let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
                Err(PlanError::Usage(format!(
                    "a run trades one series, and `--data` names {} ({}); start a run for each",
                    all.len(),
                    names.join(", ")
                )))
            }
        }
    }

    /// Whether the series can be split and the device has room.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        for NamedBars { name, bars, .. } in &self.bars {
            walk_forward(bars.len(), self.config.folds, self.config.episode_len as usize)
                .map_err(|source| PlanError::WalkForward { name: name.clone(), source })?;
        }
        let n_bars = self.bars.iter().map(|series| series.bars.len()).sum();
        let (free_bytes, _) = self.device.memory_info()?;
        memory_on(&self.device, &self.config, n_bars).check(free_bytes, &self.device.info().name)?;
        if !self.device.is_host() {
            self.config.host_memory_estimate(n_bars).check(device::host_memory_info().0, "the host")?;
        }
        Ok(())
    }
}

/// What a run over `n_bars` needs of the device's memory.
pub(crate) fn memory_on(device: &Device, config: &Config, n_bars: usize) -> MemoryEstimate {
    let estimate = config.memory_estimate(n_bars);
    if device.is_host() { estimate.and(config.host_memory_estimate(n_bars)) } else { estimate }
}

/// A run that was begun: what its folder says of it.
#[derive(Debug)]
pub struct Begun {
    /// Its folder.
    pub folder: RunFolder,
    /// What it was started with.
    pub record: RunRecord,
    /// Its effective configuration.
    pub config: Config,
}

impl Begun {
    /// The run in `folder`, if its configuration is the one that it began with.
    pub fn open(folder: RunFolder) -> Result<Self, PlanError> {
        let (record, config) = (folder.record()?, folder.config()?);
        if config.fingerprint() != record.config_fingerprint {
            let reason = "is not the configuration that the run began with (edited, or written by another version)";
            let remedy = "restore it, or start a new run with `--config`";
            return Err(RunError::new(&folder.path().join("config.toml"), reason, remedy).into());
        }
        Ok(Self { folder, record, config })
    }

    /// The bars that it began with; its market files are at `paths`, or where they were. Their contents must be the same.
    pub fn bars(&self, paths: Option<&[PathBuf]>) -> Result<Vec<NamedBars>, PlanError> {
        let Some(data) = &self.record.data else { return Ok(simulate(&self.config)) };
        let recorded: Vec<PathBuf> = data.files.iter().map(|file| file.path.clone()).collect();
        let paths = paths.unwrap_or(&recorded);
        if paths.len() != recorded.len() {
            let text = format!("the run began with {} file(s); name as many with `--data`", recorded.len());
            return Err(PlanError::Usage(text));
        }
        data.files.iter().zip(paths).try_for_each(|(file, path)| file.check_unchanged(path))?;
        read_files(paths, &data.options(), LEAST_BARS)
    }
}

/// What the simulated market of a run returns from, bar by bar; none for a market that does not return, and for files.
pub(crate) fn known_deviations(record: &RunRecord, config: &Config, bars: &Bars) -> Option<Vec<f64>> {
    (record.data.is_none() && config.sim.market == Market::MeanReverting).then(|| deviations(bars))
}

/// The simulated market of a configuration.
pub(crate) fn simulate(config: &Config) -> Vec<NamedBars> {
    let market = config.sim.market;
    let simulation = Simulation { market, n_bars: config.sim.bars, seed: config.seed };
    vec![NamedBars { name: market.name().to_owned(), bars: simulation.bars(), notes: Vec::new() }]
}

/// Reads market files; a fault in any of them, or fewer bars than `n_bars_min`, is an error.
pub(crate) fn read_files(
    paths: &[PathBuf],
    options: &ReadOptions,
    n_bars_min: usize,
) -> Result<Vec<NamedBars>, PlanError> {
    let mut all: Vec<NamedBars> = Vec::new();
    for path in paths {
        let reading = data::read(path, options)?;
        let note = |note: &String| format!("{}: {}", shown_path(path), shown(note));
        let mut notes: Vec<String> = reading.notices().iter().map(note).collect();
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let (bars, repairs) = reading.accept(n_bars_min)?;
        tracing::info!("{}: {} bars; {repairs:?}", shown_path(path), bars.len());
        notes.extend(repairs.note().as_ref().map(note));
        let base = bars.symbol.clone().unwrap_or_else(|| stem(path));
        let is_free = |name: &String| all.iter().all(|other| other.name != *name);
        let mut names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}#{n}")));
        let name = names.find(is_free).expect("there are more names than files");
        all.push(NamedBars { name, bars, notes });
    }
    Ok(all)
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// What the run's folder says of market files.
pub(crate) fn record_files(paths: &[PathBuf], options: &ReadOptions) -> Result<DataRecord, RunError> {
    let files = paths.iter().map(|path| DataFile::new(path)).collect::<Result<_, _>>()?;
    let stamps_end = options.stamps == data::Stamps::End;
    Ok(DataRecord { files, symbol: options.symbol.clone(), bar_ns: options.bar_ns, stamps_end })
}
