//! `eval`: a run's checkpoints against the baselines, on the run's own tests or on other bars.

use std::path::{Path, PathBuf};

use super::data::ReadArguments;
use super::output::{self, Json, Target};
use super::{Error, Global};
use crate::data::{Stamps, format_time, length_name};
use crate::eval::evaluation::Evaluation;
use crate::eval::tear_sheet;
use crate::interrupt::Interrupt;
use crate::progress::Working;
use crate::report;
use crate::run::plan::{Begun, NamedBars, PlanError, known_deviations, read_files};
use crate::run::{BarsRecord, CheckpointId, RunError, RunFolder, RunRecord};
use crate::text::shown_path;
use crate::train::testing::least_bars;
use crate::train::{Testing, TrainError};

/// Arguments of `eval`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder of a run: its best checkpoint of each fold; or of one checkpoint in it, such as
    /// runs/X/checkpoints/fold-1-epoch-00012.
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// A market file to trade as a whole behind the indicators' warm-up, instead of the run's own test parts. Nothing is
    /// fitted to it. Of a run's folder, the last fold's best checkpoint trades.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArguments,
    /// Write a report to FILE (`-`: standard output): one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    out: Option<Target>,
    #[command(flatten)]
    json: Json,
}

/// What is tested.
struct Chosen {
    run: Begun,
    checkpoints: Vec<CheckpointId>,
    /// What must be known of the choice.
    notes: Vec<String>,
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        if self.data.is_none() && !self.reading.is_default() {
            let text = "`--symbol`, `--bar` and `--stamps` say how a file is read; name it with `--data FILE`";
            return Err(PlanError::Usage(text.into()).into());
        }
        let chosen = self.choose()?;
        let folder = &chosen.run.folder;
        // How a checkpoint was chosen stands in the metrics.
        let last = folder.checkpoints().map_err(PlanError::from)?.last().copied();
        folder.check_metrics(last).map_err(PlanError::from)?;
        let written = [("--out", self.out.as_ref()), ("--json", self.json.target())];
        output::spares(&self.data.iter().map(|file| ("--data", file.clone())).collect::<Vec<_>>(), &written)?;
        output::spares_run(chosen.run.folder.path(), &written)?;
        output::places(&written)?;
        let working = Working::start(format!("testing {}", shown_path(&self.checkpoint)));
        let mut evaluation = match &self.data {
            Some(path) => self.on_file(path, &chosen, global)?,
            None => on_own_tests(&chosen, global)?,
        };
        drop(working);
        evaluation.notes.extend(chosen.notes);
        if let Some(out) = &self.out {
            self.report(out, chosen.run.folder.path(), &evaluation)?;
        }
        self.json.write(&evaluation)?;
        let taken = self.json.to_standard_output() || self.out.as_ref().is_some_and(Target::is_standard_output);
        if taken { Ok(()) } else { output::print(&tear_sheet::text(&evaluation)) }
    }

    fn choose(&self) -> Result<Chosen, Error> {
        if let Some((folder, id)) = RunFolder::of_checkpoint(&self.checkpoint).map_err(PlanError::from)? {
            // Where another is damaged, nobody knows which is the best.
            let is_best = folder.best_checkpoint(id.fold).is_ok_and(|best| best == Some(id));
            let note =
                "This checkpoint was named, not chosen by validation: the best of several tests is the luckiest one.";
            let notes = if is_best { Vec::new() } else { vec![note.to_owned()] };
            return Ok(Chosen { run: Begun::open(folder)?, checkpoints: vec![id], notes });
        }
        let run = Begun::open(RunFolder::open(&self.checkpoint).map_err(PlanError::from)?)?;
        let (mut checkpoints, mut notes) = (Vec::new(), Vec::new());
        for fold in 1..=run.config.folds as u32 {
            match run.folder.best_checkpoint(fold).map_err(PlanError::from)? {
                Some(id) => checkpoints.push(id),
                None => notes.push(format!("Fold {fold} is left out: it has no checkpoint that validation chose.")),
            }
        }
        if checkpoints.is_empty() {
            return Err(TrainError::NoCandidate(1).into());
        }
        if self.data.is_some() {
            checkpoints.drain(..checkpoints.len() - 1);
        }
        Ok(Chosen { run, checkpoints, notes })
    }

    fn on_file(&self, path: &Path, chosen: &Chosen, global: &Global) -> Result<Evaluation, Error> {
        let run = &chosen.run;
        let mut options = self.reading.options();
        if let Some(data) = &run.record.data {
            // As the run's own file was read, where nothing else is said.
            options.bar_ns = options.bar_ns.or(data.bar_ns);
            options.stamps = if data.stamps_end { Stamps::End } else { options.stamps };
        }
        let NamedBars { bars, notes, .. } =
            read_files(&[path.to_owned()], &options, least_bars(&run.config))?.remove(0);
        let device = global.open()?;
        let testing = Testing {
            device: &device,
            config: &run.config,
            bars: &bars,
            folder: &run.folder,
            deviations: None,
            interrupt: &Interrupt::default(),
        };
        let epochs = run.folder.epochs().map_err(PlanError::from)?;
        let mut evaluation = testing.on_all_bars(chosen.checkpoints[0], &epochs)?;
        evaluation.notes.extend(notes);
        evaluation.notes.extend(notes_on(path, &BarsRecord::new(&bars), &run.record));
        Ok(evaluation)
    }

    fn report(&self, out: &Target, folder: &Path, evaluation: &Evaluation) -> Result<(), Error> {
        let mut run = report::run::Run::read(folder)?;
        if let Some(data) = &self.data {
            run.name = format!("{} on {}", run.name, shown_path(data));
        }
        run.evaluation = Some(evaluation.clone());
        out.write(&report::html(&run))
    }
}

