//! A run's folder: what was asked for, what happened, and checkpoints to go on from.
//!
//! | path | holds | written |
//! |---|---|---|
//! | `config.toml` | the effective configuration | at the start |
//! | `run.json` | command, version, device, data files, seed, start ([`RunRecord`]) | at the start, last: it makes the folder a run |
//! | `metrics.jsonl` | a line an epoch ([`EpochMetrics`](crate::metrics::EpochMetrics)) | each epoch |
//! | `checkpoints/fold-1-epoch-00012/` | `tensors.safetensors`, `manifest.json` | under a temporary name, then renamed |
//!
//! [`plan`] has everything that training needs, checked before the folder is made.
//! Whatever moment the program or the machine stops at, each of these is whole or absent.

mod checkpoint;
mod error;
mod folder;
mod manifest;
mod metrics_log;
pub mod plan;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use checkpoint::{Checkpoint, Tensor};
pub use error::RunError;
pub(crate) use folder::CHECKPOINTS;
pub use folder::RunFolder;
pub use manifest::{CheckpointId, CheckpointMeta, Manifest, TensorEntry};
pub use metrics_log::MetricsLog;
pub use record::{BarsRecord, DataFile, DataRecord, RunRecord};
pub use safetensors::Dtype;
pub use writer::{CheckpointWriter, TensorFile};
