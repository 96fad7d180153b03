//! The files that commands read and write.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{assert_has, command, onegraph, stderr, stdout};

/// Runs the program in a folder and demands that it refuses the arguments with these words.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str], parts: &[&str]) {
    let output = command(arguments).current_dir(folder).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    assert_has(&stderr(&output), parts);
}

#[test]
fn two_results_never_share_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).expect("room");
    symlink(".", at("here")).expect("room");
    symlink("a.csv", at("link")).expect("room");
    let whole = at("a.csv").display().to_string();
    for other in ["a.csv", "./a.csv", "sub/../a.csv", "here/a.csv", "link", &whole] {
        let parts = ["error: --out a.csv and --json ", other, "are one file", "name two files"];
        refused(folder.path(), &["data", "simulate", "--bars", "9", "--out", "a.csv", "--json", other], &parts);
        refused(folder.path(), &["graph", "--dot", "a.csv", "--json", other], &["--dot a.csv and --json ", "one file"]);
    }
    assert!(!at("a.csv").exists(), "refused before anything was written");
    let simulate = ["data", "simulate", "--bars", "9", "--out", "a.csv", "--json", "b.json"];
    let output = command(&simulate).current_dir(folder.path()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Nor with a file that is read.
    let before = fs::read(at("a.csv")).expect("the market");
    fs::hard_link(at("a.csv"), at("hard")).expect("room");
    for other in ["a.csv", "here/a.csv", "link", "hard"] {
        let parts = ["FILE a.csv and --json ", "are one file"];
        refused(folder.path(), &["data", "inspect", "a.csv", "--json", other], &parts);
    }
    assert_eq!(fs::read(at("a.csv")).expect("the market"), before);
    for command in ["train", "bench", "graph"] {
        let of_data = (&["--data", "a.csv", "--json", "link"][..], "--data a.csv and --json link");
        let of_config = [
            (&["--config", "my.toml", "--json", "./my.toml"][..], "--config my.toml and --json ./my.toml"),
            (&["--json", "onegraph.toml"], "--config onegraph.toml and --json onegraph.toml"),
        ];
        for (arguments, named) in of_config.into_iter().chain((command != "graph").then_some(of_data)) {
            refused(folder.path(), &[&[command][..], arguments].concat(), &[named, "are one file"]);
        }
    }
    for (arguments, named) in [
        (&["--out", "run", "--json", "run/run.json"][..], "the run's run/run.json and --json run/run.json"),
        (&["--out", "run", "--json", "run"], "the run's folder run and --json run"),
        (&["--resume", "run", "--json", "run/report.html"], "the run's run/report.html and --json"),
    ] {
        refused(folder.path(), &[&["train"][..], arguments].concat(), &[named, "are one file"]);
    }
    for (arguments, named) in [
        (&["--out", "x", "--json", "./x"][..], "--out x and --json ./x"),
        (&["--json", "sub/report.html"], "--out sub/report.html and --json sub/report.html"),
        (&["--out", "sub/metrics.jsonl"], "the run's sub/metrics.jsonl and --out sub/metrics.jsonl"),
    ] {
        refused(folder.path(), &[&["report", "sub"][..], arguments].concat(), &[named, "are one file"]);
    }
    assert_eq!(fs::read(at("a.csv")).expect("the market"), before);
    assert!(!at("run").exists(), "refused before anything was written");
    // A device takes several.
    let output = onegraph(&["graph", "--preset", "tiny", "--dot", "/dev/null", "--json", "/dev/null"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Opened to write, a pipe would wait for a reader for ever; and a dump, which is renamed into its place, would replace it.
#[test]
fn a_pipe_is_written_if_it_has_a_reader_and_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    refused(folder.path(), &["graph", "--dot", "pipe"], &["cannot write pipe", "no process reads from it"]);
    let dump = |out| ["dump", "--preset", "tiny", "--steps", "1", "--out", out];
    for (out, kind) in [("pipe", "a pipe"), ("-", "standard output"), (".", "a folder"), ("/dev/null", "a device")] {
        refused(folder.path(), &dump(out), &[&format!("--out {out} is {kind}"), "name a file"]);
    }
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().expect("cat runs");
    let start = Instant::now();
    let written = loop {
        let mut graph = command(&["graph", "--preset", "tiny", "--dot", "pipe"]);
        let output = graph.current_dir(folder.path()).output().expect("the program starts");
        // `cat` takes a moment to open it.
        if output.status.success() || start.elapsed() > Duration::from_secs(20) {
            break output;
        }
    };
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let read = reader.wait_with_output().expect("it has ended");
    assert!(stdout(&read).starts_with("digraph") && stdout(&read).trim_end().ends_with('}'));
    assert!(fs::metadata(&pipe).expect("it is there").file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing of a name that is `-`");
}

/// Before the work whose result it is to take, not after.
#[test]
fn a_missing_folder_is_told_of_before_the_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // Nothing is trained: the run's folder would be there.
    let train = ["train", "--preset", "tiny", "--out", "run", "--json"];
    for json in ["none/x.json", "run/none/x.json"] {
        refused(
            folder.path(),
            &[&train[..], &[json]].concat(),
            &["cannot write", json, "No such file", "another place"],
        );
        assert!(!at("run").exists());
    }
    refused(folder.path(), &["graph", "--json="], &["--json names no file"]);
    for command in [&["bench"][..], &["audit", "--steps", "60"], &["dump", "--steps", "1", "--out", "x"]] {
        let arguments = [command, &["--preset", "tiny", "--json", "none/x.json"]].concat();
        refused(folder.path(), &arguments, &["cannot write none/x.json", "No such file"]);
    }
    // In a new run's own folder there is room when it is there.
    let short = ["--quiet", "--set", "epochs=1", "--set", "steps_per_epoch=1"];
    let arguments = [&train[..], &["run/x.json"], &short].concat();
    let output = command(&arguments).current_dir(folder.path()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(at("run/x.json").is_file());
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no file of ours is left behind");
}

/// A pipe would wait for a writer for ever.
#[test]
fn what_is_no_regular_file_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo runs").success());
    for (file, kind) in [("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder")] {
        refused(folder.path(), &["train", "--preset", "tiny", "--config", file], &[file, kind, "not a regular file"]);
    }
    fs::write(at("latin.toml"), b"# \xe9\n").expect("room");
    refused(folder.path(), &["train", "--preset", "tiny", "--config", "latin.toml"], &["latin.toml", "UTF-8"]);
    // A run's own files.
    fs::create_dir(at("run")).expect("room");
    fs::rename(at("pipe"), at("run/metrics.jsonl")).expect("room");
    refused(folder.path(), &["report", "run"], &["run/metrics.jsonl", "a pipe"]);
    // The working folder's configuration is there, though nothing is behind it.
    symlink("nowhere", at("onegraph.toml")).expect("room");
    refused(folder.path(), &["train", "--preset", "tiny"], &["onegraph.toml", "cannot be read"]);
}

#[test]
fn a_dash_is_standard_output_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let graph = |arguments: &[&str]| onegraph(&[&["graph", "--preset", "tiny"], arguments].concat());
    let dot = graph(&["--dot", "-"]);
    assert_eq!(dot.status.code(), Some(0), "{}", stderr(&dot));
    let text = stdout(&dot);
    assert!(text.starts_with("digraph") && text.trim_end().ends_with('}'), "the picture alone: {text}");
    assert_eq!(stdout(&graph(&["--json", "-"])), stdout(&graph(&["--json"])));
    for both in [&["graph", "--dot", "-", "--json"][..], &["graph", "--dot", "-", "--json", "-"]] {
        refused(folder.path(), both, &["--dot and --json both go to standard output; name a file for one of them"]);
    }
    let both = ["report", ".", "--out", "-", "--json"];
    refused(folder.path(), &both, &["--out and --json both go to standard output; name a file for one of them"]);
    refused(
        folder.path(),
        &["data", "simulate", "--out", "-"],
        &["--out: standard output takes no market", ".parquet"],
    );
    refused(folder.path(), &["data", "inspect", "-"], &["FILE: standard input cannot be inspected", "./-"]);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_written_file_has_the_mode_that_the_umask_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    for (umask, want) in [("022", 0o644), ("077", 0o600), ("002", 0o664)] {
        let script = format!(
            "umask {umask}; {} data simulate --bars 9 --out m{umask}.csv --json j{umask}",
            env!("CARGO_BIN_EXE_onegraph")
        );
        let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("a shell");
        assert!(output.status.success(), "{}", stderr(&output));
        for name in [format!("m{umask}.csv"), format!("j{umask}")] {
            let mode = fs::metadata(folder.path().join(&name)).expect("it was written").mode() & 0o777;
            assert_eq!(mode, want, "{name}: {mode:o}");
        }
    }
}

#[test]
fn a_place_that_takes_no_file_is_a_wrong_argument() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder.csv")).expect("room");
    fs::write(at("file"), "").expect("room");
    for (out, reason) in [
        ("folder.csv", "it is a folder"),
        ("folder.csv/", "it is a folder"),
        ("none/x.csv", "No such file or directory (os error 2)"),
        ("file/x.csv", "Not a directory (os error 20)"),
    ] {
        let error = format!("error: {out}: cannot be written: {reason}; name a file");
        refused(folder.path(), &["data", "simulate", "--bars", "9", "--out", out], &[&error]);
        let error = format!("error: cannot write {out}: {reason}; choose another place");
        refused(folder.path(), &["graph", "--dot", out], &[&error]);
    }
    // Nothing is left, and the name of what was being written never shows.
    let names: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().expect("coreutils").success());
    let _socket = UnixListener::bind(at("socket")).expect("a socket");
    symlink("pipe", at("link")).expect("room");
    for (name, kind) in
        [("pipe", "a pipe"), ("link", "a pipe"), ("socket", "a socket"), (".", "a folder"), ("/dev/zero", "a device")]
    {
        let start = Instant::now();
        let mut child = command(&["data", "inspect", name]);
        child.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the program starts");
        while child.try_wait().expect("a child").is_none() {
            if start.elapsed() > Duration::from_secs(20) {
                child.kill().expect("our own child");
                panic!("{name} is waited for");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("it has ended");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert_eq!(stderr(&output), format!("error: {name}: is {kind}; name a regular file\n"));
    }
}

/// Such a file can be used; whoever trains on it should know.
#[test]
fn bars_that_can_teach_nothing_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let row = |minute: usize| format!("{},100,100,100,100,0\n", 1_700_000_000 + 60 * minute);
    let text = format!("time,open,high,low,close,volume\n{}", (0..3_000).map(row).collect::<String>());
    fs::write(folder.path().join("still.csv"), text).expect("room");
    let output = command(&["data", "inspect", "still.csv"]).current_dir(folder.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let notices = ["every bar closes at the same price", "no bar has volume"];
    assert_has(&stdout(&output), &notices);
    let dump = ["dump", "--preset", "tiny", "--steps", "1", "--out", "x", "--data", "still.csv"];
    let output = command(&dump).current_dir(folder.path()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_has(&stderr(&output), &notices);
    assert_has(&stderr(&output), &["WARN", "still.csv"]);
}

/// A high, a low or an open that no market makes, between closes as usual: one note for each file, none for a price that moves.
#[test]
fn a_spike_within_a_bar_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let note = |name: &str, rows: [&str; 3]| {
        let rows: Vec<String> = (1..).zip(rows).map(|(day, row)| format!("2024-01-0{day},{row},5\n")).collect();
        let text = format!("time,open,high,low,close,volume\n{}", rows.concat());
        fs::write(folder.path().join(name), text).expect("room");
        let output = command(&["data", "inspect", name, "--json"]).current_dir(folder.path()).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let inspection: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let notices = inspection["notices"].as_array().expect("a list").clone();
        notices.iter().map(|notice| notice.as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    for (row, part) in [
        ("10,10000,10,10", "at 2024-01-02T00:00:00Z the high is 1000.0 times above the close and the close before it"),
        ("10,10,0.01,10", "at 2024-01-02T00:00:00Z the low is 1000.0 times under the close and the close before it"),
        ("10000,10000,10,10", "the high is 1000.0 times above"),
    ] {
        let notices = note("spike.csv", ["10,11,9,10", row, "10,11,9,10.5"]);
        assert!(notices.len() == 1 && notices[0].contains(part), "{row}: {notices:?}");
    }
    // The first bar has no close before it.
    assert!(
        note("first.csv", ["10,10000,10,10", "10,11,9,10", "10,11,9,10.5"])[0]
            .contains("2024-01-01T00:00:00Z the high")
    );
    // A jump is told once, and a bar that moves within a half is none.
    let jump = note("jump.csv", ["10,11,9,10", "10,1000,10,1000", "1000,1000,10,10"]);
    assert!(jump.len() == 1 && jump[0].contains("closes 100.0 times"), "{jump:?}");
    assert_eq!(note("lively.csv", ["10,19,6,10", "10,19,6,10", "10,19,6,10.5"]), Vec::<String>::new());
}

/// Columns that would do as well, and moves that no market makes.
#[test]
fn what_is_odd_in_a_file_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let row = |minute: usize| {
        let price = if minute < 40 { 100.0 } else { 1e6 };
        format!("{},{price},{price},{price},{price},0,{minute}\n", 1_700_000_000 + 60 * minute)
    };
    let text = format!("time,open,high,low,close,vol,tickvol\n{}", (0..60).map(row).collect::<String>());
    fs::write(folder.path().join("odd.csv"), text).expect("room");
    let output = command(&["data", "inspect", "odd.csv"]).current_dir(folder.path()).output().expect("it starts");
    let parts = ["\"vol\" is taken and \"tickvol\" passed over", "2023-11-14T22:53:20Z", "10000.0 times above"];
    assert_has(&stdout(&output), &parts);
    // A spread is a part of the mid, at most all of it on both sides.
    let rows = "time,open,high,low,close,volume,spread_fraction\n2024-01-01,1,1,1,1,1,2\n2024-01-02,1,1,1,1,1,2.5\n";
    fs::write(folder.path().join("wide.csv"), rows).expect("room");
    let wide = ["wide.csv, line 3", "spread 2.5 is not finite or out of its range"];
    refused_after_output(folder.path(), &["data", "inspect", "wide.csv"], &wide);
    for (time, reason) in [
        ("1600-01-01", "outside the years 1677 to 2262"),
        ("9999-01-01", "outside the years 1677 to 2262"),
        ("2024-02-30", "is no day of the calendar"),
        ("30/02/2024", "day and month cannot be told apart"),
    ] {
        fs::write(folder.path().join("t.csv"), format!("time,open,high,low,close,volume\n{time},1,1,1,1,1\n"))
            .expect("room");
        refused_after_output(folder.path(), &["data", "inspect", "t.csv"], &[reason]);
    }
}

/// As `refused`, by a command that prints what it found first.
#[track_caller]
fn refused_after_output(folder: &Path, arguments: &[&str], parts: &[&str]) {
    let output = command(arguments).current_dir(folder).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert_has(&stderr(&output), parts);
}

#[test]
fn a_file_without_rows_is_refused_and_one_bar_has_no_known_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let header = "time,open,high,low,close,volume\n";
    fs::write(folder.path().join("header.csv"), header).expect("room");
    for arguments in [&["data", "inspect", "header.csv"][..], &["data", "inspect", "header.csv", "--bar", "1h"]] {
        refused(folder.path(), arguments, &["error: header.csv: has no rows; give a file that holds bars or ticks"]);
    }
    fs::write(folder.path().join("one.csv"), format!("{header}2024-01-02,1,2,1,1,5\n")).expect("room");
    let run = |arguments: &[&str]| command(arguments).current_dir(folder.path()).output().expect("the program starts");
    let text = stdout(&run(&["data", "inspect", "one.csv"]));
    assert_has(&text, &["interval          unknown\n", "sessions          unknown\n", "bars              1\n"]);
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["data", "inspect", "one.csv", "--json"]))).expect("JSON");
    assert!(json["interval_s"].is_null() && json["interval_share"].is_null(), "{json}");
    refused(
        folder.path(),
        &["data", "inspect", "one.csv", "--bar", "1d"],
        &["has one bar, whose length cannot be known"],
    );
}
