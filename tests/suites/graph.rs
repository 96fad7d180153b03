//! Child graphs, their order, and the parent's replay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_driver::ledger;
use cuda_std::cpu::ExecutorOptions;
use cuda_std::shape::LaunchShape;
use host::device::{Buffer, Device, DeviceChoice};
use host::error::DeviceError;
use host::graph::{ChildGraph, GraphDescription, Hazard, ParentGraph};
use onegraph_tests::{Outcome, TEST_KERNELS as KERNELS, case, run};
use test_kernels::copies::copy_f32;

/// Set for a process of its own, which the ledger counts all of: `cpu` or `cuda`, where it is to replay a graph.
const CHILD: &str = "ONEGRAPH_TEST_CHILD";

fn main() {
    if let Ok(backend) = std::env::var(CHILD) {
        return tell_driver_calls(&backend).expect("a graph and its replays");
    }
    run(vec![
        case("a_replay_runs_children_in_order_of_their_data", a_replay_runs_children_in_order_of_their_data),
        case("edges_are_the_fewest_that_keep_every_conflict", edges_are_the_fewest_that_keep_every_conflict),
        case("each_hazard_is_named_with_its_parameters", each_hazard_is_named_with_its_parameters),
        case("a_child_waits_for_the_one_that_it_is_told_to", a_child_waits_for_the_one_that_it_is_told_to),
        case("the_graph_keeps_its_memory_alive", the_graph_keeps_its_memory_alive),
        case("i1_a_replay_is_one_driver_call", i1_a_replay_is_one_driver_call),
        case("i3_each_childs_kernels_are_of_its_own_module", i3_each_childs_kernels_are_of_its_own_module),
        case("case_x_an_error_in_a_capture_leaves_the_device_usable", case_x_an_error_in_a_capture),
        case("case_x_a_panic_in_a_capture_leaves_the_device_usable", case_x_a_panic_in_a_capture),
        case("case_x_another_thread_works_during_a_capture", case_x_another_thread_works_during_a_capture),
        case("memory_may_come_and_go_while_a_child_is_recorded", memory_may_come_and_go_while_a_child_is_recorded),
        case("graphs_that_cannot_be_are_refused", graphs_that_cannot_be_are_refused),
        case("a_stream_or_memory_of_another_device_is_refused", a_stream_or_memory_of_another_device_is_refused),
        case("the_description_survives_json_and_shows_in_dot", the_description_survives_json_and_shows_in_dot),
    ])
}

const LEN: usize = 1000;

/// A child that multiplies each of `copies`' sources by its factor into its target.
fn child(device: &Device, name: &str, copies: &[(&Buffer<f32>, &Buffer<f32>, f32)]) -> Result<ChildGraph, DeviceError> {
    ChildGraph::capture(device, name, &KERNELS, |recorder| {
        copies.iter().try_for_each(|(source, target, factor)| {
            recorder.launch(LaunchShape::cover(LEN, 128), copy_f32::launch(source.view(), target.view_mut(), *factor))
        })
    })
}

fn buffers<const N: usize>(device: &Device) -> Result<[Buffer<f32>; N], DeviceError> {
    let buffers: Result<Vec<_>, _> = (0..N).map(|_| device.upload(&[1.0f32; LEN])).collect();
    Ok(buffers?.try_into().unwrap_or_else(|_| unreachable!("N buffers were made")))
}

fn edges(description: &GraphDescription) -> Vec<(usize, usize)> {
    let mut edges: Vec<_> = description.edges.iter().map(|edge| (edge.from, edge.to)).collect();
    edges.sort_unstable();
    edges
}

fn a_replay_runs_children_in_order_of_their_data(device: &Device) -> Outcome {
    let [a, b, c] = buffers(device)?;
    // A replay takes a to 6 a: out through b and c, and back.
    let children = vec![
        child(device, "double", &[(&a, &b, 2.0)])?,
        child(device, "triple", &[(&b, &c, 3.0)])?,
        child(device, "back", &[(&c, &a, 1.0)])?,
    ];
    let graph = ParentGraph::compose(device, children)?;
    assert_eq!(a.read()?, [1.0; LEN], "nothing ran while it was captured");
    let stream = device.stream()?;
    for expected in [6.0, 36.0, 216.0] {
        graph.launch(&stream)?;
        assert_eq!(a.read()?, [expected; LEN]);
    }
    Ok(())
}

