//! `bench`: what a training step costs, as a whole, by child graph and by kernel.

use std::time::{Duration, Instant};

use cuda_std::launch::Work;
use serde::Serialize;

use super::output::{self, Json};
use super::train::Setup;
use super::{Error, Global};
use crate::bench::timer::{median, percentile};
use crate::bench::{Rates, Timer};
use crate::config::{Config, KEYS};
use crate::data::Bars;
use crate::device::Device;
use crate::graph::shape_text;
use crate::market::walk_forward::{Fold, walk_forward};
use crate::market::{Runner, Step};
use crate::progress::{Progress, Status, Total, Working};
use crate::run::plan::PlanError;
use crate::text::shown;
use crate::train::bookkeeping::Bookkeeping;
use crate::train::skips::Skips;
use crate::train::{TrainError, Trainer};

/// Steps that are launched before the device is waited for, as in an epoch, and how often at most that is done.
const N_STEPS: usize = 200;
const N_ROUNDS: usize = 10;
/// No round is begun behind so much time.
const ENOUGH: Duration = Duration::from_secs(3);

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[group(id = "bench")]
pub(super) struct Arguments {
    /// Show the kernels of this child graph alone; or what this learner adds to the step, by a step with it and one without it (the name of a
    /// key of `learners`, such as `iqn`).
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    json: Json,
}

/// What `bench --json` prints. Times are medians, microseconds. A floor is what the bytes that must move, or the operations of
/// matrix products, take at the rates; a gap is the time divided by the floor.
#[derive(Serialize)]
struct Measured {
    /// The device.
    device: String,
    /// What the device reaches.
    rates: Rates,
    /// A whole step, launched back to back.
    step_us: f64,
    /// The sum of its kernels' floors, of children that are not shown, too.
    floor_us: f64,
    /// How many times that the step takes.
    gap: f64,
    /// The host's part of a step: the launch, a look at the readback, the bookkeeping. On the CPU the launch is the step.
    host_us: f64,
    /// What 99 of 100 steps do not exceed of it.
    host_p99_us: f64,
    /// The parts of it.
    host: HostParts,
    /// The children.
    nodes: Vec<Node>,
    /// What the learner adds that `--node` names.
    learner: Option<Learner>,
}

/// A learner's share of the step: everything else as configured.
#[derive(Serialize)]
struct Learner {
    name: String,
    /// A whole step with it, launched back to back.
    with_us: f64,
    /// The same without it.
    without_us: f64,
    /// The difference, of the step with it. Times of two runs: under a hundredth it says nothing.
    share: f64,
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
    /// Its time, of the step's; children that run side by side have more than 1 in all.
    share: f64,
    /// As a graph of its own.
    us: f64,
    /// The sum of its kernels, each run by itself.
    kernels_us: f64,
    /// The sum of their floors.
    floor_us: f64,
    /// How many times that the graph takes.
    gap: f64,
    kernels: Vec<Kernel>,
}

#[derive(Serialize)]
struct Kernel {
    name: &'static str,
    /// Blocks x threads.
    shape: String,
    /// By itself.
    us: f64,
    /// Bytes that must move.
    bytes: u64,
    /// Operations of matrix products.
    operations: u64,
    floor_us: f64,
    gap: f64,
    /// Its time, of the step's.
    share: f64,
}

/// What is measured: a device, a market, a part of it to train on.
struct Place<'a> {
    device: &'a Device,
    series: &'a Bars,
    fold: &'a Fold,
}

impl Place<'_> {
    fn trainer(&self, config: &Config) -> Result<Trainer, TrainError> {
        Trainer::new(self.device, config, self.series)
    }

    /// Comes to where the next step is the first.
    fn begin(&self, trainer: &mut Trainer) -> Result<(), TrainError> {
        trainer.begin_fold(self.fold)?;
        trainer.warm_up()
    }

    /// What `learner` adds to a step of `config`; none if that is no learner.
    fn share(&self, config: &Config, learner: &str) -> Result<Option<Learner>, TrainError> {
        let both = config.with_learner(learner, true).zip(config.with_learner(learner, false));
        let Some((with, without)) = both else { return Ok(None) };
        let step_us = |config: &Config| -> Result<f64, TrainError> {
            let mut trainer = self.trainer(config)?;
            self.begin(&mut trainer)?;
            Ok(whole_step(&mut trainer)?.0)
        };
        let (with_us, without_us) = (step_us(&with)?, step_us(&without)?);
        let share = (with_us - without_us) / with_us;
        Ok(Some(Learner { name: learner.to_owned(), with_us, without_us, share }))
    }
}

