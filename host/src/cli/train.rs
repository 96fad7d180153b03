//! Arguments of `train`, up to where training begins: configuration, data, device and folder, all of them checked.

mod execute;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use toml::Value;

use super::Error;
use super::data::ReadArguments;
use super::keys::Keys;
use super::output::{self, Json, Target};
use crate::config::{Config, ConfigError, DataSource, Layers, Preset};
use crate::data::simulate::Market;
use crate::device::{Device, DeviceChoice};
use crate::files;
use crate::report::run::REPORT_FILE;
use crate::run::plan::{Begun, LEAST_BARS, PlanError, Resume, TrainPlan, read_files, record_files, simulate};
use crate::run::{RunFolder, RunRecord};
use crate::text::{shown, shown_path};

/// What is trained on what: configuration, data, seed.
#[derive(Debug, clap::Args)]
pub struct Setup {
    /// A market file (CSV, Parquet or DBN); without it the built-in simulator is traded. A run trades one series: for several
    /// files, or several instruments of a file (`--symbol`), start a run for each.
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    keys: Keys,
    /// Seed of network, exploration, sampling and simulated market: the key `seed`.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The simulated market: the key `sim.market`.
    #[arg(long, value_enum, conflicts_with = "data")]
    sim: Option<Market>,
    #[command(flatten)]
    reading: ReadArguments,
}

/// What Ctrl-C does.
const INTERRUPTS: &str = "\
Ctrl-C (or SIGTERM) stops within about a second: an epoch that is under way is left out, and `--resume` begins it anew; where \
`checkpoint_every` left the epoch before it in no checkpoint, it is ended and saved first. A second Ctrl-C stops at once.";

/// Arguments of `train`.
#[derive(Debug, clap::Args)]
#[command(after_help = INTERRUPTS)]
pub struct Arguments {
    #[command(flatten)]
    setup: Setup,
    /// Folder of the run, empty or new; one under runs, named after time and seed, without it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder of a run to go on with, from its newest checkpoint and with its own configuration and data; `--data` then says
    /// where its file is now.
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["config", "set", "preset", "out", "seed", "sim", "symbol", "bar", "stamps"])]
    resume: Option<PathBuf>,
    /// No progress on standard error.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    json: Json,
}

impl Arguments {
    /// Checks everything and reads the data; nothing is written yet.
    pub fn resolve(&self, choice: DeviceChoice) -> Result<TrainPlan, PlanError> {
        let Some(path) = &self.resume else {
            if let Some(out) = &self.out {
                RunFolder::check_free(out)?;
            }
            return Ok(TrainPlan { out: self.out.clone(), ..self.setup.resolve(choice)? });
        };
        let plan = self.go_on(path, choice)?;
        plan.check()?;
        Ok(plan)
    }

    /// Refuses a `--json` that would overwrite what is read, or what the run writes.
    pub(super) fn check_outputs(&self) -> Result<(), Error> {
        let written = [("--json", self.json.target())];
        for folder in self.out.iter().chain(&self.resume) {
            output::spares(&[("the run's folder", folder.clone()), ("the run's", folder.join(REPORT_FILE))], &written)?;
            output::spares_run(folder, &written)?;
        }
        self.setup.spares(&written)?;
        // A new run's folder is made later.
        let folder = self.json.target().and_then(Target::file).and_then(Path::parent);
        match (&self.out, folder) {
            (Some(out), Some(folder)) if files::same_file(out, folder) => Ok(()),
            _ => output::places(&written),
        }
    }

    /// The run in `path` as it was begun. `--data` may say where its files are now; their contents must be the same.
    fn go_on(&self, path: &Path, choice: DeviceChoice) -> Result<TrainPlan, PlanError> {
        let begun = Begun::open(RunFolder::open(path)?)?;
        begun.folder.check_writable()?;
        let data = Some(&self.setup.data[..]).filter(|data| !data.is_empty());
        if begun.record.data.is_none() && data.is_some() {
            let text = "the run that is gone on with trades the simulator; leave `--data` out";
            return Err(PlanError::Usage(text.into()));
        }
        let bars = begun.bars(data)?;
        let Begun { folder, record, config } = begun;
        let device = Device::open(choice)?;
        if device.backend_name() != record.backend {
            tracing::warn!("the run began on {}: its bits will differ from here on", record.device);
        }
        let checkpoint = folder.latest_checkpoint()?;
        let n_lost = folder.epochs().map_or(0, |epochs| epochs.len());
        if checkpoint.is_none() && n_lost > 0 {
            let path = shown_path(folder.path());
            tracing::warn!("{path}: {n_lost} epochs were trained, and no checkpoint holds them: the run begins anew");
        }
        folder.check_metrics(checkpoint.as_ref().map(|checkpoint| checkpoint.meta().id))?;
        Ok(TrainPlan { config, bars, device, record, out: None, resume: Some(Resume { folder, checkpoint }) })
    }
}

