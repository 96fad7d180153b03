//! A fault names the line of the kernel that met it, not one of this library's own.

use crate::common::{checking, marked_line, plain};
use cuda_std::cpu::{Fault, FaultKind};
use cuda_std::mbarrier::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::shared::dynamic_shared_mem;
use cuda_std::warp::{self, FULL_MASK, WarpReductionOp};
use cuda_std::{address_space, flag, matrix, mem, misc, mma, shared_static};

#[address_space(shared)]
static mut TILE: [f32; 32] = [0.0; 32];

/// The line of this file that ends with the mark.
fn line_of(mark: &str) -> String {
    marked_line("lines.rs", include_str!("lines.rs"), mark)
}

#[track_caller]
fn stands_at(fault: &Fault, mark: &str) {
    let line = fault.line.as_deref().unwrap_or("no line");
    assert!(line.ends_with(&line_of(mark)), "{mark}: {fault}");
}

/// Makes a statement of an expression, and so one line of each operation below.
fn done<T>(_: T) {}

/// Everything that needs a cooperative kernel, in one that is not.
#[kernel]
#[allow(static_mut_refs, reason = "as rust-cuda's kernels are written")]
pub fn outside_a_cooperative_kernel(case: u32) {
    let zero = 0u32;
    // SAFETY: each operation ends the launch before it does anything.
    unsafe {
        match case {
            0 => thread::sync_threads(),                                            // CASE 0
            1 => done(thread::sync_threads_count(1)),                               // CASE 1
            2 => done(thread::sync_threads_and(1)),                                 // CASE 2
            3 => done(thread::sync_threads_or(1)),                                  // CASE 3
            4 => done(shared_array![f32; 32]),                                      // CASE 4
            5 => done(shared_static!(f32)),                                         // CASE 5
            6 => done(shared_slice![f32; 32].len()),                                // CASE 6
            7 => done(SharedSlice::<f32>::dynamic(0, 0).len()),                     // CASE 7
            8 => done(dynamic_shared_mem::<f32>()),                                 // CASE 8
            9 => done(mem::dynamic_smem_size()),                                    // CASE 9
            10 => TILE[0] = 1.0,                                                    // CASE 10
            11 => done(TILE[1].to_bits()),                                          // CASE 11
            12 => warp::sync_warp(FULL_MASK),                                       // CASE 12
            13 => done(warp::elect(FULL_MASK)),                                     // CASE 13
            14 => done(warp::activemask()),                                         // CASE 14
            15 => done(warp::warp_vote_all(FULL_MASK, true)),                       // CASE 15
            16 => done(warp::warp_vote_any(FULL_MASK, true)),                       // CASE 16
            17 => done(warp::warp_vote_ballot(FULL_MASK, true)),                    // CASE 17
            18 => done(warp::warp_match_any(FULL_MASK, 1u32)),                      // CASE 18
            19 => done(warp::warp_match_all(FULL_MASK, 1.0f64)),                    // CASE 19
            20 => done(warp::warp_reduce(FULL_MASK, 1u32, WarpReductionOp::Add)),   // CASE 20
            21 => done(warp::warp_reduce(FULL_MASK, 1.0f32, WarpReductionOp::Max)), // CASE 21
            22 => done(warp::warp_shuffle_up(FULL_MASK, 1u8, 1, 32)),               // CASE 22
            23 => done(warp::warp_shuffle_down(FULL_MASK, 1u64, 1, 32)),            // CASE 23
            24 => done(warp::warp_shuffle_idx(FULL_MASK, 1i128, 1, 32)),            // CASE 24
            25 => done(warp::warp_shuffle_xor(FULL_MASK, 1.0f32, 1, 32)),           // CASE 25
            26 => done(mma::m16n8k8_tf32([0; 4], [0; 2], [0.0; 4])),                // CASE 26
            27 => done(matrix::load_x1(&raw const zero)),                           // CASE 27
            28 => done(flag::wait(&raw const zero, |value| value == 1)),            // CASE 28
            _ => {}
        }
    }
}

