//! Training and what follows it, command by command.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use host::device::Device;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use serde_json::Value;

use crate::program::{Program, ensure_has, json_of};

/// Two epochs on hardly more bars than the parts of a fold need. Statistics of Q are due at the last step.
pub const SHORT: [&str; 5] = ["seed=3", "sim.bars=1100", "epochs=2", "steps_per_epoch=25", "bars_per_epoch=16"];

/// What is off in the preset, and often enough to be seen in a short run.
pub const EVERY_LEARNER: [&str; 11] = [
    "learners.temporal=true",
    "learners.attention=true",
    "learners.iqn=true",
    "learners.iql=true",
    "learners.selectivity=true",
    "learners.denoise=true",
    "learners.risk=true",
    "prune.final=0.5",
    "prune.end=40",
    "prune.every=10",
    "causal.every=10",
];

pub fn cases() -> Vec<Case> {
    vec![
        case("runs::a_run_leaves_all_its_files", a_run_leaves_all_its_files),
        case("runs::a_run_with_every_learner_stays_finite", a_run_with_every_learner_stays_finite),
        case("runs::a_seed_is_a_run", a_seed_is_a_run),
        case("runs::case_u_a_resumed_run_is_one_that_nothing_stopped", a_resumed_run_is_one_that_nothing_stopped),
        case("runs::ctrl_c_leaves_a_checkpoint_to_go_on_from", ctrl_c_leaves_a_checkpoint_to_go_on_from),
        case("runs::eval_repeats_the_tests_of_train", eval_repeats_the_tests_of_train),
        case("runs::a_report_is_made_and_made_again", a_report_is_made_and_made_again),
        case("runs::i1_an_audit_finds_one_launch_a_step", i1_an_audit_finds_one_launch_a_step),
        case("runs::the_graph_has_the_children_of_a_step", the_graph_has_the_children_of_a_step),
        case("runs::a_file_of_bars_trains_as_its_simulator", a_file_of_bars_trains_as_its_simulator),
        case("runs::priorities_are_rescored_between_epochs", priorities_are_rescored_between_epochs),
        case("runs::bad_input_ends_with_2_and_leaves_nothing", bad_input_ends_with_2_and_leaves_nothing),
    ]
}

/// The keys of a short run with every learner.
fn every_learner() -> Vec<&'static str> {
    [&SHORT[..], &EVERY_LEARNER].concat()
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

/// Lines of `metrics.jsonl`, none of which may have skipped an update or lack a number but those of Q, measured at every 50th step.
fn finite_epochs(program: &Program, name: &str) -> Result<Vec<Value>, Failed> {
    let text = fs::read_to_string(program.path(name).join("metrics.jsonl"))?;
    let epochs: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for epoch in &epochs {
        let is_due = |name: &str| name != "q" || epoch["step"].as_u64() >= Some(50);
        let fields = epoch.as_object().ok_or("an epoch is no object")?;
        let missing = fields.iter().find(|(name, value)| is_due(name) && has_null(value));
        ensure!(missing.is_none(), "a number is not finite: {epoch}");
        ensure!(epoch["skipped"] == 0, "updates were skipped: {epoch}");
        ensure!(epoch["loss"].as_f64().is_some_and(|loss| loss > 0.0), "{epoch}");
    }
    Ok(epochs)
}

fn a_run_leaves_all_its_files(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let sets: Vec<&str> = SHORT.iter().flat_map(|set| ["--set", set]).collect();
    let printed = program.done(&[&["train", "--preset", "tiny", "--out", "run"], &sets[..]].concat())?;
    ensure_has(&printed, &["agent", "buy and hold", "random", "Sharpe", "report.html"])?;
    for name in ["config.toml", "run.json", "metrics.jsonl", "evaluation.json", "report.html"] {
        let len = fs::metadata(program.path("run").join(name))?.len();
        ensure!(len > 0, "{name} is empty");
    }
    let steps: Vec<Value> = finite_epochs(&program, "run")?.iter().map(|epoch| epoch["step"].clone()).collect();
    ensure!(steps == [25, 50], "epochs ended at steps {steps:?}");
    let n_checkpoints = program.run("run")?.checkpoints()?.len();
    ensure!(n_checkpoints == 2, "{n_checkpoints} checkpoints");
    let record = json_of(&program.path("run").join("run.json"))?;
    ensure!(record["backend"] == device.backend_name() && record["seed"] == 3, "{record}");
    Ok(())
}

