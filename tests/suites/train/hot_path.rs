//! Calls that are planted between two steps of the loop that training runs, through the device's own interface: the audit finds
//! each. The ledger counts a whole process, so each plant has one of its own.

use std::ops::ControlFlow;
use std::process::Command;

use cuda_std::shape::LaunchShape;
use host::audit::Audit;
use host::device::{Device, DeviceChoice, ledger};
use host::error::DeviceError;
use host::graph::{ChildGraph, ParentGraph};
use host::market::walk_forward::walk_forward;
use host::train::Trainer;
use onegraph_tests::{Case, Failed, Outcome, TEST_KERNELS as KERNELS, case, ensure};
use test_kernels::copies::copy_f32;

use crate::runs::{bars, config};

/// Set for a process of its own: backend and plant, as `cpu copy`.
const PLANT: &str = "ONEGRAPH_TEST_PLANT";
const N_STEPS: u32 = 5;

pub fn cases() -> Vec<Case> {
    let planted = [
        ("copy", "a copy between two steps", "cuMemcpyDtoHAsync_v2"),
        ("upload", "a copy between two steps", "cuMemcpyHtoDAsync_v2"),
        ("fill", "a fill between two steps", "cuMemsetD8Async"),
        ("launch", "a kernel launched between two steps", "cuLaunchKernel"),
        ("graph", "a graph launched beside the step's", "cuGraphLaunch"),
        ("event", "an event between two steps", "cuEventRecord"),
        ("wait", "a wait between two steps", "cuStreamSynchronize"),
        ("event_wait", "a wait between two steps", "cuEventSynchronize"),
        ("memory", "memory taken, given back or asked about between two steps", "cuMemAlloc_v2"),
        ("free", "memory taken, given back or asked about between two steps", "cuMemFree_v2"),
    ];
    let found = planted.map(|(plant, reason, call)| {
        case(format!("hot_path::a_planted_{plant}_is_found"), move |device| {
            a_planted_call_is_found(device, plant, reason, call)
        })
    });
    let mut cases = vec![case("hot_path::i1_without_a_plant_a_step_is_one_launch", without_a_plant)];
    cases.extend(found);
    cases
}

/// In a process that was started for a plant: plants it and prints the audit. Whether this is one.
pub fn planted_process() -> bool {
    let Ok(asked) = std::env::var(PLANT) else { return false };
    let (backend, plant) = asked.split_once(' ').expect("backend and plant");
    let choice = if backend == "cuda" { DeviceChoice::Cuda } else { DeviceChoice::Cpu };
    let audit = Device::open(choice).map_err(Failed::from).and_then(|device| planted(&device, plant));
    let audit = audit.unwrap_or_else(|failed| panic!("{}", failed.message().unwrap_or("failed")));
    println!("{}", serde_json::to_string(&audit).expect("plain data"));
    true
}

/// Five steps of training's own loop, of which the third is followed by the plant.
fn planted(device: &Device, plant: &str) -> Result<Audit, Failed> {
    let config = config();
    let bars = bars(&config);
    let mut trainer = Trainer::new(device, &config, &bars)?;
    trainer.begin_fold(&walk_forward(bars.len(), config.folds, config.episode_len as usize)?[0])?;
    trainer.warm_up()?;
    trainer.step()?;
    trainer.finish_steps()?;

    let (source, target) = (device.upload(&[1.0f32; 64])?, device.alloc_zeroed::<f32>(64)?);
    let (stream, module, shape) = (device.stream()?, device.module(&KERNELS)?, LaunchShape::linear(1, 64));
    let launch = || copy_f32::launch(source.view(), target.view_mut(), 1.0);
    let child = ChildGraph::capture(device, "planted", &KERNELS, |recorder| recorder.launch(shape, launch()))?;
    let graph = ParentGraph::compose(device, vec![child])?;
    // One launch before: a GPU loads and asks about a kernel at its first.
    stream.launch(&module, shape, launch())?;
    let (mut events, mut spare) = (vec![stream.record()?], vec![device.alloc::<u8>(100)?]);
    let mut act = || -> Result<(), DeviceError> {
        match plant {
            "copy" => target.read().map(drop),
            "upload" => source.write(&[2.0; 64]),
            "fill" => target.zero(),
            "launch" => stream.launch(&module, shape, launch()),
            "graph" => graph.launch(&stream),
            "event" => stream.record().map(|event| events.push(event)),
            "wait" => stream.synchronize(),
            "event_wait" => events[0].since(&events[0]).map(drop),
            "memory" => device.alloc::<u8>(100).map(|memory| spare.push(memory)),
            "free" => {
                spare.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    };
    let (mut seen, mut failed) = (0, None);
    ledger::enable();
    let ended = trainer.step_loop().run(N_STEPS, |_| {
        seen += 1;
        if seen == 3 {
            failed = act().err();
        }
        ControlFlow::Continue(())
    });
    ledger::disable();
    let _ = ended?;
    trainer.finish_steps()?;
    failed.map_or(Ok(()), Err)?;
    Ok(Audit::of(ledger::snapshot(), u64::from(N_STEPS)))
}

/// What a process of its own found.
fn audit(device: &Device, plant: &str) -> Result<serde_json::Value, Failed> {
    let asked = format!("{} {plant}", device.backend_name());
    let output = Command::new(std::env::current_exe()?).env(PLANT, asked).env("ONEGRAPH_CHECK", "0").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn without_a_plant(device: &Device) -> Outcome {
    let audit = audit(device, "nothing")?;
    let n_steps = u64::from(N_STEPS);
    for (name, want) in [("steps", n_steps), ("hot_calls", n_steps), ("graph_launches", n_steps), ("violations", 0)] {
        ensure!(audit[name].as_u64() == Some(want), "{name}: {audit}");
    }
    Ok(())
}

fn a_planted_call_is_found(device: &Device, plant: &str, reason: &str, call: &str) -> Outcome {
    let audit = audit(device, plant)?;
    let n_launches = audit["graph_launches"].as_u64();
    ensure!(n_launches == Some(N_STEPS.into()), "the steps' own launches are no violations: {audit}");
    ensure!(audit["violations"].as_u64().is_some_and(|violations| violations >= 1), "{audit}");
    let lines = audit["lines"].as_array().ok_or("no list")?;
    let found = lines.iter().find(|line| {
        let is = line["name"].as_str().is_some_and(|name| name.strip_prefix("cpu:").unwrap_or(name) == call);
        is && line["class"] == "violation" && line["reason"] == reason && line["calls"].as_u64() == Some(1)
    });
    let found = found.ok_or_else(|| Failed::from(format!("{call} is no violation: {audit}")))?;
    // A destructor does not know its caller: its place is the device's own file.
    let file = if plant == "free" { "host/src/device/" } else { "tests/suites/train/hot_path.rs:" };
    ensure!(found["place"].as_str().is_some_and(|place| place.starts_with(file)), "{found}");
    Ok(())
}
