//! Target distributions: r + gamma^n (1 - done) Z(s', a*) on the atoms.
//!
//! The mass of source atom j moves to T_j = clip(r + g z_j, z_0, z_{K-1}), g = gamma^n (1 - done), and is shared linearly by
//! the atoms on either side (Bellemare et al. 2017, equation 7, for atoms of any spacing): with l the last atom not above T_j
//! and u = (T_j - z_l) / (z_{l+1} - z_l), atom l gets the share 1 - u, atom l + 1 the share u.
//!
//! **Gathered, not scattered.** T ascends with j, so what reaches atom k comes from a run of sources, those with
//! z_{k-1} <= T_j < z_{k+1}. Each atom finds where T reaches it by bisection, c_k = #{j: T_j < z_k}, and adds up the sources
//! c_{k-1} .. c_{k+1} in their order: no atomics, the same bits on every run, and a single writer for each atom. Runs are two
//! or three sources long, but for the ends that clipped mass goes to and for terminal steps, where T is one number.
//!
//! Mass is conserved: both shares of a source are made of the same u, within 2^-24 of each other's complement. An atom that
//! lands on another has u = 0 there and is no source of the one below: all of its mass goes where it lies. No atom past the
//! last is ever named, since only atoms gather.
//!
//! A reward, discount or probability that is NaN makes the whole row NaN.

use cuda_std::prelude::*;
use shared_types::isv;
use shared_types::market::N_BRANCHES;

use super::slots::{Slots, by_lanes};
use crate::heads::{HeadColumns, N_ATOMS_MAX};
use crate::lanes;

/// Launch of [`c51_targets()`]: lanes for each branch of each of `n_rows` rows.
pub const fn c51_targets_shape(n_rows: usize, lanes: u32) -> LaunchShape {
    lanes::row_shape(n_rows * N_BRANCHES, lanes)
}

/// What a block's rows (of lanes) tell their lanes.
#[derive(Clone, Copy)]
struct Board {
    /// Probabilities of the sources, times the distribution's mass.
    weights: SharedSlice<f32>,
    /// T_j.
    moved: SharedSlice<f32>,
    /// c_k.
    reached: SharedSlice<u32>,
}

/// A row's inputs.
struct Source {
    greedy: [u8; 4],
    reward: f32,
    /// gamma^n (1 - done).
    discount: f32,
}

/// Target distribution of each branch at its own greedy action.
///
/// heads are the target net's at s'; gamma is the bus's, to the power n by repeated multiplication. Shapes: heads `[R, stride]`;
/// greedy, rewards, dones, discount_powers (n) `[R]`; bus \[64\]; atoms `[4, K]`, ascending; targets `[R, 4, K]`. Launch:
/// [`c51_targets_shape`].
#[kernel(cooperative, max_threads = 256)]
pub fn c51_targets(
    heads: GlobalSlice<f32>,
    greedy: GlobalSlice<[u8; 4]>,
    rewards: GlobalSlice<f32>,
    dones: GlobalSlice<u8>,
    discount_powers: GlobalSlice<f32>,
    bus: GlobalSlice<f32>,
    atoms: GlobalSlice<f32>,
    columns: HeadColumns,
    targets: GlobalSliceMut<f32>,
) {
    let board = Board {
        weights: shared_slice![f32; lanes::ROWS_A_BLOCK * N_ATOMS_MAX],
        moved: shared_slice![f32; lanes::ROWS_A_BLOCK * N_ATOMS_MAX],
        reached: shared_slice![u32; lanes::ROWS_A_BLOCK * N_ATOMS_MAX],
    };
    let Some(index) = lanes::row_index(greedy.len() * N_BRANCHES) else { return };
    let (row, branch) = (index / N_BRANCHES, index % N_BRANCHES);
    let gamma = bus.get(isv::GAMMA);
    let discount = if dones.get(row) == 0 { power(gamma, discount_powers.get(row) as u32) } else { 0.0 };
    let source = Source { greedy: greedy.get(row), reward: rewards.get(row), discount };
    let (n_atoms, stride) = (columns.n_atoms as usize, columns.stride as usize);
    let heads = heads.sub(row * stride..(row + 1) * stride);
    let atoms = atoms.sub(branch * n_atoms..(branch + 1) * n_atoms);
    let targets = targets.sub(index * n_atoms..(index + 1) * n_atoms);
    by_lanes!(project_branch(branch, &heads, &source, &atoms, &columns, board, &targets));
}

#[inline(always)]
fn project_branch<const LANES: usize, const SLOTS: usize>(
    branch: usize,
    heads: &GlobalSlice<f32>,
    source: &Source,
    atoms: &GlobalSlice<f32>,
    columns: &HeadColumns,
    board: Board,
    targets: &GlobalSliceMut<f32>,
) {
    let slots = Slots::<LANES, SLOTS>::new(columns.n_atoms as usize);
    let action = (u32::from_le_bytes(source.greedy) >> (8 * branch)) as u8 as usize;
    let weights = if branch == 0 {
        chosen::<LANES, SLOTS, 4>(&slots, columns, branch, action, heads)
    } else {
        chosen::<LANES, SLOTS, 3>(&slots, columns, branch, action, heads)
    };
    project(&slots, weights, source, atoms, board, targets);
}

