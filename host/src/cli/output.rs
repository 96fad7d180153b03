//! Where results go.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Error;
use crate::files;
use crate::report::run::{FILES, REPORT_FILE, RUN_FILE};
use crate::run::{CHECKPOINTS, RunFolder};
use crate::text::shown_path;

/// A `FILE` that a result is written to; `-` is standard output.
#[derive(Clone, Debug)]
pub(super) enum Target {
    StandardOutput,
    File(PathBuf),
}

impl From<OsString> for Target {
    fn from(argument: OsString) -> Self {
        if argument == "-" { Self::StandardOutput } else { Self::File(argument.into()) }
    }
}

impl Target {
    /// Writes a text there, whole.
    pub(super) fn write(&self, text: &str) -> Result<(), Error> {
        match self {
            Self::StandardOutput => print(text),
            Self::File(path) => write_file(path, text),
        }
    }

    /// The file, if it is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::StandardOutput => None,
            Self::File(path) => Some(path),
        }
    }

    pub(super) fn is_standard_output(&self) -> bool {
        matches!(self, Self::StandardOutput)
    }
}

/// `--json [FILE]`, which every command takes.
#[derive(Debug, clap::Args)]
pub struct Json {
    /// Print the result as JSON, or write it to FILE (`-`: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<Target>>,
}

impl Json {
    /// Where the JSON goes, if it was asked for.
    pub(super) fn target(&self) -> Option<&Target> {
        self.json.as_ref().map(|target| target.as_ref().unwrap_or(&Target::StandardOutput))
    }

    /// Whether the JSON goes to standard output, so that nothing else may.
    pub(super) fn to_standard_output(&self) -> bool {
        self.target().is_some_and(Target::is_standard_output)
    }

    /// Writes `value` where it was asked for, if it was.
    pub(super) fn write(&self, value: &impl Serialize) -> Result<(), Error> {
        let Some(target) = self.target() else { return Ok(()) };
        target.write(&(serde_json::to_string_pretty(value).expect("plain data with string keys") + "\n"))
    }
}

/// Refuses arguments of which one would overwrite another's file, however the two are spelled: each with its name and, if
/// it was given, where it leads. An input counts as well as an output.
pub(super) fn distinct(arguments: &[(&str, Option<&Target>)]) -> Result<(), Error> {
    let given: Vec<_> = arguments.iter().filter_map(|&(name, target)| Some((name, target?))).collect();
    for (at, &(one, target)) in given.iter().enumerate() {
        for &(other, second) in &given[at + 1..] {
            match (target, second) {
                (Target::StandardOutput, Target::StandardOutput) => {
                    let reason = "both go to standard output; name a file for one of them";
                    return Err(Error::Arguments(format!("{one} and {other} {reason}")));
                }
                (Target::File(first), Target::File(second)) if files::same_file(first, second) => {
                    let (first, second) = (shown_path(first), shown_path(second));
                    let reason = "are one file, and one would overwrite the other; name two files";
                    return Err(Error::Arguments(format!("{one} {first} and {other} {second} {reason}")));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Refuses outputs that would overwrite what is read, or each other. `-` among what is read is a file of that name.
pub(super) fn spares(read: &[(&str, PathBuf)], written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
    for (name, path) in read {
        for &output in written {
            distinct(&[(name, Some(&Target::File(path.clone()))), output])?;
        }
    }
    distinct(written)
}

/// Refuses places that nothing can be written to, or that hold what a run lives on, before the work whose results they are for.
pub(super) fn places(written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
    spares_runs(written)?;
    for (name, path) in written.iter().filter_map(|(name, target)| Some((name, target.and_then(Target::file)?))) {
        if path.as_os_str().is_empty() {
            return Err(Error::Arguments(format!("{name} names no file; name one, or `-` for standard output")));
        }
        files::check_writable(path).map_err(|error| Error::Output { path: path.into(), error })?;
    }
    Ok(())
}

/// Refuses outputs that would overwrite what a run lives on in whose folder they lie, whichever run that is; its report as well, but
/// for what is to be a report.
fn spares_runs(written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
    for &(name, target) in written {
        let Some(file) = target.and_then(Target::file) else { continue };
        for folder in files::real_path(file).ancestors().skip(1).filter(|folder| folder.join(RUN_FILE).is_file()) {
            spares_run(folder, &[(name, target)])?;
            if name != "--out" {
                spares(&[("the run's", folder.join(REPORT_FILE))], &[(name, target)])?;
            }
        }
    }
    Ok(())
}

/// Refuses outputs that would overwrite what the run in `folder` lives on: its files but the report, its checkpoints, and the market
/// files that it began with.
pub(super) fn spares_run(folder: &Path, written: &[(&str, Option<&Target>)]) -> Result<(), Error> {
    spares(&FILES.map(|name| ("the run's", folder.join(name))), written)?;
    // A record that cannot be read is told of by whatever reads it.
    let data = RunFolder::open(folder).and_then(|folder| folder.record()).ok().and_then(|record| record.data);
    let files = data.into_iter().flat_map(|data| data.files).map(|file| ("the run's market file", file.path));
    spares(&files.collect::<Vec<_>>(), written)?;
    for &(name, target) in written {
        if let Some(Target::File(path)) = target
            && files::lies_in(path, &folder.join(CHECKPOINTS))
        {
            let reason = "lies among the run's checkpoints, which no result may overwrite; name a file elsewhere";
            return Err(Error::Arguments(format!("{name} {} {reason}", shown_path(path))));
        }
    }
    Ok(())
}

/// Writes a file whole.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    let written = files::write_whole(path, |output| output.write_all(text.as_bytes()));
    written.map_err(|error| Error::Output { path: path.into(), error })
}

/// Prints to standard output.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::StandardOutput)
}
