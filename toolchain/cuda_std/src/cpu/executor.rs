//! A launch over its grid.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::clock::Fences;
use super::cooperative::Teams;
use super::fault::{Fault, FaultKind, install_hook};
use super::halt::GridWait;
use super::order::Shuffler;
use super::overflow;
use super::position::{CURRENT, Entered, index_of};
use super::shared::MAX_SHARED_BYTES;
use crate::launch::{Access, KernelInfo, Launch};
use crate::shape::{Dim3, LaunchShape};

/// How an executor runs.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Operating-system threads; blocks are spread over them.
    pub threads: usize,
    /// Whether accesses, barriers and warp operations are checked.
    pub check: bool,
    /// Seed of the order in which blocks and threads run while checking.
    pub seed: u64,
    /// Stack of each thread of a cooperative kernel, bytes; touched pages alone cost memory.
    pub stack_bytes: usize,
}

impl Default for ExecutorOptions {
    /// All cores; checking if the environment variable `ONEGRAPH_CHECK` is set, but for `0` and nothing: a misspelt wish to
    /// check checks.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            check: std::env::var_os("ONEGRAPH_CHECK").is_some_and(|value| !value.is_empty() && value != "0"),
            seed: 0,
            stack_bytes: 256 * 1024,
        }
    }
}

/// Runs kernels on the CPU.
pub struct Executor {
    options: ExecutorOptions,
    /// The threads beside the caller's own, which takes part; none if there is but one.
    pool: Option<rayon::ThreadPool>,
}

/// Work that is over in less than this is not spread over threads: waking them takes as long.
const WORTH_SPREADING: Duration = Duration::from_micros(20);

impl Executor {
    /// An executor with its own threads.
    ///
    /// # Panics
    /// If the operating system refuses the threads.
    pub fn new(options: ExecutorOptions) -> Self {
        install_hook();
        overflow::install();
        let pool = (options.threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(options.threads - 1)
                .thread_name(|index| format!("kernel-{index}"))
                .build()
                .expect("the operating system starts the executor's threads")
        });
        Self { options, pool }
    }

    /// What it was made with.
    pub fn options(&self) -> &ExecutorOptions {
        &self.options
    }

    /// Runs a launch to its end.
    ///
    /// # Errors
    /// A shape that the driver would refuse, overlapping claims, or what went wrong in the kernel. If several threads
    /// fault, the one of the lowest block among those that were met is told. After a fault the contents of memory that
    /// the kernel writes are undefined.
    pub fn run(&self, shape: LaunchShape, launch: &Launch) -> Result<(), Fault> {
        let refused = |message| Fault::of_launch(launch.info(), FaultKind::BadLaunch, message);
        check_shape(shape, launch.info()).map_err(refused)?;
        launch.check_claims().map_err(|error| refused(error.to_string()))?;
        if !launch.is_due() {
            return Ok(());
        }
        if launch.run_substitute() {
            for claim in launch.claims().iter().filter(|claim| claim.access == Access::Write) {
                if let Some(shadow) = claim.range.shadow() {
                    shadow.mark_initialised(claim.range.range());
                }
            }
            return Ok(());
        }
        let run = Run::new(&self.options, shape, launch);
        self.run_blocks(&run);
        for claim in launch.claims().iter().filter(|claim| !claim.tracked) {
            if let Some(shadow) = claim.range.shadow() {
                // What a raw pointer wrote was not seen.
                shadow.mark_initialised(claim.range.range());
            }
        }
        match run.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, fault)) => Err(fault),
            None => Ok(()),
        }
    }

    fn run_blocks(&self, run: &Run<'_>) {
        let started = Instant::now();
        if !run.work(1) {
            return;
        }
        let left = run.n_blocks - 1;
        let expected = started.elapsed().saturating_mul(u32::try_from(left).unwrap_or(u32::MAX));
        match &self.pool {
            Some(pool) if expected > WORTH_SPREADING => {
                let helpers = pool.current_num_threads().min(usize::try_from(left).unwrap_or(usize::MAX));
                pool.in_place_scope(|scope| {
                    for _ in 0..helpers {
                        scope.spawn(|_| {
                            run.work(u64::MAX);
                        });
                    }
                    run.work(u64::MAX);
                });
            }
            _ => {
                run.work(u64::MAX);
            }
        }
    }
}

/// What the driver would refuse.
fn check_shape(shape: LaunchShape, info: &KernelInfo) -> Result<(), String> {
    let LaunchShape { grid, block, shared_bytes } = shape;
    let show = |dim: Dim3| format!("({}, {}, {})", dim.x, dim.y, dim.z);
    if grid.count() == 0 || block.count() == 0 {
        return Err(format!("grid {} of blocks {}: every dimension must be at least 1", show(grid), show(block)));
    }
    if grid.x > i32::MAX as u32 || grid.y > 65_535 || grid.z > 65_535 {
        return Err(format!("grid {}: at most (2147483647, 65535, 65535) blocks", show(grid)));
    }
    if block.count() > 1024 || block.z > 64 {
        return Err(format!(
            "block {} is {} threads: at most 1024 in a block, and 64 in its third dimension",
            show(block),
            block.count()
        ));
    }
    if let Some(most) = info.max_threads
        && block.count() > u64::from(most)
    {
        return Err(format!(
            "block {} is {} threads: the kernel is declared with `max_threads = {most}`",
            show(block),
            block.count()
        ));
    }
    if shared_bytes as usize > MAX_SHARED_BYTES {
        return Err(format!(
            "{shared_bytes} bytes of dynamic shared memory: at most {MAX_SHARED_BYTES} (227 KB) a block"
        ));
    }
    Ok(())
}