#[test]
fn not_cooperative() {
    for case in 0..29 {
        for executor in [plain(), checking(0)] {
            let launch = outside_a_cooperative_kernel::launch(case);
            let fault = executor.run(LaunchShape::linear(1, 1), &launch).expect_err("it needs a cooperative kernel");
            assert_eq!(fault.kind, FaultKind::NotCooperative, "case {case}: {fault}");
            stands_at(&fault, &format!("CASE {case}"));
        }
    }
}

#[kernel(cooperative)]
pub fn two_barriers_of_a_kind(case: u32) {
    let first = thread::thread_idx_x() < 32;
    match (case, first) {
        (0, true) => thread::sync_threads(),               // ONE 0
        (0, false) => thread::sync_threads(),              // TWO 0
        (1, true) => done(thread::sync_threads_count(1)),  // ONE 1
        (1, false) => done(thread::sync_threads_count(1)), // TWO 1
        (2, true) => done(thread::sync_threads_and(1)),    // ONE 2
        (2, false) => done(thread::sync_threads_or(1)),    // TWO 2
        (3, true) => thread::sync_threads(),               // ONE 3
        (3, false) => done(thread::sync_threads_or(1)),    // TWO 3
        _ => {}
    }
}

#[kernel(cooperative)]
pub fn a_barrier_that_some_skip() {
    if thread::thread_idx_x() < 33 {
        thread::sync_threads(); // SKIPPED
    }
}

#[test]
fn barrier_divergence() {
    let shape = LaunchShape::linear(1, 64);
    for case in 0..4 {
        for seed in 0..3 {
            let fault = checking(seed).run(shape, &two_barriers_of_a_kind::launch(case)).expect_err("two barriers");
            assert_eq!(fault.kind, FaultKind::BarrierDivergence, "{fault}");
            let (one, two) = (format!("ONE {case}"), format!("TWO {case}"));
            let text = fault.to_string();
            assert!(text.contains(&line_of(&one)) && text.contains(&line_of(&two)), "{text}");
            let at_one = fault.place.expect("a thread").thread.x < 32;
            stands_at(&fault, if at_one { &one } else { &two });
        }
    }
    for seed in 0..3 {
        let fault = checking(seed).run(shape, &a_barrier_that_some_skip::launch()).expect_err("31 threads return");
        assert_eq!(fault.kind, FaultKind::BarrierDivergence, "{fault}");
        assert!(fault.to_string().contains(&line_of("SKIPPED")), "{fault}");
    }
}

#[kernel(cooperative)]
pub fn misused(case: u32) {
    let barrier = shared_static!(Barrier);
    // SAFETY: each operation ends the launch.
    unsafe {
        match case {
            0 => done(warp::warp_vote_any(!1, true)),                  // MISUSED 0
            1 => done(warp::warp_shuffle_xor(FULL_MASK, 1u32, 1, 33)), // MISUSED 1
            2 => mbarrier::init(barrier, 0),                           // MISUSED 2
            3 => done(SharedSlice::<f32>::dynamic(4, 1).len()),        // MISUSED 3
            4 => done(shared_array![u8; 300_000]),                     // MISUSED 4
            5 => misc::breakpoint(),                                   // MISUSED 5
            6 => misc::trap(),                                         // MISUSED 6
            _ => {}
        }
    }
}

#[test]
fn other_misuse() {
    use FaultKind::{OutOfBounds, Panic, SharedMemory, Trap, WarpDivergence};
    for (case, kind) in [WarpDivergence, Panic, Trap, OutOfBounds, SharedMemory, Trap, Trap].into_iter().enumerate() {
        let fault = checking(0).run(LaunchShape::linear(1, 1), &misused::launch(case as u32)).expect_err("misuse");
        assert_eq!(fault.kind, kind, "case {case}: {fault}");
        stands_at(&fault, &format!("MISUSED {case}"));
    }
}