impl Arguments {
    pub(super) fn run(&self, global: &Global) -> Result<(), Error> {
        self.setup.check_outputs(&[("--json", self.json.target())])?;
        let plan = self.setup.resolve(global.device.into())?;
        let series = &plan.series()?.bars;
        let working = Working::start("measuring the step, its children and their kernels");
        let folds = walk_forward(series.len(), plan.config.folds, plan.config.episode_len as usize);
        let folds = folds.map_err(|source| PlanError::WalkForward { name: plan.bars[0].name.clone(), source })?;
        let place = Place { device: &plan.device, series, fold: &folds[0] };
        let mut trainer = place.trainer(&plan.config)?;
        self.check_node(&trainer, &plan.config)?;
        place.begin(&mut trainer)?;
        let rates = Rates::measure(trainer.runner(), plan.config.precision)?;
        let (step_us, [host_us, host_p99_us], host) = whole_step(&mut trainer)?;
        let works = trainer.children().into_iter().flat_map(|(_, launches)| launches);
        let floor_us = works.map(|(_, launch)| rates.floor_us(launch.work())).sum();
        let device = plan.device.info().name;
        let gap = step_us / floor_us;
        let (nodes, learner) = (Vec::new(), None);
        let mut measured =
            Measured { device, rates, step_us, floor_us, gap, host_us, host_p99_us, host, nodes, learner };
        let is_shown = |name: &str| self.node.as_ref().is_none_or(|node| node == name);
        let names: Vec<&str> = trainer.children().into_iter().map(|(name, _)| name).collect();
        for name in names.into_iter().filter(|name| is_shown(name)) {
            measured.nodes.push(node(&trainer, name, &rates, step_us)?);
        }
        if let Some(name) = &self.node {
            // Its memory is needed for the steps with the learner and without it.
            drop(trainer);
            measured.learner = place.share(&plan.config, name)?;
        }
        drop(working);
        self.json.write(&measured)?;
        if self.json.to_standard_output() { Ok(()) } else { output::print(&text(&measured)) }
    }

    /// Refuses a `--node` that the step does not have, before anything is measured.
    fn check_node(&self, trainer: &Trainer, config: &Config) -> Result<(), PlanError> {
        let Some(node) = &self.node else { return Ok(()) };
        let children: Vec<&str> = trainer.children().into_iter().map(|(name, _)| name).collect();
        if children.contains(&node.as_str()) || config.with_learner(node, true).is_some() {
            return Ok(());
        }
        let learners: Vec<&str> = KEYS.iter().filter_map(|key| key.name.strip_prefix("learners.")).collect();
        let likeness = |name: &&&str| strsim::normalized_damerau_levenshtein(&node.to_lowercase(), name);
        let nearest = children.iter().chain(&learners).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let nearest = nearest.filter(|nearest| likeness(nearest) > 0.5);
        let like = nearest.map_or_else(String::new, |nearest| format!("; the nearest is `{nearest}`"));
        let (node, children, learners) = (shown(node), children.join(", "), learners.join(", "));
        let text = format!(
            "--node: the step has no child `{node}`, and there is no such learner{like}; its children are {children}; learners are {learners}"
        );
        Err(PlanError::Usage(text))
    }
}

/// Microseconds of a step on the device, of the host's part (median, 99th percentile), and of what that is made of.
fn whole_step(trainer: &mut Trainer) -> Result<(f64, [f64; 2], HostParts), TrainError> {
    for _ in 0..5 {
        trainer.step()?;
    }
    trainer.finish_steps()?;
    let mut parts: [Vec<f64>; 4] = std::array::from_fn(|_| Vec::with_capacity(N_ROUNDS * N_STEPS));
    // Progress that is not shown reads the clock as one that is shown does between two ticks.
    let mut progress = Progress::start(Total { epochs: 1, resumed_at: 0, folds: 1 }, true);
    let (mut status, mut skips, steps_before) = (Status::default(), Skips::default(), trainer.steps_done());
    let started = Instant::now();
    let (status, progress, skips) = (&mut status, &mut progress, &mut skips);
    let mut bookkeeping = Bookkeeping { status, progress, skips, steps_before, started };
    let mut n_rounds = 0;
    while n_rounds < N_ROUNDS && started.elapsed() < ENOUGH {
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
        n_rounds += 1;
    }
    let step_us = started.elapsed().as_secs_f64() * 1e6 / (n_rounds * N_STEPS) as f64;
    let p99 = percentile(parts[3].clone(), 0.99);
    let [launch_us, readback_us, bookkeeping_us, host_us] = parts.map(median);
    Ok((step_us, [host_us, p99], HostParts { launch_us, readback_us, bookkeeping_us }))
}

