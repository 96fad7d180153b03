//! The stand-in for the driver as a library, for `ONEGRAPH_LIBCUDA`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The stand-in, compiled once.
pub fn fake_driver() -> &'static PathBuf {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("libfakecuda.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fake_cuda/libcuda.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-pthread", "-o"]).arg(&library).arg(source).output();
        let compiled = compiled.expect("a C compiler, `cc`, which Rust needs for linking too");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        (folder, library)
    });
    library
}
