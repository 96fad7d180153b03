//! A checkpoint that was read and verified.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use bytemuck::{AnyBitPattern, NoUninit};
use safetensors::{Dtype, SafeTensors};

use super::error::RunError;
use super::manifest::{CheckpointMeta, MANIFEST, Manifest, TENSORS};
use super::writer::LENGTH_BYTES;

/// A checkpoint, whole in memory; every byte was compared with its checksum.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    manifest: Manifest,
    bytes: Vec<u8>,
    /// Where each tensor of the manifest begins in `bytes`.
    starts: Vec<usize>,
}

/// A tensor of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// Its elements' type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its elements in row-major order, little-endian.
    pub bytes: &'a [u8],
}

impl Tensor<'_> {
    /// The elements, copied only where they are not aligned. None if the bytes are no whole number of `T`.
    pub fn values<T: AnyBitPattern + NoUninit>(&self) -> Option<Cow<'_, [T]>> {
        if let Ok(values) = bytemuck::try_cast_slice(self.bytes) {
            return Some(Cow::Borrowed(values));
        }
        if !self.bytes.len().is_multiple_of(size_of::<T>()) {
            return None;
        }
        let mut values = vec![T::zeroed(); self.bytes.len() / size_of::<T>()];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(self.bytes);
        Some(Cow::Owned(values))
    }
}

impl Checkpoint {
    /// Reads the checkpoint in the folder `path` and verifies all of it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.is_dir() {
            let remedy = "name a folder under `checkpoints` of a run";
            return Err(RunError::new(path, "is no checkpoint: there is no such folder", remedy));
        }
        let manifest = Manifest::read(&path.join(MANIFEST))?;
        let file = path.join(TENSORS);
        let unreadable = |error: std::io::Error| RunError::damaged(&file, format!("cannot be read: {error}"));
        let n_bytes = std::fs::metadata(&file).map_err(unreadable)?.len();
        // Before anything is read, so that a file that grew does not fill the memory.
        if n_bytes != manifest.total_bytes {
            let reason = format!("has {n_bytes} bytes of the {} that were written", manifest.total_bytes);
            return Err(RunError::damaged(&file, reason));
        }
        let bytes = crate::files::read(&file).map_err(unreadable)?;
        let starts = verify(&manifest, &bytes).map_err(|reason| RunError::damaged(&file, reason))?;
        Ok(Self { path: path.to_owned(), manifest, bytes, starts })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn meta(&self) -> &CheckpointMeta {
        &self.manifest.meta
    }

    /// What it is, with the table of its tensors.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let position = self.manifest.tensors.iter().position(|entry| entry.name == name)?;
        let (entry, start) = (&self.manifest.tensors[position], self.starts[position]);
        let bytes = &self.bytes[start..start + entry.bytes as usize];
        Some(Tensor { dtype: entry.dtype, shape: &entry.shape, bytes })
    }
}

/// Compares the file with the manifest; where each tensor begins.
fn verify(manifest: &Manifest, bytes: &[u8]) -> Result<Vec<usize>, String> {
    let (header_bytes, _) = SafeTensors::read_metadata(bytes).map_err(|error| format!("is no tensor file: {error}"))?;
    if crc32fast::hash(&bytes[..LENGTH_BYTES + header_bytes]) != manifest.header_crc32 {
        return Err("the header is not what was written: its checksum differs".into());
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| format!("is no tensor file: {error}"))?;
    if tensors.len() != manifest.tensors.len() {
        return Err(format!("holds {} tensors, the manifest names {}", tensors.len(), manifest.tensors.len()));
    }
    let mut starts = Vec::with_capacity(tensors.len());
    for entry in &manifest.tensors {
        let name = &entry.name;
        let tensor = tensors.tensor(name).map_err(|_| format!("tensor `{name}` is missing"))?;
        if tensor.dtype() != entry.dtype || tensor.shape() != entry.shape {
            return Err(format!("tensor `{name}` is {:?} {:?}, not as written", tensor.dtype(), tensor.shape()));
        }
        let data = tensor.data();
        if data.len() as u64 != entry.bytes || crc32fast::hash(data) != entry.crc32 {
            return Err(format!("tensor `{name}` is not what was written: its checksum differs"));
        }
        starts.push(data.as_ptr().addr() - bytes.as_ptr().addr());
    }
    Ok(starts)
}