/// exp(logits - their greatest) of one action.
#[inline(always)]
fn chosen<const LANES: usize, const SLOTS: usize, const N: usize>(
    slots: &Slots<LANES, SLOTS>,
    columns: &HeadColumns,
    branch: usize,
    action: usize,
    heads: &GlobalSlice<f32>,
) -> [f32; SLOTS] {
    let logits = slots.logits::<N>(columns, branch, |column| heads.get(column));
    let mut one = [logits[0]];
    for (other, logits) in logits.iter().enumerate().skip(1) {
        for slot in 0..SLOTS {
            one[0][slot] = if other == action { logits[slot] } else { one[0][slot] };
        }
    }
    let [weights] = slots.weights(&mut one);
    weights
}

/// Projects one distribution, given as p times its mass.
#[inline(always)]
fn project<const LANES: usize, const SLOTS: usize>(
    slots: &Slots<LANES, SLOTS>,
    weights: [f32; SLOTS],
    source: &Source,
    atoms: &GlobalSlice<f32>,
    board: Board,
    targets: &GlobalSliceMut<f32>,
) {
    let n_atoms = atoms.len();
    let [mass] = slots.sums(&[weights]);
    let place = thread::thread_idx_y() as usize * N_ATOMS_MAX;
    let part = place..place + n_atoms;
    let (sources, moved, reached) =
        (board.weights.sub(part.clone()), board.moved.sub(part.clone()), board.reached.sub(part));
    let (first, last) = (atoms.get(0), atoms.get(n_atoms - 1));
    for slot in 0..SLOTS {
        if slots.holds(slot) {
            let atom = slots.atom(slot);
            sources.set(atom, weights[slot]);
            moved.set(atom, clip(source.reward + source.discount * atoms.get(atom), first, last));
        }
    }
    // Between each lane's writes of its sources and everyone's bisection over all.
    lanes::sync_row();
    for slot in 0..SLOTS {
        if slots.holds(slot) {
            let atom = slots.atom(slot);
            reached.set(atom, n_below(&moved, atoms.get(atom)));
        }
    }
    // Between each lane's counts and its neighbours' reads.
    lanes::sync_row();
    let is_number = !(source.reward.is_nan() || source.discount.is_nan());
    let share = if is_number { 1.0 / mass } else { f32::NAN };
    for slot in 0..SLOTS {
        if slots.holds(slot) {
            let atom = slots.atom(slot);
            targets.set(atom, share * gathered(atom, atoms, &sources, &moved, &reached));
        }
    }
}

/// What reaches `atom`, in the order of the sources.
#[inline(always)]
fn gathered(
    atom: usize,
    atoms: &GlobalSlice<f32>,
    sources: &SharedSlice<f32>,
    moved: &SharedSlice<f32>,
    reached: &SharedSlice<u32>,
) -> f32 {
    let (n_atoms, z) = (atoms.len(), atoms.get(atom));
    let (mut from, mut below, mut per_below) = (0, z, 0.0);
    if atom > 0 {
        (from, below) = (reached.get(atom - 1) as usize, atoms.get(atom - 1));
        per_below = 1.0 / (z - below);
    }
    let (mut to, mut per_above) = (n_atoms, 0.0);
    if atom + 1 < n_atoms {
        to = reached.get(atom + 1) as usize;
        per_above = 1.0 / (atoms.get(atom + 1) - z);
    }
    let mut sum = 0.0;
    for source in from..to {
        let at = moved.get(source);
        // u of the interval above the atom or of the one below. Rounding may carry it past 1, and a share under 0 would be a
        // probability without a logarithm.
        let share = if at >= z { (1.0 - (at - z) * per_above).max(0.0) } else { (at - below) * per_below };
        sum += share * sources.get(source);
    }
    sum
}

/// #{j: moved_j < z} of an ascending sequence.
#[inline(always)]
fn n_below(moved: &SharedSlice<f32>, z: f32) -> u32 {
    let (mut low, mut high) = (0, moved.len());
    while low < high {
        let middle = (low + high) / 2;
        if moved.get(middle) < z {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low as u32
}

/// `x` in [`low`, `high`]; a NaN stays one.
#[inline(always)]
fn clip(x: f32, low: f32, high: f32) -> f32 {
    if x > high {
        high
    } else if x < low {
        low
    } else {
        x
    }
}

/// base^n by repeated multiplication.
#[inline(always)]
pub fn power(base: f32, n: u32) -> f32 {
    let mut product = 1.0;
    for _ in 0..n {
        product *= base;
    }
    product
}
