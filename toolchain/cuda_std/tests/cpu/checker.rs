//! Every fault that the checker knows is found and named: kernel, line, block, thread, memory. None is raised by a correct
//! kernel of each kind (`correct.rs`).

use crate::common::{Buffer, checking, marked_line, plain};
use cuda_std::cpu::{self, Fault, FaultKind};
use cuda_std::prelude::*;
use cuda_std::shape::Dim3;

/// The message holds every part.
#[track_caller]
fn says(fault: &Fault, parts: &[&str]) {
    let text = fault.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Runs on three seeds; the fault is of one kind on all of them.
#[track_caller]
fn fault(kind: FaultKind, shape: LaunchShape, launch: impl Fn() -> cuda_std::launch::Launch) -> Fault {
    let faults: Vec<Fault> = (0..3).map(|seed| checking(seed).run(shape, &launch()).unwrap_err()).collect();
    for fault in &faults {
        assert_eq!(fault.kind, kind, "{fault}");
    }
    faults.into_iter().next().unwrap()
}

#[kernel]
pub fn read_past_end(values: GlobalSlice<f32>, out: GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    out.set(index, values.get(index)); // PAST_END
}

#[test]
fn out_of_bounds() {
    let (values, out) = (Buffer::of(&[0.0f32; 69]), Buffer::unwritten(128, 0.0f32));
    for executor in [plain(), checking(7)] {
        let launch = read_past_end::launch(values.slice(5..69), out.view_mut());
        let fault = executor.run(LaunchShape::linear(65, 1), &launch).unwrap_err();
        assert_eq!(fault.kind, FaultKind::OutOfBounds);
        assert_eq!(fault.place.unwrap().block, Dim3::new(64, 0, 0));
        let address = format!("{:#x}", values.address() + 69 * 4);
        let line = line_of("PAST_END");
        says(
            &fault,
            &[
                "kernel `read_past_end`",
                &line,
                "block (64, 0, 0), thread (0, 0, 0)",
                "read",
                "`values`[64] of 64",
                &address,
            ],
        );
    }
}

/// The line of this file that ends with the mark.
fn line_of(mark: &str) -> String {
    marked_line("checker.rs", include_str!("checker.rs"), mark)
}

#[kernel]
pub fn write_past_sub_view(out: GlobalSliceMut<u16>) {
    out.sub(8..12).set(thread::thread_idx_x() as usize, 1);
}

#[kernel]
pub fn sub_past_end(out: GlobalSliceMut<u16>) {
    out.sub(8..17).set(0, 1);
}

#[test]
fn out_of_bounds_of_sub_views() {
    let out = Buffer::unwritten(16, 0u16);
    let found =
        fault(FaultKind::OutOfBounds, LaunchShape::linear(1, 5), || write_past_sub_view::launch(out.view_mut()));
    says(&found, &["thread (4, 0, 0)", "write of element 4 of a view of 4", "`out`[12] of 16 elements"]);
    let found = fault(FaultKind::OutOfBounds, LaunchShape::linear(1, 1), || sub_past_end::launch(out.view_mut()));
    says(&found, &["elements 8..17 of a view of 16", "`out`[8..17]"]);
}

#[kernel]
pub fn load_four(values: GlobalSlice<f32>, out: GlobalSliceMut<f32>, first: u32) {
    out.store::<2>(0, [values.load::<4>(first as usize)[0], 0.0]);
}

#[test]
fn unaligned() {
    let (values, out) = (Buffer::of(&[[0.0f32; 4]; 4]), Buffer::unwritten(2, 0.0f32));
    // The vector type only aligns the memory; viewed as single floats below.
    assert_eq!(values.address() % 16, 0, "the allocator aligns arrays of this size");
    let floats = values.cast::<f32>();
    let shape = LaunchShape::linear(1, 1);
    checking(0).run(shape, &load_four::launch(floats.view(), out.view_mut(), 4)).unwrap();
    let found = fault(FaultKind::Unaligned, shape, || load_four::launch(floats.view(), out.view_mut(), 5));
    says(&found, &["kernel `load_four`", "read of 16 bytes at once", "`values`[5..9] of 16", "thread (0, 0, 0)"]);
    let found = fault(FaultKind::OutOfBounds, shape, || load_four::launch(floats.view(), out.view_mut(), 13));
    says(&found, &["`values`[13..17] of 16"]);
}

#[kernel]
pub fn copy_rows(values: GlobalSlice<f32>, out: GlobalSliceMut<f32>, first: u32, stride: u32, n_rows: u32) {
    let n_rows = n_rows as usize;
    let from = values.panel::<4>(first as usize, stride as usize, n_rows, 4);
    let to = out.panel_mut::<4>(0, 4, n_rows, 4);
    for row in 0..n_rows {
        // SAFETY: a row and all columns of each panel.
        unsafe { to.store(row, 0, from.load::<4>(row, 0)) };
    }
}

#[test]
fn panels() {
    let numbers: Vec<[f32; 4]> = (0..8).map(|row| [row as f32; 4]).collect();
    let (values, out) = (Buffer::of(&numbers), Buffer::unwritten(8, [0.0f32; 4]));
    let (values, out) = (values.cast::<f32>(), out.cast::<f32>());
    let shape = LaunchShape::linear(1, 1);
    // Rows 1, 3, 5, 7; what is behind them in `out` stays unwritten.
    checking(0).run(shape, &copy_rows::launch(values.view(), out.view_mut(), 4, 8, 4)).unwrap();
    let again = Buffer::unwritten(8, [0.0f32; 4]);
    let again = again.cast::<f32>();
    checking(0).run(shape, &copy_rows::launch(out.view(), again.view_mut(), 0, 4, 4)).unwrap();
    assert_eq!(again.read()[..16], [1.0, 3.0, 5.0, 7.0].map(|row| [row; 4]).concat());
    let copy = |first, stride, n_rows| {
        move |from: &Buffer<f32>, to: &Buffer<f32>| copy_rows::launch(from.view(), to.view_mut(), first, stride, n_rows)
    };
    let found = fault(FaultKind::Uninitialised, shape, || copy(0, 4, 5)(&out, &again));
    says(&found, &["kernel `copy_rows`", "`values`[16..20] of 32"]);
    for executor in [plain(), checking(1)] {
        let refused =
            |first, stride, n_rows| executor.run(shape, &copy(first, stride, n_rows)(&values, &again)).unwrap_err();
        let found = refused(4, 8, 5);
        assert_eq!(found.kind, FaultKind::OutOfBounds);
        says(&found, &["`values`[36..40] of 32"]);
        assert_eq!(refused(4, u32::MAX, 5).kind, FaultKind::OutOfBounds);
        assert_eq!(refused(5, 8, 2).kind, FaultKind::Unaligned);
        assert_eq!(refused(4, 6, 2).kind, FaultKind::Unaligned);
    }
}

#[kernel(cooperative)]
pub fn read_shared_unwritten(out: GlobalSliceMut<u32>) {
    let zone = shared_slice![u32; 32];
    let thread = thread::thread_idx_x() as usize;
    if thread != 9 {
        zone.set(thread, 1);
    }
    cpu::barrier();
    out.set(thread, zone.get(thread));
}

#[test]
fn uninitialised() {
    let (values, out) = (Buffer::unwritten(64, 0.0f32), Buffer::unwritten(64, 0.0f32));
    let found = fault(FaultKind::Uninitialised, LaunchShape::linear(1, 1), || {
        read_past_end::launch(values.view(), out.view_mut())
    });
    says(&found, &["read of memory that nothing wrote", "`values`[0] of 64", &format!("{:#x}", values.address())]);
    // What a kernel wrote counts, also in a later launch.
    let source = Buffer::of(&[1.0f32; 64]);
    let executor = checking(0);
    executor.run(LaunchShape::linear(2, 32), &read_past_end::launch(source.view(), values.view_mut())).unwrap();
    executor.run(LaunchShape::linear(2, 32), &read_past_end::launch(values.view(), out.view_mut())).unwrap();
    let out = Buffer::unwritten(32, 0u32);
    let found =
        fault(FaultKind::Uninitialised, LaunchShape::linear(1, 32), || read_shared_unwritten::launch(out.view_mut()));
    says(&found, &["kernel `read_shared_unwritten`", "thread (9, 0, 0)", "shared memory [9] of 32 elements"]);
}

#[kernel(cooperative)]
pub fn some_skip_barrier(limit: u32) {
    if thread::thread_idx_x() < limit {
        cpu::barrier(); // SKIPPED
    }
}

#[kernel(cooperative)]
pub fn two_barriers() {
    if thread::thread_idx_x() < 32 {
        cpu::barrier(); // FIRST
    } else {
        cpu::barrier(); // SECOND
    }
}

#[kernel(cooperative)]
pub fn barrier_against_warp() {
    if thread::thread_idx_x() == 5 {
        cpu::barrier();
    } else {
        cpu::warp_barrier(u32::MAX);
    }
}

#[test]
fn barrier_divergence() {
    let shape = LaunchShape::linear(3, 64);
    let found = fault(FaultKind::BarrierDivergence, shape, || some_skip_barrier::launch(33));
    let (one, other) = (found.place.unwrap(), found.other.unwrap());
    assert_eq!(one.block, other.block);
    assert_ne!(one.thread.x < 33, other.thread.x < 33, "one waits, the other has returned: {found}");
    says(&found, &["kernel `some_skip_barrier`", "return"]);
    // As the device does, the barrier passes when it is not checked.
    plain().run(shape, &some_skip_barrier::launch(33)).unwrap();

    let found = fault(FaultKind::BarrierDivergence, shape, two_barriers::launch);
    let lines = [line_of("FIRST"), line_of("SECOND")];
    says(&found, &["kernel `two_barriers`", &lines[0], &lines[1]]);

    for executor in [plain(), checking(4)] {
        let found = executor.run(LaunchShape::linear(1, 32), &barrier_against_warp::launch()).unwrap_err();
        assert_eq!(found.kind, FaultKind::BarrierDivergence);
        says(&found, &["thread (5, 0, 0) waits at the barrier", "30 more: waits in a warp barrier, mask 0xffffffff"]);
    }
}

#[kernel(cooperative)]
pub fn lane_missing() {
    if thread::thread_idx_x() != 7 {
        cpu::warp_barrier(u32::MAX);
    }
}

#[kernel(cooperative)]
pub fn masks_differ() {
    match thread::thread_idx_x() {
        3 => cpu::warp_barrier(u32::MAX),
        0..16 => cpu::warp_barrier(0xffff),
        _ => {}
    }
}

#[kernel(cooperative)]
pub fn outside_mask() {
    cpu::warp_barrier(!(1 << 4));
}

#[test]
fn warp_divergence() {
    let shape = LaunchShape::linear(1, 32);
    let found = fault(FaultKind::WarpDivergence, shape, lane_missing::launch);
    says(&found, &["kernel `lane_missing`", "lane 7 has returned"]);
    assert_eq!(found.other.unwrap().thread, Dim3::new(7, 0, 0));
    let found = fault(FaultKind::WarpDivergence, shape, masks_differ::launch);
    says(&found, &["kernel `masks_differ`", "0xffffffff"]);
    let masks = [found.place, found.other].map(|place| place.unwrap().thread.x == 3);
    assert!(masks[0] || masks[1], "lane 3 is the odd one: {found}");
    let found = fault(FaultKind::WarpDivergence, shape, outside_mask::launch);
    says(&found, &["mask 0xffffffef, which leaves out the calling lane 4", "thread (4, 0, 0)"]);
}

#[kernel]
pub fn all_write_one(out: GlobalSliceMut<u32>, at: u32) {
    out.set(at as usize, thread::index_1d());
}

#[kernel(cooperative)]
pub fn no_barrier(data: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    data.set(thread, 1); // RACE_WRITE
    let other = data.get(thread ^ 32); // RACE_READ
    cpu::barrier();
    data.set(thread, other);
}

#[kernel(cooperative)]
pub fn readers_then_writer(data: GlobalSliceMut<u32>) {
    let thread = thread::thread_idx_x() as usize;
    let seen = data.get(100);
    if thread == 50 {
        data.set(100, seen + 1);
    }
}

#[kernel(cooperative)]
pub fn blocks_meet(data: GlobalSliceMut<u32>) {
    cpu::barrier();
    if thread::thread_idx_x() == 0 {
        data.set(0, thread::block_idx_x());
    }
    cpu::barrier();
}

#[kernel]
pub fn atomic_and_plain(data: GlobalSliceMut<u32>) {
    if thread::index_1d() == 3 {
        data.set(0, 5);
    } else {
        data.fetch_add(0, 1);
    }
}

#[test]
fn races() {
    let data = Buffer::of(&[0u32; 128]);
    let found = fault(FaultKind::Race, LaunchShape::linear(1, 8), || all_write_one::launch(data.view_mut(), 17));
    says(
        &found,
        &["kernel `all_write_one`", "write of `data`[17] of 128"]
            .map(|part| part.replace("data", "out"))
            .each_ref()
            .map(String::as_str),
    );
    says(&found, &[&format!("{:#x}", data.address() + 17 * 4), "had a write by block (0, 0, 0), thread ("]);
    assert_ne!(found.place, found.other);

    let found = fault(FaultKind::Race, LaunchShape::linear(1, 64), || no_barrier::launch(data.view_mut()));
    let lines = [line_of("RACE_WRITE"), line_of("RACE_READ")];
    says(&found, &["kernel `no_barrier`", &lines[0], &lines[1]]);
    assert_eq!(found.place.unwrap().thread.x ^ 32, found.other.unwrap().thread.x);

    let found = fault(FaultKind::Race, LaunchShape::linear(1, 64), || readers_then_writer::launch(data.view_mut()));
    assert!([found.place, found.other].iter().any(|place| place.unwrap().thread.x == 50), "{found}");
    says(&found, &["`data`[100]"]);

    let found = fault(FaultKind::Race, LaunchShape::linear(4, 32), || blocks_meet::launch(data.view_mut()));
    assert_ne!(found.place.unwrap().block, found.other.unwrap().block);

    let found = fault(FaultKind::Race, LaunchShape::linear(1, 32), || atomic_and_plain::launch(data.view_mut()));
    says(&found, &["atomic operation", "write"]);
    assert!([found.place, found.other].iter().any(|place| place.unwrap().thread.x == 3), "{found}");
}

#[kernel(cooperative)]
pub fn bytes_race(data: GlobalSliceMut<u8>, shift: u32) {
    // With shift 1 neighbours share half their bytes.
    let thread = thread::thread_idx_x() as usize;
    data.set(thread, 1);
    data.set(thread + shift as usize, 2);
}

#[test]
fn races_of_single_bytes() {
    let data = Buffer::of(&[0u8; 128]);
    let shape = LaunchShape::linear(1, 32);
    checking(0).run(shape, &bytes_race::launch(data.view_mut(), 0)).unwrap();
    checking(0).run(shape, &bytes_race::launch(data.view_mut(), 32)).unwrap();
    let found = fault(FaultKind::Race, shape, || bytes_race::launch(data.view_mut(), 1));
    let apart = found.place.unwrap().thread.x.abs_diff(found.other.unwrap().thread.x);
    assert_eq!(apart, 1, "{found}");
}

#[kernel(cooperative)]
pub fn nobody_sets_flag(flag: GlobalSliceMut<u32>) {
    cpu::wait_until("the flag", || flag.fetch_add(0, 0) == 1);
}

#[test]
fn deadlock() {
    let flag = Buffer::of(&[0u32]);
    for n_blocks in [1, 3, 5] {
        let found =
            fault(FaultKind::Deadlock, LaunchShape::linear(n_blocks, 8), || nobody_sets_flag::launch(flag.view_mut()));
        says(
            &found,
            &["kernel `nobody_sets_flag`", "and 7 more: waits for the flag at", "no thread of the block can go on"],
        );
    }
}

#[kernel]
pub fn plain_with_barrier() {
    cpu::barrier();
}

#[kernel]
pub fn own_array(n: u32) {
    let array = [1u32; 4];
    assert_ne!(array[n as usize + thread::thread_idx_x() as usize], 7);
}

#[kernel(cooperative)]
pub fn traps() {
    cpu::barrier();
    if thread::thread_idx_x() == 31 && thread::block_idx_x() == 2 {
        cpu::fault(format_args!("value {} is wrong", 5));
    }
    cpu::barrier();
}

#[test]
fn panics_and_traps() {
    let found = fault(FaultKind::NotCooperative, LaunchShape::linear(1, 2), plain_with_barrier::launch);
    says(&found, &["kernel `plain_with_barrier`", "#[kernel(cooperative)]"]);
    for executor in [plain(), checking(1)] {
        let found = executor.run(LaunchShape::linear(1, 3), &own_array::launch(2)).unwrap_err();
        assert_eq!(found.kind, FaultKind::Panic);
        says(&found, &["thread (2, 0, 0)", "index out of bounds: the len is 4 but the index is 4", "checker.rs:"]);
        let found = executor.run(LaunchShape::linear(4, 64), &traps::launch()).unwrap_err();
        assert_eq!(found.kind, FaultKind::Trap);
        says(&found, &["block (2, 0, 0), thread (31, 0, 0)", "value 5 is wrong"]);
        // The executor is as good as new.
        executor.run(LaunchShape::linear(2, 64), &traps::launch()).unwrap();
    }
}

#[kernel(cooperative, max_threads = 128)]
pub fn bounded(out: GlobalSliceMut<u32>) {
    let zone = SharedSlice::<u32>::dynamic(0, 4);
    let whole = shared_slice![u32; 32_768];
    zone.set(0, out.len() as u32);
    whole.set(0, 1);
}

#[test]
fn refused_launches() {
    let out = Buffer::of(&[0u32]);
    let refused = |shape: LaunchShape, part: &str| {
        let found = plain().run(shape, &bounded::launch(out.view_mut())).unwrap_err();
        assert_eq!(found.kind, FaultKind::BadLaunch);
        says(&found, &["kernel `bounded`", part]);
    };
    refused(LaunchShape::linear(1, 0), "every dimension must be at least 1");
    refused(LaunchShape::linear(0, 1), "every dimension must be at least 1");
    refused(LaunchShape::linear(1, 1025), "1025 threads: at most 1024");
    refused(LaunchShape::linear(1, 129), "`max_threads = 128`");
    refused(LaunchShape::new(Dim3::new(1, 65_536, 1), Dim3::new(1, 1, 1)), "at most (2147483647, 65535, 65535)");
    refused(LaunchShape::linear(1, 1).with_shared(227 * 1024 + 1), "227 KB");
    let shape = LaunchShape::linear(1, 1);
    let found = plain().run(shape, &bounded::launch(out.view_mut())).unwrap_err();
    assert_eq!(found.kind, FaultKind::OutOfBounds);
    says(&found, &["bytes 0..16 of 0 of dynamic shared memory"]);
    let found = plain().run(shape.with_shared(200 * 1024), &bounded::launch(out.view_mut())).unwrap_err();
    assert_eq!(found.kind, FaultKind::SharedMemory);
    plain().run(shape.with_shared(16), &bounded::launch(out.view_mut())).unwrap();
}

#[test]
fn overlapping_claims_are_refused() {
    let data = Buffer::of(&[0.0f32; 16]);
    let launch = read_past_end::launch(data.slice(0..9), data.slice_mut(8..16));
    let conflict = launch.check_claims().unwrap_err();
    assert_eq!((conflict.writer, conflict.other, conflict.bytes), ("out", "values", 4));
    assert_eq!(conflict.address, data.address() + 32);
    let found = plain().run(LaunchShape::linear(1, 1), &launch).unwrap_err();
    says(&found, &["launch refused", "`out` and `values` overlap by 4 bytes"]);
    plain().run(LaunchShape::linear(1, 8), &read_past_end::launch(data.slice(0..8), data.slice_mut(8..16))).unwrap();
    read_past_end::launch(data.slice(4..4), data.slice_mut(0..16)).check_claims().unwrap();
}