/// One launch while it runs.
pub(super) struct Run<'a> {
    pub(super) options: &'a ExecutorOptions,
    pub(super) shape: LaunchShape,
    pub(super) launch: &'a Launch,
    /// Tells this launch's records in a shadow from older ones.
    pub(super) serial: u64,
    pub(super) n_blocks: u64,
    pub(super) grid_wait: GridWait,
    pub(super) fences: Fences,
    /// The order of blocks while checking.
    order: Vec<u32>,
    next_block: AtomicU64,
    stop: AtomicBool,
    fault: Mutex<Option<(u64, Fault)>>,
}

impl<'a> Run<'a> {
    fn new(options: &'a ExecutorOptions, shape: LaunchShape, launch: &'a Launch) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let n_blocks = shape.grid.count();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut order = Vec::new();
        if let (true, Ok(n)) = (options.check, u32::try_from(n_blocks)) {
            order.extend(0..n);
            Shuffler::new(options.seed, u64::MAX).shuffle(&mut order);
        }
        Self {
            options,
            shape,
            launch,
            serial,
            n_blocks,
            grid_wait: GridWait::default(),
            fences: Fences::default(),
            order,
            next_block: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    pub(super) fn info(&self) -> &'static KernelInfo {
        self.launch.info()
    }

    /// A block's number in the grid, x running fastest.
    pub(super) fn linear_block(&self, idx: Dim3) -> u32 {
        let grid = self.shape.grid;
        idx.x.wrapping_add(grid.x.wrapping_mul(idx.y.wrapping_add(grid.y.wrapping_mul(idx.z))))
    }

    /// Whether a fault has ended the launch.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Blocks that no thread has begun.
    pub(super) fn n_waiting_blocks(&self) -> u64 {
        self.n_blocks.saturating_sub(self.next_block.load(Ordering::Relaxed))
    }

    /// Ends the launch with a fault met in `block`.
    pub(super) fn record(&self, block: u64, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(other, _)| block < *other) {
            *first = Some((block, fault));
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Takes up to `most` blocks that no other thread has.
    fn claim(&self, most: u64) -> std::ops::Range<u64> {
        let start = self.next_block.fetch_add(most, Ordering::Relaxed).min(self.n_blocks);
        start..start.saturating_add(most).min(self.n_blocks)
    }

    /// Takes one block, for a worker whose blocks all wait for others.
    pub(super) fn claim_one(&self) -> Option<u64> {
        self.claim(1).next()
    }

    /// Runs blocks on this operating-system thread, at most `most`; false when the launch is over.
    fn work(&self, most: u64) -> bool {
        let _entered = Entered::new(self);
        let _member = self.grid_wait.join();
        let worker = Worker { run: self, order: RefCell::default(), teams: Teams::default() };
        let chunk = (self.n_blocks / (16 * self.options.threads as u64)).clamp(1, 64).min(most);
        let mut left = most;
        while left > 0 && !self.stopped() {
            let claimed = self.claim(chunk.min(left));
            if claimed.is_empty() {
                return false;
            }
            left -= claimed.end - claimed.start;
            for index in claimed {
                worker.run_block(index);
                if self.stopped() {
                    return false;
                }
            }
        }
        !self.stopped()
    }
}

/// One operating-system thread's part in a launch.
pub(super) struct Worker<'a> {
    pub(super) run: &'a Run<'a>,
    /// The order of threads while checking a plain kernel.
    order: RefCell<Vec<u16>>,
    pub(super) teams: Teams,
}

impl Worker<'_> {
    /// Runs block number `index` in the launch's order.
    pub(super) fn run_block(&self, index: u64) {
        let linear = self.run.order.get(index as usize).map_or(index, |&block| u64::from(block));
        let block = Block { worker: self, linear };
        // The state that a panic can leave half-changed is the kernel's own, and the launch ends here.
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| self.run.launch.run_block(&block))) {
            self.run.record(linear, Fault::from_panic(payload));
        }
    }
}

/// One block of a grid, as the executor hands it to a kernel.
pub struct Block<'a> {
    pub(super) worker: &'a Worker<'a>,
    pub(super) linear: u64,
}

impl Block<'_> {
    /// Runs `thread` once for each thread of the block.
    #[inline]
    pub fn run(&self, thread: impl Fn()) {
        let run = self.worker.run;
        self.enter();
        if run.info().cooperative {
            self.run_cooperative(&thread);
        } else if run.options.check {
            self.run_shuffled(&thread);
        } else {
            let dim = run.shape.block;
            CURRENT.with(|current| {
                for z in 0..dim.z {
                    current.thread_z.set(z);
                    for y in 0..dim.y {
                        current.thread_y.set(y);
                        for x in 0..dim.x {
                            current.thread_x.set(x);
                            thread();
                        }
                    }
                }
            });
        }
    }

    /// Makes this the block that the operating-system thread is in.
    pub(super) fn enter(&self) {
        let shape = self.worker.run.shape;
        CURRENT.with(|current| {
            current.block_idx.set(index_of(shape.grid, self.linear));
            current.block_dim.set(shape.block);
            current.grid_dim.set(shape.grid);
        });
    }

    /// A plain kernel's threads in shuffled order.
    #[cold]
    #[inline(never)]
    fn run_shuffled(&self, thread: &dyn Fn()) {
        let run = self.worker.run;
        let mut order = self.worker.order.borrow_mut();
        order.clear();
        order.extend(0..run.shape.block.count() as u16);
        Shuffler::new(run.options.seed, self.linear).shuffle(&mut order);
        for &linear in order.iter() {
            CURRENT.with(|current| {
                current.set_thread(index_of(run.shape.block, u64::from(linear)));
                current.fenced.set(0);
            });
            thread();
        }
    }
}
