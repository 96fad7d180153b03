//! What reaches the driver, and what happens without one. The driver is a small C library, and each scenario runs in a
//! process of its own, because a process loads its driver once.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuda_driver::ledger::{self, CallKind, Direction, MemoryKind, Phase};
use cuda_driver::{DriverError, load};

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuMemcpyHtoD_v2(target: u64, source: *const c_void, bytes: usize) -> u32;
    fn cuMemsetD32_v2(target: u64, value: u32, n: usize) -> u32;
    fn cuGraphLaunch(graph: *mut c_void, stream: *mut c_void) -> u32;
    fn cuTexRefSetMipmapLevelClamp(texture: usize, low: f32, high: f32) -> u32;
    fn cuLaunchKernel(
        function: usize,
        gx: u32,
        gy: u32,
        gz: u32,
        bx: u32,
        by: u32,
        bz: u32,
        shared: u32,
        stream: usize,
        parameters: usize,
        extra: usize,
    ) -> u32;
}

const NOT_INITIALIZED: u32 = 3;
const NOT_FOUND: u32 = 500;
const SCENARIO: &str = "CUDA_DRIVER_TEST_SCENARIO";

/// Compiles the fake driver with these definitions.
fn fake(folder: &Path, definitions: &[&str]) -> PathBuf {
    let library = folder.join("libfakecuda.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_libcuda.c");
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).args(definitions).arg(source).output();
    let output = output.expect("a C compiler, `cc`, which Rust needs for linking too");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Runs the scenario in a new process with `library` as its driver.
fn run(scenario: &str, library: &Path) -> Output {
    Command::new(std::env::current_exe().expect("the test's own path"))
        .args(["scenario_of_another_test", "--exact", "--ignored", "--nocapture"])
        .env(SCENARIO, scenario)
        .env("ONEGRAPH_LIBCUDA", library)
        .output()
        .expect("the test's own binary runs")
}

fn check(scenario: &str, library: &Path) {
    let output = run(scenario, library);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{scenario}: {}\n{text}", output.status);
}

fn check_with_fake(scenario: &str, definitions: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    check(scenario, &fake(folder.path(), definitions));
}

#[test]
fn calls_reach_the_driver_unchanged_counted_or_not() {
    check_with_fake("forward", &[]);
}

#[test]
fn the_ledger_counts_by_name_phase_thread_place_and_bytes() {
    check_with_fake("count", &[]);
}

#[test]
fn without_a_driver_calls_fail_and_load_says_what_to_do() {
    check("absent", Path::new("/nonexistent/libcuda.so.1"));
}

#[test]
fn an_old_driver_is_refused_with_both_versions() {
    check_with_fake("old", &["-DVERSION=11040"]);
}

#[test]
fn a_library_without_the_basic_functions_is_no_driver() {
    check_with_fake("no_driver", &["-DWITHOUT_INIT"]);
}

#[test]
#[ignore = "the other tests run it, each with a scenario"]
fn scenario_of_another_test() {
    match std::env::var(SCENARIO).expect("a scenario").as_str() {
        "forward" => forward(),
        "count" => count(),
        "absent" => absent(),
        "old" => old(),
        "no_driver" => no_driver(),
        other => panic!("unknown scenario {other}"),
    }
}

fn forward() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a Linux system");
    assert!(!maps.contains("libcuda") && !maps.contains("libfakecuda"), "the program must not link a driver");
    // SAFETY: the forwarder only returns a status before the driver is loaded.
    assert_eq!(unsafe { cuInit(0) }, NOT_INITIALIZED);
    let info = load().expect("the fake is a driver");
    assert_eq!(info.version.to_string(), "12.4");
    assert!(info.path.ends_with("libfakecuda.so"), "{}", info.path.display());
    assert!(info.missing.contains(&"cuGraphLaunch") && !info.missing.contains(&"cuLaunchKernel"));
    for counting in [false, true] {
        if counting {
            ledger::enable();
        }
        // SAFETY: the fake driver dereferences nothing.
        unsafe {
            assert_eq!([cuInit(0), cuInit(1)], [0, 1]);
            assert_eq!(cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 0);
            assert_eq!(cuTexRefSetMipmapLevelClamp(1, 0.25, 0.75), 0);
            assert_eq!(cuMemsetD32_v2(64, 7, 3), 0);
            assert_eq!(cuGraphLaunch(std::ptr::null_mut(), std::ptr::null_mut()), NOT_FOUND);
        }
    }
}

