//! The CUDA backend against a stand-in for the driver, which runs no kernel but checks the rules of the driver's objects:
//! what lives how long, what waits for what, what a capture forbids. Each scenario runs in a process of its own.

#[path = "../fake_cuda/driver.rs"]
mod driver;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cuda_driver::ledger::{self, Phase};
use cuda_std::shape::LaunchShape;
use driver::fake_driver;
use host::audit::{Audit, Class};
use host::config::{Config, DataSource, Learners, Preset};
use host::data::simulate::Simulation;
use host::device::ledger::{Direction, MemoryKind};
use host::device::{Buffer, Device, DeviceChoice};
use host::error::DeviceError;
use host::graph::{ChildGraph, ParentGraph};
use host::images::Images;
use host::train::Trainer;
use onegraph_tests::TEST_KERNELS as KERNELS;
use test_kernels::copies::copy_f32;

const SCENARIO: &str = "FAKE_CUDA_SCENARIO";
/// A device on which the step of the preset `tiny` fits.
const ROOM: [(&str, &str); 2] = [("FAKE_CUDA_MEMORY", "100000000"), ("FAKE_CUDA_THREADS", "1024")];
const SHAPE: LaunchShape = LaunchShape::linear(4, 32);

/// Runs a scenario in a new process; returns nothing unless it passes.
fn check(scenario: &str, settings: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().expect("the test's own path"))
        .args(["scenario_of_another_test", "--exact", "--ignored", "--nocapture"])
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env(SCENARIO, scenario)
        .env("ONEGRAPH_LIBCUDA", fake_driver())
        .envs(settings.iter().copied())
        .output()
        .expect("the test's own binary runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{scenario}: {}\n{text}", output.status);
}

