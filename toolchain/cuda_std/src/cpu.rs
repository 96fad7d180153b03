//! The CPU target: an executor that runs kernels over their grid, and a checker.
//!
//! | module | holds |
//! |---|---|
//! | `executor` | a launch over its grid: blocks in parallel, plain kernels as a loop over threads |
//! | `cooperative` | a block whose threads are coroutines, and its scheduler |
//! | `barrier`, `warp`, `group` | where those threads meet |
//! | `shared` | shared memory |
//! | `stack`, `overflow` | the coroutines' stacks; the message when one overflows |
//! | `position` | where the running thread stands |
//! | `clock` | which of a block's accesses come before which, for the checker |
//! | `fault` | what can go wrong in a kernel, and how it is told |
//! | `access`, `shadow` | what every access through a view is checked for |

mod access;
mod barrier;
mod clock;
mod cooperative;
mod executor;
mod fault;
mod group;
mod order;
mod overflow;
mod position;
mod shadow;
mod shared;
mod stack;
mod warp;

pub use access::{fence, on_atomic, on_read, on_sub, on_write};
pub use barrier::{BarrierVote, barrier, barrier_reduce, wait_until};
pub use executor::{Block, Executor, ExecutorOptions};
pub use fault::{Fault, FaultKind, Place, fault};
pub use group::group_collective;
pub use position::{Position, lane_id, position, thread_in_block, warp_id};
pub use shadow::Shadow;
pub use shared::{SharedSite, dynamic_part, dynamic_shared, shared_shadow, shared_static};
pub use warp::{active_mask, warp_barrier, warp_collective};

/// Prints what a kernel printed, as the device's `vprintf` does: to standard output, one call at a time.
pub fn print(text: &str) {
    print!("{text}");
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
