//! Times of the kernels on a GPU, beside the floor that memory sets and the same kernels in CUDA C++.
//!
//! `kernels [--json FILE] [--peers FILE] [--only SUBJECT]`: `--json` writes the table's rows, `--peers` reads the JSON lines that
//! `scripts/peers/kernels.cu` writes and puts the best peer of each row beside it, `--only` times the copy and one of the
//! subjects `gather`, `trees`, `scan`, `small`, `update`, `products`.
//!
//! Two times for each row, both medians by events: `graph` is a replay of a graph of 20 launches one after the other,
//! over buffers that rotate, divided by 20, so a launch gap of about 1 us is in it; `single` is one launch between two
//! events.

mod products;
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
            eprintln!("{message}\nusage: kernels [--json FILE] [--peers FILE] [--only SUBJECT]");
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
    only: Option<&'static Subject>,
}

/// What is timed under a name.
type Subject = (&'static str, fn(&Timer, &mut Report) -> Result<(), Failure>);

static SUBJECTS: [Subject; 6] = [
    ("gather", rows::gather),
    ("trees", rows::trees),
    ("scan", rows::scan),
    ("small", rows::small),
    ("update", update::update),
    ("products", products::products),
];

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { json: None, peers: None, only: None };
        while let Some(word) = words.next() {
            // `cargo bench` adds it.
            if word == "--bench" {
                continue;
            }
            let mut value = |what: &str| words.next().ok_or(format!("{word} wants a {what}"));
            match word.as_str() {
                "--json" => parsed.json = Some(value("file")?.into()),
                "--peers" => parsed.peers = Some(value("file")?.into()),
                "--only" => {
                    let subject = value("subject")?;
                    let found = SUBJECTS.iter().find(|(name, _)| *name == subject);
                    parsed.only = Some(found.ok_or(format!("no subject `{subject}`"))?);
                }
                other => return Err(format!("unknown argument `{other}`")),
            }
        }
        Ok(parsed)
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let peers = arguments.peers.as_deref().map(Peers::read).transpose()?.unwrap_or_default();
    let timer = Timer::new()?;
    let mut report = Report::new(peers);
    rows::copy(&timer, &mut report)?;
    let subjects = arguments.only.map_or(&SUBJECTS[..], std::slice::from_ref);
    subjects.iter().try_for_each(|(_, time)| time(&timer, &mut report))?;
    if let Some(file) = &arguments.json {
        report.write_json(file)?;
    }
    Ok(())
}
