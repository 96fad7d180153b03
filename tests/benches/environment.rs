//! What the environments cost alone: bars of random actions, without a network and without a replay.
//!
//! `environment [--preset full] [--envs N,..] [--bars 32] [--device auto|cuda|cpu] [--json FILE]`. One graph takes all environments
//! over `--bars` bars of the simulated market: every branch of every environment draws its choice, orders are filled, costs,
//! equity, rewards and the account's features follow, and where an episode ends the next one begins. Medians by the device's
//! events, a line for each number of environments (the preset's unless said). `scripts/peers/environment.py` does the same in JAX.

mod shared;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gpu_kernels::explore::{ActRule, act, act_shape};
use gpu_kernels::heads::N_ACTIONS;
use host::bench::Timer;
use host::config::{Config, DataSource, Preset};
use host::data::simulate::Simulation;
use host::device::Device;
use host::graph::{ChildGraph, ParentGraph};
use host::images::KERNELS;
use host::market::environments::Environments;
use host::market::fold::FoldMarket;
use host::market::series::Series;
use host::market::walk_forward::walk_forward;
use host::market::{Runner, Step};
use host::replay::Ring;
use serde::Serialize;
use shared_types::Counters;
use shared_types::isv::{EPSILON, KELLY_CAP, LEN};

use shared::{On, ended};

type Failed = Box<dyn std::error::Error>;

/// What the environments cost alone.
#[derive(Parser)]
struct Arguments {
    #[arg(long, value_enum, default_value = "full")]
    preset: Preset,
    /// Environments; several numbers give a line each.
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    envs: Vec<usize>,
    /// Bars of a graph.
    #[arg(long, default_value_t = 32)]
    bars: usize,
    #[arg(long, value_enum, default_value = "auto")]
    device: On,
    /// The lines as JSON, the fastest first.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Serialize)]
struct Measured {
    envs: usize,
    bars: usize,
    us_a_bar: f64,
    steps_a_second: f64,
}

fn measure(runner: Runner<'_>, config: &Config, market: &FoldMarket, n_bars: usize) -> Result<Measured, Failed> {
    let device = runner.device;
    let envs = Environments::new(device, config.environments, config.n_step as usize)?;
    let mut bus = [0.0; LEN];
    (bus[EPSILON], bus[KELLY_CAP]) = (1.0, 0.5);
    let bus = device.upload(&bus)?;
    let (ranks, p_trade) = (device.alloc_zeroed(config.environments * N_ACTIONS)?, device.alloc_zeroed::<f32>(0)?);
    let (counters, ring) = (device.upload(&[Counters::default()])?, Ring::new(device, 64, config.window as usize)?);
    let fold = walk_forward(market.bars.len(), config.folds, config.episode_len as usize)?.remove(0);
    envs.begin_fold(&config.market_rules().params(&fold.train, 1e-3, config.seed)?)?;
    runner.run([envs.reset(&bus)])?;
    let rule = ActRule { seed: [config.seed as u32, 0], explore: 1, select_threshold: 0.0, select_from: i32::MAX };
    let draw = || -> Step {
        let launch = act::launch(
            ranks.view(),
            p_trade.view(),
            bus.view(),
            envs.collector.view(),
            counters.view(),
            rule,
            envs.actions.view_mut(),
        );
        (act_shape(config.environments), launch)
    };
    let child = ChildGraph::capture(device, "bars", &KERNELS, |recorder| {
        (0..n_bars).try_for_each(|_| {
            let bar = [draw(), envs.step(market, &bus), envs.advance(&ring)];
            bar.into_iter().try_for_each(|(shape, launch)| recorder.launch(shape, launch))
        })
    })?;
    let graph = ParentGraph::compose(device, vec![child])?;
    let us = Timer::THOROUGH.time(runner.stream, || graph.launch(runner.stream))?;
    let us_a_bar = us / n_bars as f64;
    let steps_a_second = config.environments as f64 / us_a_bar * 1e6;
    Ok(Measured { envs: config.environments, bars: n_bars, us_a_bar, steps_a_second })
}

fn work() -> Result<(), Failed> {
    let arguments = Arguments::parse();
    let device = Device::open(arguments.device.into())?;
    let mut config = Config::preset(arguments.preset, DataSource::Simulator);
    let numbers = if arguments.envs.is_empty() { vec![config.environments] } else { arguments.envs };
    if arguments.bars == 0 || numbers.contains(&0) {
        return Err("--bars and --envs are at least 1".into());
    }
    let sim = Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed };
    let series = Series::upload(&device, &sim.bars())?;
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let runner = Runner { device: &device, module: &module, stream: &stream };
    runner.run(series.features())?;
    let market = FoldMarket::new(&device, series.len())?;
    let fold = walk_forward(series.len(), config.folds, config.episode_len as usize)?.remove(0);
    market.fit(runner, &series, &fold.train, &config.market_rules().costs)?;
    println!("{}, {} backend, preset {}", device.info().name, device.backend_name(), arguments.preset.name());
    let mut lines = Vec::with_capacity(numbers.len());
    for number in numbers {
        config.environments = number;
        let line = measure(runner, &config, &market, arguments.bars)?;
        let (us, millions) = (line.us_a_bar, line.steps_a_second / 1e6);
        println!("{number:>9} environments: {us:>9.2} us a bar, {millions:>8.1} million steps a second");
        lines.push(line);
    }
    lines.sort_by(|a, b| b.steps_a_second.total_cmp(&a.steps_a_second));
    if let Some(path) = arguments.json {
        std::fs::write(path, serde_json::to_string_pretty(&lines)? + "\n")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    ended(work())
}
