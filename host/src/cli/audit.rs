//! `audit`: the driver calls of training, counted and judged.

use serde::Serialize;

use super::output::{self, Json, Target};
use super::train::Setup;
use super::{Error, Global};
use crate::audit::Audit;
use crate::config::{Config, Preset};
use crate::device::ledger;
use crate::files::{WriteError, temporary_folder};
use crate::interrupt::Interrupt;
use crate::progress::{Progress, Total, Working};
use crate::run::RunFolder;
use crate::run::plan::{PlanError, TrainPlan};
use crate::train::Run;

/// Fewest epochs: two of their boundaries lie between steps.
const LEAST_EPOCHS: u32 = 3;

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
#[group(id = "audit")]
pub(super) struct Arguments {
    /// Training steps, in whole epochs of one fold, at least three, so that a few more may be taken.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Write the page docs/hot-path.md, of places, calls, classes and reasons, to FILE (`-`: standard output).
    #[arg(long, value_name = "FILE")]
    docs: Option<Target>,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    json: Json,
}

/// What `audit --json` prints.
#[derive(Serialize)]
struct Audited<'a> {
    /// The device's name.
    device: String,
    /// `cuda` or `cpu`.
    backend: &'static str,
    /// The preset under the configuration, if anything of it is left.
    preset: Option<Preset>,
    /// Epochs that the steps were in.
    epochs: u32,
    #[serde(flatten)]
    audit: &'a Audit,
    /// What a step did that it must not do, in words.
    faults: Vec<String>,
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        self.setup.check_outputs(&[("--docs", self.docs.as_ref()), ("--json", self.json.target())])?;
        ledger::reset();
        ledger::enable();
        let working = Working::start(format!("taking {} steps under the ledger", self.steps));
        let plan = self.setup.resolve(global.device.into());
        let trained = plan.map_err(Error::from).and_then(|plan| self.train(plan));
        ledger::disable();
        drop(working);
        let (plan, steps) = trained?;

        let audit = Audit::of(ledger::snapshot(), steps);
        let faults = audit.faults();
        self.json.write(&Audited {
            device: plan.device.info().name,
            backend: plan.device.backend_name(),
            preset: plan.record.preset,
            epochs: plan.config.epochs,
            audit: &audit,
            faults: faults.clone(),
        })?;
        if let Some(target) = &self.docs {
            target.write(&audit.page())?;
        }
        let taken = self.json.to_standard_output() || self.docs.as_ref().is_some_and(Target::is_standard_output);
        if !taken {
            output::print(&audit.text())?;
        }
        verdict(&faults)
    }

    /// Trains as `train` does, in a folder that goes afterwards; the plan as it was carried out, and the steps taken.
    fn train(&self, mut plan: TrainPlan) -> Result<(TrainPlan, u64), Error> {
        plan.config = shortened(plan.config, self.steps);
        let place = std::env::temp_dir();
        let unwritable = |error: std::io::Error| Error::Output { path: place.clone(), error: WriteError::path(error) };
        let temporary = temporary_folder(&place, "onegraph-audit-").map_err(unwritable)?;
        let folder = RunFolder::create(Some(&temporary.path().join("run")), &plan.config, &plan.record);
        let folder = folder.map_err(PlanError::from)?;
        let run = Run {
            device: &plan.device,
            config: &plan.config,
            bars: &plan.series()?.bars,
            folder: &folder,
            interrupt: &Interrupt::default(),
            deviations: None,
        };
        let total = Total { epochs: plan.config.epochs, resumed_at: 0, folds: 1 };
        let log = run.learn(&mut Progress::start(total, true))?;
        let steps = log.and_then(|log| log.epochs().last().map(|epoch| epoch.step)).unwrap_or(0);
        Ok((plan, steps))
    }
}

/// An error, and so exit code 1, unless there is no fault.
fn verdict(faults: &[String]) -> Result<(), Error> {
    if faults.is_empty() { Ok(()) } else { Err(Error::Failed(faults.join("; "))) }
}

/// One fold of so many steps, or a few more, in whole epochs.
fn shortened(config: Config, steps: u32) -> Config {
    let epochs = steps.div_ceil(config.steps_per_epoch).max(LEAST_EPOCHS);
    Config { folds: 1, epochs, steps_per_epoch: steps.div_ceil(epochs), ..config }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DataSource;
    use crate::device::ledger::{CallKind, Entry, Phase};

    #[test]
    fn a_violation_ends_with_1() {
        let call = |calls: u64, kind: CallKind, place: &str| Entry {
            name: if kind == CallKind::GraphLaunch { "cuGraphLaunch" } else { "cuStreamSynchronize" },
            kind,
            direction: None,
            memory: None,
            phase: Phase::Step,
            thread: "1".to_owned(),
            place: Some(place.to_owned()),
            calls,
            bytes: 0,
        };
        let step = format!("{}:9", crate::train::step_loop::FILE);
        let launches = |n| call(n, CallKind::GraphLaunch, &step);
        let wait = call(2, CallKind::Synchronize, "host/src/train/mod.rs:7");
        let elsewhere = call(5, CallKind::GraphLaunch, "host/src/train/mod.rs:7");
        let judged = |entries: Vec<Entry>| verdict(&Audit::of(entries, 5).faults());
        assert!(judged(vec![launches(5)]).is_ok());
        for (entries, part) in [
            (
                vec![launches(5), wait],
                "a wait between two steps: cuStreamSynchronize, 2 times, at host/src/train/mod.rs:7",
            ),
            (vec![launches(4)], "4 launches of the step's graph in 5 steps"),
            (vec![launches(6)], "6 launches of the step's graph in 5 steps"),
            (vec![elsewhere], "a graph launched beside the step's"),
            (vec![], "0 launches of the step's graph in 5 steps"),
        ] {
            let error = judged(entries).expect_err(part);
            assert!(error.exit_code() == 1 && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn steps_are_whole_epochs_with_two_boundaries_between_them() {
        for (preset, steps, want) in [
            (Preset::Tiny, 1000, (50, 20)),
            (Preset::Tiny, 60, (3, 20)),
            (Preset::Tiny, 1, (3, 1)),
            (Preset::Small, 1000, (10, 100)),
            (Preset::Small, 200, (3, 67)),
            (Preset::Full, 1000, (6, 167)),
        ] {
            let config = shortened(Config::preset(preset, DataSource::Files), steps);
            assert_eq!((config.epochs, config.steps_per_epoch), want, "{preset:?}, {steps} steps");
            assert_eq!(config.folds, 1);
        }
    }
}
