//! The command line.
//!
//! Results go to standard output or files, logs to standard error. Exit codes: 0 done; 1 the work failed; 2 wrong
//! arguments, configuration or input, or a device that is not there.

mod audit;
mod bench;
mod data;
mod doctor;
mod dump;
mod eval;
mod graph;
mod keys;
mod output;
mod report;
pub mod train;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Preset;
use crate::data::DataError;
use crate::device::{Device, DeviceChoice};
use crate::error::DeviceError;
use crate::files::WriteError;
use crate::progress::LogOutput;
use crate::report::run::RunError;
use crate::run::plan::PlanError;
use crate::text::{shown, shown_lines, shown_path};
use crate::train::TrainError;

/// Trains a trading agent; one training step is one cuGraphLaunch.
#[derive(Debug, Parser)]
#[command(name = "onegraph", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
struct Global {
    /// The device to work on.
    #[arg(long, global = true, value_enum, default_value = "auto")]
    device: DeviceArgument,
    /// More log messages on standard error; twice for all of them.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Counts the driver calls of training, by phase and place; exits with 1 if a step made any but its one launch.
    Audit(audit::Arguments),
    /// Times a training step: as a whole, by child graph, by kernel.
    Bench(bench::Arguments),
    /// Looks into market data files, and simulates markets.
    Data(data::Arguments),
    /// Says what works here, what is missing, and the one command that mends it.
    Doctor(doctor::Arguments),
    /// Trains some steps and writes every named buffer of the last one as safetensors, to compare with another implementation.
    Dump(dump::Arguments),
    /// Tests a run's checkpoints against buy-and-hold, flat and random: on the run's own test parts, or on another file.
    Eval(eval::Arguments),
    /// Shows the step's graph: children, kernels, edges.
    Graph(graph::Arguments),
    /// Writes a run's report: one HTML file that needs nothing else.
    Report(report::Arguments),
    /// Trains an agent walk-forward, tests it on bars it has not seen, and leaves a folder with checkpoints, metrics and report.
    Train(train::Arguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceArgument {
    /// The GPU if there is one that can be used, else the CPU.
    Auto,
    /// The GPU or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

impl From<DeviceArgument> for DeviceChoice {
    fn from(argument: DeviceArgument) -> Self {
        match argument {
            DeviceArgument::Auto => Self::Auto,
            DeviceArgument::Cuda => Self::Cuda,
            DeviceArgument::Cpu => Self::Cpu,
        }
    }
}

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// Something of a device's.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Market data that cannot be read or written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Training that cannot begin.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Training that cannot go on.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A run's folder that cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Arguments that contradict each other.
    #[error("{0}")]
    Arguments(String),
    /// A file that cannot be written.
    #[error("cannot write {}: {}; choose another place", shown_path(path), error.reason)]
    Output { path: std::path::PathBuf, error: WriteError },
    /// Standard output that cannot be written.
    #[error("cannot write to standard output: {0}")]
    StandardOutput(std::io::Error),
    /// What was asked for is there, and does not work.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// 2 for what the caller asked for wrongly or the machine does not have, 1 for what failed.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Data(error) if error.bad_input => 2,
            Self::Output { error, .. } if error.bad_path => 2,
            Self::Plan(error) if error.is_bad_input() => 2,
            Self::Train(error) if error.is_bad_input() => 2,
            Self::Device(error) if error.is_bad_input() => 2,
            Self::Arguments(_) | Self::Run(_) => 2,
            Self::Data(_) | Self::Plan(_) | Self::Train(_) | Self::Device(_) => 1,
            Self::Output { .. } | Self::StandardOutput(_) | Self::Failed(_) => 1,
        }
    }
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    panic::set_hook(Box::new(report_bug));
    survive_large_files();
    let run = || {
        let arguments = match Arguments::try_parse() {
            Ok(arguments) => arguments,
            Err(refusal) => return refuse(&refusal),
        };
        start_log(arguments.global.verbose);
        run(&arguments)
    };
    match panic::catch_unwind(run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Error::StandardOutput(error))) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {}", shown_lines(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// A file that grows past the limit of the process (`ulimit -f`) is to be an error of its writing, as on a full disk, and not the
/// process's end: with a handler for the signal, the write fails.
fn survive_large_files() {
    // Without it a limit ends the process, as it ends others.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Prints the help or the version that the arguments ask for; or why they were not taken, and leaves the process.
fn refuse(refusal: &clap::Error) -> Result<(), Error> {
    // The message quotes arguments, whose control characters a terminal would obey: it is made again from harmless ones.
    let harmless = std::env::args_os().map(|argument| shown(&argument.to_string_lossy()).into_owned());
    match Arguments::try_parse_from(harmless) {
        Err(help) if !help.use_stderr() => {
            help.print().and_then(|()| std::io::stdout().flush()).map_err(Error::StandardOutput)
        }
        Err(refusal) => refusal.exit(),
        Ok(_) => {
            eprintln!("error: an argument is not text");
            std::process::exit(refusal.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    if let Command::Data(_) | Command::Report(_) = arguments.command
        && arguments.global.device == DeviceArgument::Cuda
    {
        return Err(Error::Arguments("--device cuda: `data` and `report` use no device; leave it out".to_owned()));
    }
    match &arguments.command {
        Command::Audit(command) => command.run(&arguments.global),
        Command::Bench(command) => command.run(&arguments.global),
        Command::Data(command) => command.run(),
        Command::Doctor(command) => command.run(&arguments.global),
        Command::Dump(command) => command.run(&arguments.global),
        Command::Eval(command) => command.run(&arguments.global),
        Command::Graph(command) => command.run(&arguments.global),
        Command::Report(command) => command.run(),
        Command::Train(command) => command.run(&arguments.global),
    }
}

impl Global {
    fn open(&self) -> Result<Device, Error> {
        Ok(Device::open(self.device.into())?)
    }
}

/// `full` on a GPU, `small` on the CPU.
fn default_preset(device: &Device) -> Preset {
    if device.backend_name() == "cuda" { Preset::Full } else { Preset::Small }
}

/// `RUST_LOG` wins over `-v`.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let ansi = coloured(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(|| LogOutput);
    // A second subscriber in one process is refused; the first one stays.
    let _ = log.try_init();
}

/// Whether the log has colours: on a terminal, unless `NO_COLOR` is set and not empty (no-color.org).
fn coloured(terminal: bool, no_color: Option<OsString>) -> bool {
    terminal && no_color.is_none_or(|value| value.is_empty())
}

/// Any panic here is a bug of ours: everything that can go wrong in the world is an `Err`.
fn report_bug(info: &PanicHookInfo<'_>) {
    if crate::panics::is_quiet() {
        return;
    }
    let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    eprintln!(
        "error: a bug in onegraph{place}: {}. Please report it with the command line and this message.",
        shown(text.unwrap_or("no message"))
    );
}

#[cfg(test)]
mod tests {
    use super::coloured;

    #[test]
    fn the_log_has_colours_on_a_terminal_that_may_have_them() {
        for (terminal, no_color, want) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (false, None, false),
            (false, Some(""), false),
            (false, Some("1"), false),
        ] {
            assert_eq!(coloured(terminal, no_color.map(Into::into)), want, "{terminal} {no_color:?}");
        }
    }
}
