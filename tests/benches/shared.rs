//! What benchmarks with a command line share.

use std::fmt::Display;
use std::process::ExitCode;

use clap::ValueEnum;
use host::device::DeviceChoice;

/// `--device`.
#[derive(Clone, Copy, ValueEnum)]
pub enum On {
    Auto,
    Cuda,
    Cpu,
}

impl From<On> for DeviceChoice {
    fn from(on: On) -> Self {
        match on {
            On::Auto => Self::Auto,
            On::Cuda => Self::Cuda,
            On::Cpu => Self::Cpu,
        }
    }
}

/// Tells an error.
pub fn ended(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
