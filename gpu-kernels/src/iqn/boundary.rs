//! What an epoch's boundary takes of IQN's quantiles.

use cuda_std::prelude::*;
use shared_types::isv;
use shared_types::market::N_BRANCHES;

use super::{N_QUANTILES, QUANTILE_STRIDE};
use crate::c51::highest;
use crate::heads::{N_ACTIONS, first_action};
use crate::lanes::{self, N_LANES};

/// Rows over which the interquartile range is taken at most.
pub const N_IQR_ROWS: usize = 256;
// The quartiles lie halfway between the midpoints of quantiles 1 and 2, and of 5 and 6.
const _: () = assert!(super::level(1) + super::level(2) == 0.5 && super::level(5) + super::level(6) == 1.5);

/// Launch of [`refresh_iqn_iqr()`]: one warp, or one thread on the CPU.
pub const fn refresh_iqn_iqr_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(N_LANES as u32, lanes))
}

/// Interquartile range of the quantiles, linear between midpoints, mean over the first 256 rows and their branches at the greedy
/// action (the lowest index of equal ones): entry 9 of the bus. What is no finite number is not taken over, since the entry modulates
/// the trunk.
///
/// Order: a lane adds the rows that are 32 apart, then lanes add by halves; a lane alone adds in order. Error: 14 additions and 4
/// roundings a range: 20 x 2^-24 of the largest quantile. Shapes: quantiles `[8 B, 16]` of the online net on s, row i 8 + n; q `[B, 13]`,
/// B > 0; bus \[64\]. Launch: [`refresh_iqn_iqr_shape`].
#[kernel(cooperative, max_threads = 32)]
pub fn refresh_iqn_iqr(quantiles: GlobalSlice<f32>, q: GlobalSlice<f32>, bus: GlobalSliceMut<f32>) {
    let n_rows = (q.len() / N_ACTIONS).min(N_IQR_ROWS);
    let n_lanes = lanes::of_block(N_LANES as u32);
    let mut sum = 0.0;
    let mut row = thread::thread_idx_x() as usize;
    while row < n_rows {
        let of_row = q.sub(row * N_ACTIONS..(row + 1) * N_ACTIONS);
        // One by one: actions in an array would lie in local memory.
        let range = |action: usize| range(&quantiles, row, action);
        let (direction, size) = (range(greedy::<4>(&of_row, 0)), range(greedy::<3>(&of_row, 1)));
        let (order, hold) = (range(greedy::<3>(&of_row, 2)), range(greedy::<3>(&of_row, 3)));
        sum += (direction + size) + (order + hold);
        row += n_lanes;
    }
    if n_lanes > 1 {
        sum = lanes::all(sum, |a, b| a + b);
    }
    let mean = sum / (N_BRANCHES * n_rows) as f32;
    if thread::thread_idx_x() == 0 && mean.is_finite() {
        bus.set(isv::IQN_IQR, mean);
    }
}

/// The greedy action of a branch of `N`, counted among those of all branches.
#[inline(always)]
fn greedy<const N: usize>(q: &GlobalSlice<f32>, branch: usize) -> usize {
    let first = first_action(branch);
    first + highest::<N>(core::array::from_fn(|action| q.get(first + action))) as usize
}

/// Interquartile range of one action of a row.
#[inline(always)]
fn range(quantiles: &GlobalSlice<f32>, row: usize, action: usize) -> f32 {
    let of = |n: usize| quantiles.get((row * N_QUANTILES + n) * QUANTILE_STRIDE + action);
    0.5 * ((of(5) + of(6)) - (of(1) + of(2)))
}
