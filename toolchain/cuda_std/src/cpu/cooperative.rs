//! A block whose threads are coroutines, and its scheduler.
//!
//! A thread runs until it must wait for others: at a barrier, in a warp operation, in [`super::wait_until`]. Whoever
//! arrives last does the operation's work for all and makes the others ready. A block in which all wait for something
//! that another block must do is set aside while its worker begins further blocks, so that a grid-wide barrier works
//! with any number of operating-system threads.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, Location};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use corosensei::{Coroutine, Yielder};

use super::barrier::BarrierState;
use super::clock::Clocks;
use super::executor::{Block, Run, Worker};
use super::fault::{Cancelled, Fault, FaultKind, Place, raise};
use super::group::Group;
use super::order::Shuffler;
use super::position::{CURRENT, index_of};
use super::shared::SharedMemory;
use super::stack::{self, OnShortage, Region, WarpStack};
use super::warp::WarpState;
use crate::shape::Dim3;

type Thread = Coroutine<(), (), (), WarpStack>;

/// Most blocks that one worker sets aside: each nests a few frames on its own stack.
const MAX_TEAMS: usize = 256;

/// What a thread waits at.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    No,
    Barrier(&'static Location<'static>),
    Warp { op: &'static str, mask: u32, at: &'static Location<'static> },
    Group { op: &'static str, at: &'static Location<'static> },
    Until { what: &'static str, at: &'static Location<'static> },
}

impl Waiting {
    fn words(self) -> String {
        match self {
            Self::No => "can run".to_owned(),
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
    pub(super) waiting: Vec<Cell<Waiting>>,
    /// Set by a thread in `wait_until` that could go on.
    pub(super) progressed: Cell<bool>,
    yielders: Vec<Cell<*const Yielder<(), ()>>>,
    guards: Vec<usize>,
    body: Cell<*const (dyn Fn() + 'static)>,
    fault: Cell<Option<Fault>>,
    cancelled: Cell<bool>,
    quit: Cell<bool>,
}

fn nothing() {}

impl BlockState {
    /// The lanes of `warp` that exist.
    pub(super) fn existing(&self, warp: usize) -> u32 {
        match self.n_threads as usize - warp * 32 {
            32.. => u32::MAX,
            n => (1 << n) - 1,
        }
    }

    fn new(run: &Run<'_>, guards: Vec<usize>) -> Self {
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
            waiting: (0..n_threads).map(|_| Cell::new(Waiting::No)).collect(),
            progressed: Cell::new(false),
            yielders: (0..n_threads).map(|_| Cell::new(ptr::null())).collect(),
            guards,
            body: Cell::new(&nothing),
            fault: Cell::new(None),
            cancelled: Cell::new(false),
            quit: Cell::new(false),
        }
    }

    fn start(&self) {
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
    pub(super) fn suspend(&self, linear: usize, waiting: Waiting) {
        self.waiting[linear].set(waiting);
        // SAFETY: called by thread `linear` itself, whose coroutine stored its yielder before it ran the kernel; the
        // yielder lives as long as the coroutine runs.
        unsafe { &*self.yielders[linear].get() }.suspend(());
        if self.cancelled.get() {
            panic::resume_unwind(Box::new(Cancelled));
        }
        self.waiting[linear].set(Waiting::No);
    }

    /// The life of thread `linear`'s coroutine: the kernel's body once for each block.
    fn serve(&self, linear: usize, yielder: &Yielder<(), ()>) {
        self.yielders[linear].set(yielder);
        while !self.quit.get() {
            if !self.cancelled.get() {
                let body = self.body.get();
                // What a panic can leave half-changed is the kernel's own, and the launch ends.
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: `Team::run` set the body for this block and does not return before all threads did.
                    unsafe { (*body)() };
                    self.returned(linear);
                }));
                if let Err(payload) = outcome
                    && !payload.is::<Cancelled>()
                {
                    self.cancel(Fault::from_panic(payload));
                }
            }
            let (warp, bit) = (linear / 32, 1 << (linear % 32));
            if self.live[warp].get() & bit != 0 {
                self.leave(warp, bit);
            }
            yielder.suspend(());
        }
    }

    fn leave(&self, warp: usize, bit: u32) {
        self.live[warp].set(self.live[warp].get() & !bit);
        self.n_live.set(self.n_live.get() - 1);
    }

    /// Thread `linear` has returned: whoever waited for it alone goes on.
    fn returned(&self, linear: usize) {
        let (warp, bit) = (linear / 32, 1 << (linear % 32));
        self.leave(warp, bit);
        self.barrier.thread_returned(self);
        self.warps[warp].lane_returned(&self.ready[warp]);
    }

    fn cancel(&self, fault: Fault) {
        if !self.cancelled.replace(true) {
            self.fault.set(Some(fault));
        }
    }

    /// The thread's guard page.
    pub(super) fn guard(&self, linear: usize) -> Option<usize> {
        self.guards.get(linear).copied()
    }

    /// Why no thread can go on, told for the first that waits.
    fn stuck(&self, run: &Run<'_>) -> Fault {
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

/// The coroutines of one block at a time, kept from block to block.
struct Team {
    state: Box<BlockState>,
    threads: RefCell<Vec<Thread>>,
    places: Vec<Dim3>,
    order: RefCell<Vec<u16>>,
    regions: Vec<Arc<Region>>,
}

impl Team {
    fn new(run: &Run<'_>, on_shortage: OnShortage) -> Result<Self, String> {
        let n_threads = run.shape.block.count() as usize;
        let regions = stack::take(n_threads, run.options.stack_bytes, on_shortage)?;
        let stacks: Vec<_> = regions.iter().flat_map(WarpStack::all).take(n_threads).collect();
        let state = Box::new(BlockState::new(run, stacks.iter().map(WarpStack::guard).collect()));
        let address = ptr::from_ref(&*state);
        let threads = stacks.into_iter().enumerate().map(|(linear, stack)| {
            Thread::with_stack(stack, move |yielder, ()| {
                // SAFETY: the team owns the state's box and ends its coroutines before it drops it.
                unsafe { &*address }.serve(linear, yielder);
            })
        });
        let threads = RefCell::new(threads.collect());
        let places = (0..n_threads).map(|linear| index_of(run.shape.block, linear as u64)).collect();
        Ok(Self { state, threads, places, order: RefCell::default(), regions })
    }

    fn start(&self, block: &Block<'_>) {
        self.state.start();
        if self.state.check {
            let mut order = self.order.borrow_mut();
            order.clear();
            order.extend(0..self.state.n_threads as u16);
            Shuffler::new(block.worker.run.options.seed, block.linear).shuffle(&mut order);
        }
    }

    #[inline]
    fn resume(&self, threads: &mut [Thread], linear: usize) {
        CURRENT.with(|current| current.set_thread(self.places[linear]));
        threads[linear].resume(());
    }

    /// Runs every thread that can run until it waits, then asks those in `wait_until` once; whether any thread moved.
    fn pass(&self, block: &Block<'_>) -> bool {
        let state = &*self.state;
        block.enter();
        CURRENT.with(|current| current.block.set(state));
        let mut threads = self.threads.borrow_mut();
        let mut moved = false;
        if state.check {
            let mut order = self.order.borrow_mut();
            for &linear in order.iter() {
                let (warp, bit) = (usize::from(linear) / 32, 1 << (linear % 32));
                if state.ready[warp].get() & bit != 0 && !state.cancelled.get() {
                    state.ready[warp].set(state.ready[warp].get() & !bit);
                    self.resume(&mut threads, usize::from(linear));
                    moved = true;
                }
            }
            // Another order after each meeting point.
            let turn = order.first().map_or(0, |&first| u64::from(first));
            Shuffler::new(block.worker.run.options.seed ^ turn, block.linear).shuffle(&mut order);
        } else {
            for (warp, ready) in state.ready.iter().enumerate() {
                while ready.get() != 0 && !state.cancelled.get() {
                    let lane = ready.get().trailing_zeros();
                    ready.set(ready.get() & !(1 << lane));
                    self.resume(&mut threads, warp * 32 + lane as usize);
                    moved = true;
                }
            }
        }
        if moved || state.cancelled.get() {
            return moved;
        }
        state.progressed.set(false);
        for (warp, polling) in state.polling.iter().enumerate() {
            let mut lanes = polling.get();
            while lanes != 0 && !state.cancelled.get() {
                let lane = lanes.trailing_zeros();
                lanes &= lanes - 1;
                self.resume(&mut threads, warp * 32 + lane as usize);
            }
        }
        state.progressed.get()
    }

    fn done(&self) -> bool {
        self.state.n_live.get() == 0
    }

    /// Unwinds every thread that is inside the kernel.
    fn cancel(&self, block: &Block<'_>) {
        let state = &*self.state;
        block.enter();
        CURRENT.with(|current| current.block.set(state));
        state.cancelled.set(true);
        let mut threads = self.threads.borrow_mut();
        for linear in 0..threads.len() {
            if state.live[linear / 32].get() >> (linear % 32) & 1 == 1 {
                self.resume(&mut threads, linear);
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.state.quit.set(true);
        for mut thread in self.threads.borrow_mut().drain(..) {
            if thread.started() && !thread.done() {
                thread.resume(());
            }
        }
        stack::give_back(std::mem::take(&mut self.regions));
    }
}

/// The teams of one worker: one for the block that it runs and one for each that it has set aside.
#[derive(Default)]
pub(super) struct Teams {
    idle: RefCell<Vec<Team>>,
    /// The blocks under way, outermost first; each is on the stack of a `run_cooperative` that has not returned.
    under_way: RefCell<Vec<(*const Team, *const Block<'static>)>>,
}

impl Worker<'_> {
    /// Whether a further block can begin while others are set aside; never waits for stacks, which those hold.
    fn has_idle_team(&self) -> bool {
        let mut idle = self.teams.idle.borrow_mut();
        if idle.is_empty() && self.teams.under_way.borrow().len() < MAX_TEAMS {
            idle.extend(Team::new(self.run, OnShortage::Fail));
        }
        !idle.is_empty()
    }
}

impl Block<'_> {
    /// Runs a cooperative kernel's block to its end, and any blocks that it waits for.
    #[inline(never)]
    pub(super) fn run_cooperative(&self, thread: &dyn Fn()) {
        let Worker { run, teams, .. } = self.worker;
        let idle = teams.idle.borrow_mut().pop();
        let team = match idle.map_or_else(|| Team::new(run, OnShortage::Wait), Ok) {
            Ok(team) => team,
            Err(message) => {
                return run.record(self.linear, Fault::of_launch(run.info(), FaultKind::Resources, message));
            }
        };
        // SAFETY: this forgets the lifetime of `thread`; the pointer is used by this block's coroutines alone, and they
        // are all outside the kernel when this function returns.
        team.state
            .body
            .set(unsafe { std::mem::transmute::<*const (dyn Fn() + '_), *const (dyn Fn() + 'static)>(thread) });
        team.start(self);
        teams.under_way.borrow_mut().push((&raw const team, ptr::from_ref(self).cast()));
        self.drive(&team);
        teams.under_way.borrow_mut().pop();
        CURRENT.with(|current| current.block.set(ptr::null()));
        teams.idle.borrow_mut().push(team);
    }

    fn drive(&self, team: &Team) {
        let run = self.worker.run;
        let mut patience = Patience::default();
        while !team.done() {
            if run.stopped() || team.state.cancelled.get() {
                team.cancel(self);
                if let Some(fault) = team.state.fault.take() {
                    run.record(self.linear, fault);
                }
                continue;
            }
            let epoch = if patience.waits { run.grid_wait.epoch() } else { 0 };
            let moved = team.pass(self);
            if moved || team.done() || team.state.cancelled.get() {
                patience.moved(run);
                continue;
            }
            if self.pass_outer() {
                patience.moved(run);
                continue;
            }
            // Nothing of this worker's can move. Only a thread in `wait_until` can be helped by another block.
            let hopeless = team.state.polling.iter().all(|lanes| lanes.get() == 0);
            if !hopeless
                && self.worker.has_idle_team()
                && let Some(next) = run.claim_one()
            {
                self.worker.run_block(next);
                continue;
            }
            if hopeless || patience.exhausted(run, epoch) {
                self.enter();
                team.state.cancel(team.state.stuck(run));
            }
        }
    }

    /// One pass over the blocks that this worker has set aside, innermost first.
    fn pass_outer(&self) -> bool {
        let under_way = self.worker.teams.under_way.borrow().clone();
        let mut moved = false;
        for &(team, block) in under_way.iter().rev().skip(1) {
            // SAFETY: each entry points into the frame of a `run_cooperative` further up this very stack, which removes
            // it before it returns.
            let (team, block) = unsafe { (&*team, &*block) };
            moved |= !team.done() && team.pass(block);
            if team.state.cancelled.get()
                && let Some(fault) = team.state.fault.take()
            {
                self.worker.run.record(block.linear, fault);
                return true;
            }
        }
        moved
    }
}

/// How long a worker whose blocks all wait goes on asking.
#[derive(Default)]
struct Patience {
    waits: bool,
    counted: Option<u64>,
    rounds: u32,
}

impl Patience {
    fn moved(&mut self, run: &Run<'_>) {
        if self.waits {
            run.grid_wait.changed();
            *self = Self::default();
        }
    }

    /// Called after a round in which nothing moved, begun in `epoch`; whether every other worker stands still as well.
    fn exhausted(&mut self, run: &Run<'_>, epoch: u64) -> bool {
        if !self.waits {
            // What this worker did before it came to a halt may help another: all must ask once more.
            self.waits = true;
            run.grid_wait.changed();
            return false;
        }
        self.rounds += 1;
        if self.rounds < 64 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        run.grid_wait.all_halted(epoch, &mut self.counted)
    }
}

/// Finds out that all workers of a launch stand still: each has asked all its waiting threads since the last time that
/// anything moved.
#[derive(Default)]
pub(super) struct GridWait(Mutex<Halt>);

#[derive(Default)]
struct Halt {
    workers: usize,
    epoch: u64,
    halted: usize,
}

impl GridWait {
    fn lock(&self) -> std::sync::MutexGuard<'_, Halt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a worker until the guard is dropped.
    pub(super) fn join(&self) -> impl Drop + '_ {
        struct Member<'a>(&'a GridWait);
        impl Drop for Member<'_> {
            fn drop(&mut self) {
                self.0.lock().workers -= 1;
                self.0.changed();
            }
        }
        self.lock().workers += 1;
        self.changed();
        Member(self)
    }

    fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    fn changed(&self) {
        let mut halt = self.lock();
        halt.epoch += 1;
        halt.halted = 0;
    }

    fn all_halted(&self, epoch: u64, counted: &mut Option<u64>) -> bool {
        let mut halt = self.lock();
        if halt.epoch != epoch {
            return false;
        }
        if counted.replace(epoch) != Some(epoch) {
            halt.halted += 1;
        }
        halt.halted == halt.workers
    }
}

/// The cooperative block that the running thread belongs to.
///
/// Outside one this is a fault that names the operation.
#[inline]
pub(super) fn state(op: &'static str, at: &'static Location<'static>) -> &'static BlockState {
    let block = CURRENT.with(|current| current.block.get());
    if block.is_null() {
        let message = format!("{op} in a kernel that is not cooperative: declare it `#[kernel(cooperative)]`");
        raise(FaultKind::NotCooperative, Some(at), message);
    }
    // SAFETY: the scheduler sets the pointer to the state of a team that outlives the kernel's run, and the reference
    // does not leave this module's operations, which run inside the kernel.
    unsafe { &*block }
}
