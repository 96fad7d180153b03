//! What can be wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

use super::Preset;
use crate::text::{shown, shown_path};

/// Which layer a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The preset.
    Preset(Preset),
    /// A line of a file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
    },
    /// `--set`, as it was written.
    Set(String),
    /// A flag of its own, such as `--seed`.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => write!(f, "preset {}", preset.name()),
            Self::File { path, line } => write!(f, "{}:{line}", shown_path(path)),
            Self::Set(argument) => write!(f, "--set {}", shown(argument)),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// What to do about a key that has no section, and that a file has below one.
fn below_a_section(origin: &Origin, key: &str, nearest: &str) -> &'static str {
    match (origin, key.split_once('.')) {
        (Origin::File { .. }, Some((_, last))) if last == nearest => ", which stands above the first `[section]`",
        _ => "",
    }
}

/// A configuration that cannot be used: where, what, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{}: cannot be read: {reason}; {remedy}", shown_path(path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that is not TOML.
    #[error("{origin}: {}; mend the line: `key = value`, and `[section]` above the keys of a section", shown(reason))]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser said.
        reason: String,
    },
    /// A `--set` that is not `key=value`.
    #[error("{0}: this is not `key=value`; write for instance `--set lr=1e-3`")]
    NoAssignment(Origin),
    /// A key that does not exist.
    #[error(
        "{origin}: there is no key `{}`; the nearest is `{nearest}`{}; docs/configuration.md lists all of them",
        shown(key),
        below_a_section(origin, key, nearest)
    )]
    UnknownKey {
        /// Where.
        origin: Origin,
        /// The key as it was written.
        key: String,
        /// The nearest key there is.
        nearest: &'static str,
    },
    /// A section that does not exist.
    #[error(
        "{origin}: there is no section `{}`; the key nearest to `{}` is `{nearest}`; docs/configuration.md lists all of them",
        shown(section),
        shown(key)
    )]
    UnknownSection {
        /// Where.
        origin: Origin,
        /// The section as it was written.
        section: String,
        /// Its first key, with the section; the section alone if it is empty.
        key: String,
        /// The nearest key there is.
        nearest: &'static str,
    },
    /// A section that was given a value.
    #[error("{origin}: `{section}` is a section, not a key; set one of its keys, such as `{example}`")]
    Section {
        /// Where.
        origin: Origin,
        /// The section.
        section: &'static str,
        /// A key of it.
        example: &'static str,
    },
    /// A value of the wrong type or out of range.
    #[error("{origin}: `{key}` is {}; it must be {range}{}", shown(value), unit_text(.unit))]
    OutOfRange {
        /// Where.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// The value as TOML writes it.
        value: String,
        /// The range in words.
        range: String,
        /// The key's unit.
        unit: &'static str,
    },
    /// A key that `--set` and a flag of its own both give.
    #[error("`{key}` is given twice, by {flag} and by --set; leave one of the two out")]
    Twice {
        /// The key.
        key: &'static str,
        /// Its flag.
        flag: &'static str,
    },
    /// Keys that do not fit each other.
    #[error("{values}: {reason}")]
    Rule {
        /// The keys with their values and where these came from.
        values: String,
        /// What must hold.
        reason: &'static str,
    },
}

fn unit_text(unit: &str) -> String {
    if unit == "-" { String::new() } else { format!(" ({unit})") }
}
