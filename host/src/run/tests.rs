use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST, TENSORS};
use super::*;
use crate::config::{Config, DataSource, Preset};
use crate::metrics::EpochMetrics;

fn config() -> Config {
    Config::preset(Preset::Tiny, DataSource::Simulator)
}

fn record() -> RunRecord {
    RunRecord {
        version: "0.1.0".into(),
        command: vec!["onegraph".into(), "train".into()],
        backend: "cpu".into(),
        device: "a processor".into(),
        preset: Some(Preset::Tiny),
        seed: 0,
        config_fingerprint: config().fingerprint(),
        data: None,
        bars: BarsRecord { n_bars: 3_000, interval_ns: 300_000_000_000, first_ns: 0, last_ns: 899_700_000_000_000 },
        notes: Vec::new(),
        started: RunRecord::started_now(),
    }
}

fn new_run(parent: &tempfile::TempDir) -> RunFolder {
    RunFolder::create(Some(&parent.path().join("run")), &config(), &record()).unwrap()
}

fn meta(epoch: u32, validation_score: Option<f64>) -> CheckpointMeta {
    let id = CheckpointId { fold: 1, epoch };
    CheckpointMeta {
        id,
        step: 20 * u64::from(epoch),
        resumable: true,
        validation_score,
        seconds: 1.5,
        config_fingerprint: 7,
    }
}

/// Sizes that leave what follows unaligned; the values tell epochs apart.
fn write(folder: &RunFolder, meta: CheckpointMeta) -> PathBuf {
    let epoch = meta.id.epoch as f32;
    let weights: Vec<f32> = (0..35).map(|i| epoch + i as f32 / 3.0).collect();
    CheckpointWriter::new(folder)
        .and_then(|writer| writer.tensor("dones", Dtype::U8, &[3], &[1, 0, 1]))
        .and_then(|writer| writer.tensor("weights", Dtype::F32, &[5, 7], bytemuck::cast_slice(&weights)))
        .and_then(|writer| writer.tensor("nothing", Dtype::F64, &[0, 4], &[]))
        .and_then(|writer| writer.tensor("cursor", Dtype::U32, &[1], bytemuck::bytes_of(&meta.id.epoch)))
        .and_then(|writer| writer.finish(meta))
        .unwrap()
}

fn names(folder: &RunFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.checkpoints_path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

#[test]
fn a_checkpoint_reads_back() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    let path = write(&folder, meta(12, Some(0.1 + 0.2)));
    assert!(path.ends_with("checkpoints/fold-1-epoch-00012"), "{}", path.display());
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.meta(), &meta(12, Some(0.1 + 0.2)));
    let weights = checkpoint.tensor("weights").unwrap();
    assert_eq!((weights.dtype, weights.shape), (Dtype::F32, &[5, 7][..]));
    let values = weights.values::<f32>().unwrap();
    assert_eq!((values.len(), values[1]), (35, 12.0 + 1.0 / 3.0));
    assert_eq!(checkpoint.tensor("cursor").unwrap().values::<u32>().unwrap()[..], [12]);
    assert_eq!(checkpoint.tensor("dones").unwrap().bytes, [1, 0, 1]);
    assert!(checkpoint.tensor("dones").unwrap().values::<u32>().is_none());
    assert!(checkpoint.tensor("nothing").unwrap().bytes.is_empty());
    assert!(checkpoint.tensor("other").is_none());
    // Any reader of the format understands the file.
    let bytes = fs::read(path.join(TENSORS)).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), 4);
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(path.join(MANIFEST)).unwrap()).unwrap();
    assert_eq!(manifest["meta"]["id"]["epoch"], 12);
}

