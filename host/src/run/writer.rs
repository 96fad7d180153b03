//! Writing tensors one after the other, without holding more than one of them.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::error::RunError;
use super::folder::RunFolder;
use super::manifest::{CheckpointMeta, FORMAT, MANIFEST, Manifest, TENSORS, TensorEntry};
use crate::files::{sync_folder, temporary_folder, write_whole};

/// Room for the safetensors header. It stands before the tensors and is written after them; spaces fill what it leaves, as
/// the format allows. A multiple of 8, so that the first tensor is aligned.
const HEADER_ROOM: usize = 1 << 18;
/// The header's length before it.
pub(super) const LENGTH_BYTES: usize = 8;

/// A safetensors file that is written tensor by tensor.
pub struct TensorFile {
    file: BufWriter<File>,
    entries: Vec<TensorEntry>,
    offset: u64,
}

/// The table of a finished file.
pub(super) struct TensorTable {
    pub(super) entries: Vec<TensorEntry>,
    pub(super) header_crc32: u32,
    pub(super) total_bytes: u64,
}

impl TensorFile {
    /// Begins a file at `path`, which must not exist.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create_new(path)?);
        file.write_all(&[b' '; LENGTH_BYTES + HEADER_ROOM])?;
        Ok(Self { file, entries: Vec::new(), offset: 0 })
    }

    /// Appends a tensor, `bytes` being its elements in row-major order, little-endian.
    ///
    /// # Panics
    /// If the number of bytes is not that of the shape, or the name was used already.
    pub fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> io::Result<()> {
        let n_bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        assert_eq!(bytes.len(), n_bytes, "bytes of tensor {name}: {dtype:?} {shape:?}");
        assert!(self.entries.iter().all(|entry| entry.name != name), "two tensors of the name {name}");
        self.file.write_all(bytes)?;
        self.offset += bytes.len() as u64;
        let (name, shape, crc32) = (name.to_owned(), shape.to_vec(), crc32fast::hash(bytes));
        self.entries.push(TensorEntry { name, dtype, shape, bytes: bytes.len() as u64, crc32 });
        Ok(())
    }

    /// Writes the header and brings the file to the disk.
    pub fn finish(self) -> io::Result<()> {
        self.finish_table().map(|_| ())
    }

    pub(super) fn finish_table(mut self) -> io::Result<TensorTable> {
        let header = self.header();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let total_bytes = header.len() as u64 + self.offset;
        Ok(TensorTable { entries: self.entries, header_crc32: crc32fast::hash(&header), total_bytes })
    }

    /// Length and header, filled up to their room.
    fn header(&self) -> Vec<u8> {
        let mut fields = Map::new();
        let mut start = 0;
        for entry in &self.entries {
            let end = start + entry.bytes;
            let field = json!({ "dtype": entry.dtype, "shape": entry.shape, "data_offsets": [start, end] });
            fields.insert(entry.name.clone(), field);
            start = end;
        }
        let json = Value::Object(fields).to_string();
        assert!(json.len() <= HEADER_ROOM, "{} tensors do not fit the header", self.entries.len());
        let mut header = (HEADER_ROOM as u64).to_le_bytes().to_vec();
        header.extend_from_slice(json.as_bytes());
        header.resize(LENGTH_BYTES + HEADER_ROOM, b' ');
        header
    }
}

/// A checkpoint while it is written: a folder under a temporary name, which [`finish`](Self::finish) renames when everything
/// is on the disk. Dropped before, it leaves nothing.
pub struct CheckpointWriter<'a> {
    folder: &'a RunFolder,
    temporary: tempfile::TempDir,
    tensors: TensorFile,
}

impl<'a> CheckpointWriter<'a> {
    /// Begins a checkpoint of a run.
    pub fn new(folder: &'a RunFolder) -> Result<Self, RunError> {
        let checkpoints = folder.checkpoints_path();
        let temporary = temporary_folder(&checkpoints, ".writing-");
        let temporary = temporary.map_err(|error| RunError::unwritable(&checkpoints, error))?;
        let tensors = TensorFile::create(&temporary.path().join(TENSORS));
        let tensors = tensors.map_err(|error| RunError::unwritable(&checkpoints, error))?;
        Ok(Self { folder, temporary, tensors })
    }

    /// Appends a tensor: [`TensorFile::tensor`].
    pub fn tensor(mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Self, RunError> {
        let written = self.tensors.tensor(name, dtype, shape, bytes);
        written.map_err(|error| RunError::unwritable(&self.folder.checkpoints_path(), error))?;
        Ok(self)
    }

    /// Completes the checkpoint, then removes those that are neither among the newest three nor the best of their fold. Its
    /// path.
    pub fn finish(self, meta: CheckpointMeta) -> Result<PathBuf, RunError> {
        let path = self.folder.checkpoint_path(meta.id);
        let failed = |error: io::Error| RunError::unwritable(&path, error);
        let table = self.tensors.finish_table().map_err(failed)?;
        let manifest = Manifest {
            format: FORMAT,
            meta,
            tensors: table.entries,
            header_crc32: table.header_crc32,
            total_bytes: table.total_bytes,
        };
        let inside = self.temporary.path();
        let manifest_path = inside.join(MANIFEST);
        write_whole(&manifest_path, |output| output.write_all(manifest.to_text().as_bytes()))
            .map_err(|error| RunError::unwritable(&path, error.reason))?;
        sync_folder(inside).map_err(failed)?;
        // After a resumption from an earlier checkpoint, one of this name may be there: it is moved away first, since a folder
        // cannot be renamed onto another.
        let old = self.folder.checkpoints_path().join(format!(".replaced-{}", meta.id));
        if path.exists() {
            std::fs::rename(&path, &old).map_err(failed)?;
        }
        std::fs::rename(inside, &path).map_err(failed)?;
        // Under its new name it is no longer the temporary folder's to remove.
        let _ = self.temporary.keep();
        sync_folder(&self.folder.checkpoints_path()).map_err(failed)?;
        self.folder.remove_superseded()?;
        Ok(path)
    }
}
