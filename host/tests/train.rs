//! `train` as a user runs it, on a machine without a GPU.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

fn onegraph(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    // Its own working folder: an onegraph.toml of another would be read, and a run without `--out` made there.
    command.args(arguments).current_dir(folder).env("CUDA_VISIBLE_DEVICES", "").env_remove("ONEGRAPH_LIBCUDA");
    command.env_remove("ONEGRAPH_DEVICE_INDEX").env_remove("ONEGRAPH_CHECK");
    command
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    onegraph(folder, arguments).output().expect("the program starts")
}

/// What must end with 0.
fn done(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

fn new_folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics.jsonl");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Names under `checkpoints`, in order.
fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).expect("checkpoints");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Whether any number under `value` is missing, as one that is not finite is written.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

#[test]
fn the_preset_tiny_trains_and_leaves_a_whole_run() {
    let folder = new_folder();
    let printed = done(&folder, &["train", "--preset", "tiny", "--seed", "3", "--out", "run", "--device", "cpu"]);
    assert_has(&printed, &["agent", "buy and hold", "random", "Sharpe", "report.html"]);
    let run = folder.path().join("run");
    for name in ["config.toml", "run.json", "metrics.jsonl", "evaluation.json", "graph.json", "report.html"] {
        assert!(fs::metadata(run.join(name)).is_ok_and(|file| file.len() > 0), "{name}");
    }
    let epochs = metrics(&run);
    assert_eq!(epochs.len(), 5);
    for (epoch, number) in epochs.iter().zip(1..) {
        assert_eq!((&epoch["epoch"], &epoch["step"]), (&Value::from(number), &Value::from(20 * number)));
        assert_eq!(epoch["skipped"], 0, "{epoch}");
        assert!(epoch["loss"].as_f64().is_some_and(|loss| loss > 0.0), "{epoch}");
        let mut fields = epoch.as_object().expect("an object").clone();
        let measured = fields.remove("q").expect("the field");
        assert!(!has_null(&Value::Object(fields)), "a number is not finite: {epoch}");
        // Measured at every 50th step.
        if 20 * number >= 50 {
            let q = |name: &str| measured[name].as_f64().expect("a number");
            let (least, mean, most) = (q("min"), q("mean"), q("max"));
            assert!(least < mean && mean < most && q("variance") > 0.0 && q("avg_max") <= most, "{epoch}");
        } else {
            assert_eq!(measured, Value::Null);
        }
    }
    let names: Vec<PathBuf> = checkpoints(&run);
    assert!(names.len() >= 3 && names.iter().any(|name| name.ends_with("fold-1-epoch-00005")), "{names:?}");
    for name in &names {
        assert!(name.join("tensors.safetensors").is_file() && name.join("manifest.json").is_file(), "{name:?}");
    }
    let evaluation: Value =
        serde_json::from_str(&fs::read_to_string(run.join("evaluation.json")).expect("a file")).expect("JSON");
    assert!(evaluation["sentence"].as_str().is_some_and(|sentence| !sentence.is_empty()), "{evaluation}");

    let graph: Value =
        serde_json::from_str(&fs::read_to_string(run.join("graph.json")).expect("a file")).expect("JSON");
    let children = graph["children"].as_array().expect("a list");
    assert!(children.len() >= 8 && children[0]["name"] == "counters", "{graph}");
    assert!(children.iter().all(|child| child["us"].as_f64().is_some_and(|us| us > 0.0)), "{graph}");
    let report = fs::read_to_string(run.join("report.html")).expect("the report");
    assert_has(&report, &["One training step", "iql_modulate", "increment_step_counters"]);

    // Gone on with, a run that is done has nothing left to train and says the same again.
    let again: Value =
        serde_json::from_str(&done(&folder, &["train", "--resume", "run", "--json", "--quiet"])).expect("JSON alone");
    assert_eq!((&again["interrupted"], &again["sentence"]), (&Value::Bool(false), &evaluation["sentence"]));
    assert_eq!(metrics(&run), epochs);

    // The same seed in another folder.
    done(&folder, &["train", "--preset", "tiny", "--seed", "3", "--out", "again", "--quiet"]);
    let tensors = |run: &str| {
        let path = folder.path().join(run).join("checkpoints/fold-1-epoch-00005/tensors.safetensors");
        fs::read(path).expect("tensors")
    };
    assert!(tensors("run") == tensors("again"), "two runs of one seed differ");
}

