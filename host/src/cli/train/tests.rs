use std::fs;

use clap::Parser;

use super::*;
use crate::cli::Error;
use crate::config::Sampler;
use crate::data::simulate::Simulation;
use crate::data::write_bars;
use crate::metrics::EpochMetrics;
use crate::run::{CheckpointId, CheckpointMeta, CheckpointWriter, Dtype};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    train: Arguments,
}

fn parse(arguments: &[&str]) -> Arguments {
    let line = std::iter::once(&"train").chain(arguments);
    Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).train
}

fn resolve(arguments: &[&str]) -> Result<TrainPlan, PlanError> {
    parse(arguments).resolve(DeviceChoice::Cpu)
}

/// The message of what must fail with exit code 2.
fn refused(arguments: &[&str]) -> String {
    match resolve(arguments) {
        Ok(_) => panic!("{arguments:?} was accepted"),
        Err(error) => {
            let message = error.to_string();
            assert_eq!(Error::from(error).exit_code(), 2, "{message}");
            message
        }
    }
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

/// A CSV file of so many simulated bars.
fn market_file(folder: &Path, name: &str, n_bars: u32) -> String {
    let path = folder.join(name);
    write_bars(&path, &Simulation { market: Market::RandomWalk, n_bars, seed: 1 }.bars()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_files_the_simulator_is_traded() {
    let plan = resolve(&["--preset", "tiny", "--seed", "7", "--sim", "mean-reverting"]).unwrap();
    assert_eq!((plan.config.seed, plan.config.sim.market, plan.config.folds), (7, Market::MeanReverting, 1));
    assert_eq!((plan.bars.len(), plan.bars[0].name.as_str(), plan.bars[0].bars.len()), (1, "mean-reverting", 3_000));
    assert_eq!(plan.bars[0].bars, Simulation { market: Market::MeanReverting, n_bars: 3_000, seed: 7 }.bars());
    assert_eq!((plan.record.seed, plan.record.preset, plan.record.data), (7, Some(Preset::Tiny), None));
    assert!(plan.resume.is_none() && plan.out.is_none());
    assert_eq!(resolve(&["--set", "sim.bars=5000"]).unwrap().config.hidden, 64, "the CPU's preset is small");
}

#[test]
fn set_wins_over_the_file_and_flags_over_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    fs::write(&file, "seed = 1\nlr = 0.5\nbatch = 64\n").unwrap();
    let file = file.to_str().unwrap();
    let set = ["--set", "lr=0.25", "--set", "per.sampler=scan"];
    let plan = resolve(&[&["--preset", "tiny", "--config", file, "--seed", "3"][..], &set].concat()).unwrap();
    let config = plan.config;
    assert_eq!((config.seed, config.lr, config.batch, config.per.sampler), (3, 0.25, 64, Sampler::Scan));
}

#[test]
fn the_working_folder_s_file_is_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let lr = |arguments: &Arguments| {
        arguments.setup.layers(Preset::Tiny, folder.path()).and_then(Layers::finish).unwrap().lr
    };
    let arguments = parse(&[]);
    assert_eq!(lr(&arguments), 2e-3);
    fs::write(folder.path().join("onegraph.toml"), "lr = 0.5\n").unwrap();
    assert_eq!(lr(&arguments), 0.5);
    let other = folder.path().join("other.toml");
    fs::write(&other, "").unwrap();
    let arguments = parse(&["--config", other.to_str().unwrap()]);
    assert_eq!(lr(&arguments), 2e-3);
}

/// Of the preset nothing is left where a file gives every key.
#[test]
fn a_preset_is_recorded_where_something_of_it_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("whole.toml");
    let config = Config { lr: 0.125, ..Config::preset(Preset::Tiny, DataSource::Simulator) };
    fs::write(&file, config.to_toml()).unwrap();
    let record = |arguments: &[&str]| resolve(arguments).unwrap().record;
    let whole = record(&["--config", file.to_str().unwrap(), "--preset", "small"]);
    assert_eq!((whole.preset, whole.config_fingerprint), (None, config.fingerprint()));
    let text = config.to_toml().replacen("lr = 0.125\n", "", 1);
    assert_ne!(text, config.to_toml());
    fs::write(&file, text).unwrap();
    assert_eq!(record(&["--config", file.to_str().unwrap(), "--preset", "tiny"]).preset, Some(Preset::Tiny));
}

