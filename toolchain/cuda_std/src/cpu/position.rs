//! Where the running thread stands.

use std::cell::Cell;
use std::ptr;

use super::executor::Run;
use super::state::BlockState;
use crate::shape::Dim3;

/// Where the running thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index in the block.
    pub thread_idx: Dim3,
    /// Index of the block.
    pub block_idx: Dim3,
    /// Threads in a block.
    pub block_dim: Dim3,
    /// Blocks in the grid.
    pub grid_dim: Dim3,
}

/// What an operating-system thread is running. The thread's indices stand apart from the block's, and each dimension
/// by itself, so that a plain kernel's loop stores one word a thread.
pub(super) struct Current {
    pub(super) thread_x: Cell<u32>,
    pub(super) thread_y: Cell<u32>,
    pub(super) thread_z: Cell<u32>,
    pub(super) block_idx: Cell<Dim3>,
    pub(super) block_dim: Cell<Dim3>,
    pub(super) grid_dim: Cell<Dim3>,
    /// The launch, null outside kernels.
    pub(super) run: Cell<*const Run<'static>>,
    /// The block, null outside cooperative kernels.
    pub(super) block: Cell<*const BlockState>,
    /// The last fence that a plain kernel's thread made while checking.
    pub(super) fenced: Cell<u32>,
}

const NOWHERE: Dim3 = Dim3::new(0, 0, 0);

thread_local! {
    pub(super) static CURRENT: Current = const {
        Current {
            thread_x: Cell::new(0),
            thread_y: Cell::new(0),
            thread_z: Cell::new(0),
            block_idx: Cell::new(NOWHERE),
            block_dim: Cell::new(NOWHERE),
            grid_dim: Cell::new(NOWHERE),
            run: Cell::new(ptr::null()),
            block: Cell::new(ptr::null()),
            fenced: Cell::new(0),
        }
    };
}

impl Current {
    #[inline(always)]
    pub(super) fn thread_idx(&self) -> Dim3 {
        Dim3::new(self.thread_x.get(), self.thread_y.get(), self.thread_z.get())
    }

    #[inline(always)]
    pub(super) fn set_thread(&self, idx: Dim3) {
        self.thread_x.set(idx.x);
        self.thread_y.set(idx.y);
        self.thread_z.set(idx.z);
    }

    #[inline(always)]
    pub(super) fn thread_in_block(&self) -> u32 {
        let dim = self.block_dim.get();
        self.thread_x.get() + dim.x * (self.thread_y.get() + dim.y * self.thread_z.get())
    }
}

/// Where the running thread stands; all zero outside kernels.
#[inline(always)]
pub fn position() -> Position {
    CURRENT.with(|current| Position {
        thread_idx: current.thread_idx(),
        block_idx: current.block_idx.get(),
        block_dim: current.block_dim.get(),
        grid_dim: current.grid_dim.get(),
    })
}

/// The thread's number in its block, x running fastest.
#[inline(always)]
pub fn thread_in_block() -> u32 {
    CURRENT.with(Current::thread_in_block)
}

/// The thread's number in its warp.
#[inline(always)]
pub fn lane_id() -> u32 {
    thread_in_block() % 32
}

/// The warp's number in its block.
#[inline(always)]
pub fn warp_id() -> u32 {
    thread_in_block() / 32
}

/// The index in a block of `dim` of the thread with number `linear`.
pub(super) fn index_of(dim: Dim3, linear: u64) -> Dim3 {
    let (x, y) = (u64::from(dim.x), u64::from(dim.y));
    Dim3::new((linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32)
}

/// Clears what an operating-system thread is running when it leaves the launch, also by unwinding.
pub(super) struct Entered {
    run_before: *const Run<'static>,
    block_before: *const BlockState,
}

impl Entered {
    /// Marks this operating-system thread as running `run`, until the guard is dropped.
    pub(super) fn new(run: &Run<'_>) -> Self {
        CURRENT.with(|current| Self {
            run_before: current.run.replace(ptr::from_ref(run).cast()),
            block_before: current.block.replace(ptr::null()),
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| {
            current.run.set(self.run_before);
            current.block.set(self.block_before);
            if self.run_before.is_null() {
                current.set_thread(NOWHERE);
                current.block_idx.set(NOWHERE);
                current.block_dim.set(NOWHERE);
                current.grid_dim.set(NOWHERE);
            }
        });
    }
}
