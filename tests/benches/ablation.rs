//! What each learner brings: trains the whole agent, the agent with each learner left out, pruned, and its core alone on the same
//! seeds, and prints a table of paired differences.
//!
//! `ablation [--preset small] [--sim mean-reverting] [--data FILE] [--set key=value]... [--seeds FIRST..LAST] [--jobs N] [--only PART,..]
//! [--minutes N] [--no-step-times] [--device auto|cuda|cpu] [--json FILE]`. Runs stand side by side, `--jobs` of them, each a process of
//! its own; steps are timed one variant after the other. With `--data` a market file stands in for the simulator. No run begins
//! after `--minutes`: the table then has the seeds that every variant has finished.
//!
//! Processes take turns on a GPU. With NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) it has the kernels of
//! several at a time, which is four times as fast.

mod shared;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use host::config::{Config, DataSource, Layers, Learners, Preset};
use host::data::simulate::{Market, Simulation, deviations};
use host::data::{Bars, ReadOptions};
use host::device::{Device, DeviceChoice};
use host::interrupt::Interrupt;
use host::market::walk_forward::walk_forward;
use host::metrics::EpochMetrics;
use host::progress::{Progress, Total};
use host::run::{RunFolder, RunRecord};
use host::train::{Run, RunEnd, Trainer};
use serde::{Deserialize, Serialize};

use shared::{On, ended};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What each learner brings.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Arguments {
    #[arg(long, value_enum, default_value = "small")]
    preset: Preset,
    /// The simulated market.
    #[arg(long, value_enum, default_value = "mean-reverting")]
    sim: Simulated,
    /// A market file in place of the simulator.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// A key of every variant's configuration.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Seeds, first and last.
    #[arg(long, value_name = "FIRST..LAST", default_value = "1..5", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// Minutes after which no run begins.
    #[arg(long, value_name = "N", default_value_t = f64::INFINITY)]
    minutes: f64,
    /// Runs side by side.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Only variants whose name has one of these, beside the whole agent.
    #[arg(long, value_name = "PART,..", value_delimiter = ',', default_value = "")]
    only: Vec<String>,
    #[arg(long, value_enum, default_value = "auto")]
    device: On,
    /// No step is timed: the table has no such column.
    #[arg(long)]
    no_step_times: bool,
    /// One run of this variant on the first seed, its numbers as a line of JSON: what the processes side by side are told.
    #[arg(long, hide = true, value_name = "VARIANT")]
    run: Option<String>,
    /// Every run's numbers, a line of JSON each, as they come.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("first and last seed are asked for, as in 1..5".to_owned()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Simulated {
    Regimes,
    MeanReverting,
    RandomWalk,
}

/// An agent, and how it differs from the whole one.
#[derive(Clone)]
struct Variant {
    name: String,
    change: fn(&mut Config),
}

/// One run's numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Numbers {
    variant: String,
    seed: u64,
    sharpe: f64,
    /// Of Sharpe, 95%.
    interval: [f64; 2],
    log_growth: f64,
    /// What it earned of what the threshold rule did, where there is one.
    share: Option<f64>,
    n_trades: u64,
    /// Mean position, of the most that it may hold.
    position: f64,
    time_in_market: f64,
    /// Means of the last five epochs' last steps.
    loss: f64,
    mse: f64,
}

const WHOLE: &str = "whole agent";

fn variants() -> Vec<Variant> {
    macro_rules! without {
        ($($name:ident)*) => {
            vec![$(Variant {
                name: concat!("without ", stringify!($name)).to_owned(),
                change: |config| config.learners.$name = false,
            }),*]
        };
    }
    let mut variants = vec![Variant { name: WHOLE.to_owned(), change: |_| {} }];
    variants.extend(without!(temporal attention iqn iql popart selectivity denoise risk her vaccine cql));
    variants.extend(without!(film spectral depth selection spacing adaptive_clip causal q_statistics target_ema));
    variants.push(Variant { name: "pruned to 0.5".to_owned(), change: |config| config.prune.final_sparsity = 0.5 });
    let core: fn(&mut Config) = |config| {
        let (temporal, attention, iqn, iql, selectivity) = (false, false, false, false, false);
        let (denoise, risk, her, vaccine) = (false, false, false, false);
        let rest = config.learners.clone();
        config.learners = Learners { temporal, attention, iqn, iql, selectivity, denoise, risk, her, vaccine, ..rest };
    };
    variants.push(Variant { name: "core alone".to_owned(), change: core });
    variants
}

