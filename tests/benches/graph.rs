//! What a replay costs: a parent graph of 12 children with 8 small kernels each.
//!
//! `graph [--device auto|cuda|cpu] [--json FILE]`. Times by the device's events, the host's by its clock, medians of many.
//! Beside the launches stands how fast the core runs in the same moments, since a shared machine's cores do not keep one speed.
//! In `chain` every kernel waits for the one before; in `1 fork` and `3 forks` so many children run each beside the one that follows
//! it, and the rest is a chain; in `2 roots` the first two wait for nothing; in `beside` all are independent. A launch of the graph must
//! be exactly one driver call: the program fails otherwise.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cuda_driver::ledger::{self, CallKind, Phase};
use cuda_std::shape::LaunchShape;
use host::device::{Device, DeviceChoice};
use host::error::DeviceError;
use host::graph::{ChildGraph, ParentGraph};
use onegraph_tests::TEST_KERNELS;
use serde::Serialize;
use test_kernels::small::fill_u32;

const N_CHILDREN: usize = 12;
const N_KERNELS: usize = 8;
/// Elements that a kernel writes: one warp.
const LEN: usize = 32;
/// Replays between two events: enough to hide the events' own resolution, few enough for the launch queue.
const BATCH: u32 = 20;
const N_BATCHES: usize = 200;
const N_AUDITED: u64 = 1000;
/// Steps of a chain: some ten microseconds.
const CHAIN: u32 = 10_000;

#[derive(Serialize)]
struct Report {
    device: String,
    backend: &'static str,
    driver: Option<String>,
    graphs: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    graph: &'static str,
    n_children: usize,
    n_kernels: usize,
    n_edges: usize,
    /// Device time of one replay among many back to back.
    replay_us: f64,
    /// The same by kernel.
    kernel_us: f64,
    /// Device time of a replay alone, between two events.
    alone_us: f64,
    /// Host time of one launch behind others that still run.
    launch_us: f64,
    /// Host time of one launch on an idle stream.
    launch_idle_us: f64,
    /// Steps of a chain of dependent multiply-adds that the host's core made in a nanosecond, between the launches.
    chain_steps_a_ns: f64,
    /// Driver calls that the ledger saw in `replays` replays, and how many were `cuGraphLaunch`.
    replays: u64,
    driver_calls: u64,
    graph_launches: u64,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: a replay was not exactly one cuGraphLaunch");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let (choice, json) = arguments()?;
    let device = Device::open(choice)?;
    let graphs = vec![
        measure(&device, "chain", chain_of(0))?,
        measure(&device, "1 fork", chain_of(1))?,
        measure(&device, "3 forks", chain_of(3))?,
        measure(&device, "2 roots", two_roots())?,
        measure(&device, "beside", independent())?,
    ];
    let report = Report {
        device: device.info().name,
        backend: device.backend_name(),
        driver: cuda_driver::load().ok().map(|driver| driver.version.to_string()),
        graphs,
    };
    println!("{}, {} backend", report.device, report.backend);
    for graph in &report.graphs {
        println!(
            "{:<8}{} kernels, {} edges: {:.2} us a replay, {:.3} us a kernel, {:.2} us alone; {:.2} us of host a launch, \
             {:.2} on an idle stream, on a core that makes {:.3} chained multiply-adds a ns; {} driver calls in {} replays",
            graph.graph,
            graph.n_kernels,
            graph.n_edges,
            graph.replay_us,
            graph.kernel_us,
            graph.alone_us,
            graph.launch_us,
            graph.launch_idle_us,
            graph.chain_steps_a_ns,
            graph.driver_calls,
            graph.replays
        );
    }
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    let one_call = |graph: &Measured| graph.driver_calls == graph.replays && graph.graph_launches == graph.replays;
    Ok(report.graphs.iter().all(one_call))
}

/// `cargo bench` adds `--bench`, which says nothing here.
fn arguments() -> Result<(DeviceChoice, Option<String>), String> {
    let (mut choice, mut json) = (DeviceChoice::Auto, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--json" => json = Some(arguments.next().ok_or("--json needs a file")?),
            "--device" => {
                choice = match arguments.next().as_deref() {
                    Some("auto") => DeviceChoice::Auto,
                    Some("cuda") => DeviceChoice::Cuda,
                    Some("cpu") => DeviceChoice::Cpu,
                    other => return Err(format!("--device is auto, cuda or cpu, not {other:?}")),
                }
            }
            other => return Err(format!("unknown argument {other}; known are --device and --json")),
        }
    }
    Ok((choice, json))
}

