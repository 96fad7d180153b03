//! The records of a DBN stream, with its end told apart from a cut.

use crate::data::error::{DataError, Place};
use ::dbn::decode::dbn::fsm::{DbnFsm, ProcessResult};
use ::dbn::{Metadata, RecordRef, VersionUpgradePolicy};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// No metadata is larger: a million symbols take less. The decoder makes room for what the header claims.
const METADATA_BYTES_MAX: u32 = 64 << 20;

/// Bytes before the metadata: "DBN", the version, the metadata's length.
const PRELUDE_BYTES: usize = 8;

/// A stream being decoded; records of older versions come out in version 3's layout.
pub(super) struct Records<R> {
    path: PathBuf,
    input: R,
    fsm: DbnFsm,
    version: u8,
    n_read: u64,
}

/// What the decoder has ready.
enum Step {
    Metadata(Box<Metadata>),
    Record,
    End,
}

impl<R: Read> Records<R> {
    /// Reads the metadata.
    pub(super) fn open(path: &Path, mut input: R) -> Result<(Self, Metadata), DataError> {
        let damaged = |reason: String| DataError::new(path, reason, "fetch the file again");
        let mut prelude = [0; PRELUDE_BYTES];
        input.read_exact(&mut prelude).map_err(|e| damaged(format!("ends inside its DBN header: {e}")))?;
        if &prelude[..3] != b"DBN" {
            let remedy = "give a DBN, CSV or Parquet file; decompress other zstd files first";
            return Err(DataError::new(path, "is compressed with zstd but holds no DBN", remedy));
        }
        let version = prelude[3];
        if !(1..=3).contains(&version) {
            let reason = format!("is DBN version {version}; versions 1 to 3 are read");
            return Err(DataError::new(path, reason, "export it in version 3"));
        }
        let length = u32::from_le_bytes([prelude[4], prelude[5], prelude[6], prelude[7]]);
        if length > METADATA_BYTES_MAX {
            return Err(damaged(format!(
                "claims {length} bytes of DBN metadata, over the limit of {METADATA_BYTES_MAX}"
            )));
        }
        let fsm = DbnFsm::builder().upgrade_policy(VersionUpgradePolicy::UpgradeToV3).build();
        let mut fsm: DbnFsm = fsm.map_err(|e| damaged(e.to_string()))?;
        fsm.write_all(&prelude);
        let mut records = Self { path: path.to_owned(), input, fsm, version, n_read: 0 };
        match records.step()? {
            Step::Metadata(metadata) => {
                check_terminators(&metadata, version).map_err(damaged)?;
                Ok((records, *metadata))
            }
            Step::Record | Step::End => Err(damaged("has no DBN metadata".into())),
        }
    }

    /// The version the file is written in.
    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// Records read so far.
    pub(super) fn n_read(&self) -> u64 {
        self.n_read
    }

    /// The next record and its number, none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, RecordRef<'_>)>, DataError> {
        match self.step()? {
            Step::Record => {
                self.n_read += 1;
                Ok(self.fsm.last_record().map(|record| (self.n_read, record)))
            }
            Step::End => Ok(None),
            Step::Metadata(_) => Err(self.damaged("a second DBN metadata follows".into())),
        }
    }

    fn damaged(&self, reason: String) -> DataError {
        DataError::at(&self.path, Place::Record(self.n_read + 1), reason, "fetch the file again")
    }

    fn step(&mut self) -> Result<Step, DataError> {
        loop {
            // The decoder asserts that a record is as long as its kind; one that claims to be shorter is damage, not a bug.
            let fsm = &mut self.fsm;
            let Ok(processed) = crate::panics::quietly(|| fsm.process()) else {
                return Err(self.damaged("damaged: its length is not that of its kind".into()));
            };
            match processed {
                ProcessResult::Metadata(metadata) => return Ok(Step::Metadata(Box::new(metadata))),
                ProcessResult::Record(()) => {
                    // Its first byte is its length in words of four bytes. Every record is a whole number of eight-byte
                    // words; after one that is not, the decoder would read the next at an address that is not aligned.
                    if self.fsm.data().first().is_some_and(|words| words % 2 != 0) {
                        return Err(self.damaged("damaged: its length is not a multiple of 8 bytes".into()));
                    }
                    return Ok(Step::Record);
                }
                ProcessResult::Err(e) => return Err(self.damaged(format!("damaged: {e}"))),
                ProcessResult::ReadMore(_) => match self.input.read(self.fsm.space()) {
                    Ok(0) if !self.fsm.has_decoded_metadata() => {
                        return Err(self.damaged("the file ends inside its metadata".into()));
                    }
                    Ok(0) if self.fsm.data().is_empty() => return Ok(Step::End),
                    Ok(0) => return Err(self.damaged("the file ends inside this record".into())),
                    Ok(n) => self.fsm.fill(n),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(self.damaged(format!("the stream ends or is damaged: {e}"))),
                },
            }
        }
    }
}

/// A symbol lies in a field of fixed length whose last byte is 0; one that fills the field has run into the next.
fn check_terminators(metadata: &Metadata, version: u8) -> Result<(), String> {
    const VERSION_1_FIELD: usize = 22;
    // The metadata has been upgraded, the length of its fields with it.
    let field = if version == 1 { VERSION_1_FIELD } else { metadata.symbol_cstr_len };
    let lists = metadata.symbols.iter().chain(&metadata.partial).chain(&metadata.not_found);
    let mapped = metadata.mappings.iter().flat_map(|mapping| {
        std::iter::once(&mapping.raw_symbol).chain(mapping.intervals.iter().map(|interval| &interval.symbol))
    });
    match lists.chain(mapped).find(|symbol| symbol.len() >= field) {
        Some(symbol) => Err(format!("the symbol {:?} in its metadata has no end", symbol)),
        None => Ok(()),
    }
}