impl Arguments {
    fn config(&self, variant: &Variant, seed: u64) -> Result<Config, Failed> {
        let source = if self.data.is_some() { DataSource::Files } else { DataSource::Simulator };
        let mut layers = Layers::new(self.preset, source);
        self.set.iter().try_for_each(|assignment| layers.set(assignment))?;
        let mut config = Config { seed, ..layers.finish()? };
        // The best agent is kept all the same.
        config.checkpoint_every = config.epochs;
        config.sim.market = match self.sim {
            Simulated::Regimes => Market::Regimes,
            Simulated::MeanReverting => Market::MeanReverting,
            Simulated::RandomWalk => Market::RandomWalk,
        };
        let (temporal, attention, iqn, iql) = (true, true, true, true);
        let (selectivity, denoise, risk) = (true, true, true);
        let rest = config.learners.clone();
        config.learners = Learners { temporal, attention, iqn, iql, selectivity, denoise, risk, ..rest };
        (variant.change)(&mut config);
        Ok(config)
    }

    fn bars(&self, config: &Config) -> Result<Bars, Failed> {
        let Some(path) = &self.data else {
            return Ok(Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed }.bars());
        };
        Ok(host::data::read(path, &ReadOptions::default())?.accept(0)?.0)
    }

    /// Trains a variant on a seed, and tests it, in a process of its own.
    fn run_apart(&self, variant: &Variant, seed: u64) -> Result<Numbers, Failed> {
        // Of options that are told twice the last one holds.
        let seeds = format!("{seed}..{seed}");
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(["--run", &variant.name, "--seeds", &seeds])
            .stderr(Stdio::inherit())
            .output()?;
        if !child.status.success() {
            return Err(format!("{} on seed {seed} ended with {}", variant.name, child.status).into());
        }
        Ok(serde_json::from_slice(&child.stdout)?)
    }

    /// Trains a variant on a seed, and tests it.
    fn run_here(&self, device: &Device, variant: &Variant, seed: u64) -> Result<Numbers, Failed> {
        let config = self.config(variant, seed)?;
        let (bars, parent) = (self.bars(&config)?, tempfile::tempdir()?);
        let record = RunRecord::new(device, &config, Some(self.preset), &bars);
        let folder = RunFolder::create(Some(&parent.path().join("run")), &config, &record)?;
        let returns = self.data.is_none() && matches!(self.sim, Simulated::MeanReverting);
        let known = returns.then(|| deviations(&bars));
        let (interrupt, deviations) = (&Interrupt::default(), known.as_deref());
        let total = Total { epochs: config.folds as u32 * config.epochs, resumed_at: 0, folds: config.folds as u32 };
        let run = Run { device, config: &config, bars: &bars, folder: &folder, interrupt, deviations };
        let RunEnd::Done(tested) = run.train(&mut Progress::start(total, true))? else {
            return Err("a run was interrupted".into());
        };
        let lines = std::fs::read_to_string(folder.path().join("metrics.jsonl"))?;
        let epochs = lines.lines().map(serde_json::from_str).collect::<Result<Vec<EpochMetrics>, _>>()?;
        let last = &epochs[epochs.len().saturating_sub(5)..];
        let agent = &tested.agent;
        let rule = tested.baselines.iter().find(|baseline| baseline.name == "threshold_rule");
        Ok(Numbers {
            variant: variant.name.clone(),
            seed,
            sharpe: agent.sharpe,
            interval: [agent.sharpe_interval.low, agent.sharpe_interval.high],
            log_growth: agent.log_growth,
            share: rule.map(|rule| agent.log_growth / rule.performance.log_growth),
            n_trades: agent.n_trades,
            position: agent.exposure / mean(tested.folds.iter().map(|fold| fold.kelly_cap)),
            time_in_market: agent.time_in_market,
            loss: mean(last.iter().map(|epoch| epoch.loss)),
            mse: mean(last.iter().map(|epoch| epoch.mse)),
        })
    }

    /// Microseconds of a step, launched back to back with nothing beside it.
    fn step_us(&self, device: &Device, variant: &Variant) -> Result<f64, Failed> {
        const N_STEPS: u32 = 200;
        let config = self.config(variant, *self.seeds.start())?;
        let bars = self.bars(&config)?;
        let fold = walk_forward(bars.len(), config.folds, config.episode_len as usize)?.remove(0);
        let mut trainer = Trainer::new(device, &config, &bars)?;
        trainer.begin_fold(&fold)?;
        trainer.warm_up()?;
        let mut steps = |n: u32| -> Result<f64, Failed> {
            let started = Instant::now();
            (0..n).try_for_each(|_| trainer.step())?;
            trainer.finish_steps()?;
            Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(n))
        };
        steps(N_STEPS / 10)?;
        steps(N_STEPS)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    sum / f64::from(n)
}

