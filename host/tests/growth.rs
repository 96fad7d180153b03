//! What a run keeps as it goes on: the numbers of each epoch, and nothing else.

mod counted;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use counted::{LIVE_BLOCKS, LIVE_BYTES};
use cuda_driver::ledger::{self, CPU_PREFIX};
use cuda_std::cpu::ExecutorOptions;
use host::config::{Config, DataSource, Preset};
use host::data::simulate::Simulation;
use host::device::Device;
use host::interrupt::Interrupt;
use host::metrics::EpochMetrics;
use host::progress::{Progress, Total};
use host::run::{RunFolder, RunRecord};
use host::train::Run;

/// Of each of two folds.
const N_EPOCHS: usize = 40;
/// Epochs until everything that is made once has been made.
const N_FIRST: usize = 10;

/// What is there behind an epoch.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Allocations of the heap, on which the CPU's device memory lies as well, and their bytes.
    blocks: usize,
    bytes: usize,
    /// Buffers of the device.
    buffers: i64,
    /// Memory of the process that is in the machine, bytes.
    resident: usize,
}

impl Kept {
    fn now() -> Self {
        let (blocks, bytes) = (LIVE_BLOCKS.load(Ordering::Relaxed), LIVE_BYTES.load(Ordering::Relaxed));
        Self { blocks, bytes, buffers: n_buffers(), resident: resident_bytes() }
    }
}

/// Allocations less frees, as the ledger counted them.
fn n_buffers() -> i64 {
    let of = |call: &ledger::Entry| match call.name.strip_prefix(CPU_PREFIX) {
        Some("cuMemAlloc_v2" | "cuMemHostAlloc") => call.calls as i64,
        Some("cuMemFree_v2" | "cuMemFreeHost") => -(call.calls as i64),
        _ => 0,
    };
    ledger::snapshot().iter().map(of).sum()
}

/// The second number of `statm` counts pages.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * PAGE_BYTES
}

/// A reader of progress that looks at what is kept at each line's end: one before training, one behind each epoch.
struct Watcher(Arc<Mutex<Vec<Kept>>>);

impl Write for Watcher {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if text.ends_with(b"\n") {
            self.0.lock().expect("no panic before").push(Kept::now());
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// 2,000 steps in 80 epochs with their collection, re-scoring, validation, metrics and checkpoints, over two folds. It would see
/// a buffer that an epoch leaves on the device, one allocation in four epochs, and 150 KB an epoch that no allocator knows of, such as
/// a coroutine's stack.
#[test]
fn a_run_keeps_its_numbers_and_nothing_else() {
    let preset = Config::preset(Preset::Tiny, DataSource::Simulator);
    let mut config = Config { seed: 3, epochs: N_EPOCHS as u32, folds: 2, batch: 8, bars_per_epoch: 4, ..preset };
    (config.sim.bars, config.steps_per_epoch, config.checkpoint_every) = (1_500, 25, 10);
    (config.per.rescore, config.causal.every) = (8, 50);
    let bars = Simulation { market: config.sim.market, n_bars: config.sim.bars, seed: config.seed }.bars();
    ledger::enable();
    // Unchecked, since the checker's own records are not what is looked at; and on one core, since blocks of so few rows are not worth
    // the other's waking.
    let device = Device::cpu_with(ExecutorOptions { threads: 1, check: false, ..ExecutorOptions::default() });
    let record = RunRecord::new(&device, &config, Some(Preset::Tiny), &bars);
    let place = tempfile::tempdir().expect("a folder");
    let folder = RunFolder::create(Some(&place.path().join("run")), &config, &record).expect("a run's folder");
    let interrupt = &Interrupt::default();
    let run = Run { device: &device, config: &config, bars: &bars, folder: &folder, interrupt, deviations: None };
    let total = Total { epochs: 2 * config.epochs, resumed_at: 0, folds: 2 };
    let kept = Arc::new(Mutex::new(Vec::with_capacity(2 * N_EPOCHS + 1)));
    let mut progress = Progress::lines(total, Box::new(Watcher(Arc::clone(&kept))));
    let log = run.learn(&mut progress).expect("training goes well").expect("nobody stops it");
    let kept = kept.lock().expect("no panic before");
    assert_eq!((kept.len(), log.epochs().len()), (2 * N_EPOCHS + 1, 2 * N_EPOCHS));

    let (first, last) = (kept[N_FIRST], kept[2 * N_EPOCHS]);
    let n_epochs = 2 * N_EPOCHS - N_FIRST;
    println!("{first:?} behind epoch {N_FIRST}, {last:?} {n_epochs} epochs later");
    for (epoch, now) in kept.iter().enumerate().skip(N_FIRST) {
        assert_eq!(now.buffers, first.buffers, "buffers of the device behind epoch {epoch}");
    }
    assert!(first.buffers > 0, "the ledger counts no buffer");
    assert!(last.blocks < first.blocks + n_epochs / 4, "{} allocations became {}", first.blocks, last.blocks);
    // A list that grows has room for up to as many again.
    let of_numbers = (2 * N_EPOCHS).next_power_of_two() * size_of::<EpochMetrics>();
    let slack = 16 << 10;
    assert!(last.bytes < first.bytes + of_numbers + slack, "{} bytes became {}", first.bytes, last.bytes);
    let most = first.resident + (10 << 20);
    assert!(last.resident < most, "{} bytes in memory became {}", first.resident, last.resident);
}