fn edges_are_the_fewest_that_keep_every_conflict(device: &Device) -> Outcome {
    let [a, b, c, d, e] = buffers(device)?;
    let children = vec![
        child(device, "0", &[(&a, &b, 1.0)])?,
        child(device, "1", &[(&a, &c, 1.0)])?, // reads what 0 reads: beside it
        child(device, "2", &[(&b, &d, 1.0)])?, // after 0
        child(device, "3", &[(&d, &e, 1.0), (&b, &a, 1.0)])?, // after 2; after 1, which reads a; after 0 by way of 2
        child(device, "4", &[(&c, &b, 1.0)])?, // after 3, which reads b; after 0, 1, 2 by way of 3
    ];
    let graph = ParentGraph::compose(device, children)?;
    assert_eq!(edges(graph.description()), [(0, 2), (1, 3), (2, 3), (3, 4)]);
    Ok(())
}

fn each_hazard_is_named_with_its_parameters(device: &Device) -> Outcome {
    let [a, b, c, d] = buffers(device)?;
    let hazard = |first: (&Buffer<f32>, &Buffer<f32>),
                  second: (&Buffer<f32>, &Buffer<f32>)|
     -> Result<_, DeviceError> {
        let children =
            vec![child(device, "x", &[(first.0, first.1, 1.0)])?, child(device, "y", &[(second.0, second.1, 1.0)])?];
        let edges = ParentGraph::compose(device, children)?.description().edges.clone();
        Ok(edges.into_iter().map(|e| (e.hazard, e.from_parameter, e.to_parameter)).collect::<Vec<_>>())
    };
    let (source, target) = ("copy_f32.source".to_owned(), "copy_f32.target".to_owned());
    assert_eq!(hazard((&a, &b), (&b, &c))?, [(Hazard::ReadAfterWrite, target.clone(), source.clone())]);
    assert_eq!(hazard((&a, &b), (&c, &a))?, [(Hazard::WriteAfterRead, source, target.clone())]);
    assert_eq!(hazard((&a, &b), (&c, &b))?, [(Hazard::WriteAfterWrite, target.clone(), target)]);
    assert_eq!(hazard((&a, &b), (&c, &d))?, []);
    // Halves of one allocation do not conflict, and a shared element does.
    let halves = |start: usize| -> Result<usize, DeviceError> {
        let half = |name: &str, start: usize| {
            ChildGraph::capture(device, name, &KERNELS, |recorder| {
                let target = d.slice(start..start + 500).view_mut();
                recorder.launch(LaunchShape::cover(500, 128), copy_f32::launch(a.slice(0..500).view(), target, 1.0))
            })
        };
        let graph = ParentGraph::compose(device, vec![half("low", 0)?, half("high", start)?])?;
        Ok(graph.description().edges.len())
    };
    assert_eq!((halves(500)?, halves(499)?), (0, 1));
    Ok(())
}

fn a_child_waits_for_the_one_that_it_is_told_to(device: &Device) -> Outcome {
    let [a, b, c, d, e, f] = buffers(device)?;
    let first = || child(device, "first", &[(&a, &b, 2.0)]);
    let told = |after: &str| -> Result<ParentGraph, DeviceError> {
        let beside = child(device, "beside", &[(&c, &d, 3.0)])?.after(after);
        // It reads what the first writes, and is told to wait for it besides: one edge.
        let both = child(device, "both", &[(&b, &a, 1.0)])?.after("first");
        // Told to wait for two, and for one that those two wait for already: two edges.
        let last = child(device, "last", &[(&e, &f, 1.0)])?.after("beside").after("both").after("first");
        ParentGraph::compose(device, vec![first()?, beside, both, last])
    };
    let graph = told("first")?;
    let description = graph.description();
    assert_eq!(edges(description), [(0, 1), (0, 2), (1, 3), (2, 3)]);
    let edge = description.edges.iter().find(|edge| edge.to == 1).ok_or("no edge")?;
    assert_eq!((edge.hazard, edge.memory), (Hazard::Nothing, None));
    assert!(description.to_dot().contains("c0 -> c1 [style = dashed]"), "{}", description.to_dot());
    graph.launch(&device.stream()?)?;
    assert_eq!((d.read()?, a.read()?), (vec![3.0; LEN], vec![2.0; LEN]));
    for unknown in ["both", "beside", "zeroth"] {
        let message = told(unknown).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("`beside` is to wait for") && message.contains(unknown), "{message}");
    }
    Ok(())
}

