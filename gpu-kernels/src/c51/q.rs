//! Mean returns and what they rank highest.

use cuda_std::prelude::*;

use super::slots::{Slots, by_lanes};
use crate::heads::{HeadColumns, N_ACTIONS, first_action};
use crate::lanes;

/// Q of every action, and the greedy action of each branch: the lowest index of equal ones, and never a NaN beside a number.
///
/// Shapes: heads `[R, stride]`, atoms `[4, K]`, q `[R, 13]`, greedy `[R]`. Launch: [`lanes::row_shape`] (R, lanes).
#[kernel(cooperative, conditional, max_threads = 256)]
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
        put_actions(&q, row, values);
        greedy.set(row, greedy_actions(values));
    }
}

#[inline(always)]
fn row_q<const LANES: usize, const SLOTS: usize>(
    row: usize,
    heads: &GlobalSlice<f32>,
    atoms: &GlobalSlice<f32>,
    columns: &HeadColumns,
) -> ActionValues {
    let stride = columns.stride as usize;
    let heads = heads.sub(row * stride..(row + 1) * stride);
    let slots = Slots::<LANES, SLOTS>::new(columns.n_atoms as usize);
    let read = |column| heads.get(column);
    (
        slots.distributions(atoms, columns, 0, read).q,
        slots.distributions(atoms, columns, 1, read).q,
        slots.distributions(atoms, columns, 2, read).q,
        slots.distributions(atoms, columns, 3, read).q,
    )
}

/// A value for each action, branch by branch: apart, so that no array is indexed at run time, which would put it into local
/// memory.
pub type ActionValues = ([f32; 4], [f32; 3], [f32; 3], [f32; 3]);

/// Writes row `row` of `[R, 13]`.
#[inline(always)]
pub(super) fn put_actions(to: &GlobalSliceMut<f32>, row: usize, (direction, size, order, hold): ActionValues) {
    let row = to.sub(row * N_ACTIONS..(row + 1) * N_ACTIONS);
    put(&row, 0, direction);
    put(&row, first_action(1), size);
    put(&row, first_action(2), order);
    put(&row, first_action(3), hold);
}

#[inline(always)]
fn put<const N: usize>(row: &GlobalSliceMut<f32>, first: usize, values: [f32; N]) {
    for action in 0..N {
        row.set(first + action, values[action]);
    }
}

/// The action of each branch that the values rank highest, see [`highest`].
#[inline(always)]
pub fn greedy_actions((direction, size, order, hold): ActionValues) -> [u8; 4] {
    [highest(direction), highest(size), highest(order), highest(hold)]
}

/// The lowest index of the greatest number; 0 if none is a number.
#[inline(always)]
pub fn highest<const N: usize>(values: [f32; N]) -> u8 {
    let (mut index, mut greatest) = (0, values[0]);
    for other in 1..N {
        let value = values[other];
        if value > greatest || (greatest.is_nan() && !value.is_nan()) {
            (index, greatest) = (other, value);
        }
    }
    index as u8
}
