//! What can go wrong with a run's folder, said once: where, what, and what to do.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use crate::text::{shown, shown_path};

/// A run's folder, or something in it, that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}; {}", shown_path(path), shown(reason), shown(remedy))]
pub struct RunError {
    /// The file or folder concerned.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: String,
    /// True if the input is at fault (exit code 2), false if the machine failed (exit code 1).
    pub bad_input: bool,
}

impl RunError {
    /// Input that is at fault.
    pub fn new(path: &Path, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into(), remedy: remedy.into(), bad_input: true }
    }

    /// Something that could not be written.
    pub(super) fn unwritable(path: &Path, error: impl Display) -> Self {
        let remedy =
            "check that the disk has room and the folder is writable; a run is then gone on with by `--resume`";
        Self { bad_input: false, ..Self::new(path, format!("cannot be written: {error}"), remedy) }
    }

    /// Something of a run's folder that could not be read.
    pub(super) fn unreadable(path: &Path, error: io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => "check its permissions",
            _ => "restore it from a copy, or start a new run",
        };
        Self::new(path, format!("cannot be read: {error}"), remedy)
    }

    /// A checkpoint that is not what was written.
    pub(super) fn damaged(path: &Path, reason: impl Display) -> Self {
        let remedy = "the checkpoint is damaged: use the one before it, remove its folder, or copy it anew from where it is whole";
        Self::new(path, reason.to_string(), remedy)
    }
}
