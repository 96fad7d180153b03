//! Risk: the mean of the worst returns.

use cuda_std::prelude::*;
use shared_types::isv;

use super::q::{ActionValues, put_actions};
use super::slots::{Distributions, Slots, by_lanes};
use crate::heads::{HeadColumns, N_ACTIONS};
use crate::lanes;

/// CVaR of every action: by it collection and evaluation rank.
///
/// CVaR_eta = (1 / eta) sum_k min(p_k, max(0, eta - F_{k-1})) z_k with F the cumulative distribution (Rockafellar and Uryasev
/// 2000): the mean of the worst share eta, for eta = 1 the mean. Shapes: heads `[R, stride]`, atoms `[4, K]`, bus \[64\], of which
/// it reads eta in (0, 1], ranks `[R, 13]`. Launch: [`lanes::row_shape`] (R, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn c51_cvar(
    heads: GlobalSlice<f32>,
    atoms: GlobalSlice<f32>,
    columns: HeadColumns,
    bus: GlobalSlice<f32>,
    ranks: GlobalSliceMut<f32>,
) {
    let Some(row) = lanes::row_index(ranks.len() / N_ACTIONS) else { return };
    let values = by_lanes!(row_cvar(row, &heads, &atoms, &columns, bus.get(isv::RISK_ETA)));
    if thread::thread_idx_x() == 0 {
        put_actions(&ranks, row, values);
    }
}

#[inline(always)]
fn row_cvar<const LANES: usize, const SLOTS: usize>(
    row: usize,
    heads: &GlobalSlice<f32>,
    atoms: &GlobalSlice<f32>,
    columns: &HeadColumns,
    eta: f32,
) -> ActionValues {
    let stride = columns.stride as usize;
    let heads = heads.sub(row * stride..(row + 1) * stride);
    let slots = Slots::<LANES, SLOTS>::new(columns.n_atoms as usize);
    let read = |column| heads.get(column);
    (
        branch_cvar(&slots, slots.distributions(atoms, columns, 0, read), eta),
        branch_cvar(&slots, slots.distributions(atoms, columns, 1, read), eta),
        branch_cvar(&slots, slots.distributions(atoms, columns, 2, read), eta),
        branch_cvar(&slots, slots.distributions(atoms, columns, 3, read), eta),
    )
}

#[inline(always)]
fn branch_cvar<const LANES: usize, const SLOTS: usize, const N: usize>(
    slots: &Slots<LANES, SLOTS>,
    of: Distributions<SLOTS, N>,
    eta: f32,
) -> [f32; N] {
    let mut terms = of.weights;
    for action in 0..N {
        for slot in 0..SLOTS {
            terms[action][slot] *= of.share[action];
        }
    }
    let (below, all) = slots.sums_below(&terms);
    for action in 0..N {
        for slot in 0..SLOTS {
            let left = (eta - below[action][slot]).max(0.0);
            terms[action][slot] = terms[action][slot].min(left) * of.z[slot];
        }
    }
    let mut cvar = slots.sums(&terms);
    for action in 0..N {
        // Minimum and maximum pass over a NaN, which must not look like a number here.
        cvar[action] = if all[action].is_nan() { f32::NAN } else { cvar[action] / eta };
    }
    cvar
}
