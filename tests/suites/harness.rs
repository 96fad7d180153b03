//! Case Y: a GPU test that finds no GPU is reported as ignored, or fails where a GPU is required, and is never passed.

use std::process::{Command, Output};

use onegraph_tests::{Outcome, case, run};

const CHILD: &str = "ONEGRAPH_HARNESS_CHILD";

/// The suite under test: this binary, when it is run by one of the tests below.
fn main() {
    if std::env::var_os(CHILD).is_some() {
        run(vec![case("sample", |_| -> Outcome { Ok(()) })]);
    }
    let trials = vec![
        libtest_mimic::Trial::test("case_y_without_a_gpu_a_test_is_ignored", without_a_gpu_a_test_is_ignored),
        libtest_mimic::Trial::test("case_y_a_required_gpu_that_is_missing_fails", a_required_gpu_that_is_missing_fails),
        libtest_mimic::Trial::test("case_y_asking_for_ignored_tests_fails_them", asking_for_ignored_tests_fails_them),
    ];
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit()
}

/// Runs the sample suite where there is no driver.
fn suite(required: bool, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(arguments).env(CHILD, "1").env("ONEGRAPH_LIBCUDA", "/nonexistent/libcuda.so.1");
    command.env("ONEGRAPH_REQUIRE_GPU", if required { "1" } else { "0" });
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
    assert_has(&text, &["1 passed; 0 failed; 1 ignored", "test cuda::sample ... ignored", "no CUDA driver found"]);
    Ok(())
}

fn a_required_gpu_that_is_missing_fails() -> Outcome {
    let (output, text) = suite(true, &[]);
    assert!(!output.status.success(), "{text}");
    assert_has(&text, &["1 passed; 1 failed; 0 ignored", "test cuda::sample ... FAILED", "no GPU to test on"]);
    Ok(())
}

fn asking_for_ignored_tests_fails_them() -> Outcome {
    let (output, text) = suite(false, &["--include-ignored"]);
    assert!(!output.status.success(), "{text}");
    assert_has(&text, &["test cuda::sample ... FAILED", "no GPU to test on"]);
    Ok(())
}
