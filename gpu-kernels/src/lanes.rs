//! Whole-warp exchanges. All 32 lanes of the warp call each of these together.

use cuda_std::prelude::*;
use cuda_std::shape::Dim3;
use cuda_std::warp::{self, WarpReductionOp, WarpShuffleValue};

/// Lanes of a warp.
pub(crate) const N_LANES: usize = 32;
const WHOLE_WARP: u32 = u32::MAX;

/// The value of the lane whose number differs by the bits of `lane_mask`.
#[inline(always)]
pub(crate) fn across<T: WarpShuffleValue>(value: T, lane_mask: u32) -> T {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_xor(WHOLE_WARP, value, lane_mask, N_LANES as u32) }.0
}

/// Combines the values of all lanes; every lane gets the result. `combine` must not depend on the order of its two values,
/// which differs from lane to lane.
#[inline(always)]
pub(crate) fn all<T: WarpShuffleValue + Copy>(mut value: T, combine: impl Fn(T, T) -> T) -> T {
    let mut distance = N_LANES as u32 / 2;
    while distance > 0 {
        value = combine(value, across(value, distance));
        distance /= 2;
    }
    value
}

/// Lanes that share a row: `block_dim_x`, which is 32 on a GPU (a constant there, so that loops over a row have a known step);
/// 32 or 1 on the CPU, where a lane is a coroutine and a row's loop is faster alone.
#[inline(always)]
pub fn of_row() -> usize {
    if cfg!(target_os = "cuda") { N_LANES } else { thread::block_dim_x() as usize }
}

/// Threads of a block: on a GPU `on_gpu`, a constant there; on the CPU that or 1, as [`block_threads`] chose.
#[inline(always)]
pub(crate) fn of_block(on_gpu: u32) -> usize {
    if cfg!(target_os = "cuda") { on_gpu as usize } else { thread::block_dim_x() as usize }
}

/// Threads of a block that works together, for a device that gives a row `lanes` lanes: `on_gpu`, or 1 thread, which does the
/// block's work alone.
pub(crate) const fn block_threads(on_gpu: u32, lanes: u32) -> u32 {
    if lanes == 1 { 1 } else { on_gpu }
}

/// The value of lane `lane`, which may differ from lane to lane.
#[inline(always)]
pub(crate) fn of_lane(value: f32, lane: usize) -> f32 {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_idx(WHOLE_WARP, value, lane as u32, N_LANES as u32) }.0
}

/// Combines the values of all lanes of a row, as `all`; every lane gets the result.
#[inline(always)]
pub fn row(value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    if of_row() == 1 { value } else { all(value, combine) }
}

/// Sum over the lanes of a row.
#[inline(always)]
pub fn row_sum(value: f32) -> f32 {
    row(value, |a, b| a + b)
}

/// Rows of a block at most.
pub const ROWS_A_BLOCK: usize = 8;

/// Orders memory among the lanes of a row.
#[inline(always)]
pub fn sync_row() {
    if of_row() != 1 {
        sync();
    }
}

/// Orders memory among the lanes of the warp.
#[inline(always)]
pub(crate) fn sync() {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::sync_warp(WHOLE_WARP) };
}

/// The value of the lane `distance` below, and whether there is one.
#[inline(always)]
pub(crate) fn below(value: f32, distance: u32) -> (f32, bool) {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_up(WHOLE_WARP, value, distance, N_LANES as u32) }
}

/// Launch of a kernel that gives each of `n_rows` rows `lanes` lanes (32 or 1): blocks of (lanes, rows).
pub const fn row_shape(n_rows: usize, lanes: u32) -> LaunchShape {
    let rows_a_block = if lanes == 1 { 1 } else { ROWS_A_BLOCK };
    let n_blocks = if n_rows == 0 { 1 } else { n_rows.div_ceil(rows_a_block) };
    LaunchShape::new(Dim3::new(n_blocks as u32, 1, 1), Dim3::new(lanes, rows_a_block as u32, 1))
}

/// The row of this thread, if its number is under `n_rows`. All lanes of a row get the same answer.
#[inline(always)]
pub fn row_index(n_rows: usize) -> Option<usize> {
    let row = thread::block_idx_x() as usize * thread::block_dim_y() as usize + thread::thread_idx_y() as usize;
    (row < n_rows).then_some(row)
}

/// The largest of the lanes' values.
#[inline(always)]
pub(crate) fn largest(value: u32) -> u32 {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_reduce(WHOLE_WARP, value, WarpReductionOp::Max) }
}

/// Sum of the values of this lane and all lanes before it, modulo 2^64.
#[inline(always)]
pub(crate) fn running_sum(mut value: u64, lane: usize) -> u64 {
    let mut distance = 1;
    while distance < N_LANES {
        // SAFETY: all lanes of the warp take part, as this module demands of its callers.
        let (before, _) = unsafe { warp::warp_shuffle_up(WHOLE_WARP, value, distance as u32, N_LANES as u32) };
        if lane >= distance {
            value = value.wrapping_add(before);
        }
        distance *= 2;
    }
    value
}

/// The value of lane `lane`, which is the same for all lanes.
#[inline(always)]
pub(crate) fn from<T: WarpShuffleValue>(value: T, lane: usize) -> T {
    // SAFETY: all lanes of the warp take part, as this module demands of its callers.
    unsafe { warp::warp_shuffle_idx(WHOLE_WARP, value, lane as u32, N_LANES as u32) }.0
}
