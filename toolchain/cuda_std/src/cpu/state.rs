//! A block's threads as their operations see them.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, Location};
use std::ptr;

use corosensei::Yielder;

use super::barrier::BarrierState;
use super::clock::Clocks;
use super::executor::Run;
use super::fault::{Cancelled, Fault, FaultKind, Place, raise};
use super::group::Group;
use super::position::{CURRENT, index_of};
use super::shared::SharedMemory;
use super::warp::WarpState;

/// What a thread waits at.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    Never,
    Barrier(&'static Location<'static>),
    Warp { op: &'static str, mask: u32, at: &'static Location<'static> },
    Group { op: &'static str, at: &'static Location<'static> },
    Until { what: &'static str, at: &'static Location<'static> },
}

impl Waiting {
    fn words(self) -> String {
        match self {
            Self::Never => "has not waited".to_owned(),
            Self::Barrier(at) => format!("waits at the barrier of {}:{}", at.file(), at.line()),
            Self::Warp { op, mask, at } => format!("waits in {op}, mask {mask:#010x}, at {}:{}", at.file(), at.line()),
            Self::Group { op, at } => format!("waits in {op} at {}:{}", at.file(), at.line()),
            Self::Until { what, at } => format!("waits for {what} at {}:{}", at.file(), at.line()),
        }
    }
}

/// A block's threads as their operations see them. One operating-system thread alone touches it, and none of its
/// borrows spans a switch of coroutines.
pub(super) struct BlockState {
    pub(super) n_threads: u32,
    pub(super) check: bool,
    /// Lanes that have not returned, a word a warp.
    pub(super) live: Vec<Cell<u32>>,
    /// Lanes that can run.
    pub(super) ready: Vec<Cell<u32>>,
    /// Lanes in `wait_until`.
    pub(super) polling: Vec<Cell<u32>>,
    pub(super) n_live: Cell<u32>,
    pub(super) barrier: BarrierState,
    pub(super) warps: Vec<WarpState>,
    pub(super) groups: RefCell<Vec<Group>>,
    pub(super) shared: SharedMemory,
    pub(super) clocks: Clocks,
    /// What each thread waits at, or last waited at.
    pub(super) waiting: Vec<Cell<Waiting>>,
    /// Set by a thread in `wait_until` that could go on.
    pub(super) progressed: Cell<bool>,
    pub(super) yielders: Vec<Cell<*const Yielder<(), ()>>>,
    pub(super) guards: Vec<usize>,
    pub(super) body: Cell<*const (dyn Fn() + 'static)>,
    pub(super) fault: Cell<Option<Fault>>,
    pub(super) cancelled: Cell<bool>,
    pub(super) quit: Cell<bool>,
}

fn nothing() {}

#[cold]
#[inline(never)]
fn leave_kernel() -> ! {
    panic::resume_unwind(Box::new(Cancelled));
}

impl BlockState {
    /// The lanes of `warp` that exist.
    pub(super) fn existing(&self, warp: usize) -> u32 {
        match self.n_threads as usize - warp * 32 {
            32.. => u32::MAX,
            n => (1 << n) - 1,
        }
    }

    pub(super) fn new(run: &Run<'_>, guards: Vec<usize>) -> Self {
        let n_threads = run.shape.block.count() as usize;
        let n_warps = n_threads.div_ceil(32);
        let words = || (0..n_warps).map(|_| Cell::new(0)).collect::<Vec<_>>();
        Self {
            n_threads: n_threads as u32,
            check: run.options.check,
            live: words(),
            ready: words(),
            polling: words(),
            n_live: Cell::new(0),
            barrier: BarrierState::new(n_warps),
            warps: (0..n_warps).map(|_| WarpState::default()).collect(),
            groups: RefCell::default(),
            clocks: Clocks::new(if run.options.check { n_threads } else { 0 }),
            shared: SharedMemory::new(run.shape.shared_bytes as usize, run.options.check),
            waiting: (0..n_threads).map(|_| Cell::new(Waiting::Never)).collect(),
            progressed: Cell::new(false),
            yielders: (0..n_threads).map(|_| Cell::new(ptr::null())).collect(),
            guards,
            body: Cell::new(&nothing),
            fault: Cell::new(None),
            cancelled: Cell::new(false),
            quit: Cell::new(false),
        }
    }

    pub(super) fn start(&self) {
        for warp in 0..self.live.len() {
            self.live[warp].set(self.existing(warp));
            self.ready[warp].set(self.existing(warp));
            self.polling[warp].set(0);
            self.warps[warp].start();
        }
        self.n_live.set(self.n_threads);
        self.barrier.start();
        self.groups.borrow_mut().clear();
        self.shared.start_block();
        self.clocks.start();
        self.fault.set(None);
        self.cancelled.set(false);
    }

    /// Switches to the scheduler until the thread is ready again.
    ///
    /// Inlined, as each return after a switch is one that the processor predicts wrongly.
    #[inline(always)]
    pub(super) fn suspend(&self, linear: usize, waiting: Waiting) {
        self.waiting[linear].set(waiting);
        // SAFETY: called by thread `linear` itself, whose coroutine stored its yielder before it ran the kernel; the
        // yielder lives as long as the coroutine runs.
        unsafe { &*self.yielders[linear].get() }.suspend(());
        if self.cancelled.get() {
            leave_kernel();
        }
    }

    /// The life of thread `linear`'s coroutine: the kernel's body once for each block.
    ///
    /// The loop is inside the catching: it saves returns, each of which the processor predicts wrongly after a switch.
    pub(super) fn serve(&self, linear: usize, yielder: &Yielder<(), ()>) {
        self.yielders[linear].set(yielder);
        while !self.quit.get() {
            // What a panic can leave half-changed is the kernel's own, and the launch ends.
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                while !self.quit.get() {
                    if self.cancelled.get() {
                        self.leave(linear);
                    } else {
                        let body = self.body.get();
                        // SAFETY: `run_cooperative` set the body for this block and does not return before all its
                        // threads did.
                        unsafe { (*body)() };
                        self.returned(linear);
                    }
                    yielder.suspend(());
                }
            }));
            if let Err(payload) = outcome {
                if !payload.is::<Cancelled>() {
                    self.cancel(Fault::from_panic(payload));
                }
                self.leave(linear);
                yielder.suspend(());
            }
        }
    }

    /// Thread `linear` is outside the kernel.
    fn leave(&self, linear: usize) {
        let (live, bit) = (&self.live[linear / 32], 1 << (linear % 32));
        if live.get() & bit != 0 {
            live.set(live.get() & !bit);
            self.n_live.set(self.n_live.get() - 1);
        }
    }

    /// Thread `linear` has returned: whoever waited for it alone goes on.
    fn returned(&self, linear: usize) {
        self.leave(linear);
        self.barrier.thread_returned(self);
        self.warps[linear / 32].lane_returned(&self.ready[linear / 32]);
    }

    /// Ends the block with a fault: no thread runs on but to unwind.
    pub(super) fn cancel(&self, fault: Fault) {
        if !self.cancelled.replace(true) {
            self.fault.set(Some(fault));
            self.ready.iter().for_each(|lanes| lanes.set(0));
        }
    }

    pub(super) fn make_ready(&self, lanes: &[Cell<u32>]) {
        for (ready, lanes) in self.ready.iter().zip(lanes) {
            ready.set(lanes.get());
        }
    }

    /// The thread's guard page.
    pub(super) fn guard(&self, linear: usize) -> Option<usize> {
        self.guards.get(linear).copied()
    }

    /// Why no thread can go on, told for the first that waits.
    pub(super) fn stuck(&self, run: &Run<'_>) -> Fault {
        let live = (0..self.n_threads as usize).filter(|t| self.live[t / 32].get() >> (t % 32) & 1 == 1);
        let mut groups: Vec<(String, usize, u32)> = Vec::new();
        let mut kind = FaultKind::Deadlock;
        for thread in live {
            let waiting = self.waiting[thread].get();
            match waiting {
                Waiting::Barrier(_) => kind = FaultKind::BarrierDivergence,
                Waiting::Warp { .. } | Waiting::Group { .. } if kind == FaultKind::Deadlock => {
                    kind = FaultKind::WarpDivergence;
                }
                _ => {}
            }
            let words = waiting.words();
            match groups.iter_mut().find(|(known, ..)| *known == words) {
                Some((_, _, n)) => *n += 1,
                None => groups.push((words, thread, 1)),
            }
        }
        let (first, second) = (groups.first().map_or(0, |g| g.1), groups.get(1).map(|g| g.1));
        let dim = run.shape.block;
        let name = |thread: usize| {
            let idx = index_of(dim, thread as u64);
            format!("({}, {}, {})", idx.x, idx.y, idx.z)
        };
        let mut parts: Vec<String> = groups
            .iter()
            .map(|(words, thread, n)| match n {
                1 => format!("thread {} {words}", name(*thread)),
                n => format!("thread {} and {} more: {words}", name(*thread), n - 1),
            })
            .collect();
        if self.n_live.get() < self.n_threads {
            parts.push(format!("{} threads have returned", self.n_threads - self.n_live.get()));
        }
        if run.n_waiting_blocks() > 0 {
            parts.push(format!("{} blocks had not begun", run.n_waiting_blocks()));
        }
        CURRENT.with(|current| current.set_thread(index_of(dim, first as u64)));
        let message = format!("no thread of the block can go on: {}", parts.join("; "));
        let mut fault = Fault::here(kind, None, message).expect("blocks run inside a launch");
        let block = fault.place.map(|place| place.block);
        fault.other = second.zip(block).map(|(t, block)| Place { block, thread: index_of(dim, t as u64) });
        fault
    }
}

/// The cooperative block that the running thread belongs to.
///
/// Outside one this is a fault that names the operation.
#[inline]
pub(super) fn state(op: &'static str, at: &'static Location<'static>) -> &'static BlockState {
    let block = CURRENT.with(|current| current.block.get());
    if block.is_null() {
        not_cooperative(op, at);
    }
    // SAFETY: the scheduler sets the pointer to the state of a team that outlives the kernel's run, and the reference
    // does not leave this module's operations, which run inside the kernel.
    unsafe { &*block }
}

#[cold]
#[inline(never)]
fn not_cooperative(op: &'static str, at: &'static Location<'static>) -> ! {
    let message = format!("{op} in a kernel that is not cooperative: declare it `#[kernel(cooperative)]`");
    raise(FaultKind::NotCooperative, Some(at), message)
}
