//! `report`: a run's folder as one HTML file.

use std::path::PathBuf;

use serde::Serialize;

use super::Error;
use super::output::{self, Json, Target};
use crate::eval::evaluation::Verdict;
use crate::report;
use crate::report::run::{REPORT_FILE, Run};
use crate::text::shown_path;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run's folder, as `train` wrote it.
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// The file to write (`-`: standard output); DIR/report.html without it.
    #[arg(long, value_name = "FILE")]
    out: Option<Target>,
    #[command(flatten)]
    json: Json,
}

/// What `report --json` prints.
#[derive(Debug, Serialize)]
struct Reported {
    /// The file that was written; null for standard output.
    report: Option<PathBuf>,
    /// Its size.
    bytes: usize,
    /// Lines of metrics shown.
    epochs: usize,
    /// The verdict; null for a run that was not tested.
    verdict: Option<Verdict>,
    /// The verdict in a sentence.
    sentence: Option<String>,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<(), Error> {
        let out = self.out.clone().unwrap_or_else(|| Target::File(self.run.join(REPORT_FILE)));
        let written = [("--out", Some(&out)), ("--json", self.json.target())];
        output::spares_run(&self.run, &written)?;
        let run = Run::read(&self.run)?;
        output::places(&written)?;
        let html = report::html(&run);
        out.write(&html)?;
        let reported = Reported {
            report: out.file().map(PathBuf::from),
            bytes: html.len(),
            epochs: run.epochs.len(),
            verdict: run.evaluation.as_ref().map(|evaluation| evaluation.verdict),
            sentence: run.evaluation.map(|evaluation| evaluation.sentence),
        };
        self.json.write(&reported)?;
        let Some(file) = reported.report.filter(|_| !self.json.to_standard_output()) else { return Ok(()) };
        let sentence = reported.sentence.as_deref().unwrap_or("This run has not been tested yet.");
        output::print(&format!("{sentence}\n{}\n", shown_path(&file)))
    }
}