/// The learner as a whole: losses, statistics and parameters of all parts, after steps, boundary, re-scoring and validation.
fn a_run_with_every_learner_stays_finite(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &every_learner())?;
    let epochs = finite_epochs(&program, "run")?;
    ensure!(epochs.len() == 2, "{} epochs", epochs.len());
    let last = &epochs[1];
    let of = |value: &Value| value.as_f64().unwrap_or_default();
    ensure!(of(&last["causal_mean"]) > 0.0 && of(&last["q"]["variance"]) > 0.0, "a learner told nothing: {last}");
    ensure!(of(&last["risk_eta"]) != 1.0, "the CVaR level did not move: {last}");
    let checkpoint = host::run::Checkpoint::open(
        &program.run("run")?.checkpoint_path(host::run::CheckpointId { fold: 1, epoch: 2 }),
    )?;
    for entry in checkpoint.manifest().tensors.iter().filter(|entry| format!("{:?}", entry.dtype) == "F32") {
        let tensor = checkpoint.tensor(&entry.name).ok_or("a tensor is missing")?;
        let values = tensor.values::<f32>().ok_or("not whole")?;
        let bad = values.iter().position(|value| !value.is_finite());
        ensure!(bad.is_none(), "`{}` has a number that is not finite at {bad:?}", entry.name);
    }
    Ok(())
}

fn a_seed_is_a_run(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("one", &SHORT)?;
    program.train("again", &SHORT)?;
    let other: Vec<&str> = ["seed=4"].into_iter().chain(SHORT[1..].iter().copied()).collect();
    program.train("other", &other)?;
    let (one, again) = (program.tensors_of("one", 2)?, program.tensors_of("again", 2)?);
    ensure!(one == again && program.epochs("one")? == program.epochs("again")?, "two runs of one seed differ");
    ensure!(one != program.tensors_of("other", 2)?, "two seeds give one run");
    Ok(())
}

/// The run loses its last epoch, as one that was switched off in it.
fn a_resumed_run_is_one_that_nothing_stopped(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &every_learner())?;
    let evaluation = || fs::read_to_string(program.path("run").join("evaluation.json"));
    let (tensors, epochs, result) = (program.tensors_of("run", 2)?, program.epochs("run")?, evaluation()?);
    fs::remove_dir_all(program.run("run")?.checkpoint_path(host::run::CheckpointId { fold: 1, epoch: 2 }))?;
    for name in ["evaluation.json", "report.html"] {
        fs::remove_file(program.path("run").join(name))?;
    }
    program.done(&["train", "--resume", "run", "--quiet"])?;
    ensure!(program.tensors_of("run", 2)? == tensors, "the resumed epoch left other tensors");
    ensure!(program.epochs("run")? == epochs, "the resumed epoch told other numbers");
    ensure!(evaluation()? == result, "the resumed run tests otherwise");
    Ok(())
}

/// Waits until the run in `name` has told so many epochs.
fn wait_for_epochs(program: &Program, name: &str, child: &mut Child, n_epochs: usize) -> Outcome {
    let (started, file) = (Instant::now(), program.path(name).join("metrics.jsonl"));
    while fs::read_to_string(&file).map_or(0, |text| text.lines().count()) < n_epochs {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "the run ended before epoch {n_epochs}: {ended:?}");
        ensure!(started.elapsed() < Duration::from_secs(120), "no epoch {n_epochs} in two minutes");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn ctrl_c_leaves_a_checkpoint_to_go_on_from(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    // Long enough for the signal to come before the end.
    let sets = ["sim.bars=1100", "epochs=60", "steps_per_epoch=2", "bars_per_epoch=4"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let mut command = program.command(&[&["train", "--preset", "tiny", "--out", "run"], &sets[..]].concat())?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    wait_for_epochs(&program, "run", &mut child, 1)?;
    let sent = Command::new("bash").args(["-c", &format!("kill -INT {}", child.id())]).status()?;
    ensure!(sent.success(), "the signal was not sent");
    let output = child.wait_with_output()?;
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(0), "{:?}: {told}", output.status);
    ensure_has(&printed, &["stopped; go on with: onegraph train --resume "])?;
    let n_told = program.epochs("run")?.len();
    ensure!((1..60).contains(&n_told), "{n_told} epochs");
    let newest = program.run("run")?.checkpoints()?.pop().ok_or("no checkpoint")?;
    ensure!(newest.epoch as usize == n_told, "{newest:?} after {n_told} epochs");
    ensure!(!program.path("run").join("evaluation.json").exists(), "a stopped run was tested");
    let result = program.json(&["train", "--resume", "run", "--quiet"])?;
    ensure!(result["interrupted"] == false && program.epochs("run")?.len() == 60, "{result}");
    Ok(())
}

fn eval_repeats_the_tests_of_train(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &every_learner())?;
    let written = json_of(&program.path("run").join("evaluation.json"))?;
    ensure!(written["n_bars"].as_u64().is_some_and(|n| n >= 200), "{written}");
    let again = program.json(&["eval", "--checkpoint", "run"])?;
    ensure!(again == written, "{again}\n{written} expected");
    // On other bars it is another test, of all of them but the warm-up and the last, on which nothing fills.
    program.done(&["data", "simulate", "--out", "other.csv", "--bars", "700", "--seed", "8"])?;
    let other = program.json(&["eval", "--checkpoint", "run", "--data", "other.csv"])?;
    ensure!(other["n_bars"] == 700 - 128 - 1, "{} bars of 700", other["n_bars"]);
    Ok(())
}

