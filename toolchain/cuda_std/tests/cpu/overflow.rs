//! A thread that overflows its stack ends the process with a message that names it.

use std::process::Command;

use cuda_std::cpu::{self, Executor, ExecutorOptions};
use cuda_std::prelude::*;

const CHILD: &str = "CUDA_STD_TEST_OVERFLOW";

#[inline(never)]
fn descend(depth: u32) -> u32 {
    let frame = std::hint::black_box([depth; 256]);
    if depth == 0 { frame[0] } else { descend(depth - 1) + frame[255] }
}

#[kernel(cooperative)]
pub fn deep(depth: u32) {
    cpu::barrier();
    if thread::thread_idx_x() == 37 {
        std::hint::black_box(descend(depth));
    }
    cpu::barrier();
}

#[test]
fn stack_overflow_names_kernel_and_thread() {
    let executor = Executor::new(ExecutorOptions { threads: 2, ..ExecutorOptions::default() });
    executor.run(LaunchShape::linear(2, 64), &deep::launch(20)).unwrap();
    if std::env::var_os(CHILD).is_some() {
        let _ = executor.run(LaunchShape::linear(2, 64), &deep::launch(10_000));
        return;
    }
    let test = "overflow::stack_overflow_names_kernel_and_thread";
    let child =
        Command::new(std::env::current_exe().unwrap()).args([test, "--exact"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(1), "{text}");
    for part in ["kernel `deep`", "overflow.rs:", "stack overflow", "thread (37, 0, 0)", "256 KiB", "stack_bytes"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