fn count() {
    load().expect("the fake is a driver");
    // SAFETY: the fake driver dereferences nothing.
    let copy = |bytes| assert_eq!(unsafe { cuMemcpyHtoD_v2(1, std::ptr::null(), bytes) }, 0);
    copy(1000); // not counted yet
    ledger::enable();
    copy(10);
    assert_eq!(ledger::set_phase(Phase::Step), Phase::Setup);
    copy(20);
    copy(30);
    let here = std::panic::Location::caller();
    ledger::place(Some(here));
    // SAFETY: as above.
    assert_eq!(unsafe { cuMemsetD32_v2(64, 7, 3) }, 0);
    ledger::place(None);
    let other = std::thread::Builder::new().name("collector".into());
    other.spawn(move || copy(40)).expect("a thread").join().expect("no panic");
    ledger::disable();
    ledger::set_phase(Phase::Setup);
    copy(1000); // not counted any more

    let lines: Vec<_> = ledger::snapshot()
        .into_iter()
        .map(|entry| (entry.name, entry.kind, entry.phase, entry.calls, entry.bytes, entry.place.is_some()))
        .collect();
    let htod = "cuMemcpyHtoD_v2";
    assert_eq!(
        lines,
        [
            (htod, CallKind::Copy, Phase::Setup, 1, 10, false),
            (htod, CallKind::Copy, Phase::Step, 2, 50, false),
            ("cuMemsetD32_v2", CallKind::Memset, Phase::Step, 1, 12, true),
            (htod, CallKind::Copy, Phase::Step, 1, 40, false),
        ]
    );
    assert!(ledger::snapshot()[3].thread.ends_with("collector"), "{:?}", ledger::snapshot()[3]);
    assert!(ledger::snapshot()[2].place.as_deref().is_some_and(|place| place.contains("forwarding.rs:")));
    ledger::reset();
    assert_eq!(ledger::snapshot(), []);
    record();
}

/// What is counted without a driver's call, off and on, with the phase of a scope.
fn record() {
    ledger::record("cpu:cuMemcpyDtoHAsync_v2", 8); // not counted
    ledger::enable();
    {
        let _checkpoint = ledger::phase(Phase::Checkpoint);
        ledger::record("cpu:cuMemcpyDtoHAsync_v2", 8);
    }
    ledger::record(ledger::MAPPED_STORE, 4);
    ledger::disable();
    let lines: Vec<_> = ledger::snapshot()
        .into_iter()
        .map(|entry| (entry.name, entry.kind, entry.direction, entry.memory, entry.phase, entry.bytes))
        .collect();
    let (store, load) = (Some(Direction::HostToDevice), Some(Direction::DeviceToHost));
    assert_eq!(
        lines,
        [
            (ledger::MAPPED_STORE, CallKind::Mapped, store, Some(MemoryKind::Pinned), Phase::Setup, 4),
            ("cpu:cuMemcpyDtoHAsync_v2", CallKind::Copy, load, Some(MemoryKind::Pageable), Phase::Checkpoint, 8),
        ]
    );
    assert!(
        ledger::snapshot().iter().all(|entry| entry.place.as_deref().is_some_and(|at| at.contains("forwarding.rs:")))
    );
    ledger::reset();
}

fn absent() {
    let error = load().expect_err("there is no such file");
    assert!(matches!(error, DriverError::NotFound { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["/nonexistent/libcuda.so.1", "Install the NVIDIA driver", "ONEGRAPH_LIBCUDA", "--device cpu"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // SAFETY: the forwarder only returns a status.
    assert_eq!(unsafe { cuGraphLaunch(std::ptr::null_mut(), std::ptr::null_mut()) }, NOT_INITIALIZED);
}

fn old() {
    let text = load().expect_err("CUDA 11.4 is too old").to_string();
    assert!(text.contains("11.4") && text.contains("11.8") && text.contains("update the NVIDIA driver"), "{text}");
    // SAFETY: the forwarder only returns a status: a refused driver is never called.
    assert_eq!(unsafe { cuInit(0) }, NOT_INITIALIZED);
}

fn no_driver() {
    let error = load().expect_err("no cuInit");
    assert!(matches!(error, DriverError::NotADriver { symbol: "cuInit", .. }), "{error:?}");
}
