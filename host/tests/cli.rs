//! The program as a user runs it, on a machine without a driver.

use std::process::{Command, Output};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    command.args(arguments).env("ONEGRAPH_LIBCUDA", "/nonexistent/libcuda.so.1").env_remove("ONEGRAPH_DEVICE_INDEX");
    command
}

fn onegraph(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn doctor_without_a_driver_says_so_and_that_the_cpu_works() {
    let output = onegraph(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert_has(
        &text,
        &["works on the CPU", "missing  driver: no CUDA driver found", "mend: ", "ok       CPU", "sm_80 with"],
    );
    assert_eq!(stderr(&output), "");
}

/// What is there, why it will not do, and what to do: as the build says it.
#[test]
fn doctor_tells_what_is_wrong_with_the_kernel_compiler_that_was_named() {
    for (named, what) in [("/nonexistent/rustc", "is not there"), ("/bin/true", "is no rustc")] {
        let output = command(&["doctor"]).env("ONEGRAPH_KERNEL_RUSTC", named).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let line = format!("missing  kernel compiler: ONEGRAPH_KERNEL_RUSTC names {named}, which {what}");
        let mend = "mend: unset ONEGRAPH_KERNEL_RUSTC, or point it at such a compiler; scripts/kernel-toolchain";
        assert_has(&stdout(&output), &[&line, "Kernels need rustc 1.95.0 or later together with the source", mend]);
    }
}

#[test]
fn doctor_fails_when_the_gpu_that_was_asked_for_is_missing() {
    let output = onegraph(&["doctor", "--device", "cuda"]);
    assert_eq!(output.status.code(), Some(1));
    assert_has(&stderr(&output), &["error: no CUDA driver found", "ONEGRAPH_LIBCUDA", "--device cpu"]);
}

#[test]
fn doctor_json_has_a_stable_shape() {
    let report: serde_json::Value =
        serde_json::from_str(&stdout(&onegraph(&["doctor", "--json"]))).expect("JSON alone");
    assert_eq!(report["device"], "cpu");
    let checks = report["checks"].as_array().expect("a list");
    let driver = checks.iter().find(|check| check["name"] == "driver").expect("a line about the driver");
    assert_eq!(driver["ok"], false);
    assert!(driver["detail"].is_string() && driver["mend"].is_string());
}

#[test]
fn graph_shows_text_dot_and_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dot, json) = (folder.path().join("step.dot"), folder.path().join("step.json"));
    let output = onegraph(&["graph", "--dot", dot.to_str().expect("UTF-8"), "--json", json.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_has(&stdout(&output), &["counters", "per_sample  after counters", "gather_f32_rows_padded"]);
    let dot = std::fs::read_to_string(dot).expect("the DOT file");
    assert_has(&dot, &["digraph", "c0 -> c1", "increment_step_counters"]);
    let written: host::graph::GraphDescription =
        serde_json::from_str(&std::fs::read_to_string(json).expect("the JSON file")).expect("a description");
    let printed = serde_json::from_str(&stdout(&onegraph(&["graph", "--json"]))).expect("JSON alone");
    assert_eq!(written, printed);
    assert_eq!(written.children[0].name, "counters");
}

#[test]
fn wrong_arguments_and_places_exit_with_two() {
    for (arguments, parts) in [
        (
            &["graph", "--dot", "/nonexistent/folder/x.dot"][..],
            &["/nonexistent/folder/x.dot", "choose another place"][..],
        ),
        (&["graph", "--device", "gpu"][..], &["gpu", "auto", "cuda", "cpu"][..]),
        (&["grahp"][..], &["grahp", "graph"][..]),
        (&[][..], &["Usage"][..]),
    ] {
        let output = onegraph(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_has(&stderr(&output), parts);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_onegraph"))
        .args(["graph", "--device", "cuda"])
        .env("ONEGRAPH_DEVICE_INDEX", "first")
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert_has(&stderr(&output), &["ONEGRAPH_DEVICE_INDEX", "`first`"]);
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let script = format!("set -o pipefail; {} graph --json | head -n 1", env!("CARGO_BIN_EXE_onegraph"));
    let output = Command::new("bash").args(["-c", &script]).output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