macro_rules! scenarios {
    ($($name:ident $settings:expr;)*) => {
        $(#[test] fn $name() { check(stringify!($name), &$settings); })*

        #[test]
        #[ignore = "the other tests run it, each with a scenario"]
        fn scenario_of_another_test() {
            match std::env::var(SCENARIO).expect("a scenario").as_str() {
                $(stringify!($name) => scenario::$name(),)*
                other => panic!("unknown scenario {other}"),
            }
        }
    };
}

scenarios! {
    i1_a_replay_is_one_driver_call [];
    i1_the_loop_of_the_steps_is_one_driver_call_a_step ROOM;
    calls_between_two_steps_are_violations [];
    i3_each_child_has_a_module_of_its_own [];
    i3_each_child_of_the_step_has_a_module_of_its_own ROOM;
    everything_may_be_dropped_in_any_order [];
    case_x_a_failed_capture_leaves_the_device_usable [];
    case_x_a_driver_error_in_a_capture_is_told_and_over [("FAKE_CUDA_FAIL", "cuLaunchKernel:2:719")];
    case_x_a_capture_that_the_driver_invalidates_is_one_error [("FAKE_CUDA_FAIL", "cuStreamEndCapture:1:901")];
    case_x_memory_comes_and_goes_while_a_child_is_recorded [];
    case_x_another_thread_works_during_a_capture [];
    out_of_memory_tells_the_numbers [("FAKE_CUDA_MEMORY", "1000000")];
    an_old_gpu_is_refused [("FAKE_CUDA_CC", "75")];
    hopper_gets_its_image [("FAKE_CUDA_CC", "90")];
    other_gpus_get_the_portable_image [("FAKE_CUDA_CC", "80")];
    the_jit_compilers_log_is_in_the_error [];
    large_shared_memory_is_granted [];
    a_failed_free_is_told_by_the_next_call [("FAKE_CUDA_FAIL", "cuMemFree_v2:1:719")];
    a_kernel_fault_names_the_last_launch [("FAKE_CUDA_FAIL", "cuStreamSynchronize:1:719")];
    a_fault_in_a_graph_names_the_graph [("FAKE_CUDA_FAIL", "cuStreamSynchronize:2:719")];
    a_fault_that_a_read_meets_names_the_last_launches [("FAKE_CUDA_FAIL", "cuStreamSynchronize:1:719")];
    memory_of_the_cpu_is_refused [];
    a_kernel_of_another_crate_is_named [];
    a_driver_without_a_gpu_is_told [("FAKE_CUDA_COUNT", "0")];
    an_index_past_the_last_gpu_is_told [("ONEGRAPH_DEVICE_INDEX", "3"), ("FAKE_CUDA_COUNT", "2")];
    the_second_gpu_can_be_chosen [("ONEGRAPH_DEVICE_INDEX", "1"), ("FAKE_CUDA_COUNT", "2")];
    an_index_that_is_no_number_is_refused [("ONEGRAPH_DEVICE_INDEX", "first")];
    a_named_driver_that_is_missing_is_told [("ONEGRAPH_LIBCUDA", "/nonexistent/libcuda.so.1")];
}

fn open() -> Device {
    Device::open(DeviceChoice::Cuda).expect("the fake is a GPU")
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

/// A child of `n` copies back and forth between two buffers.
fn child(device: &Device, name: &str, a: &Buffer<f32>, b: &Buffer<f32>, n: usize) -> Result<ChildGraph, DeviceError> {
    ChildGraph::capture(device, name, &KERNELS, |recorder| {
        (0..n).try_for_each(|i| {
            let (source, target) = if i % 2 == 0 { (a, b) } else { (b, a) };
            recorder.launch(SHAPE, copy_f32::launch(source.view(), target.view_mut(), 1.0))
        })
    })
}

fn two_buffers(device: &Device) -> (Buffer<f32>, Buffer<f32>) {
    (device.alloc(128).expect("memory"), device.alloc(128).expect("memory"))
}

/// What trains, with every learner.
fn trainer(device: &Device) -> Trainer {
    let mut config = Config::preset(Preset::Tiny, DataSource::Simulator);
    let (temporal, attention, iqn, iql, selectivity, denoise, risk) = (true, true, true, true, true, true, true);
    config.learners = Learners { temporal, attention, iqn, iql, selectivity, denoise, risk, ..config.learners };
    let bars = Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed }.bars();
    Trainer::new(device, &config, &bars).expect("a trainer")
}

/// The device still captures, composes, launches and copies.
fn assert_usable(device: &Device) {
    let (a, b) = two_buffers(device);
    let graph = ParentGraph::compose(device, vec![child(device, "after", &a, &b, 3).expect("a capture")]);
    graph.expect("a graph").launch(&device.stream().expect("a stream")).expect("a launch");
    a.write(&[1.0; 128]).expect("an upload");
    assert_eq!(a.read().expect("a download"), [1.0; 128]);
}

mod scenario {
    use super::*;

    pub fn i1_a_replay_is_one_driver_call() {
        let device = open();
        let pairs: Vec<_> = (0..12).map(|_| two_buffers(&device)).collect();
        let children = pairs.iter().enumerate().map(|(i, (a, b))| child(&device, &i.to_string(), a, b, 8));
        let children = children.collect::<Result<Vec<_>, _>>().expect("twelve captures");
        let graph = ParentGraph::compose(&device, children).expect("a graph");
        assert_eq!(graph.description().n_kernels(), 96);
        let stream = device.stream().expect("a stream");
        ledger::enable();
        let before = ledger::set_phase(Phase::Step);
        for _ in 0..1000 {
            graph.launch(&stream).expect("a launch");
        }
        ledger::set_phase(before);
        ledger::disable();
        let lines = ledger::snapshot();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((lines[0].name, lines[0].phase, lines[0].calls), ("cuGraphLaunch", Phase::Step, 1000));
        assert_has(lines[0].place.as_deref().unwrap_or_default(), &["fake_cuda.rs:"]);
    }

    /// The loop that training runs, on the CUDA backend: every call that it makes of the driver is counted here.
    pub fn i1_the_loop_of_the_steps_is_one_driver_call_a_step() {
        let device = open();
        let mut trainer = trainer(&device);
        ledger::enable();
        let ended = trainer.step_loop().run(1000, |_| ControlFlow::Continue(())).expect("launches");
        ledger::disable();
        assert!(ended.is_continue());
        trainer.finish_steps().expect("a wait behind the steps");
        let audit = Audit::of(ledger::snapshot(), 1000);
        assert_eq!((audit.hot_calls, audit.graph_launches, audit.violations), (1000, 1000, 0), "{:?}", audit.lines);
        let names: Vec<_> = audit.lines.iter().map(|line| line.calls.name).collect();
        assert_eq!(names, ["cuGraphLaunch", "mapped load"]);
    }

    /// As the driver's own functions, with what they move and of which memory.
    pub fn calls_between_two_steps_are_violations() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let (stream, module) = (device.stream().expect("a stream"), device.module(&KERNELS).expect("a module"));
        let graph = ParentGraph::compose(&device, vec![child(&device, "only", &a, &b, 2).expect("a capture")]);
        let graph = graph.expect("a graph");
        let launch = || stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0));
        launch().expect("the kernel is loaded");
        ledger::enable();
        {
            let _hot = ledger::phase(Phase::Step);
            graph.launch(&stream).expect("a launch");
            launch().expect("a launch");
            a.write(&[1.0; 128]).expect("an upload");
            a.slice(0..32).read().expect("a download");
            drop(stream.record().expect("an event"));
            drop(device.pinned::<u64>(8).expect("pinned memory"));
        }
        stream.synchronize().expect("a wait behind the steps");
        ledger::disable();
        let audit = Audit::of(ledger::snapshot(), 1);
        let line = |name: &str| {
            let line = audit.lines.iter().find(|line| line.calls.name == name && line.calls.phase == Phase::Step);
            let line = line.unwrap_or_else(|| panic!("no {name} in {:?}", audit.lines));
            assert_eq!(line.class, Class::Violation, "{line:?}");
            (line.calls.direction, line.calls.memory, line.calls.bytes)
        };
        let (up, down) = (Some(Direction::HostToDevice), Some(Direction::DeviceToHost));
        assert_eq!(line("cuGraphLaunch"), (None, None, 0), "not by the loop of the steps");
        assert_eq!(line("cuLaunchKernel"), (None, None, 0));
        assert_eq!(line("cuMemcpyHtoDAsync_v2"), (up, Some(MemoryKind::Pageable), 512));
        assert_eq!(line("cuMemcpyDtoHAsync_v2"), (down, Some(MemoryKind::Pageable), 128));
        assert_eq!(line("cuMemHostAlloc"), (None, Some(MemoryKind::Pinned), 64));
        for name in ["cuEventCreate", "cuEventRecord", "cuEventDestroy_v2", "cuStreamSynchronize", "cuMemFreeHost"] {
            line(name);
        }
        let cold = audit.lines.iter().filter(|line| line.calls.phase == Phase::Setup);
        assert!(
            cold.clone().count() >= 1 && cold.clone().all(|line| line.class == Class::ColdPath),
            "{:?}",
            audit.lines
        );
        assert_eq!((audit.graph_launches, audit.faults().len() as u64 > 9), (0, true), "{:?}", audit.faults());
        assert_has(&audit.faults().join("\n"), &["0 launches of the step's graph in 1 steps", "fake_cuda.rs:"]);
    }

    pub fn i3_each_child_has_a_module_of_its_own() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let children = (1..4).map(|n| child(&device, &n.to_string(), &a, &b, n));
        let children = children.collect::<Result<Vec<_>, _>>().expect("three captures");
        let modules = ParentGraph::compose(&device, children).expect("a graph").modules().expect("its modules");
        let mut own: Vec<usize> = modules.iter().map(|child| child.own).collect();
        for (child, n) in modules.iter().zip(1..) {
            assert_eq!(child.of_kernels, vec![child.own; n]);
        }
        own.dedup();
        assert_eq!(own.len(), 3);
    }

    /// The step that trains: kernels that several children launch are loaded for each of them.
    pub fn i3_each_child_of_the_step_has_a_module_of_its_own() {
        let device = open();
        let trainer = trainer(&device);
        let (children, modules) =
            (&trainer.step_graph().description().children, trainer.step_graph().modules().expect("its modules"));
        assert_eq!((children.len(), modules.len()), (12, 12));
        for (child, module) in children.iter().zip(&modules) {
            assert_eq!(module.of_kernels, vec![module.own; child.kernels.len()], "{}", child.name);
        }
        let own: BTreeSet<usize> = modules.iter().map(|module| module.own).collect();
        assert_eq!(own.len(), 12, "children share a module");
    }

    /// The fake aborts when an object outlives its context, or memory or a module goes while a launch may reach it.
    pub fn everything_may_be_dropped_in_any_order() {
        for order in 0..6 {
            let device = open();
            let (a, b) = two_buffers(&device);
            let pinned = device.pinned::<u32>(16).expect("pinned memory");
            let stream = device.stream().expect("a stream");
            let module = device.module(&KERNELS).expect("a module");
            let start = stream.record().expect("an event");
            let graph = ParentGraph::compose(&device, vec![child(&device, "only", &a, &b, 2).expect("a capture")]);
            let graph = graph.expect("a graph");
            stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0)).expect("a launch");
            graph.launch(&stream).expect("a launch");
            let elapsed = stream.record().expect("an event").since(&start).expect("a time");
            assert_eq!(elapsed.as_micros(), 1500);
            match order {
                0 => drop((device, stream, graph, module, a, b, pinned, start)),
                1 => drop((graph, a, b, stream, device, pinned, start, module)),
                2 => drop((a, module, pinned, graph, stream, start, b, device)),
                3 => drop((module, device, graph, b, start, stream, a, pinned)),
                4 => drop((start, stream, pinned, a, b, module, device, graph)),
                _ => std::thread::spawn(move || drop((b, pinned, device, module, stream, graph, a, start)))
                    .join()
                    .expect("another thread may drop everything"),
            }
        }
    }

    pub fn case_x_a_failed_capture_leaves_the_device_usable() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let launch = || copy_f32::launch(a.view(), b.view_mut(), 1.0);
        let failed = ChildGraph::capture(&device, "fails", &KERNELS, |recorder| {
            recorder.launch(SHAPE, launch())?;
            recorder.launch(LaunchShape::linear(4, 2048), launch())
        });
        let text = failed.err().expect("2048 threads are too many").to_string();
        assert_has(&text, &["`fails`", "copy_f32", "block 2048x1x1"]);
        assert_usable(&device);
        let panics = || {
            ChildGraph::capture(&device, "panics", &KERNELS, |recorder| {
                recorder.launch(SHAPE, launch())?;
                std::panic::resume_unwind(Box::new(()))
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_usable(&device);
    }

    pub fn case_x_a_driver_error_in_a_capture_is_told_and_over() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let text = child(&device, "broken", &a, &b, 3).err().expect("the second launch fails").to_string();
        assert_has(&text, &["`broken`", "cuLaunchKernel", "CUDA_ERROR_LAUNCH_FAILED (719)", "copy_f32", "grid 4x1x1"]);
        assert_usable(&device);
    }

    pub fn case_x_a_capture_that_the_driver_invalidates_is_one_error() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let text = child(&device, "broken", &a, &b, 3).err().expect("the capture cannot be ended").to_string();
        assert_has(&text, &["`broken`", "cuStreamEndCapture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"]);
        assert_usable(&device);
    }

    pub fn case_x_memory_comes_and_goes_while_a_child_is_recorded() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let child = ChildGraph::capture(&device, "disturbed", &KERNELS, |recorder| {
            recorder.launch(SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0))?;
            drop(device.upload(&[1u8; 100])?);
            drop(device.module(&KERNELS)?);
            assert_usable(&device);
            recorder.launch(SHAPE, copy_f32::launch(b.view(), a.view_mut(), 1.0))
        });
        assert!(ParentGraph::compose(&device, vec![child.expect("the capture goes on")]).is_ok());
    }

    /// While this thread captures again and again, another allocates, copies, loads, launches and captures.
    pub fn case_x_another_thread_works_during_a_capture() {
        let device = open();
        let (a, b) = two_buffers(&device);
        let (captured, n_done) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !captured.load(Ordering::Relaxed) {
                    assert_usable(&device);
                    n_done.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut n_captured = 0;
            while n_captured < 50 || n_done.load(Ordering::Relaxed) < 2 && !other.is_finished() {
                child(&device, "disturbed", &a, &b, 60).expect("the other thread's calls do not break it");
                n_captured += 1;
            }
            captured.store(true, Ordering::Relaxed);
        });
    }

    pub fn out_of_memory_tells_the_numbers() {
        let device = open();
        let kept = device.alloc::<u8>(300_000).expect("there is room");
        let text = device.alloc::<f32>(250_000).err().expect("a million more is too much").to_string();
        assert_has(&text, &["1000000 bytes asked for", "700000 of 1000000 bytes free", "Fake GPU 0"]);
        assert_eq!(device.memory_info().expect("the device is usable"), (700_000, 1_000_000));
        assert!(device.pinned::<u8>(800_000).is_err());
        let text = device.alloc::<u64>(usize::MAX / 2).err().expect("past an address space").to_string();
        assert_has(&text, &["more than can be addressed"]);
        drop(kept);
    }

    pub fn an_old_gpu_is_refused() {
        let text = Device::open(DeviceChoice::Cuda).err().expect("7.5 is too old").to_string();
        assert_has(&text, &["Fake GPU 0", "7.5", "8.0", "--device cpu"]);
    }

    fn image() -> &'static str {
        let device = open();
        device.module(&KERNELS).expect("a module").image()
    }

    pub fn hopper_gets_its_image() {
        assert_eq!(image(), "sm_90a");
    }

    pub fn other_gpus_get_the_portable_image() {
        assert_eq!(image(), "sm_80");
    }

    pub fn the_jit_compilers_log_is_in_the_error() {
        let images = Images { name: "broken-kernels", sm_80: "NOT PTX", sm_90a: "NOT PTX" };
        let module = open().module(&images).expect("nothing is loaded yet");
        let text = module.load_all().expect_err("the image is broken").to_string();
        assert_has(
            &text,
            &["cuModuleLoadDataEx", "CUDA_ERROR_INVALID_PTX (218)", "broken-kernels", "sm_90a", "ptxas fatal"],
        );
    }

    pub fn large_shared_memory_is_granted() {
        let device = open();
        let (module, stream) = (device.module(&KERNELS).expect("a module"), device.stream().expect("a stream"));
        let (a, b) = two_buffers(&device);
        let launch = |kib: u32| {
            let launch = copy_f32::launch(a.view(), b.view_mut(), 1.0);
            stream.launch(&module, SHAPE.with_shared(kib * 1024), launch)
        };
        for kib in [48, 227, 100] {
            launch(kib).expect("the kernel's limit is raised");
        }
        let text = launch(228).expect_err("more than a block may have").to_string();
        assert_has(&text, &["cuFuncSetAttribute", "copy_f32", "233472 bytes", "Fake GPU 0"]);
        let text = stream.launch(&module, LaunchShape::linear(1, 513), copy_f32::launch(a.view(), b.view_mut(), 1.0));
        assert_has(&text.expect_err("its registers allow 512").to_string(), &["copy_f32", "block 513x1x1", "512"]);
    }

    pub fn a_failed_free_is_told_by_the_next_call() {
        let device = open();
        let (a, b) = two_buffers(&device);
        drop(a);
        let text = device.alloc::<u8>(1).err().expect("the free failed").to_string();
        assert_has(&text, &["earlier", "cuMemFree_v2", "719"]);
        assert!(device.alloc::<u8>(1).is_ok(), "it is told once");
        // The memory that could not be freed is still there, and the fake would complain of that at the end.
        std::mem::forget((device, b));
    }

    pub fn a_kernel_fault_names_the_last_launch() {
        let device = open();
        let (module, stream) = (device.module(&KERNELS).expect("a module"), device.stream().expect("a stream"));
        let (a, b) = two_buffers(&device);
        stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0)).expect("the launch itself works");
        let text = stream.synchronize().expect_err("the kernel faulted").to_string();
        let shape = "grid 4x1x1, block 32x1x1";
        assert_has(
            &text,
            &["cuStreamSynchronize", "CUDA_ERROR_LAUNCH_FAILED (719)", "copy_f32", shape, "ONEGRAPH_CHECK=1"],
        );
    }

    /// The first wait is for the graph's upload.
    pub fn a_fault_in_a_graph_names_the_graph() {
        let device = open();
        let (module, stream) = (device.module(&KERNELS).expect("a module"), device.stream().expect("a stream"));
        let (a, b) = two_buffers(&device);
        let children = ["x", "y"].map(|name| child(&device, name, &a, &b, 3).expect("a capture"));
        let graph = ParentGraph::compose(&device, children.into()).expect("a graph");
        stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0)).expect("the launch itself works");
        graph.launch(&stream).expect("the launch itself works");
        let text = stream.synchronize().expect_err("a kernel faulted").to_string();
        assert_has(&text, &["cuStreamSynchronize", "719", "a graph of 2 children"]);
        assert!(!text.contains("copy_f32"), "{text}");
    }

    pub fn a_fault_that_a_read_meets_names_the_last_launches() {
        let device = open();
        let module = device.module(&KERNELS).expect("a module");
        let (_idle, stream) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
        let (a, b) = two_buffers(&device);
        stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0)).expect("the launch itself works");
        let text = b.read().expect_err("the kernel faulted").to_string();
        assert_has(&text, &["earlier launches", "nothing; kernel `copy_f32` with grid 4x1x1, block 32x1x1"]);
    }

    pub fn memory_of_the_cpu_is_refused() {
        let (device, cpu) = (open(), Device::open(DeviceChoice::Cpu).expect("the CPU"));
        let ((a, b), (on_cpu, _)) = (two_buffers(&device), two_buffers(&cpu));
        for (device, source, target, parameter) in
            [(&device, &on_cpu, &b, "`source`"), (&device, &a, &on_cpu, "`target`"), (&cpu, &a, &on_cpu, "`source`")]
        {
            let (module, stream) = (device.module(&KERNELS).expect("a module"), device.stream().expect("a stream"));
            let launch = copy_f32::launch(source.view(), target.view_mut(), 1.0);
            let text = stream.launch(&module, SHAPE, launch).expect_err("memory of another device").to_string();
            assert_has(&text, &["copy_f32", parameter, "another device"]);
        }
    }

    pub fn a_kernel_of_another_crate_is_named() {
        let device = open();
        let other = Images { name: "other-kernels", sm_80: ".entry x(", sm_90a: ".entry x(" };
        let (module, stream) = (device.module(&other).expect("a module"), device.stream().expect("a stream"));
        let (a, b) = two_buffers(&device);
        let error = stream.launch(&module, SHAPE, copy_f32::launch(a.view(), b.view_mut(), 1.0));
        assert_has(&error.expect_err("no such kernel").to_string(), &["other-kernels", "copy_f32"]);
    }

    pub fn a_driver_without_a_gpu_is_told() {
        let text = Device::open(DeviceChoice::Cuda).err().expect("there is none").to_string();
        assert_has(&text, &["no GPU 0", "the driver shows 0", "CUDA_VISIBLE_DEVICES"]);
        assert_eq!(Device::open(DeviceChoice::Auto).expect("the CPU").backend_name(), "cpu");
    }

    pub fn an_index_past_the_last_gpu_is_told() {
        for choice in [DeviceChoice::Cuda, DeviceChoice::Auto] {
            let text = Device::open(choice).err().expect("there are two").to_string();
            assert_has(&text, &["no GPU 3", "the driver shows 2", "ONEGRAPH_DEVICE_INDEX"]);
        }
    }

    pub fn the_second_gpu_can_be_chosen() {
        assert_eq!(Device::open(DeviceChoice::Auto).expect("a GPU").info().name, "Fake GPU 1");
    }

    pub fn an_index_that_is_no_number_is_refused() {
        for choice in [DeviceChoice::Cuda, DeviceChoice::Auto] {
            assert_has(
                &Device::open(choice).err().expect("`first`").to_string(),
                &["ONEGRAPH_DEVICE_INDEX", "`first`"],
            );
        }
    }

    pub fn a_named_driver_that_is_missing_is_told() {
        for choice in [DeviceChoice::Cuda, DeviceChoice::Auto] {
            let text = Device::open(choice).err().expect("no such file").to_string();
            assert_has(&text, &["/nonexistent/libcuda.so.1", "--device cpu"]);
        }
        assert_eq!(Device::open(DeviceChoice::Cpu).expect("the CPU").backend_name(), "cpu");
    }
}
