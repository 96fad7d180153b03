//! `report` on run folders made up for the purpose. With `ONEGRAPH_KEEP_REPORT=FOLDER` the sample run stays there, to be
//! looked at.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpu_kernels::philox;
use host::config::{Config, DataSource, Preset};
use host::eval::backtest::PartRecords;
use host::eval::evaluation::{Evaluation, FoldTest, Selection, Times};
use host::eval::records::PathRecords;
use host::eval::scenario::Scenario;
use host::report;
use host::report::run::Run;
use host::run::{BarsRecord, RunRecord};
use serde_json::{Value, json};

const BAR_NS: i64 = 300_000_000_000;
const MONDAY_NS: i64 = 1_704_067_200_000_000_000;
const N_FOLDS: usize = 3;
const N_TEST: usize = 6_000;
const N_EPOCHS: usize = 40;

fn normal(stream: u32, at: usize) -> f64 {
    f64::from(philox::normal([5, 0], 600, stream, at as u32))
}

/// A path of normal returns; trades and orders in round shares of its bars.
fn path(stream: u32, mean: f64, sigma: f64) -> PathRecords {
    let returns: Vec<f32> = (0..N_TEST - 1).map(|at| (mean + sigma * normal(stream, at)) as f32).collect();
    let n = returns.len() as u64;
    PathRecords {
        returns,
        turnover: 0.05 * n as f64,
        costs: 1e-5 * n as f64,
        exposure: 0.4 * n as f64,
        n_exposed: n / 2,
        n_fills: n / 8,
        n_limits: n / 7,
        n_limit_fills: n / 16,
        n_trades: n / 20,
        n_wins: n / 36,
        n_ruined: 0,
    }
}

fn fold(at: usize) -> FoldTest {
    let stream = 100 * at as u32;
    let start = 2_000 + at * N_TEST;
    let costs = [0.0, 1e-5, -2e-5, -0.5e-5, 0.5e-5];
    FoldTest {
        selection: Selection {
            epoch: Some(17 + 3 * at as u64),
            n_candidates: Some(28),
            train_sharpe: Some(9.4 - at as f64),
            validation_sharpe: Some([5.1, -0.3, 4.4][at]),
            validation_trades: Some(120),
            best_validation_sharpe: Some([5.1, -0.3, 4.4][at]),
            ..Selection::default()
        },
        records: PartRecords {
            part: start..start + N_TEST,
            kelly_cap: 0.62,
            agent: (0..Scenario::ALL.len()).map(|which| path(stream, 2.5e-5 + costs[which], 8e-4)).collect(),
            buy_and_hold: (0..Scenario::ALL.len()).map(|_| path(stream + 10, 0.5e-5, 1.2e-3)).collect(),
        },
        threshold_rule: None,
    }
}

fn evaluation() -> Evaluation {
    let folds: Vec<FoldTest> = (0..N_FOLDS).map(fold).collect();
    let time_ns: Vec<i64> = (0..2_000 + (N_FOLDS * N_TEST) as i64).map(|bar| MONDAY_NS + bar * BAR_NS).collect();
    let random = PathRecords::joined(&[0, 1, 2].map(|fold| path(100 * fold + 20, -6e-5, 9e-4)));
    Evaluation::new(&folds, &random, Times { time_ns: &time_ns, interval_ns: BAR_NS }, 7)
}

