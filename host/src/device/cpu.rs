//! The CPU backend: heap memory, and the executor of `cuda_std`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_driver::ledger;
use cuda_std::cpu::{Executor, ExecutorOptions, Shadow};
use cuda_std::launch::{DeviceMemory, Launch, MemoryRange};
use cuda_std::shape::LaunchShape;

use super::DeviceInfo;
use crate::error::DeviceError;

/// As `cuMemAlloc` aligns.
const ALIGNMENT: usize = 256;

/// The CPU as a device. Launches and copies exclude each other, as on one stream.
pub(crate) struct CpuDevice {
    /// Tells this opening from all others, on either backend.
    id: u64,
    executor: Mutex<Executor>,
    /// Whether memory carries the checker's record.
    check: bool,
}

impl CpuDevice {
    pub(super) fn new(options: ExecutorOptions) -> Arc<Self> {
        let check = options.check;
        Arc::new(Self { id: super::next_id(), executor: Mutex::new(Executor::new(options)), check })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Runs a launch to its end.
    pub(super) fn run(&self, shape: LaunchShape, launch: &Launch) -> Result<(), DeviceError> {
        Ok(self.exclusive().run(shape, launch)?)
    }

    /// Memory whose contents a kernel must not read before something wrote it.
    #[track_caller]
    pub(super) fn allocate(&self, bytes: usize) -> Result<Arc<DeviceMemory>, DeviceError> {
        ledger::record("cpu:cuMemAlloc_v2", bytes);
        self.block(bytes, "cpu:cuMemFree_v2")
    }

    /// What stands for pinned memory: it holds zeroes.
    #[track_caller]
    pub(super) fn allocate_pinned(&self, bytes: usize) -> Result<Arc<DeviceMemory>, DeviceError> {
        ledger::record("cpu:cuMemHostAlloc", bytes);
        let memory = self.block(bytes, "cpu:cuMemFreeHost")?;
        self.fill_with_zeroes(&memory);
        Ok(memory)
    }

    /// A heap block that the ledger sees freed as `free`.
    fn block(&self, bytes: usize, free: &'static str) -> Result<Arc<DeviceMemory>, DeviceError> {
        let block = HeapBlock::new(bytes, free)?;
        let shadow = self.check.then(|| Box::new(Shadow::new(bytes)));
        let address = block.start.as_ptr() as u64;
        Ok(Arc::new(DeviceMemory::new(self.id, address, bytes, shadow, Box::new(block))))
    }

    #[track_caller]
    pub(super) fn zero(&self, memory: &DeviceMemory) {
        ledger::record("cpu:cuMemsetD8Async", memory.bytes());
        self.fill_with_zeroes(memory);
    }

    fn fill_with_zeroes(&self, memory: &DeviceMemory) {
        let _exclusive = self.exclusive();
        // SAFETY: `memory` is a live heap block of that many bytes, and no launch or copy runs beside this.
        unsafe { std::ptr::write_bytes(memory.address() as *mut u8, 0, memory.bytes()) };
        if let Some(shadow) = memory.shadow() {
            shadow.mark_initialised(0..memory.bytes());
        }
    }

    /// Copies `bytes`, as many as `target` has, into it.
    #[track_caller]
    pub(super) fn write(&self, target: &MemoryRange, bytes: &[u8]) {
        assert_eq!(bytes.len(), target.bytes());
        ledger::record("cpu:cuMemcpyHtoDAsync_v2", bytes.len());
        let _exclusive = self.exclusive();
        // SAFETY: `target` is that many bytes of a live heap block, which no Rust reference covers; no launch or copy
        // runs beside this.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.address() as *mut u8, bytes.len()) };
        if let Some(shadow) = target.shadow() {
            shadow.mark_initialised(target.range());
        }
    }

    /// Copies `source` into `bytes`, as many as it has.
    #[track_caller]
    pub(super) fn read(&self, source: &MemoryRange, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), source.bytes());
        ledger::record("cpu:cuMemcpyDtoHAsync_v2", bytes.len());
        let _exclusive = self.exclusive();
        // SAFETY: as in `write`; the block was initialised when it was allocated.
        unsafe { std::ptr::copy_nonoverlapping(source.address() as *const u8, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn exclusive(&self) -> MutexGuard<'_, Executor> {
        // A panic inside a launch leaves memory half written, as a faulted kernel does; the executor has no state of it.
        self.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A heap allocation, zeroed when made: Rust may not read memory that nothing wrote.
struct HeapBlock {
    start: NonNull<u8>,
    layout: Layout,
    /// What the ledger is told when it goes.
    free: &'static str,
}

// SAFETY: the block is owned memory; who accesses it is settled by `CpuDevice`.
unsafe impl Send for HeapBlock {}
// SAFETY: as above; the block itself gives no access.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    fn new(bytes: usize, free: &'static str) -> Result<Self, DeviceError> {
        let out_of_memory = || {
            let (free, total) = memory_info();
            DeviceError::OutOfMemory { device: "the CPU".into(), requested: bytes, free, total }
        };
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self { start, layout, free })
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        ledger::record(self.free, 0);
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The machine's memory, bytes: available, and in all. Zero where the system does not tell.
pub fn memory_info() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
        kib.unwrap_or(0) * 1024
    };
    (bytes("MemAvailable:"), bytes("MemTotal:"))
}

/// The CPU as a device.
pub(super) fn info() -> DeviceInfo {
    let processors = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    DeviceInfo {
        name: "the CPU".into(),
        compute_capability: None,
        n_multiprocessors: processors,
        memory_bytes: memory_info().1,
    }
}