/// Whoever reads the result must know of them: repairs, jumps, and a setting that measured spreads leave unused.
#[test]
fn notes_on_the_data_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = market_file(folder.path(), "bars.csv", 3_000);
    assert_eq!(resolve(&["--preset", "tiny", "--data", &file]).unwrap().record.notes, Vec::<String>::new());
    let text = fs::read_to_string(&file).unwrap();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut fields: Vec<String> = rows[1_000].split(',').map(str::to_owned).collect();
    fields[2] = "1e6".into();
    rows[1_000] = fields.join(",");
    rows.push(rows[5].clone());
    fs::write(&file, rows.join("\n") + "\n").unwrap();
    let set = ["--preset", "tiny", "--data", &file, "--set", "costs.half_spread_bp=3"];
    let notes = resolve(&set).unwrap().record.notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[..2].iter().all(|note| note.starts_with(&format!("{file}: "))), "{notes:?}");
    assert_has(&notes[0], &["the high is ", "times above the close"]);
    assert_has(&notes[1], &["mended: exact duplicates dropped (1), rows out of order sorted (1)"]);
    assert_has(&notes[2], &["bars: its bars have a spread of their own"]);
}

#[test]
fn files_are_named_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (market_file(folder.path(), "a.csv", 3_000), market_file(folder.path(), "b.parquet", 2_500));
    let plan = resolve(&["--preset", "tiny", "--data", &a, "--data", &b, "--data", &a]).unwrap();
    let names: Vec<(&str, usize)> = plan.bars.iter().map(|s| (s.name.as_str(), s.bars.len())).collect();
    assert_eq!(names, [("a", 3_000), ("b", 2_500), ("a#2", 3_000)]);
    let data = plan.record.data.unwrap();
    assert_eq!((data.files.len(), &data.files[1].path), (3, &folder.path().join("b.parquet")));
}

#[test]
fn wrong_input_is_exit_code_two_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let short = market_file(folder.path(), "short.csv", 990);
    let tight = market_file(folder.path(), "tight.csv", 1_100);
    let busy = folder.path().to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--set", "hiden=64"], &["--set hiden=64", "`hidden`"]),
        (&["--seed", "18446744073709551615"], &["--seed: `seed` is \"18446744073709551615\"", "a whole number from 0"]),
        (&["--seed", "1", "--set", "seed=2"], &["`seed` is given twice, by --seed and by --set"]),
        (&["--sim", "regimes", "--set", " sim.market = regimes"], &["`sim.market` is given twice"]),
        (&["--set", "hidden=3072"], &["`hidden` is 3072", "from 32 to 2048"]),
        (&["--config", "missing.toml"], &["missing.toml: cannot be read"]),
        (&["--data", "missing.csv"], &["missing.csv", "cannot be read"]),
        (&["--data", &short], &["short.csv: has 990 bars", "longer file"]),
        (&["--data", &tight, "--preset", "tiny", "--set", "folds=2"], &["tight: 1100 bars leave 165", "fewer folds"]),
        (&["--data", &tight, "--symbol", "NONE"], &["tight.csv"]),
        (&["--symbol", "ES"], &["`--symbol`", "`--data FILE`"]),
        (&["--stamps", "end"], &["`--stamps`", "`--data FILE`"]),
        (&["--data", &tight, "--set", "sim.bars=2000"], &["--set sim.bars=2000: with `--data` nothing is simulated"]),
        (&["--set", "sim.bars=900"], &["regimes: 900 bars leave 180 for the test", "take more bars"]),
        (&["--out", busy], &["is not empty, and no run"]),
        (&["--resume", busy], &["is no run: it has no run.json"]),
    ];
    for (arguments, parts) in cases {
        assert_has(&refused(arguments), parts);
    }
}

#[test]
fn more_memory_than_there_is_is_refused_with_the_sum() {
    let set = ["--set", "capacity=134217728", "--set", "window=64", "--set", "sim.bars=5000"];
    assert_has(&refused(&set), &["the run needs", "replay ring", " + priorities", "smaller preset"]);
}