/// A line of metrics; an epoch without validation has a null there, a share of NaN is written as null.
fn line(fold: usize, epoch: usize) -> Value {
    let (t, noise) = (epoch as f64 / N_EPOCHS as f64, |stream: u32| normal(900 + stream, 1_000 * fold + epoch));
    let trade = 0.25 + 0.5 * t;
    let validation = (epoch % 2 == 1).then(|| json!({"sharpe": -4.0 + 9.0 * t + noise(1), "trades": 40 + epoch}));
    json!({
        "epoch": epoch, "fold": fold, "step": 100 * (epoch + 1), "loss": 3.9 - 1.2 * t + 0.05 * noise(2),
        "mse": 1.4 - 0.7 * t + 0.04 * noise(3), "grad_norm": (2.0 - 3.0 * t + 0.3 * noise(4)).exp(),
        "q": {"mean": 0.2 * t + 0.01 * noise(5), "min": -0.8 - t, "max": 0.9 + 1.4 * t, "variance": 0.2, "avg_max": 0.35 * t},
        "gamma": 0.95 + 0.04 * (0.7 + 0.3 * t), "tau": 0.05 - 0.04 * t, "epsilon": (-5.0 * t).exp().max(0.05),
        "kelly_cap": 0.6 + 0.1 * noise(6), "health": 0.7 + 0.3 * t, "skipped": 0,
        "actions": [[0.25 * trade, 0.75 * trade, 0.4 * (1.0 - trade), 0.6 * (1.0 - trade)],
                       [0.5 - 0.3 * t, 0.3, 0.2 + 0.3 * t], [0.4 - 0.2 * t, 0.3, 0.3 + 0.2 * t], [0.2, 0.3, 0.5]],
        "steps_per_s": 42.0 + noise(7), "env_steps_per_s": 81_000.0, "train_sharpe": -3.0 + 12.0 * t + 0.5 * noise(8),
        "validation": validation, "seconds": 2.4 * (epoch + 1) as f64,
    })
}

/// A whole run's folder.
fn write_sample(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file");
    let lines = (0..N_FOLDS).flat_map(|fold| (0..N_EPOCHS).map(move |epoch| line(fold, epoch).to_string() + "\n"));
    write("metrics.jsonl", lines.collect());
    write("evaluation.json", serde_json::to_string(&evaluation()).expect("plain data"));
    let config = Config::preset(Preset::Small, DataSource::Simulator);
    write("config.toml", config.to_toml() + "# <script>alert(\"x\")</script>\n");
    let record = RunRecord {
        version: "0.1.0".into(),
        command: vec!["onegraph".into(), "train".into()],
        backend: "cpu".into(),
        device: "<simulator & co>".into(),
        preset: Some(Preset::Small),
        seed: 1,
        config_fingerprint: config.fingerprint(),
        data: None,
        bars: BarsRecord { n_bars: 40_000, ..BarsRecord::default() },
        notes: vec!["bars.csv: at <noon> the high is 1000.0 times above the close".into()],
        started: "2026-11-30T20:00:00Z".into(),
    };
    write("run.json", serde_json::to_string(&record).expect("plain data"));
    let child = |name: &str, us: f64, kernels: &[&str]| json!({"name": name, "us": us, "kernels": kernels});
    let edge = |from: usize, to: usize| json!({"from": from, "to": to, "hazard": "read_after_write", "from_parameter": "a.b", "to_parameter": "c.d", "memory": 0});
    let children = [
        child("counters", 2.0, &["increment_step_counters"]),
        child("per_sample", 21.0, &["seg_tree_sample", "gather_f32_rows_padded", "gather_f32_rows_padded"]),
        child("spectral & co", 1409.04, &["spectral_columns", "spectral_rows"]),
        child("per_priority", 11.5, &["publish"]),
    ];
    let graph = json!({"device": "the <CPU>", "measured": "2026-11-30T21:00:00Z", "step_us": 1444.0, "children": children,
        "edges": [edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3)]});
    write("graph.json", graph.to_string());
}

fn onegraph(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onegraph")).args(arguments).output().expect("the program starts")
}

fn report(folder: &Path) -> Output {
    onegraph(&["report", folder.to_str().expect("UTF-8")])
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A folder whose name would be markup, with the sample in it.
fn sample() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = match std::env::var_os("ONEGRAPH_KEEP_REPORT") {
        Some(kept) => kept.into(),
        None => parent.path().join("run <i>1 & \"2\""),
    };
    write_sample(&folder);
    (parent, folder)
}

