//! `manifest.json`: what a checkpoint is, and checksums of all that it holds.
//!
//! The file's first line has the CRC-32 of every byte after it, so that a damaged manifest is seen as well; it is JSON as a
//! whole all the same.

use std::fmt;
use std::path::Path;

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::error::RunError;

/// The format's version. A checkpoint of another is refused.
pub(super) const FORMAT: u32 = 1;
/// Name of the manifest in a checkpoint's folder.
pub(super) const MANIFEST: &str = "manifest.json";
/// Name of the tensors in a checkpoint's folder.
pub(super) const TENSORS: &str = "tensors.safetensors";

/// Which checkpoint of a run. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckpointId {
    /// Fold of the walk-forward, from 1.
    pub fold: u32,
    /// Epochs of the fold that are done.
    pub epoch: u32,
}

impl CheckpointId {
    /// The checkpoint whose folder has this name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (fold, epoch) = name.strip_prefix("fold-")?.split_once("-epoch-")?;
        let id = Self { fold: fold.parse().ok()?, epoch: epoch.parse().ok()? };
        (id.to_string() == name).then_some(id)
    }
}

/// The folder's name.
impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fold-{}-epoch-{:05}", self.fold, self.epoch)
    }
}

/// What a checkpoint is, apart from its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointMeta {
    /// Which one.
    pub id: CheckpointId,
    /// Training steps of the fold that are done.
    pub step: u64,
    /// Whether a run can be gone on with from here; otherwise it holds the agent alone, to be tested.
    pub resumable: bool,
    /// Annual Sharpe ratio of the validation; none for a checkpoint that may not be chosen.
    pub validation_score: Option<f64>,
    /// Wall-clock seconds of the run so far.
    pub seconds: f64,
    /// [`Config::fingerprint`](crate::config::Config::fingerprint) of the run's configuration.
    pub config_fingerprint: u32,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its elements' type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its size.
    pub bytes: u64,
    /// CRC-32 of its bytes.
    pub crc32: u32,
}

/// What a checkpoint is, with its table of tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// What it is.
    pub meta: CheckpointMeta,
    /// The tensors, in the order of the file.
    pub tensors: Vec<TensorEntry>,
    /// CRC-32 of the tensor file's header, its length included.
    pub header_crc32: u32,
    /// Size of the tensor file.
    pub total_bytes: u64,
}

impl Manifest {
    /// The file's text.
    pub(super) fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("plain data with string keys");
        let rest = format!("{}\n", text.strip_prefix("{\n").expect("a struct is an object"));
        format!("{{ \"crc32\": {},\n{rest}", crc32fast::hash(rest.as_bytes()))
    }

    /// Reads and verifies the manifest at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, RunError> {
        let bytes =
            crate::files::read(path).map_err(|error| RunError::damaged(path, format!("cannot be read: {error}")))?;
        let manifest = Self::of_bytes(&bytes).map_err(|reason| RunError::damaged(path, reason))?;
        // One that is being written has another name still.
        let folder = path.parent().and_then(Path::file_name);
        match folder.and_then(|name| CheckpointId::of_name(name.to_str()?)) {
            Some(name) if name != manifest.meta.id => {
                let reason = format!("is of the checkpoint {}, and lies in the folder of another", manifest.meta.id);
                Err(RunError::new(path, reason, "give the folder back its own name, or remove it"))
            }
            _ => Ok(manifest),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not text")?;
        let (first, rest) = text.split_once('\n').ok_or("is cut in its first line")?;
        let crc32 = first.strip_prefix("{ \"crc32\": ").and_then(|first| first.strip_suffix(','));
        let crc32: u32 = crc32.and_then(|digits| digits.parse().ok()).ok_or("has no checksum in its first line")?;
        if crc32fast::hash(rest.as_bytes()) != crc32 {
            return Err("is not what was written: its checksum differs".into());
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let object = format!("{{{rest}");
        let Version { format } = serde_json::from_str(&object).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!("has format {format}, and this version of onegraph reads format {FORMAT}"));
        }
        serde_json::from_str(&object).map_err(|error| error.to_string())
    }
}
