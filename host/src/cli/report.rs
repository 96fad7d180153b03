//! `report`: a run's folder as one HTML file.

use std::path::PathBuf;

use serde::Serialize;

use super::Error;
use super::output::{self, Json};
use crate::eval::evaluation::Verdict;
use crate::report;
use crate::report::run::Run;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run's folder, as `train` wrote it.
    #[arg(value_name = "DIR")]
    run: PathBuf,
    /// The file to write; DIR/report.html without it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    json: Json,
}

/// What `report --json` prints.
#[derive(Debug, Serialize)]
struct Reported {
    /// The file that was written.
    report: PathBuf,
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
        let run = Run::read(&self.run)?;
        let html = report::html(&run);
        let file = self.out.clone().unwrap_or_else(|| self.run.join("report.html"));
        output::write_whole(&file, &html)?;
        let reported = Reported {
            report: file,
            bytes: html.len(),
            epochs: run.epochs.len(),
            verdict: run.evaluation.as_ref().map(|evaluation| evaluation.verdict),
            sentence: run.evaluation.map(|evaluation| evaluation.sentence),
        };
        self.json.write(&reported)?;
        if self.json.to_standard_output() {
            return Ok(());
        }
        let sentence = reported.sentence.as_deref().unwrap_or("This run has not been tested yet.");
        output::print(&format!("{sentence}\n{}\n", reported.report.display()))
    }
}
