//! What a run's folder holds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::metrics::EpochMetrics;
use crate::bench::MeasuredGraph;
use crate::eval::evaluation::{Evaluation, VERSION};
use crate::run::plan::Begun;
use crate::run::{self, RunFolder};
use crate::text::{shown, shown_path};

/// The effective configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// A line of JSON an epoch.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// The result of the tests.
pub const EVALUATION_FILE: &str = "evaluation.json";
/// What ran: version, device, data, times.
pub const RUN_FILE: &str = "run.json";
/// The step's graph with the times of its children.
pub const GRAPH_FILE: &str = "graph.json";
/// All that a report is made from.
pub const FILES: [&str; 5] = [CONFIG_FILE, METRICS_FILE, EVALUATION_FILE, RUN_FILE, GRAPH_FILE];
/// The report.
pub const REPORT_FILE: &str = "report.html";

/// A run as its folder tells it. What is not there yet is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The folder's name.
    pub name: String,
    /// The configuration's text.
    pub config: Option<String>,
    /// Epochs in order.
    pub epochs: Vec<EpochMetrics>,
    /// The tests' result.
    pub evaluation: Option<Evaluation>,
    /// What ran.
    pub facts: Option<Value>,
    /// What must be known of the run's data and configuration.
    pub notes: Vec<String>,
    /// The step's graph, measured.
    pub graph: Option<MeasuredGraph>,
}

/// Why a folder cannot be reported on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such folder.
    #[error("{}: there is no such folder; name one that `train` wrote", shown_path(.0))]
    NoFolder(PathBuf),
    /// A folder without anything to report.
    #[error(
        "{}: holds neither {METRICS_FILE} nor {EVALUATION_FILE}, so it is no run's folder or the run has not finished an \
         epoch; name a folder that `train` wrote",
        shown_path(.0)
    )]
    NoRun(PathBuf),
    /// What ran cannot be understood; so say the commands that go on with a run or test it.
    #[error(transparent)]
    Record(#[from] run::RunError),
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}; check its permissions", shown_path(file))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file whose contents are not what they should be.
    #[error(
        "{}{}: {}; {remedy}",
        shown_path(file),
        line.map(|line| format!(", line {line}")).unwrap_or_default(),
        shown(reason)
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1, where one is to blame.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl Run {
    /// Reads the folder. Any of its files may be absent, but not both metrics and evaluation.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        if !folder.is_dir() {
            return Err(RunError::NoFolder(folder.into()));
        }
        let metrics = text(&folder.join(METRICS_FILE))?;
        let evaluation = text(&folder.join(EVALUATION_FILE))?;
        if metrics.is_none() && evaluation.is_none() {
            return Err(RunError::NoRun(folder.into()));
        }
        let facts = text(&folder.join(RUN_FILE))?.map(|text| json(&folder.join(RUN_FILE), &text)).transpose()?;
        let notes = if facts.is_some() { notes(folder)? } else { Vec::new() };
        let path = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let name = path.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into());
        Ok(Self {
            name,
            config: text(&folder.join(CONFIG_FILE))?,
            epochs: metrics.map_or(Ok(Vec::new()), |text| epochs(&folder.join(METRICS_FILE), &text))?,
            evaluation: evaluation.map(|text| read_evaluation(&folder.join(EVALUATION_FILE), &text)).transpose()?,
            facts,
            notes,
            graph: text(&folder.join(GRAPH_FILE))?.map(|text| graph(&folder.join(GRAPH_FILE), &text)).transpose()?,
        })
    }
}

/// What the run's record notes of its data; and what `eval` and `train --resume` refuse of its configuration, which is shown, but not as
/// if it were what ran.
fn notes(folder: &Path) -> Result<Vec<String>, RunError> {
    let folder = RunFolder::open(folder)?;
    let mut notes = folder.record()?.notes;
    if let Err(error) = Begun::open(folder) {
        tracing::warn!("{error}");
        notes.push(error.to_string());
    }
    Ok(notes)
}

/// The file's text; `None` if there is no such file.
fn text(file: &Path) -> Result<Option<String>, RunError> {
    match crate::files::read(file) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let before = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes()[..before].iter().filter(|&&byte| byte == b'\n').count();
                Err(damaged(file, Some(line), "is no UTF-8 text".into()))
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RunError::Unreadable { file: file.into(), source }),
    }
}

fn damaged(file: &Path, line: Option<usize>, reason: String) -> RunError {
    let remedy = "the file is damaged: restore it, or take it away to report on the rest";
    RunError::Damaged { file: file.into(), line, reason, remedy }
}

fn epochs(file: &Path, text: &str) -> Result<Vec<EpochMetrics>, RunError> {
    let mut epochs = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |reason| damaged(file, Some(at + 1), reason);
        let value = serde_json::from_str(line).map_err(|error| fail(format!("is no JSON: {error}")))?;
        epochs.push(EpochMetrics::new(value).ok_or_else(|| fail("is no JSON object".into()))?);
    }
    Ok(epochs)
}

fn json(file: &Path, text: &str) -> Result<Value, RunError> {
    serde_json::from_str(text).map_err(|error| damaged(file, Some(error.line()), format!("is no JSON: {error}")))
}

fn graph(file: &Path, text: &str) -> Result<MeasuredGraph, RunError> {
    let graph: MeasuredGraph = serde_json::from_str(text)
        .map_err(|error| damaged(file, Some(error.line()), format!("is no step's graph with its times: {error}")))?;
    graph.check().map_err(|reason| damaged(file, None, format!("is no step's graph: {reason}")))?;
    Ok(graph)
}

fn read_evaluation(file: &Path, text: &str) -> Result<Evaluation, RunError> {
    let value = json(file, text)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(RunError::Damaged {
                file: file.into(),
                line: None,
                reason: format!("has form {version}, and this program reads form {VERSION}"),
                remedy: "evaluate the run again, or take the program that wrote it",
            });
        }
        None => return Err(damaged(file, None, "has no `version`, so it is no evaluation".into())),
    }
    // From the text, so that the error names a line.
    serde_json::from_str(text)
        .map_err(|error| damaged(file, Some(error.line()), format!("is no evaluation of form {VERSION}: {error}")))
}