/// Refused with the file's name, and the checkpoint before it loads.
fn assert_falls_back(folder: &RunFolder, file: &Path, what: &str) {
    let newest = folder.checkpoint_path(CheckpointId { fold: 1, epoch: 2 });
    let error = Checkpoint::open(&newest).err().unwrap_or_else(|| panic!("{what} was accepted"));
    assert_has(&error.to_string(), &[file.file_name().unwrap().to_str().unwrap(), "; "]);
    assert!(error.bad_input);
    let latest = folder.latest_checkpoint().unwrap_or_else(|error| panic!("{what}: {error}")).unwrap();
    assert_eq!(latest.meta().id.epoch, 1, "{what}");
}

#[test]
fn case_t_a_cut_checkpoint_is_refused_and_the_one_before_it_loads() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    write(&folder, meta(1, None));
    let path = write(&folder, meta(2, None));
    for name in [TENSORS, MANIFEST] {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        for sixteenth in 0..16 {
            fs::write(&file, &whole[..whole.len() * sixteenth / 16]).unwrap();
            assert_falls_back(&folder, &file, &format!("{name} cut at {sixteenth}/16"));
        }
        fs::write(&file, [whole.as_slice(), &[0]].concat()).unwrap();
        assert_falls_back(&folder, &file, &format!("{name} with a byte more"));
        fs::remove_file(&file).unwrap();
        assert_falls_back(&folder, &file, &format!("without {name}"));
        fs::write(&file, &whole).unwrap();
        assert_eq!(folder.latest_checkpoint().unwrap().unwrap().meta().id.epoch, 2);
    }
}

/// A copy under another epoch's name would be tested, or gone on from, as that epoch.
#[test]
fn a_checkpoint_under_another_name_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    write(&folder, meta(1, Some(1.0)));
    let path = write(&folder, meta(2, Some(2.0)));
    let later = CheckpointId { fold: 1, epoch: 7 };
    fs::rename(&path, folder.checkpoint_path(later)).unwrap();
    let parts = ["fold-1-epoch-00007/manifest.json: is of the checkpoint fold-1-epoch-00002", "its own name"];
    assert_has(&Checkpoint::open(&folder.checkpoint_path(later)).unwrap_err().to_string(), &parts);
    assert_has(&folder.best_checkpoint(1).unwrap_err().to_string(), &parts);
    assert_eq!(folder.latest_checkpoint().unwrap().unwrap().meta().id.epoch, 1);
    fs::rename(folder.checkpoint_path(later), &path).unwrap();
    assert_eq!(folder.best_checkpoint(1).unwrap(), Some(CheckpointId { fold: 1, epoch: 2 }));
}

#[test]
fn case_t_a_flipped_bit_anywhere_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    write(&folder, meta(1, None));
    let path = write(&folder, meta(2, None));
    for name in [TENSORS, MANIFEST] {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        // All of the manifest and the header's text and all tensors; of the header's spaces a few.
        let positions = (0..whole.len()).filter(|&at| at < 1024 || at % 8191 == 0 || at + 1024 > whole.len());
        for at in positions {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&file, &damaged).unwrap();
            assert!(Checkpoint::open(&path).is_err(), "bit {} of byte {at} of {name}", at % 8);
        }
        fs::write(&file, &whole).unwrap();
    }
    assert!(Checkpoint::open(&path).is_ok());
}

#[test]
fn damage_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    let path = write(&folder, meta(1, None));
    let (tensors, manifest) = (path.join(TENSORS), path.join(MANIFEST));
    let whole = fs::read(&tensors).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 4;
    fs::write(&tensors, &damaged).unwrap();
    let message = Checkpoint::open(&path).unwrap_err().to_string();
    assert_has(
        &message,
        &["fold-1-epoch-00001/tensors.safetensors: ", "tensor `cursor`", "checksum", "the one before"],
    );
    assert_has(&folder.latest_checkpoint().unwrap_err().to_string(), &["none of 1 checkpoints is whole", "`cursor`"]);
    fs::write(&tensors, &whole[..100]).unwrap();
    assert_has(&Checkpoint::open(&path).unwrap_err().to_string(), &["has 100 bytes of the"]);
    let later = fs::read_to_string(&manifest).unwrap().replace("\"format\": 1", "\"format\": 2");
    let rest = later.split_once('\n').unwrap().1;
    fs::write(&manifest, format!("{{ \"crc32\": {},\n{rest}", crc32fast::hash(rest.as_bytes()))).unwrap();
    assert_has(&Checkpoint::open(&path).unwrap_err().to_string(), &["has format 2", "reads format 1"]);
    let missing = Checkpoint::open(&parent.path().join("none")).unwrap_err().to_string();
    assert_has(&missing, &["none: is no checkpoint", "under `checkpoints` of a run"]);
}

