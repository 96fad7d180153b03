//! Training from a checked plan, and what is said at its end.

use std::path::Path;

use serde::Serialize;

use super::super::output;
use super::super::{Error, Global};
use super::Arguments;
use crate::eval::evaluation::{Evaluation, Verdict};
use crate::eval::tear_sheet;
use crate::interrupt::{Interrupt, OF_TRAINING};
use crate::progress::{Progress, Total};
use crate::report;
use crate::report::run::{EVALUATION_FILE, REPORT_FILE, Run as Finished};
use crate::run::plan::{PlanError, TrainPlan, known_deviations};
use crate::text::shown_path;
use crate::train::{Run, RunEnd};

/// What `train --json` prints.
#[derive(Serialize)]
struct Trained<'a> {
    /// The run's folder.
    folder: &'a Path,
    /// Whether it was stopped before its end.
    interrupted: bool,
    /// The report; null for a run that was stopped.
    report: Option<&'a Path>,
    /// The verdict.
    verdict: Option<Verdict>,
    /// The verdict in a sentence.
    sentence: Option<&'a str>,
}

impl Arguments {
    /// Trains, tests, and writes evaluation and report into the run's folder.
    pub(in crate::cli) fn run(&self, global: &Global) -> Result<(), Error> {
        self.check_outputs()?;
        let plan = self.resolve(global.device.into())?;
        let series = plan.series()?;
        let interrupt = Interrupt::install(OF_TRAINING).map_err(|error| Error::Failed(error.to_string()))?;
        let folder = plan.folder().map_err(PlanError::from)?;
        let _lock = folder.lock().map_err(PlanError::from)?;
        let (config, path) = (&plan.config, folder.path().to_owned());
        tracing::info!("training in {}", shown_path(&path));
        let mut progress = Progress::start(total(&plan), self.quiet);
        let deviations = known_deviations(&plan.record, config, &series.bars);
        let run = Run {
            device: &plan.device,
            config,
            bars: &series.bars,
            folder: &folder,
            interrupt: &interrupt,
            deviations: deviations.as_deref(),
        };
        let end = run.train(&mut progress)?;
        drop(progress);
        match end {
            RunEnd::Done(evaluation) => self.conclude(&path, &evaluation),
            RunEnd::Interrupted => self.suspend(&path),
        }
    }

    fn conclude(&self, path: &Path, evaluation: &Evaluation) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(evaluation).expect("plain data with string keys") + "\n";
        output::write_file(&path.join(EVALUATION_FILE), &text)?;
        let report = path.join(REPORT_FILE);
        output::write_file(&report, &report::html(&Finished::read(path)?))?;
        self.json.write(&Trained {
            folder: path,
            interrupted: false,
            report: Some(&report),
            verdict: Some(evaluation.verdict),
            sentence: Some(&evaluation.sentence),
        })?;
        if self.json.to_standard_output() {
            return Ok(());
        }
        output::print(&format!("{}{}\n", tear_sheet::headline(evaluation), shown_path(&report)))
    }

    fn suspend(&self, path: &Path) -> Result<(), Error> {
        let stopped = Trained { folder: path, interrupted: true, report: None, verdict: None, sentence: None };
        self.json.write(&stopped)?;
        if self.json.to_standard_output() {
            return Ok(());
        }
        output::print(&format!("stopped; go on with: onegraph train --resume {}\n", shown_path(path)))
    }
}

fn total(plan: &TrainPlan) -> Total {
    let (folds, epochs) = (plan.config.folds as u32, plan.config.epochs);
    let checkpoint = plan.resume.as_ref().and_then(|resume| resume.checkpoint.as_ref());
    let resumed_at = checkpoint.map_or(0, |checkpoint| {
        let id = checkpoint.meta().id;
        (id.fold - 1) * epochs + id.epoch
    });
    Total { epochs: folds * epochs, resumed_at, folds }
}
