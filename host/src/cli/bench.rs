//! `bench`: what a training step costs, as a whole, by child graph and by kernel.

use std::time::Instant;

use serde::Serialize;

use super::output;
use super::train::Arguments as Training;
use super::{Error, Global};
use crate::market::walk_forward::walk_forward;
use crate::run::plan::PlanError;
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
    training: Training,
}

/// What `bench --json` prints. Times are medians, microseconds.
#[derive(Serialize)]
struct Measured {
    /// The device.
    device: String,
    /// A whole step, launched back to back.
    step_us: f64,
    /// The host's part of a step: the launch and a look at the readback.
    host_us: f64,
    /// The children, each with the sum of its kernels run by themselves.
    nodes: Vec<Node>,
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
        let plan = self.training.resolve(global.device.into())?;
        let series = &plan.bars[0].bars;
        let folds = walk_forward(series.len(), plan.config.folds, plan.config.episode_len as usize);
        let folds = folds.map_err(|source| PlanError::WalkForward { name: plan.bars[0].name.clone(), source })?;
        let mut trainer = Trainer::new(&plan.device, &plan.config, series)?;
        trainer.begin_fold(&folds[0])?;
        trainer.warm_up()?;
        let (step_us, host_us) = whole_step(&mut trainer)?;
        let mut measured = Measured { device: plan.device.info().name, step_us, host_us, nodes: Vec::new() };
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
        self.training.json.write(&measured)?;
        if self.training.json.to_standard_output() { Ok(()) } else { output::print(&text(&measured)) }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds of a step on the device, and of the host's part.
fn whole_step(trainer: &mut Trainer) -> Result<(f64, f64), TrainError> {
    for _ in 0..5 {
        trainer.step()?;
    }
    trainer.finish_steps()?;
    let mut host = Vec::with_capacity(N_STEPS);
    let started = Instant::now();
    for _ in 0..N_STEPS {
        let launched = Instant::now();
        trainer.step()?;
        std::hint::black_box(trainer.published());
        host.push(launched.elapsed().as_secs_f64() * 1e6);
    }
    trainer.finish_steps()?;
    Ok((started.elapsed().as_secs_f64() * 1e6 / N_STEPS as f64, median(host)))
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
        "{}: {:.1} us a step ({:.0} steps a second), {:.2} us of the host's\n",
        measured.device,
        measured.step_us,
        1e6 / measured.step_us,
        measured.host_us
    );
    for node in &measured.nodes {
        text += &format!("\n{:<34} {:>10.1} us\n", node.name, node.us);
        for kernel in &node.kernels {
            text += &format!("  {:<32} {:>10.1}\n", kernel.name, kernel.us);
        }
    }
    text
}
