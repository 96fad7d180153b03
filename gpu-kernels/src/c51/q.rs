//! Mean returns and what they rank highest.

use cuda_std::prelude::*;
use shared_types::market::BRANCH_SIZES;

use super::slots::{Slots, by_lanes};
use crate::heads::{HeadColumns, N_ACTIONS, first_action};
use crate::lanes;

/// Q of every action, and the greedy action of each branch: the lowest index of equal ones, and never a NaN beside a number.
///
/// Shapes: heads `[R, stride]`, atoms `[4, K]`, q `[R, 13]`, greedy `[R]`. Launch: [`lanes::row_shape`] (R, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn c51_q(
    heads: GlobalSlice<f32>,
    atoms: GlobalSlice<f32>,
    columns: HeadColumns,
    q: GlobalSliceMut<f32>,
    greedy: GlobalSliceMut<[u8; 4]>,
) {
    let Some(row) = lanes::row_index(greedy.len()) else { return };
    let values = by_lanes!(row_q(row, &heads, &atoms, &columns));
    if thread::thread_idx_x() == 0 {
        put_actions(&q, row, &values);
        greedy.set(row, greedy_actions(&values));
    }
}

#[inline(always)]
fn row_q<const LANES: usize, const SLOTS: usize>(
    row: usize,
    heads: &GlobalSlice<f32>,
    atoms: &GlobalSlice<f32>,
    columns: &HeadColumns,
) -> [f32; N_ACTIONS] {
    let stride = columns.stride as usize;
    let heads = heads.sub(row * stride..(row + 1) * stride);
    let slots = Slots::<LANES, SLOTS>::new(columns.n_atoms as usize);
    let read = |column| heads.get(column);
    let mut q = [0.0; N_ACTIONS];
    put_branch(&mut q, 0, slots.distributions::<4>(atoms, columns, 0, read).q);
    put_branch(&mut q, 1, slots.distributions::<3>(atoms, columns, 1, read).q);
    put_branch(&mut q, 2, slots.distributions::<3>(atoms, columns, 2, read).q);
    put_branch(&mut q, 3, slots.distributions::<3>(atoms, columns, 3, read).q);
    q
}

/// Puts a branch's values to their places among all.
#[inline(always)]
pub(super) fn put_branch<const N: usize>(all: &mut [f32; N_ACTIONS], branch: usize, values: [f32; N]) {
    for (action, value) in values.into_iter().enumerate() {
        all[first_action(branch) + action] = value;
    }
}

/// Writes row `row` of `[R, 13]`.
#[inline(always)]
pub(super) fn put_actions(to: &GlobalSliceMut<f32>, row: usize, values: &[f32; N_ACTIONS]) {
    for (action, value) in values.iter().enumerate() {
        to.set(row * N_ACTIONS + action, *value);
    }
}

/// The action of each branch that the values rank highest, see [`highest`].
#[inline(always)]
pub fn greedy_actions(values: &[f32; N_ACTIONS]) -> [u8; 4] {
    let mut actions = [0; 4];
    let mut first = 0;
    for (branch, action) in actions.iter_mut().enumerate() {
        *action = highest(&values[first..first + BRANCH_SIZES[branch]]);
        first += BRANCH_SIZES[branch];
    }
    actions
}

/// The lowest index of the greatest number; 0 if none is a number.
#[inline(always)]
pub fn highest(values: &[f32]) -> u8 {
    let (mut index, mut greatest) = (0, values[0]);
    for (other, value) in values.iter().enumerate().skip(1) {
        if *value > greatest || (greatest.is_nan() && !value.is_nan()) {
            (index, greatest) = (other, *value);
        }
    }
    index as u8
}