/// Waits until the run has told so many epochs.
fn wait_for_epochs(run: &Path, child: &mut Child, n_epochs: usize) {
    let started = Instant::now();
    let told = || fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    while told() < n_epochs {
        assert!(child.try_wait().expect("a child").is_none(), "the run ended before epoch {n_epochs}");
        assert!(started.elapsed() < Duration::from_secs(120), "no epoch in two minutes");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ctrl-C ends the run behind a checkpoint and says how to go on; gone on with, it ends as a run that nothing stopped.
#[test]
fn an_interrupted_run_says_how_to_go_on_and_does() {
    let folder = new_folder();
    // Long enough for the signal to come before the end.
    let start = |out: &str| {
        let arguments = ["train", "--preset", "tiny", "--set", "epochs=40", "--set", "steps_per_epoch=5", "--out", out];
        onegraph(&folder, &arguments)
    };
    let mut child = start("run").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let path = folder.path().join("run");
    wait_for_epochs(&path, &mut child, 2);
    let second = run(&folder, &["train", "--resume", "run"]);
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert_has(&stderr(&second), &["run: is being trained by another process"]);
    interrupt(&child);
    let output = child.wait_with_output().expect("an end");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed} {}", stderr(&output));
    assert_has(&printed, &["stopped; go on with: onegraph train --resume ", "run"]);
    assert_has(&stderr(&output), &["interrupted", "checkpoint", "--resume"]);
    let n_told = metrics(&path).len();
    assert!((2..40).contains(&n_told), "{n_told} epochs");
    let newest = checkpoints(&path).pop().expect("a checkpoint");
    assert!(newest.ends_with(format!("fold-1-epoch-{n_told:05}")), "{newest:?} after {n_told} epochs");
    assert!(!path.join("evaluation.json").exists());

    let on = run(&folder, &["train", "--resume", "run"]);
    assert_eq!(on.status.code(), Some(0), "{}", stderr(&on));
    assert_has(&stderr(&on), &[&format!("from epoch {}", n_told + 1)]);
    assert_eq!(metrics(&path).len(), 40);
    assert!(start("whole").arg("--quiet").output().expect("the program starts").status.success());
    let evaluation = |run: &str| fs::read_to_string(folder.path().join(run).join("evaluation.json")).expect("a file");
    assert_eq!(evaluation("run"), evaluation("whole"));
}

fn interrupt(child: &Child) {
    let sent = Command::new("bash").args(["-c", &format!("kill -INT {}", child.id())]).status().expect("a shell");
    assert!(sent.success());
}

/// An epoch of a million steps: it is left out, and the run begins it anew when it is gone on with.
#[test]
fn an_interrupt_ends_a_long_epoch() {
    let folder = new_folder();
    let long = ["train", "--preset", "tiny", "--set", "steps_per_epoch=1000000", "--out", "run"];
    for arguments in [&long[..], &["train", "--resume", "run"]] {
        let mut command = onegraph(&folder, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        wait_for_epochs(&folder.path().join("run"), &mut child, 0);
        // Setup and collection take less than a second.
        thread::sleep(Duration::from_secs(3));
        interrupt(&child);
        let started = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if started.elapsed() > Duration::from_secs(30) {
                child.kill().expect("our own child");
                panic!("the epoch is waited for");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("it has ended");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_has(&String::from_utf8_lossy(&output.stdout), &["stopped; go on with: onegraph train --resume "]);
        assert_has(
            &stderr(&output),
            &["interrupted: stopping; an epoch that is under way is left out", "training 5 epochs"],
        );
        assert!(!stderr(&output).contains("from epoch"), "{}", stderr(&output));
        assert_eq!(metrics(&folder.path().join("run")).len(), 0);
        assert_eq!(checkpoints(&folder.path().join("run")).len(), 0);
    }
}

#[test]
fn a_file_of_bars_trains() {
    let folder = new_folder();
    done(&folder, &["data", "simulate", "--out", "bars.csv", "--bars", "5000"]);
    let bars = fs::read_to_string(folder.path().join("bars.csv")).expect("the market");
    let last = bars.lines().last().expect("a bar");
    fs::write(folder.path().join("bars.csv"), format!("{bars}{last}\n")).expect("room");
    let arguments = ["train", "--preset", "tiny", "--set", "epochs=1", "--data", "bars.csv", "--out", "run", "--json"];
    let result: Value = serde_json::from_str(&done(&folder, &arguments)).expect("JSON alone");
    assert_eq!(result["interrupted"], false);
    assert!(result["verdict"].is_string() && result["report"].is_string(), "{result}");
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("run/run.json")).expect("a file")).expect("JSON");
    assert!(record["data"]["files"][0]["path"].as_str().is_some_and(|path| path.ends_with("bars.csv")), "{record}");
    // What was mended stands in the record and in the report.
    let note = "bars.csv: mended: exact duplicates dropped (1)";
    assert_eq!(record["notes"], Value::from(vec![note]));
    assert_has(&fs::read_to_string(folder.path().join("run/report.html")).expect("the report"), &[note]);
}

/// Root may write everywhere: the program then runs as nobody.
#[test]
fn a_run_in_a_closed_folder_is_not_gone_on_with() {
    let folder = new_folder();
    done(&folder, &["train", "--preset", "tiny", "--set", "epochs=1", "--out", "run", "--quiet"]);
    let set_mode = |name: &str, mode: u32| {
        fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).expect("our own");
    };
    let is_root = fs::metadata("/proc/self").expect("this process").uid() == 0;
    let all = [("run", 0o777), ("run/checkpoints", 0o777), ("run/metrics.jsonl", 0o666)];
    set_mode(".", 0o755);
    all.iter().for_each(|&(name, open)| set_mode(name, open));
    for (name, open) in all {
        set_mode(name, open & 0o555);
        let mut command = onegraph(&folder, &["train", "--resume", "run"]);
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{name}: {}", stderr(&output));
        let message =
            format!("error: {name}: cannot be written: Permission denied (os error 13); make it writable, or copy");
        assert_has(&stderr(&output), &[&message]);
        set_mode(name, open);
    }
    done(&folder, &["train", "--resume", "run", "--quiet"]);
}