#[test]
fn the_newest_three_and_the_best_are_kept() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    let scores = [None, Some(0.5), Some(0.9), Some(f64::NAN), Some(0.9), Some(-1.0), None, Some(0.2)];
    for (epoch, score) in (1..).zip(scores) {
        write(&folder, meta(epoch, score));
    }
    let expected = [3, 6, 7, 8].map(|epoch| format!("fold-1-epoch-{epoch:05}"));
    assert_eq!(names(&folder), expected, "a tie goes to the earlier");
    assert_eq!(folder.best_checkpoint(1).unwrap(), Some(CheckpointId { fold: 1, epoch: 3 }));
    // The next fold keeps the best of the one before.
    for epoch in 1..=4 {
        let id = CheckpointId { fold: 2, epoch };
        write(&folder, CheckpointMeta { id, ..meta(epoch, Some(-f64::from(epoch))) });
    }
    let expected = ["fold-1-epoch-00003", "fold-2-epoch-00001", "fold-2-epoch-00002", "fold-2-epoch-00003"];
    assert_eq!(names(&folder)[..4], expected);
    assert_eq!(folder.latest_checkpoint().unwrap().unwrap().meta().id, CheckpointId { fold: 2, epoch: 4 });
    assert_eq!(folder.best_checkpoint(3).unwrap(), None);
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    drop(CheckpointWriter::new(&folder).and_then(|w| w.tensor("x", Dtype::U8, &[1], &[1])).unwrap());
    assert_eq!(names(&folder), [""; 0]);
    assert!(folder.latest_checkpoint().unwrap().is_none());
    // A run that was killed leaves its half, which counts for nothing and goes with the next.
    fs::create_dir(folder.checkpoints_path().join(".writing-killed")).unwrap();
    assert!(folder.latest_checkpoint().unwrap().is_none());
    write(&folder, meta(1, None));
    // The same epoch again, after a resumption from before it.
    let path = write(&folder, meta(1, Some(2.0)));
    assert_eq!(names(&folder), ["fold-1-epoch-00001"]);
    assert_eq!(Checkpoint::open(&path).unwrap().meta().validation_score, Some(2.0));
}

#[test]
fn a_disk_that_refuses_is_one_clear_error() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    fs::remove_dir(folder.checkpoints_path()).unwrap();
    let error = CheckpointWriter::new(&folder).map(|_| ()).unwrap_err();
    assert!(!error.bad_input);
    assert_has(&error.to_string(), &["checkpoints: cannot be written", "disk has room", "--resume"]);
    // A device that is always full stands for the disk.
    let metrics = folder.path().join("metrics.jsonl");
    fs::remove_file(&metrics).unwrap();
    if Path::new("/dev/full").exists() {
        fs::write(&metrics, "").unwrap();
        let mut log = folder.metrics(None).unwrap();
        log.redirect(Path::new("/dev/full"));
        let error = log.append(EpochMetrics::default()).unwrap_err();
        assert_has(&error.to_string(), &["metrics.jsonl: cannot be written", "space", "disk has room"]);
        assert!(log.epochs().is_empty());
    }
}