fn the_graph_keeps_its_memory_alive(device: &Device) -> Outcome {
    let [a, b, c] = buffers(device)?;
    let children = vec![child(device, "0", &[(&a, &b, 2.0)])?, child(device, "1", &[(&b, &c, 2.0)])?];
    let graph = ParentGraph::compose(device, children)?;
    drop((a, b));
    let other = device.upload(&[f32::NAN; 2 * LEN])?; // would take the freed places
    let stream = device.stream()?;
    graph.launch(&stream)?;
    assert_eq!(c.read()?, [4.0; LEN]);
    drop((graph, other));
    assert_eq!(c.read()?, [4.0; LEN]);
    Ok(())
}

/// Replays a graph of three children 1,000 times, and prints the driver calls of that: a line each, name and number.
fn tell_driver_calls(backend: &str) -> Result<(), DeviceError> {
    let device = Device::open(if backend == "cuda" { DeviceChoice::Cuda } else { DeviceChoice::Cpu })?;
    let [a, b, c] = buffers(&device)?;
    let children = vec![
        child(&device, "0", &[(&a, &b, 1.0)])?,
        child(&device, "1", &[(&b, &c, 1.0), (&c, &b, 1.0)])?,
        child(&device, "2", &[(&b, &a, 1.0)])?,
    ];
    let graph = ParentGraph::compose(&device, children)?;
    let stream = device.stream()?;
    ledger::enable();
    let replayed = (0..1000).try_for_each(|_| graph.launch(&stream));
    ledger::disable();
    replayed?;
    stream.synchronize()?;
    ledger::snapshot().iter().for_each(|line| println!("{} {}", line.name, line.calls));
    Ok(())
}

fn i1_a_replay_is_one_driver_call(device: &Device) -> Outcome {
    let backend = device.backend_name();
    let output = std::process::Command::new(std::env::current_exe()?).env(CHILD, backend).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = if backend == "cuda" { "cuGraphLaunch 1000\n" } else { "cpu:cuGraphLaunch 1000\n" };
    assert_eq!(String::from_utf8(output.stdout)?, calls);
    Ok(())
}

fn i3_each_childs_kernels_are_of_its_own_module(device: &Device) -> Outcome {
    let [a, b, c] = buffers(device)?;
    let children = vec![
        child(device, "0", &[(&a, &b, 1.0), (&b, &c, 1.0)])?,
        child(device, "1", &[(&a, &b, 1.0)])?,
        child(device, "2", &[(&b, &c, 1.0), (&c, &a, 1.0)])?,
    ];
    let modules = ParentGraph::compose(device, children)?.modules()?;
    if device.backend_name() == "cpu" {
        assert_eq!(modules, [], "the CPU has no modules");
        return Ok(());
    }
    let kernels: Vec<usize> = modules.iter().map(|child| child.of_kernels.len()).collect();
    assert_eq!(kernels, [2, 1, 2]);
    for child in &modules {
        assert!(child.of_kernels.iter().all(|module| *module == child.own), "{child:?}");
    }
    assert!(modules[0].own != modules[1].own && modules[1].own != modules[2].own && modules[0].own != modules[2].own);
    Ok(())
}

/// The device still launches, captures and replays.
fn assert_usable(device: &Device) -> Outcome {
    let [a, b] = buffers(device)?;
    let graph = ParentGraph::compose(device, vec![child(device, "after", &[(&a, &b, 5.0)])?])?;
    graph.launch(&device.stream()?)?;
    assert_eq!(b.read()?, [5.0; LEN]);
    Ok(())
}

fn case_x_an_error_in_a_capture(device: &Device) -> Outcome {
    let [a, b] = buffers(device)?;
    let error = ChildGraph::capture(device, "broken", &KERNELS, |recorder| {
        recorder.launch(LaunchShape::cover(LEN, 128), copy_f32::launch(a.view(), b.view_mut(), 1.0))?;
        recorder.launch(LaunchShape::linear(1, 0), copy_f32::launch(a.view(), b.view_mut(), 1.0))
    });
    let message = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        message.contains("`broken`") && message.contains("copy_f32") && message.contains("block 0x1x1"),
        "{message}"
    );
    assert_usable(device)
}

