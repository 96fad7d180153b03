//! Writing files whole or not at all, whenever the program or the machine stops, and which file a path means.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

/// Why a file was not written.
#[derive(Debug)]
pub(crate) struct WriteError {
    /// In words, without the path.
    pub(crate) reason: String,
    /// The path is to blame (a folder, or one that is missing or closed), not what happened while writing.
    pub(crate) bad_path: bool,
}

impl WriteError {
    /// The path is to blame.
    pub(crate) fn path(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), bad_path: true }
    }

    /// What happened while writing is to blame.
    pub(crate) fn writing(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), bad_path: false }
    }
}

/// Writes what `fill` writes. The file appears under its name only when it is complete and on the disk; until then, and
/// after any error, what stood there before is untouched. A file made anew has the mode that the umask leaves, one that is
/// replaced keeps its own; through a symbolic link its target is written. A device or pipe is written as it is.
pub(crate) fn write_whole<F, E>(path: &Path, fill: F) -> Result<(), WriteError>
where
    F: FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
    E: ToString,
{
    let present = fs::metadata(path).ok();
    if present.as_ref().is_some_and(|present| !present.is_file() && !present.is_dir()) {
        return write(&mut open_special(path)?, fill);
    }
    let mut temporary = new_temporary(path)?;
    if let Some(present) = present {
        temporary.as_file().set_permissions(present.permissions()).map_err(WriteError::path)?;
    }
    write(temporary.as_file_mut(), fill)?;
    temporary.as_file().sync_all().map_err(WriteError::writing)?;
    let path = real_path(path);
    temporary.persist(&path).map_err(|error| WriteError::writing(error.error))?;
    // The new name itself reaches the disk with its folder.
    sync_folder(path.parent().unwrap_or(Path::new("/"))).map_err(WriteError::writing)
}

/// Opens a device or pipe to write to it; a pipe that nobody reads is an error, where a plain opening would wait for a reader.
fn open_special(path: &Path) -> Result<File, WriteError> {
    let waiting = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENXIO) => WriteError::path("no process reads from it; start its reader first"),
        _ => WriteError::path(error),
    };
    let open = |flags| File::options().write(true).custom_flags(flags).open(path);
    // Held until the second is open, so that the reader is still there for it. The second waits, as writers to a full pipe must.
    let _probe = open(libc::O_NONBLOCK).map_err(waiting)?;
    open(0).map_err(WriteError::path)
}

/// Whether a file can be written at `path`, found out before the work whose result goes there. A device or pipe is not
/// touched, since a pipe's reader would take it for the end.
pub(crate) fn check_writable(path: &Path) -> Result<(), WriteError> {
    if fs::metadata(path).is_ok_and(|present| !present.is_file() && !present.is_dir()) {
        return Ok(());
    }
    new_temporary(path).map(drop)
}

/// An empty file beside the one at `path`, to take its place; it goes when it is dropped.
fn new_temporary(path: &Path) -> Result<NamedTempFile<File>, WriteError> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir() {
        return Err(WriteError::path("it is a folder"));
    }
    let path = real_path(path);
    let folder = path.parent().unwrap_or(Path::new("/"));
    // In the same folder, since a rename is atomic only within one file system. Opened here, with the mode of any new file:
    // the library's own would be closed to all others, and its errors would name a file that means nothing to the user.
    let new = |path: &Path| File::options().write(true).create_new(true).open(path);
    tempfile::Builder::new().make_in(folder, new).map_err(WriteError::path)
}

fn write<E: ToString>(
    file: &mut File,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<(), WriteError> {
    let mut output = BufWriter::new(file);
    fill(&mut output).map_err(WriteError::writing)?;
    output.flush().map_err(WriteError::writing)
}

/// Brings the names in a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder that goes when it is dropped, unless it is kept: with the mode that the umask leaves, since a kept one is
/// like any other.
pub(crate) fn temporary_folder(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o777)).prefix(prefix).tempdir_in(parent)
}

/// Whether writing to one of the paths would change the other's file, however the two are spelled.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        // Devices and pipes take several results one after the other.
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => real_path(one) == real_path(other),
        _ => false,
    }
}

/// Whether a file written to `path` would come to lie in `folder`, or in a folder in it, however the two are spelled.
pub(crate) fn lies_in(path: &Path, folder: &Path) -> bool {
    real_path(path).starts_with(real_path(folder))
}

/// The path by its real name: absolute, its folder and itself without symbolic links, also where the file is still missing.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const LINKS_MAX: usize = 40;
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for _ in 0..LINKS_MAX {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { break };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        path = folder.join(name);
        match fs::read_link(&path) {
            Ok(next) => path = folder.join(next),
            Err(_) => break,
        }
    }
    path
}