/// A child as a graph of its own, and its kernels by themselves. The step's counters are put back behind each, and the words of what is
/// due only every so many steps say that it is not.
fn node(trainer: &Trainer, name: &'static str, rates: &Rates, step_us: f64) -> Result<Node, TrainError> {
    let (runner, timer) = (trainer.runner(), Timer::THOROUGH);
    let counters = trainer.agent.counters.read()?;
    let launches = || {
        let mut children = trainer.children().into_iter().filter(|(child, _)| *child == name);
        children.next().map(|(_, launches)| launches).unwrap_or_default()
    };
    let put_back = || trainer.agent.counters.write(&counters).and_then(|()| trainer.memory().due.zero());
    put_back()?;
    let us = timer.child(runner, name, launches())?;
    put_back()?;
    let mut kernels = Vec::new();
    for step in launches() {
        kernels.push(kernel(runner, &step, rates, step_us)?);
        put_back()?;
    }
    let sum = |of: fn(&Kernel) -> f64| kernels.iter().map(of).sum::<f64>();
    let (kernels_us, floor_us) = (sum(|kernel| kernel.us), sum(|kernel| kernel.floor_us));
    let share = us / step_us;
    Ok(Node { name, share, us, kernels_us, floor_us, gap: us / floor_us, kernels })
}

fn kernel(runner: Runner<'_>, step: &Step, rates: &Rates, step_us: f64) -> Result<Kernel, TrainError> {
    let (shape, launch) = step;
    let us = Timer::THOROUGH.kernel(runner, step)?;
    let Work { bytes, operations } = launch.work();
    let floor_us = rates.floor_us(launch.work());
    Ok(Kernel {
        name: launch.info().name,
        shape: shape_text(shape),
        us,
        bytes,
        operations,
        floor_us,
        gap: us / floor_us,
        share: us / step_us,
    })
}

fn text(measured: &Measured) -> String {
    let Measured { device, rates, step_us, floor_us, gap, host_us, host_p99_us, host, nodes, learner } = measured;
    let mut text = format!(
        "{device}: {step_us:.1} us a step ({:.0} steps a second), floor {floor_us:.1} us, gap {gap:.2}\n\
         host: {host_us:.2} us a step (99th percentile {host_p99_us:.2}): launch {:.2}, readback {:.2}, bookkeeping {:.2}\n\
         floors: bytes at {:.1} GB/s, products at {:.3} TFLOP/s, as a large copy and a large product reach them here\n",
        1e6 / step_us,
        host.launch_us,
        host.readback_us,
        host.bookkeeping_us,
        1e-9 * rates.bytes_per_s,
        1e-12 * rates.operations_per_s,
    );
    for node in nodes {
        let Node { name, share, us, kernels_us, floor_us, gap, kernels } = node;
        text += &format!(
            "\n{:<56} {:>10} {:>10} {:>8} {:>9}\n{name:<56} {us:>10.1} {floor_us:>10.2} {} {:>8.1}%\n",
            "",
            "us",
            "floor",
            "gap",
            "of a step",
            gap_text(*gap),
            100.0 * share
        );
        for Kernel { name, shape, us, floor_us, gap, share, .. } in kernels {
            let (gap, percent) = (gap_text(*gap), 100.0 * share);
            text += &format!("  {name:<32} {shape:<21} {us:>10.1} {floor_us:>10.2} {gap} {percent:>8.1}%\n");
        }
        text += &format!("  {:<54} {kernels_us:>10.1}\n", "kernels one by one, in all");
    }
    if let Some(Learner { name, with_us, without_us, share }) = learner {
        text += &format!(
            "\nlearners.{name}: {:.1} us of a step, {:.1}%: {with_us:.1} us with it, {without_us:.1} without\n",
            with_us - without_us,
            100.0 * share
        );
    }
    text
}

/// A gap in eight columns: of a kernel that does next to nothing it is long.
fn gap_text(gap: f64) -> String {
    if gap < 1000.0 { format!("{gap:>8.2}") } else { format!("{gap:>8.0}") }
}
