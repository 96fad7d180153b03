//! The coroutines of a block.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

use corosensei::Coroutine;

use super::executor::{Block, Run};
use super::order::Shuffler;
use super::position::{CURRENT, index_of};
use super::stack::{self, OnShortage, Region, WarpStack};
use super::state::BlockState;
use crate::shape::Dim3;

type Thread = Coroutine<(), (), (), WarpStack>;

/// The coroutines of one block at a time, kept from block to block.
pub(super) struct Team {
    pub(super) state: Box<BlockState>,
    threads: RefCell<Vec<Thread>>,
    places: Vec<Dim3>,
    order: RefCell<Vec<u16>>,
    regions: Vec<Arc<Region>>,
}

impl Team {
    pub(super) fn new(run: &Run<'_>, on_shortage: OnShortage) -> Result<Self, String> {
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
        let order = RefCell::new((0..n_threads as u16).collect());
        Ok(Self { state, threads, places, order, regions })
    }

    pub(super) fn start(&self, block: &Block<'_>) {
        self.state.start();
        if self.state.check {
            let mut order = self.order.borrow_mut();
            order.clear();
            order.extend(0..self.state.n_threads as u16);
            Shuffler::new(block.worker.run.options.seed, block.linear).shuffle(&mut order);
        }
    }

    /// Runs every ready thread until it waits.
    ///
    /// The one place that resumes a coroutine: so it is inlined, and the processor predicts where its return goes.
    fn run_ready(&self) {
        let state = &*self.state;
        let mut threads = self.threads.borrow_mut();
        let mut order = self.order.borrow_mut();
        let (mut warp, mut turn) = (0, 0);
        loop {
            let linear = if state.check {
                let is_ready = |&linear: &u16| state.ready[usize::from(linear) / 32].get() >> (linear % 32) & 1 == 1;
                let Some(next) = order[turn..].iter().position(is_ready) else { break };
                turn += next + 1;
                usize::from(order[turn - 1])
            } else {
                match state.ready[warp].get() {
                    0 if warp + 1 == state.ready.len() => break,
                    0 => {
                        warp += 1;
                        continue;
                    }
                    lanes => warp * 32 + lanes.trailing_zeros() as usize,
                }
            };
            let ready = &state.ready[linear / 32];
            ready.set(ready.get() & !(1 << (linear % 32)));
            CURRENT.with(|current| current.set_thread(self.places[linear]));
            threads[linear].resume(());
        }
        if state.check {
            // Another order after each meeting point, from the one before.
            let seed = order.iter().fold(0, |sum: u64, &linear| sum.wrapping_mul(31).wrapping_add(linear.into()));
            Shuffler::new(seed, 0).shuffle(&mut order);
        }
    }

    /// Runs the threads of `block` until all wait; whether any moved. Those in `wait_until` ask only if no other can run.
    pub(super) fn pass(&self, block: &Block<'_>) -> bool {
        let state = &*self.state;
        self.enter(block);
        let moved = state.ready.iter().any(|lanes| lanes.get() != 0);
        if !moved {
            state.progressed.set(false);
            state.make_ready(&state.polling);
        }
        self.run_ready();
        moved || state.progressed.get()
    }

    fn enter(&self, block: &Block<'_>) {
        block.enter();
        CURRENT.with(|current| current.block.set(&raw const *self.state));
    }

    pub(super) fn done(&self) -> bool {
        self.state.n_live.get() == 0
    }

    /// Unwinds every thread that is inside the kernel.
    pub(super) fn cancel(&self, block: &Block<'_>) {
        self.enter(block);
        self.state.cancelled.set(true);
        while !self.done() {
            self.state.make_ready(&self.state.live);
            self.run_ready();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Each coroutine is outside the kernel, started or not, and returns when it is resumed.
        self.state.quit.set(true);
        for (warp, ready) in self.state.ready.iter().enumerate() {
            ready.set(self.state.existing(warp));
        }
        while self.state.ready.iter().any(|lanes| lanes.get() != 0) {
            self.run_ready();
        }
        self.threads.borrow_mut().clear();
        stack::give_back(std::mem::take(&mut self.regions));
    }
}
