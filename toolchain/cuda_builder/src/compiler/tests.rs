//! The search, over made-up toolchains: shell scripts that answer as rustc does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{KernelCompiler, Search, parse};
use crate::CudaBuilderError;

/// A folder of toolchains, and the search that looks at them and nowhere else.
struct World {
    folder: TempDir,
    search: Search,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let search = Search {
            named: None,
            active: at("active/usr/bin/rustc"),
            unpacked: vec![at("elsewhere"), at("unpacked")],
            system: at("system/usr/bin/rustc"),
        };
        Self { folder, search }
    }

    fn root(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    /// Puts a compiler of this version into a place.
    fn install(&self, place: &str, version: &str, source: bool) -> PathBuf {
        let root = self.root(place);
        let answer = format!(
            "case $1 in -vV) printf 'rustc {version}\\nrelease: {version}\\n';; *) echo '{}';; esac",
            root.join("usr").display()
        );
        if source {
            let library = root.join("usr/lib/rustlib/src/rust/library");
            fs::create_dir_all(&library).unwrap();
            fs::write(library.join("Cargo.lock"), "").unwrap();
        }
        script(&root.join("usr/bin/rustc"), &answer)
    }

    fn found(&self) -> PathBuf {
        self.search.run().unwrap_or_else(|error| panic!("{error}")).rustc
    }

    fn refusal(&self) -> CudaBuilderError {
        self.search.run().expect_err("nothing here is usable")
    }
}

fn script(path: &Path, body: &str) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// Each place wins over all that come after it, and steps aside when it has no source or is too old.
#[test]
fn places_are_tried_in_order() {
    let mut world = World::new();
    let system = world.install("system", "1.95.0", true);
    assert_eq!(world.found(), system);
    let unpacked = world.install("unpacked", "1.96.0", true);
    assert_eq!(world.found(), unpacked);
    world.install("active", "1.95.0", false);
    assert_eq!(world.found(), unpacked, "the active toolchain has no rust-src");
    world.install("active", "1.94.1", true);
    assert_eq!(world.found(), unpacked, "the active toolchain is too old");
    let active = world.install("active", "1.97.0-nightly", true);
    assert_eq!(world.found(), active);
    let named = world.install("named", "1.95.0", true);
    world.search.named = Some(named.clone().into());
    assert_eq!(world.found(), named);
}

#[test]
fn nothing_found_names_each_place_and_ends_with_the_command() {
    let world = World::new();
    world.install("active", "1.95.0", false);
    let text = world.refusal().to_string();
    assert!(text.starts_with("no kernel compiler: kernels need rustc 1.95.0 or later"), "{text}");
    assert!(
        text.contains("active/usr/bin/rustc, is rustc 1.95.0 without the standard library's source (rust-src)"),
        "{text}"
    );
    assert!(text.contains("system/usr/bin/rustc, is not there"), "{text}");
    assert!(text.contains("target/kernel-toolchain is not there"), "{text}");
    assert!(text.contains("rustup component add rust-src"), "{text}");
    assert!(text.ends_with("scripts/kernel-toolchain"), "{text}");
}

#[test]
fn only_an_old_compiler_is_the_wrong_version() {
    let world = World::new();
    let rustc = world.install("system", "1.85.0", true);
    let text = world.refusal().to_string();
    let want = format!("found rustc 1.85.0 at {}, kernels need 1.95.0 or later", rustc.display());
    assert!(text.contains(&want) && text.ends_with("scripts/kernel-toolchain"), "{text}");
}

/// What the variable names is used or refused, never passed over; the text says what is there, why it will not do, and
/// what to do.
#[test]
fn a_named_compiler_that_will_not_do_is_an_error() {
    let mut world = World::new();
    world.install("system", "1.96.0", true);
    let folder = world.root("folder/rustc");
    fs::create_dir_all(&folder).unwrap();
    let plain = script(&world.root("text/rustc"), "");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (rustc, what) in [
        (world.install("old", "1.80.0", true), "is rustc 1.80.0"),
        (world.install("bare", "1.96.0", false), "is rustc 1.96.0 without the standard library's source (rust-src)"),
        (world.root("nowhere/rustc"), "is not there"),
        (folder, "is no file"),
        (plain, "does not run: Permission denied (os error 13)"),
        (
            script(&world.root("broken/rustc"), "echo 'no such luck' >&2; exit 1"),
            "fails when asked for -vV: no such luck",
        ),
        (script(&world.root("silent/rustc"), "exit 1"), "fails when asked for -vV: no message"),
        (script(&world.root("odd/rustc"), "echo hello"), "is no rustc: its answer to -vV names no release"),
    ] {
        world.search.named = Some(rustc.clone().into());
        let error = world.refusal();
        let remedy = error.compiler_remedy().expect("it can be mended");
        let want = format!(
            "ONEGRAPH_KERNEL_RUSTC names {}, which {what}\n\
             Kernels need rustc 1.95.0 or later together with the source of `core` (rust-src)\n{remedy}",
            rustc.display()
        );
        assert_eq!(error.to_string(), want);
        assert!(
            remedy.contains("unset ONEGRAPH_KERNEL_RUSTC") && remedy.contains("scripts/kernel-toolchain"),
            "{remedy}"
        );
    }
}

/// An unpacked compiler does not find its own libraries; it is then run with their folder, which the builder needs too.
#[test]
fn a_compiler_that_needs_its_library_folder_gets_it() {
    let world = World::new();
    let rustc = world.install("unpacked", "1.96.0", true);
    let libraries = world.root("unpacked/usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&libraries).unwrap();
    fs::write(libraries.join("librustc_driver-0123.so"), "").unwrap();
    let answers = fs::read_to_string(&rustc).unwrap();
    let answers = answers.strip_prefix("#!/bin/sh\n").unwrap();
    script(&rustc, &format!("[ \"$LD_LIBRARY_PATH\" = '{}' ] || exit 127\n{answers}", libraries.display()));
    let compiler = world.search.run().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compiler.library_dir, Some(libraries));
    assert_eq!(compiler.version, "1.96.0");
}

/// The machine that runs the tests has a kernel compiler.
#[test]
fn the_real_search_finds_a_compiler() {
    let compiler =
        KernelCompiler::find(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_or_else(|error| panic!("{error}"));
    assert!(parse(&compiler.version) >= (1, 95, 0), "{compiler:?}");
}

#[test]
fn versions_are_compared_as_numbers() {
    assert!(parse("1.100.0") > parse("1.95.0"));
    assert!(parse("1.95.0-nightly") >= parse("1.95.0"));
    assert!(parse("1.9.5") < parse("1.95.0"));
    assert_eq!(parse("none"), (0, 0, 0));
}