fn a_report_is_made_and_made_again(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("run", &SHORT)?;
    let made = fs::read_to_string(program.path("run").join("report.html"))?;
    ensure_has(&made, &["<title>run", "<svg", "Q over the batch", "Actions chosen, by epoch", "sim.bars", "1100"])?;
    ensure!(!made.contains("src=") && !made.contains("<link"), "the report is more than one file");
    program.done(&["report", "run", "--out", "again.html"])?;
    ensure!(fs::read_to_string(program.path("again.html"))? == made, "the report came out otherwise");
    Ok(())
}

fn i1_an_audit_finds_one_launch_a_step(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let sets: Vec<&str> =
        ["sim.bars=1100", "bars_per_epoch=4"].iter().chain(&EVERY_LEARNER).flat_map(|set| ["--set", set]).collect();
    let audit = program.json(&[&["audit", "--preset", "tiny", "--steps", "30"], &sets[..]].concat())?;
    let count = |name: &str| audit[name].as_u64().unwrap_or(u64::MAX);
    let counts = ["steps", "hot_calls", "graph_launches", "violations"].map(count);
    ensure!(counts == [30, 30, 30, 0], "steps, calls, launches, violations: {counts:?}");
    ensure!(audit["faults"] == Value::Array(Vec::new()), "{}", audit["faults"]);
    Ok(())
}

fn the_graph_has_the_children_of_a_step(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let graph = program.json(&["graph", "--preset", "tiny"])?;
    let children = graph["children"].as_array().ok_or("no list")?;
    let names: Vec<&str> = children.iter().filter_map(|child| child["name"].as_str()).collect();
    // The auxiliary children have no launch in the preset.
    let mut want = vec!["counters", "per_sample", "spectral", "ddqn", "forward", "adam_grad"];
    want.extend(["maintenance", "adam_update", "iql_modulate", "per_priority"]);
    ensure!(names == want, "{names:?}");
    let edges = graph["edges"].as_array().ok_or("no list")?;
    let waits = |later: &str, earlier: &str| {
        let at = |name: &str| names.iter().position(|of| *of == name).map(Value::from);
        edges.iter().any(|edge| Some(&edge["to"]) == at(later).as_ref() && Some(&edge["from"]) == at(earlier).as_ref())
    };
    ensure!(waits("forward", "ddqn"), "the loss does not wait for its targets");
    Ok(())
}

fn a_file_of_bars_trains_as_its_simulator(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("simulated", &SHORT)?;
    program.done(&["data", "simulate", "--out", "bars.csv", "--bars", "1100", "--seed", "3"])?;
    let sets: Vec<&str> = SHORT.iter().filter(|set| !set.starts_with("sim.")).flat_map(|set| ["--set", set]).collect();
    let train = ["train", "--preset", "tiny", "--quiet", "--out", "read", "--data", "bars.csv"];
    program.done(&[&train[..], &sets].concat())?;
    let (read, simulated) = (program.epochs("read")?, program.epochs("simulated")?);
    ensure!(read == simulated, "{read:?}\n{simulated:?} on the simulator itself");
    Ok(())
}

/// Off, the first epoch is the same and its tree another.
fn priorities_are_rescored_between_epochs(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    program.train("on", &SHORT)?;
    program.train("off", &[&SHORT[..], &["per.rescore=0"]].concat())?;
    let (on, off) = (program.epochs("on")?, program.epochs("off")?);
    ensure!(on[0] == off[0], "re-scoring changed the epoch before it");
    ensure!(on[1].loss != off[1].loss, "the second epoch drew the same without re-scoring");
    Ok(())
}

fn bad_input_ends_with_2_and_leaves_nothing(device: &Device) -> Outcome {
    let program = Program::new(device)?;
    let train = ["train", "--preset", "tiny", "--out", "run"];
    for (arguments, parts) in [
        (&["--set", "learners.atention=true"][..], ["learners.atention", "learners.attention"]),
        (&["--set", "batch=0"], ["batch", "0"]),
        (&["--data", "nowhere.csv"], ["nowhere.csv", "no"]),
    ] {
        let output = program.output(&[&train[..], arguments].concat())?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?} ended with {:?}: {told}", output.status);
        ensure_has(&told, &parts)?;
        ensure!(!told.contains("bug") && !program.path("run").exists(), "{arguments:?}: {told}");
    }
    Ok(())
}