/// What a path is that is no regular file, in words.
pub(crate) fn kind_of(file: &fs::Metadata) -> Option<&'static str> {
    let kind = file.file_type();
    [
        (kind.is_dir(), "a folder"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
    ]
    .into_iter()
    .find_map(|(is, name)| is.then_some(name))
}

/// What the user can do about a path that cannot be read.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "check the path",
        io::ErrorKind::PermissionDenied => "check its permissions",
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => "name a regular file",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "check the path and the disk",
    }
}

/// Reads a regular file. Anything else is an error: a pipe would wait for a writer, and a device may have no end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match kind_of(&fs::metadata(path)?) {
        Some(kind) => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {kind}, not a regular file"))),
        None => fs::read(path),
    }
}

/// Reads a regular file of text, as [`read`].
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn text(path: &Path, text: &str) -> Result<(), WriteError> {
        write_whole(path, |output| output.write_all(text.as_bytes()))
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    #[test]
    fn a_new_file_has_the_mode_of_any_and_an_old_one_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        text(&ours, "one").expect("room");
        fs::write(&plain, "").expect("room");
        assert_eq!(mode(&ours), mode(&plain), "both by the umask");
        fs::set_permissions(&ours, Permissions::from_mode(0o640)).expect("it is ours");
        text(&ours, "two").expect("room");
        assert_eq!((mode(&ours), fs::read_to_string(&ours).expect("text").as_str()), (0o640, "two"));
    }

    #[test]
    fn an_error_leaves_what_was_there_and_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "before").expect("room");
        let error = write_whole(&path, |output| {
            output.write_all(b"half").expect("room");
            Err("no more")
        });
        let error = error.expect_err("the filling failed");
        assert_eq!((error.reason.as_str(), error.bad_path), ("no more", false));
        assert_eq!(fs::read_to_string(&path).expect("text"), "before");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let full = write_whole(&path, |_| Err(io::Error::from(io::ErrorKind::StorageFull)));
        let full = full.expect_err("the filling failed");
        assert_eq!((full.reason.as_str(), full.bad_path), ("no storage space", false));
        text(&path, "after").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("text"), "after");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_folder_has_the_mode_of_any_and_goes_unless_it_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = folder.path().join("plain");
        fs::create_dir(&plain).expect("room");
        let ours = temporary_folder(folder.path(), ".writing-").expect("room");
        assert_eq!(mode(ours.path()), mode(&plain), "both by the umask");
        sync_folder(ours.path()).expect("it is there");
        let path = ours.path().to_owned();
        drop(ours);
        assert!(!path.exists());
        assert!(temporary_folder(&path, "x").is_err());
    }

    #[test]
    fn a_path_that_will_not_do_is_told_without_our_temporary_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("room");
        for (path, want) in [
            (folder.path().to_owned(), "it is a folder"),
            (folder.path().join("new/"), "it is a folder"),
            (folder.path().join("none/x"), "No such file or directory (os error 2)"),
            (file.join("x"), "Not a directory (os error 20)"),
        ] {
            let error = text(&path, "x").expect_err("no place for a file");
            assert_eq!((error.reason.as_str(), error.bad_path), (want, true), "{}", path.display());
        }
    }

    #[test]
    fn links_are_written_through_and_devices_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("later", at("link")).expect("a link to nothing yet");
        text(&at("link"), "x").expect("room");
        assert!(fs::symlink_metadata(at("link")).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(at("later")).expect("the target"), "x");
        text(Path::new("/dev/null"), "x").expect("it takes all");
        assert!(fs::metadata("/dev/null").expect("it is there").file_type().is_char_device());
    }

    #[test]
    fn one_file_is_known_however_it_is_spelled() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("room");
        for (link, to) in [("there", "."), ("dangling", "new"), ("twice", "there/dangling"), ("loop", "loop")] {
            symlink(to, at(link)).expect("a link");
        }
        fs::write(at("old"), "").expect("room");
        fs::hard_link(at("old"), at("hard")).expect("a second name");
        symlink("old", at("soft")).expect("a link");
        for (one, other, same) in [
            ("new", "new", true),
            ("new", "./new", true),
            ("new", "sub/../new", true),
            ("new", "there/new", true),
            ("new", "dangling", true),
            ("new", "twice", true),
            ("new", "newer", false),
            ("old", "new", false),
            ("old", "soft", true),
            ("old", "hard", true),
            ("loop", "new", false),
            ("none/new", "none/./new", true),
        ] {
            assert_eq!(same_file(&at(one), &at(other)), same, "{one} and {other}");
            assert_eq!(same_file(&at(other), &at(one)), same, "{other} and {one}");
        }
        assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