#[test]
fn a_folder_is_never_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    let again = RunFolder::create(Some(folder.path()), &config(), &record()).unwrap_err();
    assert!(again.bad_input);
    assert_has(&again.to_string(), &["holds a run already", "--resume "]);
    let other = parent.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "").unwrap();
    let error = RunFolder::create(Some(&other), &config(), &record()).unwrap_err();
    assert_has(&error.to_string(), &["other: is not empty, and no run", "--out"]);
    let error = RunFolder::create(Some(&other.join("thesis.tex")), &config(), &record()).unwrap_err();
    assert_has(&error.to_string(), &["is a file, not a folder"]);
    fs::remove_file(other.join("thesis.tex")).unwrap();
    assert!(RunFolder::create(Some(&other), &config(), &record()).is_ok(), "an empty folder will do");
    fs::write(parent.path().join("file"), "").unwrap();
    for (name, why) in [("none", "there is no such folder"), (".", "it has no run.json"), ("file", "it is no folder")] {
        let message = RunFolder::open(&parent.path().join(name)).unwrap_err().to_string();
        assert_has(&message, &["is no run", why, "name the folder"]);
    }
    let link = parent.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let error = RunFolder::create(Some(&link), &config(), &record()).unwrap_err();
    assert_has(&error.to_string(), &["link: is a link that leads nowhere", "--out"]);
}

/// Two that begin in one folder at once.
#[test]
fn a_folder_in_which_a_run_begins_or_trains_is_no_place_for_another() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let begin = || RunFolder::create(Some(&path), &config(), &record());
    let begun: Vec<Result<RunFolder, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| begin().map_err(|error| error.to_string()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(begun.iter().filter(|run| run.is_ok()).count(), 1, "{begun:?}");
    let folder = RunFolder::open(&path).unwrap();
    let lock = folder.lock().unwrap();
    assert_has(
        &begin().unwrap_err().to_string(),
        &["run: is being trained by another process; choose another `--out`"],
    );
    drop(lock);
    assert_has(&begin().unwrap_err().to_string(), &["holds a run already"]);
    fs::remove_file(path.join("run.json")).unwrap();
    assert_has(&begin().unwrap_err().to_string(), &["just beginning, or was stopped", "choose another `--out`"]);
}

/// What is to be done about a part of a run that is gone is not to look for a typing error.
#[test]
fn a_missing_part_of_a_run_is_to_be_restored() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    fs::remove_dir(folder.checkpoints_path()).unwrap();
    for (error, name) in
        [(folder.metrics(None).unwrap_err(), "metrics.jsonl"), (folder.latest_checkpoint().unwrap_err(), "checkpoints")]
    {
        assert!(error.bad_input);
        assert_has(&error.to_string(), &[name, "cannot be read", "restore it from a copy, or start a new run"]);
    }
}

#[test]
fn runs_of_one_second_have_their_own_folders() {
    let parent = tempfile::tempdir().unwrap();
    let runs = parent.path().join("runs");
    let folders: Vec<PathBuf> = (0..3).map(|_| super::folder::new_folder(&runs, 7).unwrap()).collect();
    for folder in &folders {
        assert!(folder.is_dir());
        let name = folder.file_name().unwrap().to_str().unwrap();
        let (time, rest) = name.split_once("-seed7").unwrap();
        assert!(time.len() == 15 && time.as_bytes()[8] == b'-' && rest.len() <= 2, "{name}");
    }
    assert!(folders[0] != folders[1] && folders[1] != folders[2]);
}

