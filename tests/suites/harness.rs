//! Case Y: a GPU test that finds no GPU, or one that lacks its instructions, is reported as ignored, or fails where it must
//! run, and is never passed. A test that touches no device is one test.

#[path = "../fake_cuda/driver.rs"]
mod driver;

use std::path::Path;
use std::process::{Command, Output};

use onegraph_tests::{Outcome, case, host_case, run};

const CHILD: &str = "ONEGRAPH_HARNESS_CHILD";

/// The suite under test: this binary, when it is run by one of the tests below.
fn main() {
    if std::env::var_os(CHILD).is_some() {
        run(vec![
            case("sample", |_| -> Outcome { Ok(()) }),
            case("hopper", |_| -> Outcome { Ok(()) }).needs_sm_90(),
            host_case("plain", || -> Outcome { Ok(()) }),
        ]);
    }
    let trials = vec![
        libtest_mimic::Trial::test("case_y_without_a_gpu_a_test_is_ignored", without_a_gpu_a_test_is_ignored),
        libtest_mimic::Trial::test("case_y_a_required_gpu_that_is_missing_fails", a_required_gpu_that_is_missing_fails),
        libtest_mimic::Trial::test("case_y_asking_for_ignored_tests_fails_them", asking_for_ignored_tests_fails_them),
        libtest_mimic::Trial::test(
            "case_y_an_older_gpu_ignores_what_needs_sm_90",
            an_older_gpu_ignores_what_needs_sm_90,
        ),
        libtest_mimic::Trial::test("case_y_hopper_runs_what_needs_sm_90", hopper_runs_what_needs_sm_90),
        libtest_mimic::Trial::test("a_host_case_is_one_test", a_host_case_is_one_test),
    ];
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit()
}

/// Runs the sample suite where there is no driver.
fn suite(required: bool, arguments: &[&str]) -> (Output, String) {
    suite_with(Path::new("/nonexistent/libcuda.so.1"), "90", required, arguments)
}

/// Runs the sample suite with the stand-in for a driver, whose GPU has that compute capability.
fn suite_on_gpu(capability: &str, arguments: &[&str]) -> (Output, String) {
    suite_with(driver::fake_driver(), capability, true, arguments)
}

fn suite_with(driver: &Path, capability: &str, required: bool, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(arguments).env(CHILD, "1").env("ONEGRAPH_LIBCUDA", driver).env("FAKE_CUDA_CC", capability);
    command.env_remove("CUDA_VISIBLE_DEVICES").env("ONEGRAPH_REQUIRE_GPU", if required { "1" } else { "0" });
    let output = command.output().expect("the test's own binary runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, text)
}

fn assert_has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "{part} is not in: {text}"));
}

fn without_a_gpu_a_test_is_ignored() -> Outcome {
    let (output, text) = suite(false, &[]);
    assert!(output.status.success(), "{text}");
    assert_has(&text, &["3 passed; 0 failed; 2 ignored", "test cuda::sample ... ignored", "no CUDA driver found"]);
    Ok(())
}

fn a_required_gpu_that_is_missing_fails() -> Outcome {
    let (output, text) = suite(true, &[]);
    assert!(!output.status.success(), "{text}");
    assert_has(&text, &["3 passed; 2 failed; 0 ignored", "test cuda::sample ... FAILED", "no GPU to test on"]);
    Ok(())
}

fn asking_for_ignored_tests_fails_them() -> Outcome {
    let (output, text) = suite(false, &["--include-ignored"]);
    assert!(!output.status.success(), "{text}");
    assert_has(&text, &["test cuda::sample ... FAILED", "no GPU to test on"]);
    Ok(())
}

fn an_older_gpu_ignores_what_needs_sm_90() -> Outcome {
    let (output, text) = suite_on_gpu("80", &[]);
    assert!(output.status.success(), "{text}");
    assert_has(&text, &["4 passed; 0 failed; 1 ignored", "test cuda::sample ... ok", "test cpu::hopper  ... ok"]);
    assert_has(&text, &["test cuda::hopper ... ignored"]);
    let (output, text) = suite_on_gpu("80", &["--include-ignored"]);
    assert!(!output.status.success(), "{text}");
    assert_has(&text, &["test cuda::hopper ... FAILED", "this GPU runs the sm_80 image"]);
    Ok(())
}

fn hopper_runs_what_needs_sm_90() -> Outcome {
    let (output, text) = suite_on_gpu("90", &[]);
    assert!(output.status.success(), "{text}");
    assert_has(&text, &["5 passed; 0 failed; 0 ignored", "test cuda::hopper ... ok"]);
    Ok(())
}

fn a_host_case_is_one_test() -> Outcome {
    let (_, text) = suite(false, &["--list"]);
    let mut listed: Vec<_> = text.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["cpu::hopper", "cpu::sample", "cuda::hopper", "cuda::sample", "plain"], "{text}");
    Ok(())
}