/// The buffer that each kernel of each child writes: kernels of one buffer wait for each other.
type Targets = [[usize; N_KERNELS]; N_CHILDREN];

/// A chain in which `n_forks` children run beside the child that follows: they write the second buffer, which the last kernel of the
/// child before them and the first of the second one after them write too.
fn chain_of(n_forks: usize) -> Targets {
    let mut targets = [[0; N_KERNELS]; N_CHILDREN];
    for aside in (1..).step_by(3).take(n_forks) {
        targets[aside - 1][N_KERNELS - 1] = 1;
        targets[aside] = [1; N_KERNELS];
        targets[aside + 2][0] = 1;
    }
    targets
}

/// A chain whose first two children wait for nothing.
fn two_roots() -> Targets {
    let mut targets = [[0; N_KERNELS]; N_CHILDREN];
    targets[1] = [1; N_KERNELS];
    targets[2][0] = 1;
    targets
}

fn independent() -> Targets {
    std::array::from_fn(|child| [child; N_KERNELS])
}

fn compose(device: &Device, targets: &Targets) -> Result<ParentGraph, DeviceError> {
    let buffers = (0..N_CHILDREN).map(|_| device.alloc_zeroed::<u32>(LEN)).collect::<Result<Vec<_>, _>>()?;
    let children = targets.iter().enumerate().map(|(child, targets)| {
        ChildGraph::capture(device, format!("child_{child}"), &TEST_KERNELS, |recorder| {
            targets.iter().zip(0..).try_for_each(|(&target, kernel)| {
                recorder.launch(LaunchShape::cover(LEN, 32), fill_u32::launch(buffers[target].view_mut(), kernel))
            })
        })
    });
    ParentGraph::compose(device, children.collect::<Result<Vec<_>, _>>()?)
}

fn measure(device: &Device, name: &'static str, targets: Targets) -> Result<Measured, DeviceError> {
    let graph = compose(device, &targets)?;
    let stream = device.stream()?;
    for _ in 0..100 {
        graph.launch(&stream)?;
    }
    stream.synchronize()?;

    let (mut batches, mut alone) = (Vec::new(), Vec::new());
    let (mut launches, mut idle_launches, mut chains) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..N_BATCHES {
        let start = stream.record()?;
        for _ in 0..BATCH {
            let begun = Instant::now();
            graph.launch(&stream)?;
            launches.push(begun.elapsed());
        }
        batches.push(stream.record()?.since(&start)? / BATCH);
        let start = stream.record()?;
        let begun = Instant::now();
        graph.launch(&stream)?;
        idle_launches.push(begun.elapsed());
        alone.push(stream.record()?.since(&start)?);
        chains.push(chain());
    }
    let (driver_calls, graph_launches) = audit(&graph, &stream)?;
    let description = graph.description();
    let replay_us = median_us(batches);
    Ok(Measured {
        graph: name,
        n_children: description.children.len(),
        n_kernels: description.n_kernels(),
        n_edges: description.edges.len(),
        replay_us,
        kernel_us: replay_us / description.n_kernels() as f64,
        alone_us: median_us(alone),
        launch_us: median_us(launches),
        launch_idle_us: median_us(idle_launches),
        chain_steps_a_ns: f64::from(CHAIN) / (1e3 * median_us(chains)),
        replays: N_AUDITED,
        driver_calls,
        graph_launches,
    })
}

/// What a chain of `CHAIN` dependent multiply-adds takes: nothing but the core's clock, and who shares it, changes it.
fn chain() -> Duration {
    let (begun, mut x) = (Instant::now(), 1_u64);
    for _ in 0..CHAIN {
        // Hidden, or the compiler would make one step of several.
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    black_box(x);
    begun.elapsed()
}

/// Driver calls of `N_AUDITED` replays, and how many of them launched a graph.
fn audit(graph: &ParentGraph, stream: &host::device::Stream) -> Result<(u64, u64), DeviceError> {
    ledger::reset();
    ledger::enable();
    let before = ledger::set_phase(Phase::Step);
    let result = (0..N_AUDITED).try_for_each(|_| graph.launch(stream));
    ledger::set_phase(before);
    ledger::disable();
    result?;
    stream.synchronize()?;
    let lines = ledger::snapshot();
    let calls = |of: &dyn Fn(&str) -> bool| lines.iter().filter(|line| of(line.name)).map(|line| line.calls).sum();
    Ok((calls(&|_| true), calls(&|name| CallKind::of(name) == CallKind::GraphLaunch)))
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
