//! `data`: what a market file holds, and markets simulated into one.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Error;
use super::output::{self, Json, Target};
use crate::data::inspect::Inspection;
use crate::data::simulate::{HALF_SPREAD, MAKER_BP, Market, N_BARS_DEFAULT, N_BARS_MAX, Simulation, TAKER_BP};
use crate::data::{self, BAR_LENGTHS, ReadOptions, Stamps};
use crate::progress::Working;
use crate::text::shown_path;

/// Arguments of `data`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Says what a CSV, Parquet or DBN file holds: range, interval, gaps, sessions, repairs and faults.
    Inspect(Inspect),
    /// Writes a simulated market to a CSV or Parquet file.
    Simulate(Simulate),
}

#[derive(Debug, clap::Args)]
struct Inspect {
    /// The file; standard input is not read.
    file: PathBuf,
    #[command(flatten)]
    reading: ReadArguments,
    #[command(flatten)]
    json: Json,
}

/// How a market file is to be read.
#[derive(Debug, clap::Args)]
pub(super) struct ReadArguments {
    /// The instrument, where the file holds several.
    #[arg(long, value_name = "NAME")]
    symbol: Option<String>,
    /// Length of the bars to make of ticks or of shorter bars: 1s, 1m, 5m, 1h or 1d. Ticks make 1m without it.
    #[arg(long, value_name = "LENGTH", value_parser = bar_length)]
    bar: Option<i64>,
    /// Which end of a bar the file's times name.
    #[arg(long, value_enum, default_value = "start")]
    stamps: Stamps,
}

#[derive(Debug, clap::Args)]
struct Simulate {
    /// The file to write; its name ends in .csv or .parquet. Standard output is not written.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Which market.
    #[arg(long, value_enum, default_value = "regimes")]
    sim: Market,
    /// Number of bars, five minutes each.
    #[arg(long, value_name = "N", default_value_t = N_BARS_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=N_BARS_MAX))]
    bars: u32,
    /// The same seed gives the same market.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    json: Json,
}

/// What `data simulate --json` prints.
#[derive(Debug, Serialize)]
struct Simulated {
    file: PathBuf,
    market: String,
    bars: u32,
    seed: u64,
    /// Costs a side under which the simulated markets are meant, in basis points.
    half_spread_bp: f64,
    taker_bp: f64,
    maker_bp: f64,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<(), Error> {
        match &self.command {
            Command::Inspect(command) => command.run(),
            Command::Simulate(command) => command.run(),
        }
    }
}

impl Inspect {
    /// Prints everything, then fails if `train` would refuse the file.
    fn run(&self) -> Result<(), Error> {
        let file = no_stream(
            &self.file,
            "FILE: standard input cannot be inspected, since a market file is not read from front to back; name a file (one \
             that is called `-`: ./-)",
        )?;
        output::distinct(&[("FILE", Some(&file)), ("--json", self.json.target())])?;
        output::places(&[("--json", self.json.target())])?;
        let working = Working::start(format!("reading {}", shown_path(&self.file)));
        let reading = data::read(&self.file, &self.reading.options())?;
        drop(working);
        let inspection = Inspection::new(&reading);
        self.json.write(&inspection)?;
        if !self.json.to_standard_output() {
            output::print(&inspection.to_string())?;
        }
        reading.accept(1)?;
        Ok(())
    }
}

impl ReadArguments {
    /// Whether nothing was said of it.
    pub(super) fn is_default(&self) -> bool {
        self.symbol.is_none() && self.bar.is_none() && self.stamps == Stamps::Start
    }

    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions { symbol: self.symbol.clone(), bar_ns: self.bar, stamps: self.stamps }
    }
}

/// The file, unless it is `-`, which these commands cannot read or write.
fn no_stream(file: &Path, refusal: &str) -> Result<Target, Error> {
    match Target::from(file.as_os_str().to_owned()) {
        Target::StandardOutput => Err(Error::Arguments(refusal.into())),
        file => Ok(file),
    }
}

fn bar_length(text: &str) -> Result<i64, String> {
    let known = BAR_LENGTHS.iter().find(|(name, _)| *name == text);
    known.map(|&(_, length_ns)| length_ns).ok_or_else(|| "choose 1s, 1m, 5m, 1h or 1d".into())
}

impl Simulate {
    fn run(&self) -> Result<(), Error> {
        let out = no_stream(
            &self.out,
            "--out: standard output takes no market, whose format follows from the file's name; name a file that ends in .csv \
             or .parquet",
        )?;
        let written = [("--out", Some(&out)), ("--json", self.json.target())];
        output::distinct(&written)?;
        output::places(&written[1..])?;
        let simulation = Simulation { market: self.sim, n_bars: self.bars, seed: self.seed };
        let working = Working::start(format!("writing {}", shown_path(&self.out)));
        data::write_bars(&self.out, &simulation.bars())?;
        drop(working);
        let simulated = Simulated {
            file: self.out.clone(),
            market: self.sim.name().to_owned(),
            bars: self.bars,
            seed: self.seed,
            half_spread_bp: 1e4 * HALF_SPREAD,
            taker_bp: TAKER_BP,
            maker_bp: MAKER_BP,
        };
        self.json.write(&simulated)?;
        if self.json.to_standard_output() {
            return Ok(());
        }
        let Simulated { file, market, bars, seed, .. } = &simulated;
        output::print(&format!("{}: {bars} bars of {market}, seed {seed}\n", shown_path(file)))
    }
}