/// Mean of paired differences and half of its 95% interval by Student's t.
fn difference(ours: &[f64], base: &[f64]) -> (f64, f64) {
    /// Two-sided 95% quantiles, by degrees of freedom from 1.
    const T: [f64; 30] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10,
        2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
    ];
    let gaps: Vec<f64> = ours.iter().zip(base).map(|(ours, base)| ours - base).collect();
    let (n, middle) = (gaps.len() as f64, mean(gaps.iter().copied()));
    if gaps.len() < 2 {
        return (middle, f64::NAN);
    }
    let variance = gaps.iter().map(|gap| (gap - middle).powi(2)).sum::<f64>() / (n - 1.0);
    (middle, T.get(gaps.len() - 2).copied().unwrap_or(1.96) * (variance / n).sqrt())
}

fn work() -> Result<(), Failed> {
    let arguments = Arguments::parse();
    let choice = DeviceChoice::from(arguments.device);
    let wanted =
        |variant: &Variant| variant.name == WHOLE || arguments.only.iter().any(|part| variant.name.contains(part));
    let variants: Vec<Variant> = variants().into_iter().filter(wanted).collect();
    if let Some(name) = &arguments.run {
        let variant = variants.iter().find(|variant| variant.name == *name).ok_or("there is no such variant")?;
        let numbers = arguments.run_here(&Device::open(choice)?, variant, *arguments.seeds.start())?;
        println!("{}", serde_json::to_string(&numbers)?);
        return Ok(());
    }
    // Seed by seed, so that what is there when time runs out is paired.
    let jobs: Vec<(u64, &Variant)> =
        arguments.seeds.clone().flat_map(|seed| variants.iter().map(move |variant| (seed, variant))).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let json = arguments.json.as_ref().map(File::create).transpose()?;
    let started = Instant::now();
    let worker = || -> Result<(), Failed> {
        while let Some((seed, variant)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if started.elapsed().as_secs_f64() > 60.0 * arguments.minutes {
                break;
            }
            let numbers = arguments.run_apart(variant, *seed)?;
            let (seconds, earned) = (started.elapsed().as_secs(), numbers.share.unwrap_or(numbers.log_growth));
            eprintln!(
                "{seconds} s: {}, seed {seed}: Sharpe {:.1}, earned {earned:.2}, position {:.2}, in the market {:.2}",
                variant.name, numbers.sharpe, numbers.position, numbers.time_in_market
            );
            let line = serde_json::to_string(&numbers)? + "\n";
            done.lock().expect("no worker panics").insert((variant.name.clone(), *seed), numbers);
            // One write a line, so that lines of two workers do not mix.
            json.as_ref().map_or(Ok(()), |mut file| file.write_all(line.as_bytes()))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let done = done.into_inner().expect("no worker panics");
    let is_whole = |seed: &u64| variants.iter().all(|variant| done.contains_key(&(variant.name.clone(), *seed)));
    let seeds: Vec<u64> = arguments.seeds.clone().filter(is_whole).collect();
    let of = |variant: &Variant, field: fn(&Numbers) -> f64| -> Vec<f64> {
        seeds.iter().map(|seed| field(&done[&(variant.name.clone(), *seed)])).collect()
    };
    let has_rule = done.values().all(|numbers| numbers.share.is_some());
    let earned: fn(&Numbers) -> f64 =
        if has_rule { |numbers| numbers.share.unwrap_or(f64::NAN) } else { |numbers| numbers.log_growth };
    let what = if has_rule { "share of the rule" } else { "sum of log returns" };
    let device = Device::open(choice)?;
    println!("{}, {} backend, seeds {seeds:?}", device.info().name, device.backend_name());
    let times = if arguments.no_step_times { "" } else { " step, us |" };
    println!(
        "| variant | Sharpe | less the whole agent's | {what} | less the whole agent's | position / kelly_cap | trades | loss | mse |{times}"
    );
    println!("|{}", "---|".repeat(9 + usize::from(!arguments.no_step_times)));
    for variant in &variants {
        let column = |field: fn(&Numbers) -> f64, digits: usize| {
            let (ours, base) = (of(variant, field), of(&variants[0], field));
            let (gap, half) = difference(&ours, &base);
            let gap =
                if variant.name == WHOLE { "-".to_owned() } else { format!("{gap:+.digits$} ± {half:.digits$}") };
            format!("{:.digits$} | {gap}", mean(ours.into_iter()))
        };
        let average = |field: fn(&Numbers) -> f64| mean(of(variant, field).into_iter());
        println!(
            "| {} | {} | {} | {:.2} | {:.0} | {:.3} | {:.4} |{}",
            variant.name,
            column(|numbers| numbers.sharpe, 1),
            column(earned, if has_rule { 2 } else { 4 }),
            average(|numbers| numbers.position),
            average(|numbers| numbers.n_trades as f64),
            average(|numbers| numbers.loss),
            average(|numbers| numbers.mse),
            if arguments.no_step_times {
                String::new()
            } else {
                format!(" {:.0} |", arguments.step_us(&device, variant)?)
            },
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    ended(work())
}
