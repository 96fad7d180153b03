//! Where results go.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Error;

/// `--json [FILE]`, which every command takes.
#[derive(Debug, clap::Args)]
pub struct Json {
    /// Print the result as JSON, or write it to FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
}

impl Json {
    /// Whether the JSON goes to standard output, so that nothing else may.
    pub(super) fn to_standard_output(&self) -> bool {
        matches!(self.json, Some(None))
    }

    /// Writes `value` where it was asked for, if it was.
    pub(super) fn write(&self, value: &impl Serialize) -> Result<(), Error> {
        let Some(target) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(value).expect("plain data with string keys") + "\n";
        match target {
            Some(path) => write_file(path, &text),
            None => print(&text),
        }
    }
}

/// Writes a file whole.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::Output { path: path.into(), source })
}

/// Prints to standard output.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::StandardOutput)
}
