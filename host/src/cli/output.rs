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

/// Writes a file that appears under its name only when it is complete and on the disk; until then, and after any error,
/// what stood there before is untouched.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // In the same folder, since a rename is atomic only within one file system.
        let mut temporary = tempfile::Builder::new();
        // Readable as any new file is; a temporary one would be private.
        #[cfg(unix)]
        temporary.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut temporary = temporary.tempfile_in(folder)?;
        temporary.write_all(text.as_bytes())?;
        temporary.as_file().sync_all()?;
        temporary.persist(path)?;
        // The new name itself reaches the disk with its folder.
        std::fs::File::open(folder)?.sync_all()
    };
    write().map_err(|source| Error::Output { path: path.into(), source })
}

/// Prints to standard output.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::StandardOutput)
}
