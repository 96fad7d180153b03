//! The ranges that a run names for profilers, as one that listens to NVTX sees them.

use std::path::Path;
use std::process::Command;

/// A library that writes every range down.
fn listener(folder: &Path) -> std::path::PathBuf {
    let library = folder.join("liblistener.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvtx/listener.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    let compiled = compiler.output().expect("a C compiler, `cc`, which Rust needs for linking too");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

/// Setup, warm-up, and each epoch with its parts, one inside the other; however many steps an epoch has, none has a
/// range.
#[test]
fn a_run_names_its_epochs_and_never_a_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, log) = (listener(folder.path()), folder.path().join("ranges"));
    let epoch = "epoch\n  collect\n  steps\n  boundary\n  re-scoring\n  validation\n  checkpoint\n";
    for (run, n_steps) in [("short", 1), ("long", 40)] {
        let steps = format!("steps_per_epoch={n_steps}");
        let output = Command::new(env!("CARGO_BIN_EXE_onegraph"))
            .args(["train", "--preset", "tiny", "--device", "cpu", "--set", "epochs=2", "--set", &steps, "--out", run])
            .current_dir(folder.path())
            .envs([("NVTX_INJECTION64_PATH", &library), ("NVTX_LISTENER_LOG", &log)])
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let ranges = std::fs::read_to_string(&log).expect("the ranges");
        assert_eq!(ranges, format!("setup\nsetup\nwarm_up\n{epoch}{epoch}"), "{n_steps} steps an epoch");
    }
}
