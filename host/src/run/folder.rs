//! The folder itself: made, opened, and kept small.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::checkpoint::Checkpoint;
use super::error::RunError;
use super::manifest::{CheckpointId, MANIFEST, Manifest};
use super::metrics_log::MetricsLog;
use super::record::{RunRecord, now};
use crate::bench::MeasuredGraph;
use crate::config::{Config, ConfigError, DataSource, Layers, Preset};
use crate::files::{self, read_text, write_whole};
use crate::metrics::EpochMetrics;
use crate::report::run::GRAPH_FILE;
use crate::text::shown_path;

/// Checkpoints that are kept for being the newest.
const N_NEWEST: usize = 3;
const CONFIG: &str = "config.toml";
const RECORD: &str = "run.json";
const METRICS: &str = "metrics.jsonl";
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// A run's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Whether a run can be begun in `out`: it is empty or absent. Nothing that is there is ever overwritten.
    pub fn check_free(out: &Path) -> Result<(), RunError> {
        let mut entries = match fs::read_dir(out) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound && out.is_symlink() => {
                let remedy = "remove the link, or choose another `--out`";
                return Err(RunError::new(out, "is a link that leads nowhere", remedy));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(RunError::new(out, "is a file, not a folder", "choose another `--out`"));
            }
            Err(error) => {
                let reason = format!("cannot be read: {error}");
                return Err(RunError::new(out, reason, "choose another `--out`, or check its permissions"));
            }
        };
        let folder = Self { path: out.to_owned() };
        if folder.path.join(RECORD).exists() {
            folder.lock().map_err(|error| RunError { remedy: "choose another `--out`".into(), ..error })?;
            let remedy = format!("go on with it by `--resume {}`, or choose another `--out`", shown_path(out));
            return Err(RunError::new(out, "holds a run already", remedy));
        }
        if folder.checkpoints_path().exists() {
            return Err(half_begun(out));
        }
        if entries.next().is_some() {
            let remedy = "choose another `--out`, or an empty folder";
            return Err(RunError::new(out, "is not empty, and no run of onegraph", remedy));
        }
        Ok(())
    }

    /// Begins a run in `out`, or in a new folder under `runs` named after time and seed.
    pub fn create(out: Option<&Path>, config: &Config, record: &RunRecord) -> Result<Self, RunError> {
        let path = match out {
            Some(out) => {
                Self::check_free(out)?;
                fs::create_dir_all(out).map_err(|error| unmakeable(out, &error))?;
                out.to_owned()
            }
            None => new_folder(Path::new("runs"), record.seed)?,
        };
        let folder = Self { path };
        let checkpoints = folder.checkpoints_path();
        // Made by one process alone, however many begin here at once.
        fs::create_dir(&checkpoints).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => half_begun(&folder.path),
            _ => unmakeable(&checkpoints, &error),
        })?;
        folder.write(CONFIG, &config.to_toml())?;
        folder.write(METRICS, "")?;
        let record = serde_json::to_string_pretty(record).expect("plain data with string keys") + "\n";
        folder.write(RECORD, &record)?;
        Ok(folder)
    }

    /// The run in `path`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if path.join(RECORD).is_file() {
            return Ok(Self { path: path.to_owned() });
        }
        let reason = match fs::metadata(path) {
            Ok(found) if found.is_dir() => "is no run: it has no run.json",
            Ok(_) => "is no run: it is no folder",
            Err(_) => "is no run: there is no such folder",
        };
        Err(RunError::new(path, reason, "name the folder that `train` wrote, such as runs/20261130-120000-seed0"))
    }

    /// Keeps every other process from training in the folder, until the file is dropped or this process ends. Two at once
    /// would take each other's checkpoints and lines for their own.
    pub fn lock(&self) -> Result<File, RunError> {
        let record = self.path.join(RECORD);
        let file = File::open(&record).map_err(|error| RunError::unreadable(&record, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let remedy = "wait until it has ended, or stop it first";
                return Err(RunError::new(&self.path, "is being trained by another process", remedy));
            }
            Err(TryLockError::Error(error)) => {
                tracing::warn!(
                    "{}: cannot be locked ({error}): let no other process train in it",
                    shown_path(&self.path)
                );
            }
        }
        Ok(file)
    }

    /// Whether a run can be gone on with here: whether its folders take new files, and its metrics another line.
    pub fn check_writable(&self) -> Result<(), RunError> {
        let closed = |path: &Path, reason: &str| {
            let remedy = "make it writable, or copy the run's folder to a place that is";
            RunError::new(path, format!("cannot be written: {reason}"), remedy)
        };
        for folder in [self.path.clone(), self.checkpoints_path()] {
            files::check_writable(&folder.join(METRICS)).map_err(|error| closed(&folder, &error.reason))?;
        }
        let metrics = self.path.join(METRICS);
        match File::options().append(true).open(&metrics) {
            // What is missing is told of where it is read.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(closed(&metrics, &error.to_string())),
            _ => Ok(()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where checkpoints are.
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }

    /// Where a checkpoint is or would be.
    pub fn checkpoint_path(&self, id: CheckpointId) -> PathBuf {
        self.checkpoints_path().join(id.to_string())
    }

    /// The effective configuration.
    pub fn config(&self) -> Result<Config, ConfigError> {
        // Every key is in the file; the layer under it would show only if one were taken out.
        let mut layers = Layers::new(Preset::Full, DataSource::Simulator);
        layers.file(&self.path.join(CONFIG))?;
        layers.finish()
    }

    /// What the run was started with.
    pub fn record(&self) -> Result<RunRecord, RunError> {
        let path = self.path.join(RECORD);
        let text = read_text(&path).map_err(|error| RunError::unreadable(&path, error))?;
        serde_json::from_str(&text).map_err(|error| {
            RunError::new(&path, format!("cannot be understood: {error}"), "restore the file, or start a new run")
        })
    }

    /// The metrics, cut behind `after`: what follows was written by a life of the run that is not gone on with.
    pub fn metrics(&self, after: Option<CheckpointId>) -> Result<MetricsLog, RunError> {
        MetricsLog::open(&self.path.join(METRICS), after)
    }

    /// Whether the metrics are whole up to the checkpoint `after`.
    pub fn check_metrics(&self, after: Option<CheckpointId>) -> Result<(), RunError> {
        MetricsLog::check(&self.path.join(METRICS), after)
    }

    /// The metrics as they are.
    pub fn epochs(&self) -> Result<Vec<EpochMetrics>, RunError> {
        MetricsLog::read(&self.path.join(METRICS))
    }

    /// The run that the checkpoint in `path` belongs to, and which one it is; none if the path is no checkpoint's.
    pub fn of_checkpoint(path: &Path) -> Result<Option<(Self, CheckpointId)>, RunError> {
        let Ok(path) = path.canonicalize() else { return Ok(None) };
        let id = path.file_name().and_then(|name| CheckpointId::of_name(name.to_str()?));
        let run = path.parent().filter(|parent| parent.ends_with(CHECKPOINTS)).and_then(Path::parent);
        match (id, run) {
            (Some(id), Some(run)) => Ok(Some((Self::open(run)?, id))),
            _ => Ok(None),
        }
    }

    /// All checkpoints by name, oldest first; they were not looked into.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointId>, RunError> {
        let path = self.checkpoints_path();
        let entries = fs::read_dir(&path).map_err(|error| RunError::unreadable(&path, error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<CheckpointId> = names.filter_map(|name| CheckpointId::of_name(&name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The newest checkpoint that is whole and can be gone on with. A damaged one is named in the log, and the one before it taken. None where there
    /// is none yet; an error where there are some and none is whole.
    pub fn latest_checkpoint(&self) -> Result<Option<Checkpoint>, RunError> {
        let ids: Vec<CheckpointId> = self.checkpoints()?.into_iter().filter(|&id| self.may_be_resumed(id)).collect();
        let mut newest_error = None;
        for &id in ids.iter().rev() {
            match Checkpoint::open(&self.checkpoint_path(id)) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    tracing::warn!("{}: {}; taking the checkpoint before it", shown_path(&error.path), error.reason);
                    newest_error.get_or_insert(error);
                }
            }
        }
        match newest_error {
            None => Ok(None),
            Some(error) => {
                let reason = format!("none of {} checkpoints is whole; the newest: {}", ids.len(), error.reason);
                Err(RunError::new(&error.path, reason, "restore one from a copy, or start a new run"))
            }
        }
    }

    /// The checkpoint of a fold with the highest validation score, ties to the earlier; none without any score. Judged by the
    /// manifests; one that is damaged is an error, since it may be the best.
    pub fn best_checkpoint(&self, fold: u32) -> Result<Option<CheckpointId>, RunError> {
        let ids: Vec<CheckpointId> = self.checkpoints()?.into_iter().filter(|id| id.fold == fold).collect();
        for &id in &ids {
            Manifest::read(&self.checkpoint_path(id).join(MANIFEST))?;
        }
        Ok(self.best_of(ids.into_iter()))
    }

    /// Whether a run can be gone on with from the checkpoint; true for a damaged one, whose opening tells.
    fn may_be_resumed(&self, id: CheckpointId) -> bool {
        Manifest::read(&self.checkpoint_path(id).join(MANIFEST)).map_or(true, |manifest| manifest.meta.resumable)
    }

    /// The highest validation score of a fold's checkpoints, as far as they can be read: training does not end for one that
    /// was damaged behind it.
    pub fn best_score(&self, fold: u32) -> Result<Option<f64>, RunError> {
        let ids = self.checkpoints()?.into_iter().filter(|id| id.fold == fold);
        let Some(best) = self.best_of(ids) else { return Ok(None) };
        Ok(Manifest::read(&self.checkpoint_path(best).join(MANIFEST))?.meta.validation_score)
    }

    /// Whether there is a checkpoint of that name to go on from.
    pub fn can_go_on_from(&self, id: CheckpointId) -> bool {
        Manifest::read(&self.checkpoint_path(id).join(MANIFEST)).is_ok_and(|manifest| manifest.meta.resumable)
    }

    fn best_of(&self, ids: impl Iterator<Item = CheckpointId>) -> Option<CheckpointId> {
        let mut best: Option<(f64, CheckpointId)> = None;
        for id in ids {
            // One that cannot be read cannot be chosen.
            let Ok(manifest) = Manifest::read(&self.checkpoint_path(id).join(MANIFEST)) else { continue };
            let Some(score) = manifest.meta.validation_score.filter(|score| !score.is_nan()) else { continue };
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// Removes checkpoints that are neither among the newest three to go on from nor the best of their fold, and what a run that was
    /// killed while writing left behind.
    pub(super) fn remove_superseded(&self) -> Result<(), RunError> {
        let ids = self.checkpoints()?;
        let resumable: Vec<CheckpointId> = ids.iter().copied().filter(|&id| self.may_be_resumed(id)).collect();
        let newest = &resumable[resumable.len().saturating_sub(N_NEWEST)..];
        let folds = ids.chunk_by(|a, b| a.fold == b.fold);
        let best: Vec<CheckpointId> = folds.filter_map(|fold| self.best_of(fold.iter().copied())).collect();
        let superseded = ids.iter().filter(|id| !newest.contains(id) && !best.contains(id));
        let mut paths: Vec<PathBuf> = superseded.map(|&id| self.checkpoint_path(id)).collect();
        let checkpoints = self.checkpoints_path();
        let entries = fs::read_dir(&checkpoints).map_err(|error| RunError::unreadable(&checkpoints, error))?;
        paths.extend(entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            (name.starts_with(".replaced-") || name.starts_with(".writing-")).then(|| entry.path())
        }));
        for path in paths {
            fs::remove_dir_all(&path).map_err(|error| {
                let remedy = "remove it by hand, and check that the folder is writable";
                RunError { bad_input: false, ..RunError::new(&path, format!("cannot be removed: {error}"), remedy) }
            })?;
        }
        Ok(())
    }

    /// Keeps how long the step's children took.
    pub fn write_graph(&self, graph: &MeasuredGraph) -> Result<(), RunError> {
        self.write(GRAPH_FILE, &(serde_json::to_string_pretty(graph).expect("plain data with string keys") + "\n"))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        write_whole(&path, |output| output.write_all(text.as_bytes()))
            .map_err(|error| RunError::unwritable(&path, error.reason))
    }
}

/// A folder that no other run has, even one that starts in the same second.
pub(super) fn new_folder(parent: &Path, seed: u64) -> Result<PathBuf, RunError> {
    fs::create_dir_all(parent).map_err(|error| unmakeable(parent, &error))?;
    let name = format!("{}-seed{seed}", now().1);
    for attempt in 1.. {
        let path = parent.join(if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") });
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unmakeable(&path, &error)),
        }
    }
    unreachable!("a folder has fewer entries than there are numbers")
}

/// A folder that some process is making a run in, or was when it was stopped.
fn half_begun(path: &Path) -> RunError {
    let reason = "holds a run that another process is just beginning, or was stopped while it began it";
    RunError::new(path, reason, "choose another `--out`, or remove the folder if no other process works in it")
}

fn unmakeable(path: &Path, error: &std::io::Error) -> RunError {
    RunError::new(path, format!("cannot be made: {error}"), "choose another `--out`, in a folder that is writable")
}
