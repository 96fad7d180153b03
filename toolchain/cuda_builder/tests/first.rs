//! What a build without a kernel compiler does first, and last: say so.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use cuda_builder::CudaBuilder;

/// Names the kernel crate to the child process.
const CRATE: &str = "CUDA_BUILDER_TEST_CRATE";

/// The crate's manifest is no manifest and there is no cargo: had the builder begun with either, it would say that.
#[test]
fn a_compiler_that_will_not_do_is_found_before_anything_else() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("Cargo.toml"), "no manifest").expect("the folder has room");
    let mut child = Command::new(std::env::current_exe().expect("the test's own path"));
    child.args(["--exact", "child", "--ignored", "--nocapture"]);
    child
        .env(CRATE, folder.path())
        .env("ONEGRAPH_KERNEL_RUSTC", "/nonexistent/rustc")
        .env("CARGO", "/nonexistent/cargo");
    let start = Instant::now();
    let output = child.output().expect("the test's own binary runs");
    let took = start.elapsed();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(
        text.matches("error: ONEGRAPH_KERNEL_RUSTC names /nonexistent/rustc, which is not there").count(),
        1,
        "{text}"
    );
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child() {
    CudaBuilder::new(std::env::var_os(CRATE).expect("the crate's path")).build_or_exit();
}
