//! Where all threads of a block meet, and waiting for a condition.

use std::cell::Cell;
use std::panic::Location;

use super::fault::{FaultKind, Place, raise_with};
use super::position::{CURRENT, index_of};
use super::state::{BlockState, Waiting, state};

/// What [`barrier_reduce`] found over the block's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierVote {
    /// Threads whose predicate holds.
    pub count: u32,
    /// Whether it holds for all.
    pub and: bool,
    /// Whether it holds for any.
    pub or: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Reduce,
}

/// The thread that reached a barrier first.
#[derive(Clone, Copy)]
struct First {
    kind: Kind,
    at: &'static Location<'static>,
    thread: usize,
}

/// A block's barrier.
pub(super) struct BarrierState {
    waiting: Vec<Cell<u32>>,
    arrived: Cell<u32>,
    holds: Cell<u32>,
    first: Cell<Option<First>>,
    vote: Cell<BarrierVote>,
}

impl BarrierState {
    pub(super) fn new(n_warps: usize) -> Self {
        Self {
            waiting: (0..n_warps).map(|_| Cell::new(0)).collect(),
            arrived: Cell::new(0),
            holds: Cell::new(0),
            first: Cell::new(None),
            vote: Cell::default(),
        }
    }

    pub(super) fn start(&self) {
        self.waiting.iter().for_each(|lanes| lanes.set(0));
        self.arrived.set(0);
        self.holds.set(0);
        self.first.set(None);
    }

    #[inline(never)]
    fn release(&self, state: &BlockState) {
        for (waiting, ready) in self.waiting.iter().zip(&state.ready) {
            ready.set(ready.get() | waiting.replace(0));
        }
        let (holds, arrived) = (self.holds.replace(0), self.arrived.replace(0));
        self.vote.set(BarrierVote { count: holds, and: holds == arrived, or: holds > 0 });
        self.first.set(None);
        state.clocks.block_barrier();
    }

    /// As on the device, a thread that has returned is no longer waited for; the checker reports it.
    pub(super) fn thread_returned(&self, state: &BlockState) {
        if self.arrived.get() == 0 {
            return;
        }
        if let (true, Some(first)) = (state.check, self.first.get()) {
            let message = format!(
                "the thread returned while {} of the block wait at the barrier of {}:{}, the first of them thread {}",
                self.arrived.get(),
                first.at.file(),
                first.at.line(),
                name(first.thread)
            );
            raise_with(FaultKind::BarrierDivergence, None, Some(here(first.thread)), message);
        }
        if self.arrived.get() == state.n_live.get() {
            self.release(state);
        }
    }
}

fn here(thread: usize) -> Place {
    CURRENT.with(|current| Place {
        block: current.block_idx.get(),
        thread: index_of(current.block_dim.get(), thread as u64),
    })
}

fn name(thread: usize) -> String {
    let idx = here(thread).thread;
    format!("({}, {}, {})", idx.x, idx.y, idx.z)
}

/// Inlined into kernels, as [`BlockState::suspend`] is.
#[inline(always)]
fn meet(op: &'static str, kind: Kind, predicate: bool, at: &'static Location<'static>) -> BarrierVote {
    let state = state(op, at);
    let barrier = &state.barrier;
    let linear = CURRENT.with(|current| current.thread_in_block()) as usize;
    match barrier.first.get() {
        None => barrier.first.set(Some(First { kind, at, thread: linear })),
        Some(first) if first.kind != kind => diverged(op, at, first),
        Some(_) => {}
    }
    if state.check {
        check(state, op, at);
    }
    barrier.holds.set(barrier.holds.get() + u32::from(predicate));
    barrier.arrived.set(barrier.arrived.get() + 1);
    if barrier.arrived.get() == state.n_live.get() {
        barrier.release(state);
    } else {
        let waiting = &barrier.waiting[linear / 32];
        waiting.set(waiting.get() | 1 << (linear % 32));
        state.suspend(linear, Waiting::Barrier(at));
    }
    // Not overwritten before this thread has arrived again.
    barrier.vote.get()
}

/// Reports a barrier that others cannot reach, or that they do not wait at.
#[cold]
#[inline(never)]
fn check(state: &BlockState, op: &'static str, at: &'static Location<'static>) {
    if let Some(first) = state.barrier.first.get()
        && first.at != at
    {
        diverged(op, at, first);
    }
    if state.n_live.get() < state.n_threads {
        let gone = (0..state.n_threads as usize).find(|t| state.live[t / 32].get() >> (t % 32) & 1 == 0).unwrap_or(0);
        let message = format!("the thread waits at a barrier that thread {} cannot reach: it has returned", name(gone));
        raise_with(FaultKind::BarrierDivergence, Some(at), Some(here(gone)), message);
    }
}

#[cold]
#[inline(never)]
fn diverged(op: &'static str, at: &'static Location<'static>, first: First) -> ! {
    let message = format!(
        "the thread is at {op} while thread {} waits at another barrier, {}:{}",
        name(first.thread),
        first.at.file(),
        first.at.line()
    );
    raise_with(FaultKind::BarrierDivergence, Some(at), Some(here(first.thread)), message)
}

/// Waits for all threads of the block; what they wrote before is seen by all after it.
#[track_caller]
#[inline(always)]
pub fn barrier() {
    meet("a barrier", Kind::Plain, false, Location::caller());
}

/// A [`barrier`] that also counts the threads whose `predicate` holds.
#[track_caller]
#[inline(always)]
pub fn barrier_reduce(predicate: bool) -> BarrierVote {
    meet("a barrier with a vote", Kind::Reduce, predicate, Location::caller())
}

/// Waits until `ready` holds, while the block's other threads, and other blocks, go on. What the others wrote before is
/// seen after it. `what` names the condition in the report of a deadlock.
///
/// A kernel that is not cooperative can only ask once.
#[track_caller]
pub fn wait_until(what: &'static str, mut ready: impl FnMut() -> bool) {
    let at = Location::caller();
    let linear = CURRENT.with(|current| current.thread_in_block()) as usize;
    if !ready() {
        let state = state(what, at);
        let polling = &state.polling[linear / 32];
        let bit = 1 << (linear % 32);
        polling.set(polling.get() | bit);
        loop {
            state.suspend(linear, Waiting::Until { what, at });
            if ready() {
                break;
            }
        }
        polling.set(polling.get() & !bit);
        state.progressed.set(true);
    }
    super::access::acquire();
}
