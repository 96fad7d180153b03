//! Throughput of the CPU target: `cargo bench -p cuda_std`. Medians of repeated launches, as a table.

#![allow(missing_docs)] // the kernels' `launch` modules

use std::sync::Arc;
use std::time::Instant;

use cuda_std::cpu::{self, Executor, ExecutorOptions, Shadow};
use cuda_std::launch::{DeviceMemory, DeviceSlice, DeviceSliceMut, Launch, MemoryRange};
use cuda_std::prelude::*;

/// One element a thread: what a thread costs.
#[kernel]
pub fn scale(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>, factor: f32) {
    let index = thread::index_1d() as usize;
    if index < source.len() {
        target.set(index, source.get(index) * factor);
    }
}

/// A row of 4,096 elements a thread: what an element costs.
#[kernel]
pub fn scale_rows(source: GlobalSlice<f32>, target: GlobalSliceMut<f32>, factor: f32) {
    let row = thread::index_1d() as usize;
    let part = row * ROW..(row + 1) * ROW;
    let (from, to) = (source.sub(part.clone()), target.sub(part));
    for column in 0..from.len() {
        to.set(column, from.get(column) * factor);
    }
}
const ROW: usize = 4_096;

/// The sum of a block's 256 elements, in shared memory, a barrier a level.
#[kernel(cooperative, max_threads = 256)]
pub fn block_sums(values: GlobalSlice<f32>, sums: GlobalSliceMut<f32>) {
    let partial = shared_slice![f32; 256];
    let (thread, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    partial.set(thread, values.get(block * 256 + thread));
    cpu::barrier();
    let mut half = 128;
    while half > 0 {
        if thread < half {
            partial.set(thread, partial.get(thread) + partial.get(thread + half));
        }
        cpu::barrier();
        half /= 2;
    }
    if thread == 0 {
        sums.set(block, partial.get(0));
    }
}

/// The same sum by shuffles within warps and one barrier.
#[kernel(cooperative, max_threads = 256)]
pub fn block_sums_by_warps(values: GlobalSlice<f32>, sums: GlobalSliceMut<f32>) {
    let partial = shared_slice![f32; 8];
    let (thread, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let warp_sum =
        |value: f32| cpu::warp_collective("sum", u32::MAX, value, |lanes| [lanes.iter().flatten().sum::<f32>(); 32]);
    let sum = warp_sum(values.get(block * 256 + thread));
    if thread % 32 == 0 {
        partial.set(thread / 32, sum);
    }
    cpu::barrier();
    if thread < 32 {
        let sum = warp_sum(if thread < 8 { partial.get(thread) } else { 0.0 });
        if thread == 0 {
            sums.set(block, sum);
        }
    }
}

/// Barriers and nothing else: what a switch costs.
#[kernel(cooperative, max_threads = 256)]
pub fn barriers(n: u32) {
    for _ in 0..n {
        cpu::barrier();
    }
}

struct Memory(Arc<DeviceMemory>);

impl Memory {
    fn new(n: usize, check: bool) -> Self {
        let mut owner = vec![1.0f32; n];
        let shadow = check.then(|| {
            let shadow = Box::new(Shadow::new(4 * n));
            shadow.mark_initialised(0..4 * n);
            shadow
        });
        Self(Arc::new(DeviceMemory::new(0, owner.as_mut_ptr() as u64, 4 * n, shadow, Box::new(owner))))
    }

    fn range(&self) -> MemoryRange {
        MemoryRange::new(self.0.clone(), 0..self.0.bytes())
    }

    fn view(&self) -> DeviceSlice<'_, f32> {
        // SAFETY: any bytes are values of `f32`.
        unsafe { DeviceSlice::new(self.range()) }
    }

    fn view_mut(&self) -> DeviceSliceMut<'_, f32> {
        // SAFETY: any bytes are values of `f32`.
        unsafe { DeviceSliceMut::new(self.range()) }
    }
}

/// Seconds of processor time that this process has used on all its threads: what other processes do does not count.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Median wall-clock, median and least processor seconds of a launch, over at least 9 repetitions and a quarter of a second, after one
/// that is not counted.
fn seconds(executor: &Executor, shape: LaunchShape, launch: &Launch) -> (f64, f64, f64) {
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while wall.len() < 10 || begin.elapsed().as_secs_f64() < 0.25 {
        let (start, used) = (Instant::now(), processor_seconds());
        executor.run(shape, launch).expect("the bench's kernels are correct");
        wall.push(start.elapsed().as_secs_f64());
        processor.push(processor_seconds() - used);
    }
    let median = |times: &mut [f64]| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    (median(&mut wall[1..]), median(&mut processor[1..]), processor[1])
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("| kernel | threads | checked | a launch, us | millions a second | processor ns each | at best |");
    println!("|---|---|---|---|---|---|---|");
    let settings = [(1, false), (cores, false), (cores, true)];
    for (threads, check) in settings {
        let executor = Executor::new(ExecutorOptions { threads, check, ..ExecutorOptions::default() });
        // Checked runs are some hundred times slower.
        let shrink = if check { 64 } else { 1 };
        let (n, n_blocks) = ((1 << 20) / shrink, 1_024 / shrink as u32);
        let (source, target) = (Memory::new(n, check), Memory::new(n, check));
        let sums = Memory::new(n_blocks as usize, check);
        let row = |name: &str, shape: LaunchShape, launch: Launch, count: f64| {
            let (wall, processor, least) = seconds(&executor, shape, &launch);
            let (rate, each, best) = (count / wall, 1e9 * processor / count, 1e9 * least / count);
            println!(
                "| {name} | {threads} | {check} | {:.1} | {:.3} | {each:.2} | {best:.2} |",
                wall * 1e6,
                rate / 1e6
            );
        };
        let cover = LaunchShape::cover(n, 256);
        row(
            "plain, an element a thread (threads)",
            cover,
            scale::launch(source.view(), target.view_mut(), 2.0),
            n as f64,
        );
        let rows = LaunchShape::linear((n / ROW / 4).max(1) as u32, 4);
        row(
            "plain, a row of 4,096 a thread (elements)",
            rows,
            scale_rows::launch(source.view(), target.view_mut(), 2.0),
            n as f64,
        );
        let blocks = LaunchShape::linear(n_blocks, 256);
        row(
            "cooperative, sum by barriers (blocks)",
            blocks,
            block_sums::launch(source.view(), sums.view_mut()),
            n_blocks.into(),
        );
        row(
            "cooperative, sum by warps (blocks)",
            blocks,
            block_sums_by_warps::launch(source.view(), sums.view_mut()),
            n_blocks.into(),
        );
        row("cooperative, barriers alone (switches)", blocks, barriers::launch(8), 8.0 * 256.0 * f64::from(n_blocks));
        row(
            "an empty launch of one block",
            LaunchShape::linear(1, 32),
            scale::launch(source.view(), target.view_mut(), 2.0),
            1.0,
        );
        row("a cooperative launch of one block of 256", LaunchShape::linear(1, 256), barriers::launch(1), 1.0);
    }
}