#[test]
fn what_cannot_begin_exits_with_two_and_leaves_nothing() {
    let folder = new_folder();
    done(&folder, &["data", "simulate", "--out", "short.csv", "--bars", "900"]);
    fs::create_dir(folder.path().join("taken")).expect("a folder");
    fs::write(folder.path().join("taken/thesis.tex"), "").expect("a file");
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--out", "taken"], &["taken", "not empty", "--out"]),
        (&["--out", "new", "--set", "leraning_rate=1"], &["leraning_rate"]),
        (&["--out", "new", "--set", "lr=fast"], &["lr", "fast"]),
        (&["--out", "new", "--set", "batch=0"], &["batch", "0"]),
        (&["--out", "new", "--set", "sim.bars=1000", "--set", "episode_len=500"], &["bars", "episode_len"]),
        (&["--out", "new", "--data", "short.csv"], &["short.csv", "900"]),
        (&["--resume", "nowhere"], &["nowhere"]),
    ];
    for (arguments, parts) in cases {
        let preset: &[&str] = if arguments[0] == "--resume" { &[] } else { &["--preset", "tiny"] };
        let output = run(&folder, &[&["train"], preset, arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_has(&stderr(&output), parts);
        assert!(!folder.path().join("new").exists(), "{arguments:?} made a folder");
    }
    assert_eq!(fs::read_dir(folder.path().join("taken")).expect("a folder").count(), 1);
}

#[test]
fn a_run_whose_checkpoints_are_gone_begins_anew_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let once = ["train", "--preset", "tiny", "--device", "cpu", "--set", "epochs=2", "--out", "run"];
    done(&folder, &once);
    let evaluation = || fs::read(folder.path().join("run/evaluation.json")).expect("an evaluation");
    let before = evaluation();
    for checkpoint in fs::read_dir(folder.path().join("run/checkpoints")).expect("a folder") {
        fs::remove_dir_all(checkpoint.expect("an entry").path()).expect("a checkpoint's folder");
    }
    let output = run(&folder, &["train", "--resume", "run"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_has(&stderr(&output), &["2 epochs were trained, and no checkpoint holds them: the run begins anew"]);
    assert!(before == evaluation(), "another result");
}
