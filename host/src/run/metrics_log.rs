//! `metrics.jsonl`: a line an epoch, each of them whole.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::RunError;
use super::manifest::CheckpointId;
use crate::files::write_whole;
use crate::metrics::EpochMetrics;

/// The file, open at its end.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
    epochs: Vec<EpochMetrics>,
}

impl MetricsLog {
    /// Opens the file and cuts it behind the epoch `after`, all of it for none. A last line without its end, which a run that
    /// was killed may leave, goes too.
    pub(super) fn open(path: &Path, after: Option<CheckpointId>) -> Result<Self, RunError> {
        let text = crate::files::read_text(path).map_err(|error| RunError::unreadable(path, error))?;
        let (mut kept, mut epochs) = (String::new(), Vec::new());
        for (line, metrics) in whole_lines(path, &text)? {
            let id = id_of(&metrics);
            if after.is_some_and(|last| id <= last) {
                kept.push_str(line);
                kept.push('\n');
                epochs.push(metrics);
            }
        }
        check_whole(path, &epochs, after)?;
        if kept != text {
            write_whole(path, |output| output.write_all(kept.as_bytes()))
                .map_err(|error| RunError::unwritable(path, error.reason))?;
        }
        let file = OpenOptions::new().append(true).open(path).map_err(|error| RunError::unwritable(path, error))?;
        Ok(Self { path: path.to_owned(), file, epochs })
    }

    /// Whether the file has a line for every epoch up to `after`; it stays as it is.
    pub(super) fn check(path: &Path, after: Option<CheckpointId>) -> Result<(), RunError> {
        let mut epochs = Self::read(path)?;
        epochs.retain(|epoch| after.is_some_and(|last| id_of(epoch) <= last));
        check_whole(path, &epochs, after)
    }

    /// All epochs that the file has; it stays as it is.
    pub(super) fn read(path: &Path) -> Result<Vec<EpochMetrics>, RunError> {
        let text = crate::files::read_text(path).map_err(|error| RunError::unreadable(path, error))?;
        Ok(whole_lines(path, &text)?.into_iter().map(|(_, metrics)| metrics).collect())
    }

    /// The epochs so far.
    pub fn epochs(&self) -> &[EpochMetrics] {
        &self.epochs
    }

    /// Appends an epoch in one write, and brings it to the disk.
    pub fn append(&mut self, metrics: EpochMetrics) -> Result<(), RunError> {
        let line = serde_json::to_string(&metrics).expect("plain data with string keys") + "\n";
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| RunError::unwritable(&self.path, error))?;
        self.epochs.push(metrics);
        Ok(())
    }

    /// Sends what follows to another file under the same name, such as a device that is always full.
    #[cfg(test)]
    pub(super) fn redirect(&mut self, to: &Path) {
        self.file = OpenOptions::new().append(true).open(to).expect("the other file opens");
    }
}

fn id_of(epoch: &EpochMetrics) -> CheckpointId {
    CheckpointId { fold: epoch.fold, epoch: epoch.epoch }
}

/// Refuses lines among which one is missing: a run writes an epoch's line before its checkpoint, and what is chosen and reported
/// in the end is chosen from the lines.
fn check_whole(path: &Path, epochs: &[EpochMetrics], after: Option<CheckpointId>) -> Result<(), RunError> {
    let mut before = CheckpointId { fold: 1, epoch: 0 };
    for id in epochs.iter().map(id_of) {
        let next = CheckpointId { epoch: before.epoch + 1, ..before };
        let of_next_fold = CheckpointId { fold: before.fold + 1, epoch: 1 };
        if id != next && (id != of_next_fold || before.epoch == 0) {
            return Err(lacks(path, next));
        }
        before = id;
    }
    match after {
        Some(last) if before != last => Err(lacks(path, CheckpointId { epoch: before.epoch + 1, ..before })),
        _ => Ok(()),
    }
}

fn lacks(path: &Path, CheckpointId { fold, epoch }: CheckpointId) -> RunError {
    let reason = format!("lacks the line of fold {fold}, epoch {epoch}, though a later checkpoint is there");
    RunError::new(path, reason, "restore the file from a copy, or remove the checkpoints from that epoch on")
}

/// The lines that have an end, with what they say.
fn whole_lines<'a>(path: &Path, text: &'a str) -> Result<Vec<(&'a str, EpochMetrics)>, RunError> {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let of_line = |(number, line)| match serde_json::from_str(line) {
        Ok(metrics) => Ok((line, metrics)),
        Err(error) => {
            // The parser's own "at line 1" is of the line alone.
            let error = error.to_string();
            let error = error.split(" at line ").next().unwrap_or_default();
            let reason = format!("line {} cannot be understood: {error}", number + 1usize);
            let remedy = "restore the file from a copy, or remove that line, all lines behind it and the checkpoints of their epochs";
            Err(RunError::new(path, reason, remedy))
        }
    };
    whole.lines().enumerate().map(of_line).collect()
}
