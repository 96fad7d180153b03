//! `dump`: the buffers of a training step, for comparison with another implementation.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::output::{self, Json, Target};
use super::train::Setup;
use super::{Error, Global};
use crate::files::{WriteError, kind_of, temporary_folder};
use crate::interrupt::Interrupt;
use crate::market::walk_forward::walk_forward;
use crate::progress::Working;
use crate::text::shown_path;
use crate::train::dump::{Before, DumpError, write};
use crate::train::{TrainError, Trainer};

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Training steps after the warm-up of the first fold; the last one is written.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// The safetensors file to write; docs/dump.md names its tensors.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    json: Json,
}

/// What `dump --json` prints.
#[derive(Serialize)]
struct Dumped<'a> {
    /// The file.
    file: &'a Path,
    /// Its size.
    bytes: u64,
    /// Tensors in it.
    tensors: usize,
    /// The step, counted from 1.
    step: u32,
    /// The device's name.
    device: String,
    /// The preset under the configuration, if anything of it is left.
    preset: Option<crate::config::Preset>,
    /// Of the effective configuration.
    config_fingerprint: u32,
}

impl Arguments {
    /// Where the dump goes: a regular file, which takes its place when it is whole.
    fn out_file(&self) -> Result<Target, Error> {
        let refused =
            |what: &str| Err(Error::Arguments(format!("--out {} {what}; name a file", shown_path(&self.out))));
        let kind = std::fs::metadata(&self.out).ok().as_ref().and_then(kind_of);
        match (Target::from(self.out.clone().into_os_string()), kind) {
            (Target::StandardOutput, _) => refused("is standard output, which takes no tensors"),
            (_, Some(kind)) => refused(&format!("is {kind}")),
            (file, None) => Ok(file),
        }
    }

    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        let out = self.out_file()?;
        self.setup.check_outputs(&[("--out", Some(&out)), ("--json", self.json.target())])?;
        let plan = self.setup.resolve(global.device.into())?;
        let bars = &plan.series()?.bars;
        let interrupt = Interrupt::install("interrupted: the dump is left out; once more stops at once");
        let interrupt = interrupt.map_err(|error| Error::Failed(error.to_string()))?;
        let unwritable =
            |error: std::io::Error| Error::Output { path: self.out.clone(), error: WriteError::path(error) };
        // Under another name until it is whole, in the same folder, and before the work, so that a wrong place costs nothing.
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = temporary_folder(parent.unwrap_or(std::path::Path::new(".")), ".writing-").map_err(unwritable)?;
        let temporary = folder.path().join("step.safetensors");

        let working = Working::start(format!("taking {} step(s)", self.steps));
        let folds = walk_forward(bars.len(), plan.config.folds, plan.config.episode_len as usize);
        let folds = folds.map_err(TrainError::from)?;
        let mut trainer = Trainer::new(&plan.device, &plan.config, bars)?;
        trainer.begin_fold(&folds[0])?;
        trainer.heed(&interrupt);
        trainer.warm_up().map_err(stopped)?;
        for _ in 1..self.steps {
            trainer.step()?;
            interrupt.check().map_err(|interrupted| stopped(interrupted.into()))?;
        }
        trainer.finish_steps()?;
        let before = Before::read(&trainer)?;
        trainer.step()?;
        trainer.finish_steps()?;
        let n_tensors = write(&trainer, &before, &temporary).map_err(|error| match error {
            DumpError::Device(error) => error.into(),
            DumpError::File(error) => Error::Output { path: self.out.clone(), error: WriteError::writing(error) },
        })?;
        std::fs::rename(&temporary, &self.out).map_err(unwritable)?;
        drop(working);

        let dumped = Dumped {
            file: &self.out,
            bytes: std::fs::metadata(&self.out).map_err(unwritable)?.len(),
            tensors: n_tensors,
            step: self.steps,
            device: plan.device.info().name,
            preset: plan.record.preset,
            config_fingerprint: plan.config.fingerprint(),
        };
        self.json.write(&dumped)?;
        if self.json.to_standard_output() {
            return Ok(());
        }
        let Dumped { file, bytes, tensors, step, .. } = &dumped;
        output::print(&format!("{}: step {step}, {tensors} tensors, {bytes} bytes\n", shown_path(file)))
    }
}

/// What is said of an interrupt: nothing is kept of the work.
fn stopped(error: TrainError) -> Error {
    match error {
        TrainError::Interrupted(_) => Error::Failed("interrupted: nothing was written".into()),
        other => other.into(),
    }
}
