//! Times of the kernels on a GPU, beside the floor that memory sets and the same kernels in CUDA C++.
//!
//! `kernels [--json FILE] [--peers FILE]`: `--json` writes the table's rows, `--peers` reads the JSON lines that
//! `scripts/peers/kernels.cu` writes and puts the best peer of each row beside it.
//!
//! Two times for each row, both medians by events: `graph` is a replay of a graph of 20 launches one after the other,
//! over buffers that rotate, divided by 20, so a launch gap of about 1 us is in it; `single` is one launch between two
//! events.

mod report;
mod rows;
mod timer;
mod update;

use std::path::PathBuf;
use std::process::ExitCode;

use report::{Peers, Report};
use timer::Timer;

/// Any error, to be shown.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\nusage: kernels [--json FILE] [--peers FILE]");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    json: Option<PathBuf>,
    peers: Option<PathBuf>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { json: None, peers: None };
        while let Some(word) = words.next() {
            let slot = match word.as_str() {
                "--json" => &mut parsed.json,
                "--peers" => &mut parsed.peers,
                // `cargo bench` adds it.
                "--bench" => continue,
                other => return Err(format!("unknown argument `{other}`")),
            };
            *slot = Some(words.next().ok_or(format!("{word} wants a file"))?.into());
        }
        Ok(parsed)
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let peers = arguments.peers.as_deref().map(Peers::read).transpose()?.unwrap_or_default();
    let timer = Timer::new()?;
    let mut report = Report::new(peers);
    rows::copy(&timer, &mut report)?;
    rows::gather(&timer, &mut report)?;
    rows::trees(&timer, &mut report)?;
    rows::scan(&timer, &mut report)?;
    rows::small(&timer, &mut report)?;
    update::update(&timer, &mut report)?;
    if let Some(file) = &arguments.json {
        report.write_json(file)?;
    }
    Ok(())
}
