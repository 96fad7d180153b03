//! Which of a block's accesses come before which.
//!
//! A block's clock ticks at every operation that orders threads. Each access is stamped with the time; a thread knows up
//! to when it has seen the accesses of all threads of its block (`seen`: the last block barrier), and those of each lane
//! of its warp (`lanes`: the last common warp operation).

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A block's clock and what each thread has seen; empty when nothing is checked.
pub(super) struct Clocks {
    time: Cell<u32>,
    seen: Vec<Cell<u32>>,
    lanes: Vec<[Cell<u32>; 32]>,
    /// By the launch's count of fences, the last fence that each thread comes after.
    fenced: Vec<Cell<u32>>,
}

impl Clocks {
    pub(super) fn new(n_threads: usize) -> Self {
        Self {
            time: Cell::new(1),
            seen: (0..n_threads).map(|_| Cell::new(0)).collect(),
            lanes: (0..n_threads).map(|_| [const { Cell::new(0) }; 32]).collect(),
            fenced: (0..n_threads).map(|_| Cell::new(0)).collect(),
        }
    }

    pub(super) fn start(&self) {
        self.time.set(1);
        self.seen.iter().for_each(|seen| seen.set(0));
        self.lanes.iter().flatten().for_each(|seen| seen.set(0));
        self.fenced.iter().for_each(|fenced| fenced.set(0));
    }

    /// Now.
    pub(super) fn time(&self) -> u32 {
        self.time.get()
    }

    /// Whether `thread` has seen what `other` of its block did at `time`.
    pub(super) fn has_seen(&self, thread: usize, other: usize, time: u32) -> bool {
        thread == other
            || self.seen.get(thread).is_some_and(|seen| time < seen.get())
            || (thread / 32 == other / 32 && self.lanes.get(thread).is_some_and(|lanes| time < lanes[other % 32].get()))
    }

    /// Whether `thread` has seen what all threads of its block did until `time`.
    pub(super) fn has_seen_all(&self, thread: usize, time: u32) -> bool {
        self.seen.get(thread).is_some_and(|seen| time < seen.get())
    }

    fn tick(&self) -> Option<u32> {
        (!self.seen.is_empty()).then(|| {
            self.time.set(self.time.get() + 1);
            self.time.get()
        })
    }

    /// All threads see all that was done.
    pub(super) fn block_barrier(&self) {
        if let Some(now) = self.tick() {
            self.meet(0..self.seen.len(), now);
        }
    }

    fn meet(&self, group: Range<usize>, now: u32) {
        self.seen[group.clone()].iter().for_each(|seen| seen.set(now));
        let fenced = self.fenced[group.clone()].iter().map(Cell::get).max().unwrap_or(0);
        self.fenced[group].iter().for_each(|cell| cell.set(fenced));
    }

    /// The threads of `group` see what all did: more than they must, as the group's warps are not told apart.
    pub(super) fn group_barrier(&self, group: Range<usize>) {
        if let Some(now) = self.tick() {
            self.meet(group, now);
        }
    }

    /// The lanes of `mask` see what each of them did and had seen.
    pub(super) fn warp_barrier(&self, warp: usize, mask: u32) {
        let Some(now) = self.tick() else { return };
        let members = || (0..32).filter(|lane| mask >> lane & 1 == 1).map(|lane| warp * 32 + lane);
        let (mut seen, mut fenced) = (0, 0);
        let mut lanes = [0; 32];
        for member in members() {
            seen = seen.max(self.seen[member].get());
            fenced = fenced.max(self.fenced[member].get());
            for (most, cell) in lanes.iter_mut().zip(&self.lanes[member]) {
                *most = cell.get().max(*most);
            }
        }
        members().for_each(|member| lanes[member % 32] = now);
        for member in members() {
            self.seen[member].set(seen);
            self.fenced[member].set(fenced);
            for (cell, most) in self.lanes[member].iter().zip(lanes) {
                cell.set(most);
            }
        }
    }

    /// The last fence that `thread` comes after.
    pub(super) fn fenced(&self, thread: usize) -> u32 {
        self.fenced.get(thread).map_or(0, Cell::get)
    }

    /// `thread` made fence number `number` of the launch.
    pub(super) fn fence(&self, thread: usize, number: u32) {
        if let Some(fenced) = self.fenced.get(thread) {
            fenced.set(number);
        }
    }

    /// `thread` sees all that was done: more than it must, as it is not known whom it waited for.
    pub(super) fn acquire(&self, thread: usize) {
        if let Some(now) = self.tick() {
            self.seen[thread].set(now);
        }
    }
}

/// The fences of a launch, which order accesses of different blocks: what a block did before its fence comes before what
/// a thread does after a later fence of its own. Whether the two met through an atomic in between is not looked at.
#[derive(Default)]
pub(super) struct Fences {
    count: AtomicU32,
    last: Mutex<HashMap<u32, u32>>,
}

impl Fences {
    /// How many there were.
    pub(super) fn now(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// A thread of `block` makes one; its number.
    pub(super) fn fence(&self, block: u32) -> u32 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        last.insert(block, number);
        number
    }

    /// Whether `block` made one after the first `count`.
    pub(super) fn since(&self, block: u32, count: u32) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(&block).is_some_and(|&last| last > count)
    }
}
