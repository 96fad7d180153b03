//! One instrument out of a file that may hold several.

use super::error::DataError;
use std::path::Path;

/// More names than this are not remembered; a file with more is refused all the same.
const NAMES_MAX: usize = 1000;

/// Lets the rows of one instrument pass and remembers all the names met.
#[derive(Debug)]
pub(super) struct SymbolFilter {
    wanted: Option<String>,
    names: Vec<String>,
}

impl SymbolFilter {
    pub(super) fn new(wanted: Option<&str>) -> Self {
        Self { wanted: wanted.map(str::to_owned), names: Vec::new() }
    }

    /// True for a row of the wanted instrument, or of the file's first one if none is wanted.
    pub(super) fn admits(&mut self, name: &str) -> bool {
        if !self.names.iter().any(|n| n == name) && self.names.len() < NAMES_MAX {
            self.names.push(name.to_owned());
        }
        match &self.wanted {
            Some(wanted) => wanted == name,
            None => self.names[0] == name,
        }
    }

    /// The instrument chosen. An error that lists those present if the choice is empty or left open.
    pub(super) fn chosen(&self, path: &Path) -> Result<Option<String>, DataError> {
        let present = self.listed();
        match &self.wanted {
            Some(wanted) if self.names.is_empty() => Err(DataError::new(
                path,
                format!("names no instruments, so none is \"{wanted}\""),
                "leave --symbol out",
            )),
            Some(wanted) if !self.names.contains(wanted) => {
                Err(DataError::new(path, format!("has no instrument \"{wanted}\""), format!("it has: {present}")))
            }
            None if self.names.len() > 1 => Err(DataError::new(
                path,
                format!("holds {} instruments: {present}", self.names.len()),
                "choose one with --symbol",
            )),
            Some(wanted) => Ok(Some(wanted.clone())),
            None => Ok(self.names.first().cloned()),
        }
    }

    fn listed(&self) -> String {
        const SHOWN: usize = 20;
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let listed = names.join(", ");
        if more > 0 { format!("{listed} and {more} more") } else { listed }
    }

    /// All the names met, sorted.
    pub(super) fn into_names(mut self) -> Vec<String> {
        self.names.sort_unstable();
        self.names
    }
}