fn case_x_a_panic_in_a_capture(device: &Device) -> Outcome {
    let [a, b] = buffers(device)?;
    let capture = || {
        ChildGraph::capture(device, "panics", &KERNELS, |recorder| {
            recorder.launch(LaunchShape::cover(LEN, 128), copy_f32::launch(a.view(), b.view_mut(), 1.0))?;
            std::panic::resume_unwind(Box::new("on purpose")) // without the hook's message
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(capture)).is_err(), "the panic passes through");
    assert_usable(device)
}

/// While this thread captures again and again, another allocates, copies, loads, launches and captures.
fn case_x_another_thread_works_during_a_capture(device: &Device) -> Outcome {
    let [a, b] = buffers(device)?;
    let captured = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !captured.load(Ordering::Relaxed) {
                assert_usable(device)?;
            }
            assert_usable(device)
        });
        let first = child(device, "first", &[(&a, &b, 3.0), (&b, &a, 1.0)]);
        let copies: Vec<_> = [(&a, &b, 2.0), (&b, &a, 0.5)].repeat(50);
        let graphs: Result<Vec<_>, _> = (0..20).map(|n| child(device, &n.to_string(), &copies)).collect();
        captured.store(true, Ordering::Relaxed);
        let other = other.join();
        assert!(matches!(other, Ok(Ok(()))), "the other thread failed: {other:?}");
        let children = std::iter::once(first?).chain(graphs?).collect();
        ParentGraph::compose(device, children)?.launch(&device.stream()?)?;
        assert_eq!((a.read()?, b.read()?), (vec![3.0; LEN], vec![6.0; LEN]));
        Ok(())
    })
}

fn memory_may_come_and_go_while_a_child_is_recorded(device: &Device) -> Outcome {
    let [a, b] = buffers(device)?;
    let graph = ChildGraph::capture(device, "allocates", &KERNELS, |recorder| {
        drop(device.alloc::<f32>(LEN)?);
        let scratch = device.upload(&[f32::NAN; LEN])?;
        recorder.launch(LaunchShape::cover(LEN, 128), copy_f32::launch(a.view(), scratch.view_mut(), 2.0))?;
        recorder.launch(LaunchShape::cover(LEN, 128), copy_f32::launch(scratch.view(), b.view_mut(), 2.0))
    })?;
    ParentGraph::compose(device, vec![graph])?.launch(&device.stream()?)?;
    assert_eq!(b.read()?, [4.0; LEN]);
    Ok(())
}

fn graphs_that_cannot_be_are_refused(device: &Device) -> Outcome {
    let message =
        |result: Result<ParentGraph, DeviceError>| result.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message(ParentGraph::compose(device, vec![])).contains("no child"));
    let [a, b] = buffers(device)?;
    let twins = vec![child(device, "twin", &[(&a, &b, 1.0)])?, child(device, "twin", &[(&a, &b, 1.0)])?];
    assert!(message(ParentGraph::compose(device, twins)).contains("`twin`"));
    let empty = ChildGraph::capture(device, "empty", &KERNELS, |_| Ok(())).err().map(|error| error.to_string());
    assert!(empty.as_deref().is_some_and(|text| text.contains("`empty`") && text.contains("no kernel")), "{empty:?}");
    Ok(())
}

fn a_stream_or_memory_of_another_device_is_refused(device: &Device) -> Outcome {
    let other = Device::cpu_with(ExecutorOptions::default());
    let [a, b] = buffers(device)?;
    let graph = ParentGraph::compose(device, vec![child(device, "0", &[(&a, &b, 1.0)])?])?;
    let message = graph.launch(&other.stream()?).expect_err("another device's stream").to_string();
    assert!(message.contains("cannot launch the graph") && message.contains("another device"), "{message}");
    let [foreign] = buffers(&other)?;
    let message = child(device, "1", &[(&a, &foreign, 1.0)]).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("`target`") && message.contains("another device"), "{message}");
    Ok(())
}

fn the_description_survives_json_and_shows_in_dot(device: &Device) -> Outcome {
    let [a, b, c] = buffers(device)?;
    let children = vec![child(device, "first", &[(&a, &b, 1.0)])?, child(device, "second", &[(&b, &c, 1.0)])?];
    let graph = ParentGraph::compose(device, children)?;
    let description = graph.description();
    assert_eq!(&serde_json::from_str::<GraphDescription>(&serde_json::to_string(description)?)?, description);
    assert_eq!((description.n_kernels(), description.memories.len()), (2, 3));
    assert_eq!(description.memories[0].bytes, 4 * LEN as u64);
    let kernel = &description.children[0].kernels[0];
    assert_eq!((kernel.name.as_str(), kernel.grid, kernel.block), ("copy_f32", [8, 1, 1], [128, 1, 1]));
    let dot = description.to_dot();
    for part in ["digraph", "first", "second", "copy_f32 <8 x 128> -> target", "c0 -> c1"] {
        assert!(dot.contains(part), "{part} is not in: {dot}");
    }
    Ok(())
}
