//! Files and folders that are whole or absent, whenever the program or the machine stops.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Why a file did not come about. What stood at its path before is untouched.
#[derive(Debug)]
pub enum Unwritten {
    /// Nothing can be made in its folder.
    Place(io::Error),
    /// Writing failed on the way.
    Failed(io::Error),
}

impl Unwritten {
    /// What the system said.
    pub fn error(&self) -> &io::Error {
        match self {
            Self::Place(error) | Self::Failed(error) => error,
        }
    }
}

/// Lets `fill` write a file that appears under its name only when it is complete and on the disk.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), Unwritten> {
    let folder = folder_of(path);
    // In the same folder, since a rename is atomic only within one file system.
    let mut temporary = temporary(0o666).tempfile_in(folder).map_err(Unwritten::Place)?;
    let written = (|| {
        let mut output = BufWriter::new(temporary.as_file_mut());
        fill(&mut output)?;
        output.flush()?;
        drop(output);
        temporary.as_file().sync_all()
    })();
    written.map_err(Unwritten::Failed)?;
    temporary.persist(path).map_err(|error| Unwritten::Failed(error.error))?;
    sync_folder(folder).map_err(Unwritten::Failed)
}

/// Makes temporary files or folders that become lasting ones, so that they have the usual permissions of such; the process's
/// mask applies.
pub(crate) fn temporary(mode: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(mode));
    builder
}

/// The folder that a path lies in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Brings the names in a folder to the disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let failed = write_whole(&path, |output| {
            output.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(matches!(failed, Err(Unwritten::Failed(error)) if error.kind() == io::ErrorKind::StorageFull));
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        write_whole(&path, |output| output.write_all(b"after")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"after");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        let nowhere = write_whole(&folder.path().join("missing/file"), |_| Ok(()));
        assert!(matches!(nowhere, Err(Unwritten::Place(_))));
    }
}
