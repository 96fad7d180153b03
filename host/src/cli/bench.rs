//! `bench`: what a training step costs, as a whole, by child graph and by kernel.

use std::time::Instant;

use serde::Serialize;

use super::output::{self, Json};
use super::train::Setup;
use super::{Error, Global};
use crate::market::walk_forward::walk_forward;
use crate::progress::{Progress, Status, Total};
use crate::run::plan::PlanError;
use crate::train::bookkeeping::Bookkeeping;
use crate::train::skips::Skips;
use crate::train::{TrainError, Trainer};

/// Steps that are timed as a whole.
const N_STEPS: usize = 200;
/// Times that a kernel is launched between two events, and how often that is done.
const N_LAUNCHES: u32 = 10;
const N_REPEATS: usize = 7;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[group(id = "bench")]
pub(super) struct Arguments {
    /// Show the kernels of this child graph alone.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    json: Json,
}

/// What `bench --json` prints. Times are medians, microseconds.
#[derive(Serialize)]
struct Measured {
    /// The device.
    device: String,
    /// A whole step, launched back to back.
    step_us: f64,
    /// The host's part of a step: the launch, a look at the readback, the bookkeeping. On the CPU the launch is the step.
    host_us: f64,
    /// The parts of it.
    host: HostParts,
    /// The children, each with the sum of its kernels run by themselves.
    nodes: Vec<Node>,
}

/// The host's part of a step, as training's loop has it.
#[derive(Serialize)]
struct HostParts {
    /// The launch: one call of the driver.
    launch_us: f64,
    /// What the latest finished step told, whole.
    readback_us: f64,
    /// What is shown and watched of it.
    bookkeeping_us: f64,
}

#[derive(Serialize)]
struct Node {
    name: &'static str,
    us: f64,
    kernels: Vec<Kernel>,
}

#[derive(Serialize)]
struct Kernel {
    name: &'static str,
    us: f64,
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        self.setup.check_outputs(&[("--json", self.json.target())])?;
        let plan = self.setup.resolve(global.device.into())?;
        let series = &plan.series()?.bars;
        let folds = walk_forward(series.len(), plan.config.folds, plan.config.episode_len as usize);
        let folds = folds.map_err(|source| PlanError::WalkForward { name: plan.bars[0].name.clone(), source })?;
        let mut trainer = Trainer::new(&plan.device, &plan.config, series)?;
        trainer.begin_fold(&folds[0])?;
        trainer.warm_up()?;
        let (step_us, host_us, host) = whole_step(&mut trainer)?;
        let mut measured = Measured { device: plan.device.info().name, step_us, host_us, host, nodes: Vec::new() };
        for (name, launches) in trainer.children() {
            if self.node.as_ref().is_some_and(|node| node != name) {
                continue;
            }
            let kernels = launches.into_iter().map(|step| kernel(&trainer, step));
            let kernels = kernels.collect::<Result<Vec<_>, Error>>()?;
            measured.nodes.push(Node { name, us: kernels.iter().map(|kernel| kernel.us).sum(), kernels });
        }
        if measured.nodes.is_empty() {
            let names: Vec<&str> = trainer.children().iter().map(|(name, _)| *name).collect();
            return Err(PlanError::Usage(format!("`--node` is none of {}", names.join(", "))).into());
        }
        self.json.write(&measured)?;
        if self.json.to_standard_output() { Ok(()) } else { output::print(&text(&measured)) }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds of a step on the device, of the host's part, and of what that is made of.
fn whole_step(trainer: &mut Trainer) -> Result<(f64, f64, HostParts), TrainError> {
    for _ in 0..5 {
        trainer.step()?;
    }
    trainer.finish_steps()?;
    let mut parts: [Vec<f64>; 4] = std::array::from_fn(|_| Vec::with_capacity(N_STEPS));
    // Progress that is not shown reads the clock as one that is shown does between two ticks.
    let mut progress = Progress::start(Total { epochs: 1, resumed_at: 0, folds: 1 }, true);
    let (mut status, mut skips, steps_before) = (Status::default(), Skips::default(), trainer.steps_done());
    let started = Instant::now();
    let (status, progress, skips) = (&mut status, &mut progress, &mut skips);
    let mut bookkeeping = Bookkeeping { status, progress, skips, steps_before, started };
    let mut steps = trainer.step_loop();
    for _ in 0..N_STEPS {
        let begun = Instant::now();
        steps.launch()?;
        let launched = Instant::now();
        let published = steps.published();
        let read = Instant::now();
        let _ = std::hint::black_box(published.map(|published| bookkeeping.see(&published)));
        let kept = Instant::now();
        let times = [launched - begun, read - launched, kept - read, kept - begun];
        parts.iter_mut().zip(times).for_each(|(part, time)| part.push(time.as_secs_f64() * 1e6));
    }
    trainer.finish_steps()?;
    let step_us = started.elapsed().as_secs_f64() * 1e6 / N_STEPS as f64;
    let [launch_us, readback_us, bookkeeping_us, host_us] = parts.map(median);
    Ok((step_us, host_us, HostParts { launch_us, readback_us, bookkeeping_us }))
}

/// A kernel by itself, launched several times over.
fn kernel(trainer: &Trainer, (shape, launch): crate::market::Step) -> Result<Kernel, Error> {
    let (runner, name) = (trainer.runner(), launch.info().name);
    let timed = || -> Result<f64, Error> {
        let start = runner.stream.record()?;
        for _ in 0..N_LAUNCHES {
            runner.stream.launch_again(runner.module, shape, &launch)?;
        }
        let end = runner.stream.record()?;
        Ok(end.since(&start)?.as_secs_f64() * 1e6 / f64::from(N_LAUNCHES))
    };
    timed()?;
    let times = (0..N_REPEATS).map(|_| timed()).collect::<Result<Vec<_>, Error>>()?;
    Ok(Kernel { name, us: median(times) })
}

fn text(measured: &Measured) -> String {
    let mut text = format!(
        "{}: {:.1} us a step ({:.0} steps a second)\nhost: {:.2} us a step: launch {:.2}, readback {:.2}, bookkeeping {:.2}\n",
        measured.device,
        measured.step_us,
        1e6 / measured.step_us,
        measured.host_us,
        measured.host.launch_us,
        measured.host.readback_us,
        measured.host.bookkeeping_us,
    );
    for node in &measured.nodes {
        text += &format!("\n{:<34} {:>10.1} us\n", node.name, node.us);
        for kernel in &node.kernels {
            text += &format!("  {:<32} {:>10.1}\n", kernel.name, kernel.us);
        }
    }
    text
}
