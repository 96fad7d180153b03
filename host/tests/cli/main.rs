//! The program as a user runs it, on a machine without a GPU.

mod files;

use std::process::{Command, Output};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    command.args(arguments).env("CUDA_VISIBLE_DEVICES", "").env_remove("ONEGRAPH_LIBCUDA");
    command.env_remove("ONEGRAPH_DEVICE_INDEX");
    command
}

/// Where there is no driver at all, whatever this machine has.
fn without_a_driver(arguments: &[&str]) -> Output {
    command(arguments).env("ONEGRAPH_LIBCUDA", "/nonexistent/libcuda.so.1").output().expect("the program starts")
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
    let output = without_a_driver(&["doctor", "--device", "cpu"]);
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
    let output = without_a_driver(&["doctor", "--device", "cuda"]);
    assert_eq!(output.status.code(), Some(2));
    assert_has(&stderr(&output), &["error: no CUDA driver found", "ONEGRAPH_LIBCUDA", "--device cpu"]);
    let text = stdout(&output);
    assert!(!text.contains("works on the"), "{text}");
    assert_has(&text, &["does not work on the GPU, which was asked for; works with `--device cpu`\n"]);
    let report = stdout(&without_a_driver(&["doctor", "--device", "cuda", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON alone");
    assert_eq!((&report["device"], &report["works"]), (&"cpu".into(), &false.into()));
}

#[test]
fn doctor_json_has_a_stable_shape() {
    let report: serde_json::Value =
        serde_json::from_str(&stdout(&without_a_driver(&["doctor", "--device", "cpu", "--json"]))).expect("JSON alone");
    assert_eq!((&report["device"], &report["works"]), (&"cpu".into(), &true.into()));
    let checks = report["checks"].as_array().expect("a list");
    let driver = checks.iter().find(|check| check["name"] == "driver").expect("a line about the driver");
    assert_eq!(driver["ok"], false);
    assert!(driver["detail"].is_string() && driver["mend"].is_string());
    assert_eq!(report["preset"], "small");
    let parts = report["memory"]["parts"].as_array().expect("a list");
    let sum: u64 = parts.iter().filter_map(|part| part["bytes"].as_u64()).sum();
    assert_eq!(report["memory"]["total_bytes"], sum);
}

#[test]
fn doctor_says_what_a_preset_needs() {
    let text = stdout(&onegraph(&["doctor", "--preset", "full"]));
    assert_has(&text, &["memory: preset full needs ", " free: replay ring 3.1 GiB + "]);
}

#[test]
fn graph_shows_text_dot_and_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dot, json) = (folder.path().join("step.dot"), folder.path().join("step.json"));
    let [dot_text, json_text] = [&dot, &json].map(|path| path.to_str().expect("UTF-8"));
    let output = onegraph(&["graph", "--preset", "tiny", "--dot", dot_text, "--json", json_text]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_has(&stdout(&output), &["counters", "per_sample  after counters", "gather_f32_rows_padded"]);
    let dot = std::fs::read_to_string(dot).expect("the DOT file");
    assert_has(&dot, &["digraph", "c0 -> c1", "increment_step_counters"]);
    let written: host::graph::GraphDescription =
        serde_json::from_str(&std::fs::read_to_string(json).expect("the JSON file")).expect("a description");
    let printed = graph(&["--preset", "tiny"]);
    assert_eq!(written, printed);
    assert_eq!(written.children[0].name, "counters");
}

/// The description that `graph` prints with these arguments.
#[track_caller]
fn graph(arguments: &[&str]) -> host::graph::GraphDescription {
    let output = onegraph(&[&["graph", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON alone")
}

#[test]
fn graph_is_of_the_preset_and_keys_that_were_named() {
    let kernels = |arguments: &[&str]| -> Vec<String> {
        let children = graph(arguments).children.into_iter();
        children.flat_map(|child| child.kernels).map(|kernel| kernel.name).collect()
    };
    let has = |kernels: &[String], name: &str| kernels.iter().any(|kernel| kernel == name);
    let tiny = kernels(&["--preset", "tiny"]);
    assert!(has(&tiny, "atom_spacing") && !has(&tiny, "iql_loss"), "{tiny:?}");
    let set = kernels(&["--preset", "tiny", "--set", "learners.iql=true", "--set", "learners.spacing=false"]);
    assert!(!has(&set, "atom_spacing") && has(&set, "iql_loss"), "{set:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("my.toml");
    std::fs::write(&file, "learners.spacing = false\n").expect("room");
    let file = kernels(&["--preset", "tiny", "--config", file.to_str().expect("UTF-8")]);
    assert!(!has(&file, "atom_spacing") && file.len() == tiny.len() - 1, "{file:?}");
    // What runs without a preset on this device.
    assert_eq!(graph(&[]), graph(&["--preset", "small"]));

    let large = ["graph", "--set", "capacity=134217728", "--set", "window=64"];
    for (arguments, parts) in [
        (&["graph", "--set", "hiden=64"][..], &["--set hiden=64", "`hidden`"][..]),
        (&["graph", "--preset", "huge"], &["huge", "tiny", "small", "full"]),
        (&large, &["the run needs", "replay ring", "smaller preset"]),
    ] {
        let output = onegraph(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_has(&stderr(&output), parts);
    }
}

/// Fields as docs/performance.md tells them, and numbers that fit each other.
#[test]
fn bench_of_one_child_has_floors_and_gaps() {
    let of_tiny = ["--preset", "tiny", "--device", "cpu"];
    // Thousands of launches, all of them checked in other tests.
    let mut bench = command(&[&["bench", "--node", "forward", "--json"], &of_tiny[..]].concat());
    let output = bench.env_remove("ONEGRAPH_CHECK").output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let bench: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON alone");
    let number = |of: &serde_json::Value, field: &str| of[field].as_f64().unwrap_or_else(|| panic!("{field} in {of}"));
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
    let (rates, nodes) = (&bench["rates"], bench["nodes"].as_array().expect("a list"));
    let (bytes_per_s, operations_per_s) = (number(rates, "bytes_per_s"), number(rates, "operations_per_s"));
    assert!(bytes_per_s > 0.0 && operations_per_s > 0.0, "{rates}");
    assert!(nodes.len() == 1 && nodes[0]["name"] == "forward", "{bench}");
    let kernels = nodes[0]["kernels"].as_array().expect("a list");
    let mut operations = 0.0;
    for kernel in kernels {
        assert!(kernel["name"].is_string() && kernel["shape"].as_str().is_some_and(|shape| shape.contains(" x ")));
        let (us, floor) = (number(kernel, "us"), number(kernel, "floor_us"));
        let (bytes, of_kernel) = (number(kernel, "bytes"), number(kernel, "operations"));
        assert!(bytes > 0.0 && us > 0.0, "{kernel}");
        assert!(is_near(1e6 * (bytes / bytes_per_s).max(of_kernel / operations_per_s), floor), "{kernel}");
        assert!(is_near(us / floor, number(kernel, "gap")), "{kernel}");
        operations += of_kernel;
    }
    assert!(operations > 0.0, "no product in forward");
    let sum = |field: &str| kernels.iter().map(|kernel| number(kernel, field)).sum::<f64>();
    assert!(
        is_near(sum("floor_us"), number(&nodes[0], "floor_us")) && is_near(sum("us"), number(&nodes[0], "kernels_us"))
    );
    assert!(is_near(number(&nodes[0], "us") / sum("floor_us"), number(&nodes[0], "gap")));
    // The step's floor is that of all children.
    assert!(number(&bench, "floor_us") > number(&nodes[0], "floor_us"), "{bench}");
    assert!(is_near(number(&bench, "step_us") / number(&bench, "floor_us"), number(&bench, "gap")));

    let refused = onegraph(&[&["bench", "--node", "forwrd"], &of_tiny[..]].concat());
    assert_eq!(refused.status.code(), Some(2));
    let parts =
        ["no child `forwrd`", "the nearest is `forward`", "counters, per_sample", "learners are temporal, attention"];
    assert_has(&stderr(&refused), &parts);
}

/// A learner's share is the difference of two steps that differ in it alone, whether it is on or off in the configuration.
#[test]
fn bench_of_a_learner_is_a_step_with_it_and_one_without() {
    let arguments = ["bench", "--node", "temporal", "--preset", "tiny", "--device", "cpu"];
    let bench = |more: &[&str]| {
        let mut bench = command(&[&arguments, more].concat());
        let output = bench.env_remove("ONEGRAPH_CHECK").output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let found: serde_json::Value = serde_json::from_str(&bench(&["--json"])).expect("JSON alone");
    let learner = &found["learner"];
    let number = |field: &str| learner[field].as_f64().unwrap_or_else(|| panic!("{field} in {learner}"));
    assert_eq!((&learner["name"], found["nodes"].as_array().map(Vec::len)), (&"temporal".into(), Some(0)));
    // The block is most of what such a step computes: no disturbance hides it.
    assert!(number("with_us") > 1.2 * number("without_us"), "{learner}");
    let share = (number("with_us") - number("without_us")) / number("with_us");
    assert!((share - number("share")).abs() < 1e-9, "{learner}");
    assert_has(&bench(&["--set", "learners.temporal=true"]), &["\nlearners.temporal: ", " us with it, "]);
}

/// Without nsys it says so, what to do, and what works instead.
#[test]
fn profile_without_nsight_systems_exits_with_two() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/profile");
    let output = Command::new("/bin/bash").arg(script).env("PATH", "/nonexistent").output();
    let output = output.expect("there is a bash");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_has(&stderr(&output), &["scripts/profile: there is no nsys", "install Nsight Systems", "bench --node"]);
}

#[test]
fn wrong_arguments_and_places_exit_with_two() {
    for (arguments, parts) in [
        (
            &["graph", "--dot", "/nonexistent/folder/x.dot"][..],
            &["cannot write /nonexistent/folder/x.dot: No such file or directory (os error 2); choose another place"][..],
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
    for name in ["graph", "audit", "bench", "train"] {
        let output = onegraph(&[name, "--device", "cuda", "--preset", "tiny"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", stderr(&output));
        assert_has(&stderr(&output), &["no CUDA driver found", "--device cpu"]);
    }
    for arguments in
        [&["data", "inspect", "bars.csv", "--device", "cuda"][..], &["report", ".", "--device", "cuda"][..]]
    {
        let output = onegraph(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_has(&stderr(&output), &["--device cuda", "use no device"]);
    }
    // A driver that is named is meant to be used.
    for arguments in [&["train"][..], &["doctor"], &["graph", "--device", "auto"]] {
        let output = without_a_driver(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_has(
            &stderr(&output),
            &["error: no CUDA driver found (there is no /nonexistent/libcuda.so.1)", "--device cpu"],
        );
    }
    // So is a GPU.
    let output = command(&["train"]).env("ONEGRAPH_DEVICE_INDEX", "3").output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_has(&stderr(&output), &["--device cpu"]);
    // An empty name names no driver.
    let output = command(&["doctor"]).env("ONEGRAPH_LIBCUDA", "").output().expect("the program starts");
    assert!(!stderr(&output).contains("error:  is"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("driver:  is not"), "{}", stdout(&output));
}

/// Where help and version find no room, as results that are printed.
#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["train", "--help"], &["help", "report"], &["graph"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("the device");
        let output = command(arguments).stdout(full).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        let message = "error: cannot write to standard output: No space left on device (os error 28)\n";
        assert_eq!(stderr(&output), message, "{arguments:?}");
        let output = onegraph(arguments);
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}");
    }
    let script = format!("set -o pipefail; {} train --help | head -n 1", env!("CARGO_BIN_EXE_onegraph"));
    let output = Command::new("bash").args(["-c", &script]).output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let script = format!("set -o pipefail; {} graph --preset tiny --json | head -n 1", env!("CARGO_BIN_EXE_onegraph"));
    let output = Command::new("bash").args(["-c", &script]).output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// What a terminal obeys is never printed as it came: in arguments, file names, symbols, and settings.
#[test]
fn control_characters_of_others_are_written_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = folder.path().join("x\u{1b}[31m\n\u{202e}.csv");
    std::fs::write(
        &evil,
        "time,open,high,low,close,volume,symbol\n2024-01-02,1,2,1,1,5,A\u{1b}]0;title\u{7}\n2024-01-03,1,2,1,1,5,A\u{1b}]0;title\u{7}\n",
    )
    .expect("room");
    let evil = evil.to_str().expect("UTF-8");
    let escaped = r"x\u{1b}[31m\n\u{202e}.csv";
    let gone = format!("{evil}.gone");
    for (arguments, code, parts) in [
        (&["data", "inspect", evil][..], 0, &[escaped, r"A\u{1b}]0;title\u{7}"][..]),
        (
            &["data", "inspect", evil, "--symbol", "B\u{9b}1m"],
            2,
            &[escaped, r"B\u{9b}1m", r"it has: A\u{1b}]0;title\u{7}"],
        ),
        (&["data", "inspect", &gone], 2, &[escaped]),
        (&["data", "simulate", "--bars", "3", "--out", evil], 0, &[escaped]),
        (&["data", "simulate", "--out", &gone], 2, &[escaped]),
        (&["graph", "--dot", evil, "--json", evil], 2, &[escaped, "--dot", "--json"]),
        (&["train", "--config", &gone], 2, &[escaped, "cannot be read"]),
        (&["train", "--set", "l\u{1b}r=1\n"], 2, &[r"--set l\u{1b}r=1\n", r"no key `l\u{1b}r`"]),
        (&["train", "--resume", &gone], 2, &[escaped, "is no run"]),
        (&["train", "--data", &gone], 2, &[escaped, "cannot be read"]),
        (&["train", "--data", evil, "--json", evil], 2, &[escaped, "--data", "--json"]),
        (&["report", &gone], 2, &[escaped, "there is no such folder"]),
        (&["graph", "--device", "gpu\u{1b}[31m\n"], 2, &[r"gpu\u{1b}[31m\n", "auto"]),
        (&["gra\u{1b}ph"], 2, &[r"gra\u{1b}ph"]),
        (&["graph", "--no\u{7}such"], 2, &[r"--no\u{7}such"]),
    ] {
        let output = onegraph(arguments);
        let text = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text:?}");
        assert_has(&text, parts);
        let raw = text.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
        assert_eq!(raw, None, "{arguments:?}: {text:?}");
    }
    for (name, value) in [
        ("ONEGRAPH_DEVICE_INDEX", "1\u{1b}[31m"),
        ("ONEGRAPH_LIBCUDA", "/none\u{1b}[31m"),
        ("ONEGRAPH_KERNEL_RUSTC", "/none\u{1b}[31m"),
    ] {
        let output = command(&["doctor", "--device", "cuda"]).env(name, value).output().expect("the program starts");
        let text = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!text.contains('\u{1b}') && text.contains(r"\u{1b}[31m"), "{name}: {text:?}");
    }
}

/// Standard error is no terminal here, so that the log is text alone, `NO_COLOR` or not.
#[test]
fn the_log_in_a_file_has_no_colours() {
    for no_color in ["", "1"] {
        let mut graph = command(&["graph", "--preset", "tiny", "-vv"]);
        let output = graph.env("NO_COLOR", no_color).output().expect("the program starts");
        assert_has(&stderr(&output), &["INFO", "working on the CPU"]);
        assert!(!stderr(&output).contains('\u{1b}'), "{:?}", stderr(&output));
    }
}