#[test]
fn the_page_has_every_section_and_nothing_from_outside() {
    let (_parent, folder) = sample();
    let output = report(&folder);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let html = std::fs::read_to_string(folder.join("report.html")).expect("the report");
    let evaluation = evaluation();
    assert!(html.contains(&evaluation.sentence.replace('\'', "&#39;")), "the verdict is missing");
    for part in [
        "Result",
        "Equity and drawdown",
        "Costs, orders and cap",
        "half the costs",
        "market orders only",
        "cap 1",
        "Training, validation and test",
        "Loss",
        "Q over the batch",
        "Discount gamma",
        "Direction",
        "Minimum hold",
        "One training step",
        "4 child graphs, 7 kernels, 4 edges",
        "The longest way, in blue, is 1,423 µs",
        "spectral &amp; co: 1,409 µs, 2 kernels, after counters",
        "gather_f32_rows_padded 2×",
        "on the &lt;CPU&gt;: 1,444 µs a step",
        "half_spread_bp = 1.0",
        "bars.n_bars",
        "<p class=\"note\">bars.csv: at &lt;noon&gt; the high is 1000.0 times above the close</p>",
        "What the numbers mean",
        "from 84 candidates over 3 folds",
        "In fold 2 no candidate",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    for part in
        ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "NaN", "inf"]
    {
        let at = html.find(part).map(|at| html[at.saturating_sub(40)..].chars().take(90).collect::<String>());
        assert_eq!(at, None, "{part} is in the page");
    }
    assert!(html.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;"), "the configuration is not escaped");
    assert!(html.contains("&lt;simulator &amp; co&gt;"), "facts are not escaped");
    // 120 epochs and 18,000 bars: the page stays small.
    assert!(html.len() < 600_000, "{} bytes", html.len());
}

#[test]
fn every_picture_has_a_title_and_words() {
    let (_parent, folder) = sample();
    let html = report::html(&Run::read(&folder).expect("a run"));
    let pictures: Vec<&str> = html.split("role=\"img\"").skip(1).collect();
    assert!(pictures.len() >= 15, "{} pictures", pictures.len());
    let mut ids = Vec::new();
    for picture in pictures {
        let id = picture.split('"').nth(1).expect("a label");
        assert!(picture.contains("<title id=") && picture.contains("<desc id="), "{id} has no words");
        assert!(!ids.contains(&id), "{id} is there twice");
        ids.push(id);
    }
    for tag in ["section", "table", "figure", "svg", "div", "ul", "tr", "td", "th", "main", "header"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag} is not closed as often as opened");
    }
}

#[test]
fn a_name_is_text_and_no_markup() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("a <i>b & \"c\"");
    write_sample(&folder);
    let html = report::html(&Run::read(&folder).expect("a run"));
    assert!(html.contains("<h1>a &lt;i&gt;b &amp; &quot;c&quot;</h1>"), "the name is not escaped");
    assert!(!html.contains("<i>b"), "the name is markup");
}

#[test]
fn either_half_is_enough() {
    let (_parent, folder) = sample();
    let other = tempfile::tempdir().expect("a folder");
    std::fs::copy(folder.join("metrics.jsonl"), other.path().join("metrics.jsonl")).expect("a copy");
    let html = report::html(&Run::read(other.path()).expect("a run"));
    assert!(
        html.contains("has not been tested yet") && html.contains("<h2>Training</h2>") && !html.contains("<h2>Result")
    );
    std::fs::rename(other.path().join("metrics.jsonl"), other.path().join("x")).expect("a new name");
    std::fs::copy(folder.join("evaluation.json"), other.path().join("evaluation.json")).expect("a copy");
    let html = report::html(&Run::read(other.path()).expect("a run"));
    assert!(html.contains("<h2>Result</h2>") && !html.contains("<h2>Training</h2>"));
}

/// Lines with values missing, of the wrong type, or of other programs.
#[test]
fn metrics_may_lack_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    for text in [
        "",
        "\n\n",
        "{}\n",
        "{\"loss\": 1}\n",
        "{\"loss\": \"x\", \"actions\": 3, \"validation\": null}\n{\"loss\": -1e300}\n",
    ] {
        std::fs::write(folder.path().join("metrics.jsonl"), text).expect("a file");
        let html = report::html(&Run::read(folder.path()).expect("a run"));
        assert!(html.contains("has not been tested yet") && !html.contains("NaN"), "{text}");
    }
}

