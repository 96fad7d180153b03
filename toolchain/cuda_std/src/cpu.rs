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