impl Setup {
    /// Refuses outputs that would overwrite what is read, or each other, or that cannot be written.
    pub(super) fn check_outputs(&self, written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
        self.spares(written)?;
        output::places(written)
    }

    fn spares(&self, written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
        output::spares(&self.data.iter().map(|file| ("--data", file.clone())).collect::<Vec<_>>(), written)?;
        self.keys.spares(written)
    }

    /// Checks everything and reads the data, for a new run.
    pub fn resolve(&self, choice: DeviceChoice) -> Result<TrainPlan, PlanError> {
        let options = self.reading.options();
        if self.data.is_empty() && !self.reading.is_default() {
            let text = "`--symbol`, `--bar` and `--stamps` say how files are read; name one with `--data FILE`";
            return Err(PlanError::Usage(text.into()));
        }
        let of_simulator = |set: &&String| set.trim_start().starts_with("sim.");
        if let Some(set) = self.keys.set.iter().find(of_simulator).filter(|_| !self.data.is_empty()) {
            let text = format!("--set {}: with `--data` nothing is simulated; leave one of the two out", shown(set));
            return Err(PlanError::Usage(text));
        }
        let device = Device::open(choice)?;
        let preset = self.keys.preset(&device);
        let of_preset = Config::preset(preset, DataSource::Simulator);
        let layers = self.layers(preset, Path::new("."))?;
        let preset = layers.preset();
        let config = layers.finish()?;
        let is_half_spread_set = config.costs.half_spread_bp != of_preset.costs.half_spread_bp;
        let mut bars =
            if self.data.is_empty() { simulate(&config) } else { read_files(&self.data, &options, LEAST_BARS)? };
        let measured = bars.iter_mut().find(|series| series.bars.spread.is_some());
        if let Some(series) = measured.filter(|_| is_half_spread_set) {
            let name = shown(&series.name);
            let note = format!("{name}: its bars have a spread of their own, so `costs.half_spread_bp` is not used");
            tracing::warn!("{note}");
            series.notes.push(note);
        }
        let data = (!self.data.is_empty()).then(|| record_files(&self.data, &options)).transpose()?;
        let of_simulator = RunRecord::new(&device, &config, preset, &bars[0].bars);
        let record = RunRecord { data, notes: bars[0].notes.clone(), ..of_simulator };
        let plan = TrainPlan { config, bars, device, record, out: None, resume: None };
        plan.check()?;
        Ok(plan)
    }

    /// The keys, and the flags that are short for one; `folder` is where the default file is looked for.
    fn layers(&self, preset: Preset, folder: &Path) -> Result<Layers, ConfigError> {
        let source = if self.data.is_empty() { DataSource::Simulator } else { DataSource::Files };
        for assignment in &self.keys.set {
            let key = assignment.split('=').next().unwrap_or_default().trim();
            let twice = [("seed", self.seed.is_some(), "--seed"), ("sim.market", self.sim.is_some(), "--sim")];
            if let Some((key, _, flag)) = twice.into_iter().find(|&(short, given, _)| given && short == key) {
                return Err(ConfigError::Twice { key, flag });
            }
        }
        let mut layers = self.keys.layers(preset, source, folder)?;
        if let Some(seed) = self.seed {
            // TOML's whole numbers end where a larger seed is out of the key's range, too.
            let seed = i64::try_from(seed).map_or_else(|_| Value::String(seed.to_string()), Value::Integer);
            layers.flag("--seed", "seed", &seed)?;
        }
        if let Some(market) = self.sim {
            layers.flag("--sim", "sim.market", &Value::String(market.name().to_owned()))?;
        }
        Ok(layers)
    }
}