/// The tests that `train` makes.
fn on_own_tests(chosen: &Chosen, global: &Global) -> Result<Evaluation, Error> {
    let run = &chosen.run;
    // What is said of a file that moved or changed is meant for `train`: here, `--data` names bars of another kind.
    let series = run.bars(None).map_err(|error| match error {
        PlanError::Run(error) => {
            let remedy = "put back the file that the run began with, or test other bars with `--data`".to_owned();
            PlanError::Run(RunError { remedy, ..error })
        }
        other => other,
    })?;
    let device = global.open()?;
    let deviations = known_deviations(&run.record, &run.config, &series[0].bars);
    let testing = Testing {
        device: &device,
        config: &run.config,
        bars: &series[0].bars,
        folder: &run.folder,
        deviations: deviations.as_deref(),
        interrupt: &Interrupt::default(),
    };
    let epochs = run.folder.epochs().map_err(PlanError::from)?;
    Ok(testing.on_own_tests(&chosen.checkpoints, &epochs)?)
}

/// What a test on the bars of `path` says, and does not say.
fn notes_on(path: &Path, bars: &BarsRecord, run: &RunRecord) -> Vec<String> {
    let trained_on = &run.bars;
    let day = |time_ns: i64| format_time(time_ns).chars().take(10).collect::<String>();
    let mut notes = vec![format!(
        "Traded {}, {} to {}, as a whole: scales and bar sigma are those of the run's training part, nothing was fitted.",
        shown_path(path),
        day(bars.first_ns),
        day(bars.last_ns)
    )];
    if bars.interval_ns != trained_on.interval_ns {
        let lengths = [bars, trained_on].map(|bars| length_name(bars.interval_ns));
        let note = format!("Its bars are of {}, and the run was trained on bars of {}.", lengths[0], lengths[1]);
        tracing::warn!("{}: {note}", shown_path(path));
        notes.push(note);
    }
    // The simulator's times are of no calendar.
    if run.data.is_some() && bars.overlaps(trained_on) {
        let (first, last) = (day(trained_on.first_ns), day(trained_on.last_ns));
        let note = format!(
            "Its times overlap those of the run's own bars ({first} to {last}): what was learned may be of the same bars."
        );
        tracing::warn!("{}: {note}", shown_path(path));
        notes.push(note);
    }
    notes
}