#[test]
fn a_run_knows_what_it_was_started_with() {
    let parent = tempfile::tempdir().unwrap();
    let mut record = record();
    let file = parent.path().join("bars.csv");
    fs::write(&file, "time,close\n").unwrap();
    let data_file = DataFile::new(&file).unwrap();
    assert_eq!((data_file.bytes, data_file.crc32), (11, crc32fast::hash(b"time,close\n")));
    record.data = Some(DataRecord { files: vec![data_file.clone()], stamps_end: true, ..Default::default() });
    let config = Config { seed: 5, lr: 0.1, ..config() };
    let folder = RunFolder::create(Some(&parent.path().join("a/b/run")), &config, &record).unwrap();
    let folder = RunFolder::open(folder.path()).unwrap();
    assert_eq!(folder.record().unwrap(), record);
    assert_eq!(folder.config().unwrap(), config);
    data_file.check_unchanged(&file).unwrap();
    fs::write(&file, "time,close\r").unwrap();
    let error = data_file.check_unchanged(&file).unwrap_err();
    assert_has(&error.to_string(), &["bars.csv: is not the file that the run began with", "11 bytes", "--data"]);
    fs::write(folder.path().join("run.json"), "{").unwrap();
    assert_has(&folder.record().unwrap_err().to_string(), &["run.json: cannot be understood"]);
    fs::write(folder.path().join("config.toml"), "lr = 3\n").unwrap();
    assert_has(&folder.config().unwrap_err().to_string(), &["config.toml:1", "`lr` is 3"]);
}

#[test]
fn metrics_go_on_behind_the_checkpoint() {
    let parent = tempfile::tempdir().unwrap();
    let folder = new_run(&parent);
    let line = |fold, epoch| EpochMetrics { fold, epoch, loss: f64::from(epoch) / 3.0, ..Default::default() };
    let mut log = folder.metrics(None).unwrap();
    for metrics in [line(1, 1), line(1, 2), line(2, 1), line(2, 2), line(2, 3)] {
        log.append(metrics).unwrap();
    }
    drop(log);
    let path = folder.path().join("metrics.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"fold\":2,\"epo");
    fs::write(&path, text).unwrap();
    let mut log = folder.metrics(Some(CheckpointId { fold: 2, epoch: 1 })).unwrap();
    log.append(line(2, 2)).unwrap();
    assert_eq!(log.epochs(), [line(1, 1), line(1, 2), line(2, 1), line(2, 2)]);
    let lines: BTreeMap<usize, EpochMetrics> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .enumerate()
        .collect();
    assert_eq!(lines.into_values().collect::<Vec<_>>(), log.epochs());
    // A line that a checkpoint needs and that is not there, at the end or between others.
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let last = CheckpointId { fold: 2, epoch: 2 };
    assert!(folder.check_metrics(Some(last)).is_ok());
    for (kept, missing) in [
        (vec![0, 1, 2], "fold 2, epoch 2"),
        (vec![0, 1, 3], "fold 1, epoch 3"),
        (vec![1, 2, 3], "fold 1, epoch 1"),
        (vec![], "fold 1, epoch 1"),
    ] {
        let text: String = kept.iter().map(|&line| format!("{}\n", lines[line])).collect();
        fs::write(&path, &text).unwrap();
        let message = folder.check_metrics(Some(last)).unwrap_err().to_string();
        assert_has(&message, &["metrics.jsonl: lacks the line of", missing, "restore the file"]);
        assert_has(&folder.metrics(Some(last)).unwrap_err().to_string(), &[missing]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "it stays as it is");
    }
    fs::write(&path, "{}\n").unwrap();
    let error = folder.metrics(None).unwrap_err();
    assert_has(&error.to_string(), &["metrics.jsonl: line 1 cannot be understood"]);
}

#[test]
fn names_of_checkpoints_are_their_own() {
    for (name, id) in [
        ("fold-1-epoch-00012", Some((1, 12))),
        ("fold-10-epoch-123456", Some((10, 123_456))),
        ("fold-1-epoch-12", None),
        ("fold-01-epoch-00012", None),
        (".writing-x", None),
        ("epoch-00012", None),
    ] {
        let id = id.map(|(fold, epoch)| CheckpointId { fold, epoch });
        assert_eq!(CheckpointId::of_name(name), id, "{name}");
    }
    assert!(CheckpointId { fold: 2, epoch: 1 } > CheckpointId { fold: 1, epoch: 9 });
}
