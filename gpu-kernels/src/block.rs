//! One block that works over a whole batch: sums of some numbers over its threads in a fixed order.
//!
//! A thread adds the rows that are [`N_THREADS`] apart, a warp its lanes by halves, then every warp the warps' sums likewise: the order
//! depends on the number of rows alone. A block of one thread adds its rows one after the other. Sums are f64.

use cuda_std::prelude::*;

use crate::lanes::{self, N_LANES};
use crate::sweep::unrolled;

/// Threads of the block on a GPU: all that it can have, since each waits for its rows one after the other.
pub(crate) const N_THREADS: u32 = 1024;
/// Its warps: elements of scratch that [`sums`] needs for each number.
pub(crate) const N_WARPS: usize = N_THREADS as usize / N_LANES;
// A lane takes a warp's sum.
const _: () = assert!(N_WARPS == N_LANES);

/// Launch of a kernel of one block.
pub(crate) const fn shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_THREADS, lanes))
}

/// Calls `work` with each of this thread's rows among `n_rows`, in order.
#[inline(always)]
pub(crate) fn for_rows(n_rows: usize, mut work: impl FnMut(usize)) {
    let mut row = thread::thread_idx_x() as usize;
    while row < n_rows {
        work(row);
        row += lanes::of_block(N_THREADS);
    }
}

/// Sums of `N` numbers, at most 8, over all threads, which all get them. `scratch` has N [`N_WARPS`] elements.
#[inline(always)]
pub(crate) fn sums<const N: usize>(values: [f64; N], scratch: &SharedSlice<f64>) -> [f64; N] {
    if lanes::of_block(N_THREADS) == 1 {
        return values;
    }
    let (warp, lane) = (thread::thread_idx_x() as usize / N_LANES, thread::thread_idx_x() as usize % N_LANES);
    unrolled::<N>(|part| {
        let sum = lanes::all(values[part], |a, b| a + b);
        if lane == 0 {
            scratch.set(part * N_WARPS + warp, sum);
        }
    });
    // Between each warp's writes and everyone's reads of all.
    thread::sync_threads();
    let mut totals = [0.0; N];
    unrolled::<N>(|part| totals[part] = lanes::all(scratch.get(part * N_WARPS + lane), |a, b| a + b));
    // Between these reads and what is next written to the scratch.
    thread::sync_threads();
    totals
}
