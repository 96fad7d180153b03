//! `eval` as a user runs it, and that a test on other bars fits nothing to them.

use std::path::Path;
use std::process::{Command, Output};

use host::data::simulate::{Market, Simulation};
use host::device::{Device, DeviceChoice};
use host::eval::evaluation::{Evaluation, Selection};
use host::interrupt::Interrupt;
use host::run::{Checkpoint, RunFolder};
use host::train::Tester;
use serde_json::Value;

fn onegraph(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    command.args(arguments).args(["--device", "cpu"]).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn done(arguments: &[&str]) -> Output {
    let output = onegraph(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    output
}

fn refused(arguments: &[&str]) -> String {
    let output = onegraph(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

fn path_in(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

fn simulated(folder: &Path, name: &str, n_bars: u32, seed: u64) -> String {
    let file = path_in(folder, name);
    done(&["data", "simulate", "--out", &file, "--bars", &n_bars.to_string(), "--seed", &seed.to_string()]);
    file
}

/// A short run, long enough for statistics of Q, which come every 50 steps; its folder.
fn trained(folder: &Path, more: &[&str]) -> String {
    let run = path_in(folder, "run");
    let short = ["--set", "epochs=4", "--set", "steps_per_epoch=13", "--set", "decay=0.5"];
    done(&[&["train", "--preset", "tiny", "--quiet", "--out", &run], &short[..], more].concat());
    run
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON alone")
}

fn notes(evaluation: &Value) -> String {
    evaluation["notes"].as_array().expect("a list").iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_run_s_own_tests_come_out_the_same_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = trained(folder.path(), &["--sim", "mean-reverting"]);
    let written = std::fs::read_to_string(Path::new(&run).join("evaluation.json")).expect("the evaluation");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(json(&done(&["eval", "--checkpoint", &run, "--json"])), written);
    assert_eq!(written["baselines"].as_array().expect("a list").len(), 4, "the threshold rule is among them");

    let best = RunFolder::open(Path::new(&run)).unwrap().best_checkpoint(1).unwrap().expect("the last epoch at least");
    let named = path_in(Path::new(&run), &format!("checkpoints/{best}"));
    assert_eq!(json(&done(&["eval", "--checkpoint", &named, "--json"])), written);

    let html = path_in(folder.path(), "report.html");
    let sheet = text(&done(&["eval", "--checkpoint", &run, "--out", &html]).stdout);
    assert_has(&sheet, &["edge", "buy and hold", "95% interval", "lead is", "twice the costs", "validation Sharpe"]);
    assert_has(&sheet, &[written["sentence"].as_str().expect("a sentence")]);
    let html = std::fs::read_to_string(html).expect("the report");
    assert_has(&html, &["<title>run", "Q over the batch", "Actions chosen, by epoch", "Configuration"]);

    let ids = RunFolder::open(Path::new(&run)).unwrap().checkpoints().unwrap();
    let other = ids.into_iter().find(|id| *id != best).expect("the newest three are kept");
    let other = path_in(Path::new(&run), &format!("checkpoints/{other}"));
    assert_has(&notes(&json(&done(&["eval", "--checkpoint", &other, "--json"]))), &["was named, not chosen"]);

    let manifest = Path::new(&other).join("manifest.json");
    std::fs::write(&manifest, std::fs::read_to_string(&manifest).unwrap().replacen("\"step\"", "\"stop\"", 1)).unwrap();
    assert_has(&refused(&["eval", "--checkpoint", &other]), &["manifest.json", "damaged"]);
    // It may have been the best: nothing else is taken in its place.
    assert_has(&refused(&["eval", "--checkpoint", &run]), &[&other, "manifest.json", "damaged", "remove its folder"]);
    done(&["eval", "--checkpoint", &named, "--json"]);
    let metrics = Path::new(&run).join("metrics.jsonl");
    let lines = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, lines.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    assert_has(&refused(&["eval", "--checkpoint", &named]), &["metrics.jsonl: lacks the line of fold 1, epoch 1"]);
    std::fs::write(&metrics, lines).unwrap();
    let config = Path::new(&run).join("config.toml");
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap().replace("seed = 0", "seed = 9")).unwrap();
    assert_has(&refused(&["eval", "--checkpoint", &run]), &["config.toml: is not the configuration"]);
    assert_has(&text(&done(&["report", &run]).stderr), &["WARN", "config.toml: is not the configuration"]);
}

#[test]
fn another_file_is_traded_as_a_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = simulated(folder.path(), "own.csv", 3_000, 1);
    let run = trained(folder.path(), &["--data", &own]);
    let other = simulated(folder.path(), "other.csv", 1_200, 2);
    let html = path_in(folder.path(), "report.html");
    let output = done(&["eval", "--checkpoint", &run, "--data", &other, "--out", &html, "--json"]);
    let evaluation: Evaluation = serde_json::from_slice(&output.stdout).expect("an evaluation");
    assert_eq!((evaluation.n_bars, evaluation.folds.len()), (1_200 - 128 - 1, 1));
    assert_has(&evaluation.notes.join("\n"), &["Traded ", "other.csv", "nothing was fitted", "Its times overlap"]);
    assert_has(&text(&output.stderr), &["WARN", "Its times overlap"]);
    assert_has(&std::fs::read_to_string(html).expect("the report"), &["run on ", "other.csv"]);

    // A price that stands still is told of in the result as well.
    let rows = (0..1_200).map(|minute| format!("{},100,100,100,100,1\n", 1_700_000_000 + 300 * minute));
    let still = path_in(folder.path(), "still.csv");
    std::fs::write(&still, format!("time,open,high,low,close,volume\n{}", rows.collect::<String>())).expect("room");
    let output = done(&["eval", "--checkpoint", &run, "--data", &still, "--json"]);
    assert_has(&notes(&json(&output)), &["still.csv: every bar closes at the same price"]);

    // 4,800 bars of five minutes are 400 hours.
    let long = simulated(folder.path(), "long.csv", 4_800, 3);
    let output = done(&["eval", "--checkpoint", &run, "--data", &long, "--bar", "1h", "--json"]);
    assert_has(&text(&output.stderr), &["Its bars are of 1h, and the run was trained on bars of 5m"]);
    assert_eq!(json(&output)["n_bars"], 400 - 128 - 1);

    let short = simulated(folder.path(), "short.csv", 320, 4);
    assert_has(
        &refused(&["eval", "--checkpoint", &run, "--data", &short]),
        &["short.csv: has 320 bars", "328 that are needed at least; give a longer file"],
    );
    assert_has(&refused(&["eval", "--checkpoint", &run, "--bar", "1h"]), &["--data FILE"]);
    assert_has(&refused(&["eval", "--checkpoint", folder.path().to_str().unwrap()]), &["is no run"]);
    std::fs::remove_file(&own).unwrap();
    assert_has(&refused(&["eval", "--checkpoint", &run]), &["own.csv", "put back the file"]);
    done(&["eval", "--checkpoint", &run, "--data", &other]);
}

/// The scales are the checkpoint's, so bars that are still to come change nothing that was earned before them.
#[test]
fn the_future_of_another_file_changes_nothing_before_it() {
    const COMMON: usize = 700;
    let folder = tempfile::tempdir().expect("a folder");
    let run = RunFolder::open(Path::new(&trained(folder.path(), &[]))).unwrap();
    let best = run.best_checkpoint(1).unwrap().expect("a checkpoint");
    let checkpoint = Checkpoint::open(&run.checkpoint_path(best)).unwrap();
    let device = Device::open(DeviceChoice::Cpu).unwrap();

    let bars = Simulation { market: Market::Regimes, n_bars: 1_000, seed: 5 }.bars();
    let mut changed = bars.clone();
    for column in [&mut changed.open, &mut changed.high, &mut changed.low, &mut changed.close] {
        column[COMMON..].iter_mut().for_each(|price| *price *= 7.0);
    }
    changed.volume[COMMON..].iter_mut().for_each(|volume| *volume *= 100.0);
    let returns = |bars| {
        let mut tester = Tester::new(&device, &run.config().unwrap(), bars, &Interrupt::default()).unwrap();
        tester.load(&checkpoint).unwrap();
        let test = tester.test(&(128..1_000), Selection::default(), None).unwrap();
        test.records.agent.into_iter().map(|path| path.returns).collect::<Vec<_>>()
    };
    let (one, two) = (returns(&bars), returns(&changed));
    let bits = |returns: &[f32]| returns[..COMMON - 129].iter().map(|r| r.to_bits()).collect::<Vec<_>>();
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(bits(one), bits(two));
        assert_ne!(one, two, "the rest differs");
    }
}

#[test]
fn no_command_overwrites_what_it_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let bars = simulated(folder.path(), "bars.csv", 1_500, 7);
    let run = trained(folder.path(), &["--data", &bars]);
    let (config, both) = (path_in(folder.path(), "config.toml"), path_in(folder.path(), "both"));
    std::fs::write(&config, "lr = 1e-3\n").expect("the folder has room");
    let inside = |name: &str| path_in(Path::new(&run), name);
    let kept = std::fs::read_dir(inside("checkpoints")).expect("checkpoints").next().expect("one").expect("a name");
    let manifest = path_in(&kept.path(), "manifest.json");
    let files = [
        bars.clone(),
        config.clone(),
        inside("run.json"),
        inside("config.toml"),
        inside("metrics.jsonl"),
        inside("report.html"),
        manifest.clone(),
    ];
    let contents = || files.clone().map(|file| std::fs::read(file).expect("it is there"));
    let before = contents();

    let (record, of_run, metrics) = (inside("run.json"), inside("config.toml"), inside("metrics.jsonl"));
    let eval = ["eval", "--checkpoint", &run];
    let dump = ["dump", "--preset", "tiny", "--steps", "1"];
    for arguments in [
        [&eval[..], &["--data", &bars, "--out", &bars]].concat(),
        [&eval[..], &["--out", &record]].concat(),
        [&eval[..], &["--json", &of_run]].concat(),
        [&eval[..], &["--out", &manifest]].concat(),
        [&eval[..], &["--out", &both, "--json", &both]].concat(),
        [&dump[..], &["--data", &bars, "--out", &bars]].concat(),
        [&dump[..], &["--config", &config, "--out", &config]].concat(),
        vec!["audit", "--preset", "tiny", "--steps", "60", "--config", &config, "--docs", &config],
        vec!["report", &run, "--out", &manifest],
        vec!["train", "--resume", &run, "--json", &manifest],
        // The market file that the run began with, though no argument names it.
        vec!["train", "--resume", &run, "--json", &bars],
        [&eval[..], &["--json", &bars]].concat(),
        vec!["report", &run, "--json", &bars],
        // Files of a run that the command has nothing to do with.
        vec!["train", "--preset", "tiny", "--out", &both, "--json", &metrics],
        vec!["train", "--preset", "tiny", "--out", &both, "--json", &inside("report.html")],
        vec!["graph", "--json", &metrics],
        vec!["graph", "--dot", &manifest],
        vec!["data", "inspect", &bars, "--json", &metrics],
        [&dump[..], &["--out", &metrics]].concat(),
        vec!["bench", "--preset", "tiny", "--json", &record],
    ] {
        assert_has(&refused(&arguments), &["overwrite"]);
        assert!(contents() == before, "{arguments:?} wrote to one of {files:?}");
        assert!(!Path::new(&both).exists(), "{arguments:?}");
    }
    // Beside them there is room.
    done(&["report", &run, "--json", &inside("said.json")]);
    done(&["graph", "--json", &inside("step.json")]);
}
