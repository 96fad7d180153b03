//! What raw pointers write outside of a shared array is noticed when the block ends.

use crate::common::{checking, marked_line, plain};
use cuda_std::cpu::FaultKind;
use cuda_std::prelude::*;
use cuda_std::shape::Dim3;
use cuda_std::shared::dynamic_shared_mem;

/// Block 2 writes one value `at` elements from the start of one of its arrays.
#[kernel(cooperative)]
pub fn write_beside(array: u32, at: i32) {
    let first = shared_array![u32; 32]; // FIRST
    let second = shared_array![[u8; 3]; 7]; // SECOND
    let third = dynamic_shared_mem::<u32>();
    let thread = thread::thread_idx_x() as usize;
    // SAFETY: each thread writes its own element; thread 0 of block 2 writes beside an array, which has guards there.
    unsafe {
        first.add(thread).write(1);
        third.add(thread).write(1);
        thread::sync_threads();
        if thread == 0 && thread::block_idx_x() == 2 {
            match array {
                0 => first.offset(at as isize).write(7),
                1 => second.offset(at as isize).write([7; 3]),
                _ => third.offset(at as isize).write(7),
            }
        }
    }
}

/// The line of this file that ends with the mark.
fn line_of(mark: &str) -> String {
    marked_line("guards.rs", include_str!("guards.rs"), mark)
}

#[test]
fn a_write_outside_names_the_array_and_the_block() {
    let shape = LaunchShape::linear(4, 32).with_shared(128);
    for (array, at, parts) in [
        (0, 32, ["at byte 128 of a shared array of 128 bytes ([u32; 32])", &line_of("FIRST")]),
        (0, -1, ["4 bytes before a shared array of 128 bytes ([u32; 32])", &line_of("FIRST")]),
        (0, 256, ["at byte 1024 of a shared array of 128 bytes", &line_of("FIRST")]),
        (1, 7, ["at byte 21 of a shared array of 21 bytes ([[u8; 3]; 7])", &line_of("SECOND")]),
        (1, -2, ["6 bytes before a shared array of 21 bytes", &line_of("SECOND")]),
        (2, 32, ["at byte 128 of dynamic shared memory, 128 bytes", "the launch's shape gives its size"]),
        (2, -1, ["4 bytes before dynamic shared memory", "kernel `write_beside`"]),
    ] {
        for seed in 0..3 {
            let fault = checking(seed).run(shape, &write_beside::launch(array, at)).expect_err("a write outside");
            assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
            let text = fault.to_string();
            for part in parts.into_iter().chain(["a thread of block (2, 0, 0) wrote"]) {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
        }
    }
}

#[test]
fn writes_inside_are_no_fault() {
    let shape = LaunchShape::new(Dim3::new(4, 1, 1), Dim3::new(32, 1, 1)).with_shared(128);
    for (array, at) in [(0, 0), (0, 31), (1, 0), (1, 6), (2, 0), (2, 31)] {
        for executor in [plain(), checking(0)] {
            executor.run(shape, &write_beside::launch(array, at)).expect("inside");
        }
    }
}
