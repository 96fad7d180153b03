//! `audit` as a user runs it: what training calls on the CPU, and the page of the documentation.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn onegraph(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    command.args(arguments).args(["--device", "cpu"]).output().expect("the program starts")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Lines of a phase.
fn of<'a>(audit: &'a Value, phase: &str) -> Vec<&'a Value> {
    let lines = audit["lines"].as_array().expect("a list");
    lines.iter().filter(|line| line["phase"] == phase).collect()
}

/// Calls of the lines whose field has this value.
fn calls(lines: &[&Value], field: &str, value: &str) -> u64 {
    lines.iter().filter(|line| line[field] == value).map(|line| number(&line["calls"])).sum()
}

#[test]
fn i1_i7_training_makes_one_call_a_step_and_the_page_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (json, page) = (path("audit.json"), path("hot-path.md"));
    let output = onegraph(&["audit", "--preset", "tiny", "--steps", "60", "--json", &json, "--docs", &page]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let audit: Value = serde_json::from_slice(&std::fs::read(&json).expect("the file")).expect("JSON");
    assert_eq!((&audit["backend"], number(&audit["steps"]), number(&audit["epochs"])), (&Value::from("cpu"), 60, 3));
    let counts = ["hot_calls", "graph_launches", "violations"].map(|name| number(&audit[name]));
    assert_eq!((counts, &audit["faults"]), ([60, 60, 0], &Value::Array(Vec::new())));

    // The step's launch and the look at mapped memory, once a step each, and nothing else.
    let hot = of(&audit, "step");
    assert_eq!((calls(&hot, "name", "cpu:cuGraphLaunch"), calls(&hot, "name", "mapped load"), hot.len()), (60, 60, 2));
    assert_eq!((calls(&hot, "class", "graph-launch"), calls(&hot, "class", "mapped-pinned")), (60, 60));
    for line in hot {
        let place = line["place"].as_str().expect("a place");
        assert!(place.starts_with("host/src/train/step_loop.rs:"), "{place}");
    }
    // Collection launches one graph a bar between the epochs; every boundary reads what it needs.
    let boundary = of(&audit, "epoch_boundary");
    let collected: Vec<&Value> = boundary
        .iter()
        .copied()
        .filter(|line| line["place"].as_str().is_some_and(|at| at.contains("collection")))
        .collect();
    assert_eq!(calls(&collected, "name", "cpu:cuGraphLaunch"), 3 * 32, "bars of three epochs");
    assert!(calls(&boundary, "direction", "device_to_host") >= 3 * 3 && calls(&boundary, "kind", "launch") > 0);
    let checkpoint = of(&audit, "checkpoint");
    assert_eq!(calls(&checkpoint, "direction", "host_to_device"), 0);
    assert!(checkpoint.iter().all(|line| line["memory"] == "pageable" && number(&line["bytes"]) > 0));
    let setup = of(&audit, "setup");
    for name in
        ["cpu:cuMemAlloc_v2", "cpu:cuMemHostAlloc", "cpu:cuGraphInstantiateWithFlags", "cpu:cuMemcpyHtoDAsync_v2"]
    {
        assert!(calls(&setup, "name", name) > 0, "{name}");
    }
    let freed = ["cpu:cuMemFree_v2", "cpu:cuMemFreeHost"].map(|name| calls(&setup, "name", name));
    assert!(freed.iter().all(|calls| *calls > 0), "the trainer's memory goes at the end: {freed:?}");
    for line in setup.iter().chain(&boundary).chain(&checkpoint) {
        let fits = ["cold-path", "mapped-pinned"].iter().any(|class| line["class"] == *class);
        assert!(fits && line["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{line}");
    }

    let text = String::from_utf8(output.stdout).expect("text");
    for part in
        ["Hot path", "cold-path", "60 steps: 60 calls between them, 60 of them the step's graph launch", "to host"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let written = std::fs::read_to_string(&page).expect("the page");
    let committed = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hot-path.md"));
    assert!(
        committed.expect("docs/hot-path.md") == written,
        "docs/hot-path.md is not what `onegraph audit --device cpu --preset tiny --steps 60 --docs docs/hot-path.md` writes"
    );
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    for arguments in
        [&["audit", "--steps", "0"][..], &["audit", "--json", "--docs", "-"], &["audit", "--set", "batch=0"]]
    {
        let output = onegraph(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
