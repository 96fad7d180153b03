//! The CPU target: an executor that runs kernels over their grid, and a checker.
//!
//! | module | holds |
//! |---|---|
//! | `executor` | a launch over its grid: blocks in parallel, plain kernels as a loop over threads |
//! | `cooperative` | a block whose threads are coroutines, and blocks that wait for blocks |
//! | `team`, `state` | a block's coroutines and their scheduler; what its operations keep |
//! | `halt` | finds out that no block can go on |
//! | `barrier`, `warp`, `group` | where those threads meet |
//! | `shared` | shared memory |
//! | `stack`, `overflow` | the coroutines' stacks; the message when one overflows |
//! | `position` | where the running thread stands |
//! | `clock` | which of a block's accesses come before which, for the checker |
//! | `fault` | what can go wrong in a kernel, and how it is told |
//! | `access`, `shadow`, `race` | what every access through a view is checked for |

mod access;
mod barrier;
mod clock;
mod cooperative;
mod executor;
mod fault;
mod group;
mod halt;
mod order;
mod overflow;
mod position;
mod race;
mod shadow;
mod shared;
mod stack;
mod state;
mod team;
mod warp;

pub use access::{Rows, fence, on_atomic, on_read, on_read_rows, on_sub, on_write, on_write_rows};
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
