//! The CPU target: an executor that runs kernels over their grid.

use std::cell::Cell;

use crate::launch::Launch;
use crate::shape::{Dim3, LaunchShape};

/// The checker's record of an allocation.
pub struct Shadow {}

/// Where the running thread stands.
#[derive(Clone, Copy, Debug)]
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

const NOWHERE: Dim3 = Dim3::new(0, 0, 0);
thread_local! {
    static POSITION: Cell<Position> =
        const { Cell::new(Position { thread_idx: NOWHERE, block_idx: NOWHERE, block_dim: NOWHERE, grid_dim: NOWHERE }) };
}

/// Where the running thread stands.
#[inline(always)]
pub fn position() -> Position {
    POSITION.get()
}

/// Called before every load through a view.
#[inline(always)]
pub fn on_read<T>(_shadow: Option<&Shadow>, _base: *const T, len: usize, index: usize) {
    assert!(index < len);
}

/// Called before every store through a view.
#[inline(always)]
pub fn on_write<T>(_shadow: Option<&Shadow>, _base: *mut T, len: usize, index: usize) {
    assert!(index < len);
}

/// One block of a grid, as the executor hands it to a kernel.
pub struct Block<'a> {
    position: Position,
    _launch: &'a Launch,
}

impl Block<'_> {
    /// Runs `thread` once for each thread of the block.
    #[inline]
    pub fn run(&self, thread: impl Fn()) {
        let mut position = self.position;
        let dim = position.block_dim;
        for z in 0..dim.z {
            for y in 0..dim.y {
                for x in 0..dim.x {
                    position.thread_idx = Dim3::new(x, y, z);
                    POSITION.set(position);
                    thread();
                }
            }
        }
    }
}

/// Runs kernels.
pub struct Executor {}

impl Executor {
    /// Runs a launch to its end.
    pub fn run(&self, shape: LaunchShape, launch: &Launch) {
        let dim = shape.grid;
        for z in 0..dim.z {
            for y in 0..dim.y {
                for x in 0..dim.x {
                    let position = Position {
                        thread_idx: NOWHERE,
                        block_idx: Dim3::new(x, y, z),
                        block_dim: shape.block,
                        grid_dim: shape.grid,
                    };
                    launch.run_block(&Block { position, _launch: launch });
                }
            }
        }
    }
}

/// What all threads of a block said at a barrier.
#[derive(Clone, Copy, Debug)]
pub struct BarrierVote {
    /// How many said yes.
    pub count: u32,
    /// All said yes.
    pub and: bool,
    /// Any said yes.
    pub or: bool,
}

/// Identifies a place in the source that declares shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedSite {
    /// Source file.
    pub file: &'static str,
    /// Source line.
    pub line: u32,
    /// Source column.
    pub column: u32,
    /// The variable's type, which tells a generic function's variables apart.
    pub ty: &'static str,
}

/// The lane in its warp.
pub fn lane_id() -> u32 {
    let p = position();
    ((p.thread_idx.z * p.block_dim.y + p.thread_idx.y) * p.block_dim.x + p.thread_idx.x) % 32
}

/// The warp in its block.
pub fn warp_id() -> u32 {
    let p = position();
    ((p.thread_idx.z * p.block_dim.y + p.thread_idx.y) * p.block_dim.x + p.thread_idx.x) / 32
}

/// Lanes of this warp that exist and have not returned.
pub fn active_mask() -> u32 {
    unimplemented!()
}

/// Waits for the block.
pub fn barrier() {
    unimplemented!()
}

/// Waits for the block and counts.
pub fn barrier_reduce(_predicate: bool) -> BarrierVote {
    unimplemented!()
}

/// An operation of a warp.
pub fn warp_collective<T: Copy + 'static, R: Copy + 'static>(
    _op: &'static str,
    _mask: u32,
    _input: T,
    _compute: fn(&[Option<T>; 32]) -> [R; 32],
) -> R {
    unimplemented!()
}

/// An operation of several warps.
pub fn group_collective<T: Copy + 'static, R: Copy + 'static>(
    _op: &'static str,
    _n_threads: u32,
    _input: T,
    _compute: fn(&[T]) -> Vec<R>,
) -> R {
    unimplemented!()
}

/// Waits for lanes.
pub fn warp_barrier(_mask: u32) {
    unimplemented!()
}

/// Waits until `ready`.
pub fn wait_until(_what: &'static str, mut ready: impl FnMut() -> bool) {
    while !ready() {}
}

/// Shared memory of a site.
pub fn shared_static(_site: SharedSite, _bytes: usize, _align: usize) -> *mut u8 {
    unimplemented!()
}

/// Dynamic shared memory.
pub fn dynamic_shared() -> (*mut u8, usize) {
    unimplemented!()
}

/// Ends the launch.
pub fn fault(message: core::fmt::Arguments) -> ! {
    panic!("{message}")
}

/// Prints.
pub fn print(text: &str) {
    print!("{text}")
}