#[test]
fn a_run_resumes_with_its_own_configuration_and_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = market_file(folder.path(), "bars.csv", 3_000);
    let out = folder.path().join("run");
    let out_text = out.to_str().unwrap();
    let begun = ["--preset", "tiny", "--data", &file, "--out", out_text, "--set", "lr=0.125", "--stamps", "end"];
    let plan = resolve(&begun).unwrap();
    let run = plan.folder().unwrap();
    assert_has(&refused(&begun), &["holds a run already", "--resume"]);

    // Stopped before the first checkpoint: from the start again.
    let again = resolve(&["--resume", out_text]).unwrap();
    assert_eq!((&again.config, &again.bars, &again.record), (&plan.config, &plan.bars, &plan.record));
    let resume = again.resume.as_ref().unwrap();
    assert!(resume.checkpoint.is_none());
    assert_eq!(again.folder().unwrap(), run);

    let id = CheckpointId { fold: 1, epoch: 3 };
    let fingerprint = plan.config.fingerprint();
    let meta = CheckpointMeta {
        id,
        step: 60,
        resumable: true,
        validation_score: None,
        seconds: 9.0,
        config_fingerprint: fingerprint,
    };
    let message = {
        let writer = CheckpointWriter::new(&run).and_then(|writer| writer.tensor("x", Dtype::U8, &[1], &[5]));
        writer.and_then(|writer| writer.finish(meta)).unwrap();
        refused(&["--resume", out_text])
    };
    assert_has(&message, &["metrics.jsonl: lacks the line of fold 1, epoch 1"]);
    let mut log = run.metrics(None).unwrap();
    (1..=3).for_each(|epoch| log.append(EpochMetrics { fold: 1, epoch, ..EpochMetrics::default() }).unwrap());
    let writer = CheckpointWriter::new(&run).and_then(|writer| writer.tensor("x", Dtype::U8, &[1], &[5]));
    writer.and_then(|writer| writer.finish(meta)).unwrap();
    let checkpoint = resolve(&["--resume", out_text]).unwrap().resume.unwrap().checkpoint.unwrap();
    assert_eq!((checkpoint.meta(), checkpoint.tensor("x").unwrap().bytes), (&meta, &[5][..]));

    // The file moves, then changes.
    let moved = folder.path().join("moved.csv");
    fs::rename(&file, &moved).unwrap();
    assert_has(&refused(&["--resume", out_text]), &["bars.csv: cannot be read"]);
    let moved_text = moved.to_str().unwrap();
    assert_eq!(resolve(&["--resume", out_text, "--data", moved_text]).unwrap().bars[0].bars, plan.bars[0].bars);
    assert_has(
        &refused(&["--resume", out_text, "--data", moved_text, "--data", moved_text]),
        &["began with 1 file(s)"],
    );
    fs::write(&moved, fs::read_to_string(&moved).unwrap().replacen('1', "2", 1)).unwrap();
    let message = refused(&["--resume", out_text, "--data", moved_text]);
    assert_has(&message, &["moved.csv: is not the file that the run began with"]);

    let config = out.join("config.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("lr = 0.125", "lr = 0.5")).unwrap();
    assert_has(&refused(&["--resume", out_text]), &["config.toml: is not the configuration", "start a new run"]);
}

#[test]
fn a_simulated_run_resumes_without_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let out = out.to_str().unwrap();
    let plan = resolve(&["--preset", "tiny", "--out", out]).unwrap();
    plan.folder().unwrap();
    assert_eq!(resolve(&["--resume", out]).unwrap().bars, plan.bars);
    assert_has(&refused(&["--resume", out, "--data", "x.csv"]), &["trades the simulator"]);
}

#[test]
fn flags_that_a_resumed_run_has_already_are_refused() {
    for flag in ["--config=x", "--set=lr=1", "--preset=tiny", "--out=x", "--seed=1", "--sim=regimes", "--stamps=end"] {
        let error = Line::try_parse_from(["train", "--resume", "runs/x", flag]).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{flag}");
        assert_has(&error.to_string(), &["cannot be used with", "--resume"]);
    }
    let error = Line::try_parse_from(["train", "--data", "x", "--sim", "regimes"]).unwrap_err();
    assert_has(&error.to_string(), &["cannot be used with"]);
    assert!(Line::try_parse_from(["train", "--resume", "runs/x", "--data", "x"]).is_ok());
}