#[test]
fn out_and_json_say_where_and_what() {
    let (_parent, folder) = sample();
    let place = folder.join("elsewhere.html");
    let arguments = ["report", folder.to_str().expect("UTF-8"), "--out", place.to_str().expect("UTF-8"), "--json"];
    let output = onegraph(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(said["report"], place.to_str().expect("UTF-8"));
    assert_eq!(said["epochs"], 120);
    assert_eq!(said["verdict"], serde_json::to_value(evaluation().verdict).expect("a word"));
    assert_eq!(said["bytes"], std::fs::metadata(&place).expect("the report").len());
}

#[test]
fn what_is_no_run_or_damaged_exits_with_two_and_says_where() {
    let (_parent, folder) = sample();
    let fails = |folder: &Path, parts: &[&str]| {
        let before = std::fs::read(folder.join("report.html")).ok();
        let output = report(folder);
        assert_eq!(output.status.code(), Some(2), "{parts:?}: {}", stderr(&output));
        parts.iter().for_each(|part| assert!(stderr(&output).contains(part), "{part} is not in: {}", stderr(&output)));
        assert_eq!(std::fs::read(folder.join("report.html")).ok(), before, "a failed report has written");
    };
    fails(&folder.join("nowhere"), &["nowhere", "no such folder"]);
    let empty = tempfile::tempdir().expect("a folder");
    fails(empty.path(), &["holds neither metrics.jsonl nor evaluation.json"]);

    let damage = |name: &str, bytes: &[u8], parts: &[&str]| {
        let file = folder.join(name);
        let whole = std::fs::read(&file).expect("the file");
        std::fs::write(&file, bytes).expect("the damaged file");
        fails(&folder, parts);
        std::fs::write(&file, whole).expect("the file again");
    };
    let metrics = std::fs::read(folder.join("metrics.jsonl")).expect("metrics");
    damage("metrics.jsonl", &metrics[..metrics.len() - 40], &["metrics.jsonl, line 120: is no JSON", "damaged"]);
    damage("metrics.jsonl", b"{}\n[1]\n", &["metrics.jsonl, line 2: is no JSON object"]);
    damage("metrics.jsonl", b"{}\n{}\n\xff\n", &["metrics.jsonl, line 3: is no UTF-8"]);
    damage("evaluation.json", b"{\"version\": 99}", &["evaluation.json: has form 99", "form 1"]);
    damage("evaluation.json", b"{}", &["evaluation.json: has no `version`"]);
    damage("evaluation.json", b"{\"version\": 1}", &["evaluation.json, line 1", "missing field"]);
    damage("run.json", b"{", &["run.json, line 1: is no JSON"]);
    damage("run.json", b"{}", &["run.json: cannot be understood", "missing field", "restore the file"]);
    damage("graph.json", b"{}", &["graph.json, line 1: is no step's graph", "missing field"]);
    let mut graph: Value =
        serde_json::from_slice(&std::fs::read(folder.join("graph.json")).expect("the graph")).expect("JSON");
    let mut back = graph["edges"][3].clone();
    (back["from"], back["to"]) = (3.into(), 2.into());
    graph["edges"].as_array_mut().expect("a list").push(back);
    let parts =
        ["graph.json: is no step's graph", "edge 5 lets `spectral & co` wait for `per_priority`", "a cycle", "damaged"];
    damage("graph.json", graph.to_string().as_bytes(), &parts);
    let evaluation = std::fs::read(folder.join("evaluation.json")).expect("an evaluation");
    for sixteenth in 0..16 {
        damage("evaluation.json", &evaluation[..sixteenth * evaluation.len() / 16], &["evaluation.json, line 1"]);
    }
    let missing = folder.join("no").join("such.html");
    let arguments = ["report", folder.to_str().expect("UTF-8"), "--out", missing.to_str().expect("UTF-8")];
    let output = onegraph(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("such.html") && stderr(&output).contains("choose another place"),
        "{}",
        stderr(&output)
    );
}
