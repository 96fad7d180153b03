//! The program, as `host/src/main.rs` starts it. The suite's own binary stands for it, so that the suite runs wherever it is
//! copied.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use host::device::Device;
use host::metrics::{EpochMetrics, EpochTimes};
use host::run::{CheckpointId, RunFolder};
use onegraph_tests::{Failed, Outcome, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::tensors::Tensors;

/// Set for a process that is to be the program.
const PROGRAM: &str = "ONEGRAPH_SMOKE_PROGRAM";

/// Whether this process is to be the program.
pub fn is_asked_for() -> bool {
    std::env::var_os(PROGRAM).is_some()
}

/// A working folder, and the device that its commands are given.
pub struct Program {
    folder: TempDir,
    device: &'static str,
}

impl Program {
    /// A folder of its own.
    pub fn new(device: &Device) -> Result<Self, Failed> {
        Ok(Self { folder: tempfile::tempdir()?, device: device.backend_name() })
    }

    /// A file or folder of that name in the working folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, ready to start.
    pub fn command(&self, arguments: &[&str]) -> Result<Command, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).args(["--device", self.device]);
        command.current_dir(&self.folder).env(PROGRAM, "1").env_remove("RUST_LOG");
        // Under the checker a run takes a minute, and the other suites run every kernel under it.
        command.env_remove("ONEGRAPH_CHECK");
        Ok(command)
    }

    /// Runs a command to its end, whatever that is.
    pub fn output(&self, arguments: &[&str]) -> Result<Output, Failed> {
        Ok(self.command(arguments)?.output()?)
    }

    /// Runs a command that must end with 0; its standard output.
    pub fn done(&self, arguments: &[&str]) -> Result<String, Failed> {
        let output = self.output(arguments)?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(0), "{arguments:?} ended with {:?}: {told}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The same with `--json`, read.
    pub fn json(&self, arguments: &[&str]) -> Result<Value, Failed> {
        Ok(serde_json::from_str(&self.done(&[arguments, &["--json"]].concat())?)?)
    }

    /// Trains in the folder `name` with these keys.
    pub fn train(&self, name: &str, sets: &[&str]) -> Outcome {
        self.done(&[&["train", "--preset", "tiny", "--quiet", "--out", name], &flags(sets)[..]].concat())?;
        Ok(())
    }

    /// Every named buffer of step `n_steps` with these keys.
    pub fn dump(&self, n_steps: u32, sets: &[&str]) -> Result<Tensors, Failed> {
        let (name, n_steps) = ("step.safetensors", n_steps.to_string());
        self.done(&[&["dump", "--preset", "tiny", "--steps", &n_steps, "--out", name], &flags(sets)[..]].concat())?;
        Tensors::read(&self.path(name))
    }

    /// The run in the folder `name`.
    pub fn run(&self, name: &str) -> Result<RunFolder, Failed> {
        Ok(RunFolder::open(&self.path(name))?)
    }

    /// The epochs that a run told, without what a clock says.
    pub fn epochs(&self, name: &str) -> Result<Vec<EpochMetrics>, Failed> {
        let text = std::fs::read_to_string(self.path(name).join("metrics.jsonl"))?;
        let read = |line: &str| -> Result<EpochMetrics, Failed> {
            let metrics = serde_json::from_str(line)?;
            let (seconds, times) = (0.0, EpochTimes::default());
            Ok(EpochMetrics { seconds, times, steps_per_s: 0.0, env_steps_per_s: 0.0, ..metrics })
        };
        text.lines().map(read).collect()
    }

    /// The bytes of what a checkpoint of fold 1 holds.
    pub fn tensors_of(&self, name: &str, epoch: u32) -> Result<Vec<u8>, Failed> {
        let path = self.run(name)?.checkpoint_path(CheckpointId { fold: 1, epoch });
        Ok(std::fs::read(path.join("tensors.safetensors"))?)
    }
}

/// `--set` before each of the keys.
fn flags<'a>(sets: &[&'a str]) -> Vec<&'a str> {
    sets.iter().flat_map(|set| ["--set", set]).collect()
}

/// A file as JSON.
pub fn json_of(path: &Path) -> Result<Value, Failed> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Fails unless the text has all of these.
pub fn ensure_has(text: &str, parts: &[&str]) -> Outcome {
    for part in parts {
        ensure!(text.contains(part), "{part} is not in: {text}");
    }
    Ok(())
}
