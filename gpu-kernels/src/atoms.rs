//! Atoms of the return distributions, and the spacing that moves them to where returns are.
//!
//! z_k = v_min + (v_max - v_min) c_k, c = \[0, cumsum softmax(spacing)\], the last atom v_max exactly. Every so many steps
//! spacing_k -= 0.05 (mass_k - 1 / (K - 1)) with mass_k = (m_k + m_{k+1}) / 2 of the batch's plain mean target m: less room
//! where there is more than a fair share. Then centred and clipped to +-3. Atoms are fixed within an epoch; they take the
//! spacing over at its boundary.

use cuda_std::prelude::*;
use shared_types::isv;
use shared_types::market::N_BRANCHES;

use crate::heads::N_ATOMS_MAX;
use crate::{lanes, math};

/// Rate of a spacing's steps.
pub const SPACING_RATE: f32 = 0.05;
/// Bound on a spacing.
pub const SPACING_BOUND: f32 = 3.0;

/// Rows of a stretch, unless there are more than [`N_STRETCHES_MAX`] times as many.
const ROWS_A_STRETCH: usize = 64;
const N_STRETCHES_MAX: usize = 128;
/// Of 16 stretches a thread for each atom.
const N_THREADS: u32 = 16 * N_ATOMS_MAX as u32;

/// Launch of [`atoms_update()`]: a block a branch.
pub const fn atoms_update_shape() -> LaunchShape {
    LaunchShape::linear(N_BRANCHES as u32, 1)
}

/// Launch of [`atom_spacing()`]: a block a branch.
pub const fn atom_spacing_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(N_BRANCHES as u32, lanes::block_threads(N_THREADS, lanes))
}

/// Stretches of `n_rows` rows.
#[inline(always)]
fn n_stretches(n_rows: usize) -> usize {
    n_rows.div_ceil(ROWS_A_STRETCH).clamp(1, N_STRETCHES_MAX)
}

/// Puts the atoms where the spacing says. Shapes: spacing \[4, K - 1\]; bus \[64\], of which it reads the atoms' bounds; atoms
/// `[4, K]`. Launch: [`atoms_update_shape`].
#[kernel]
pub fn atoms_update(spacing: GlobalSlice<f32>, bus: GlobalSlice<f32>, atoms: GlobalSliceMut<f32>) {
    let branch = thread::index_1d() as usize;
    if branch >= N_BRANCHES {
        return;
    }
    let n_widths = spacing.len() / N_BRANCHES;
    let spacing = spacing.sub(branch * n_widths..(branch + 1) * n_widths);
    let atoms = atoms.sub(branch * (n_widths + 1)..(branch + 1) * (n_widths + 1));
    let bound = |end| bus.get(isv::ATOM_BOUNDS + 2 * branch + end);
    let (v_min, v_max) = (bound(0), bound(1));
    let mut widest = f32::NEG_INFINITY;
    for k in 0..n_widths {
        widest = widest.max(spacing.get(k));
    }
    // Sums in f64: an atom is as exact as f32 holds it.
    let mut all = 0.0;
    for k in 0..n_widths {
        all += math::exp_nonpositive(spacing.get(k) - widest) as f64;
    }
    let (range, mut before) = (v_max as f64 - v_min as f64, 0.0);
    atoms.set(0, v_min);
    for k in 1..n_widths {
        before += math::exp_nonpositive(spacing.get(k - 1) - widest) as f64;
        atoms.set(k, (v_min as f64 + range * (before / all)) as f32);
    }
    atoms.set(n_widths, v_max);
}

/// Where the spacing is to move; the step's end takes it over unless the step is gated
/// ([`isv_update`](crate::isv::isv_update())).
///
/// A mean target is the sum of the sums over stretches of rows, each row after row. Shapes: targets `[B, 4, K]`; spacing,
/// proposed \[4, K - 1\]. Launch: [`atom_spacing_shape`].
#[kernel(cooperative, conditional, max_threads = 1024)]
pub fn atom_spacing(targets: GlobalSlice<f32>, spacing: GlobalSlice<f32>, proposed: GlobalSliceMut<f32>) {
    let sums = shared_slice![f32; N_STRETCHES_MAX * N_ATOMS_MAX];
    let means = shared_slice![f32; N_ATOMS_MAX];
    let moved = shared_slice![f32; N_ATOMS_MAX];
    let (branch, thread) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let n_threads = lanes::of_block(N_THREADS);
    let n_widths = spacing.len() / N_BRANCHES;
    let (n_atoms, n_columns) = (n_widths + 1, spacing.len() + N_BRANCHES);
    let n_rows = targets.len() / n_columns;
    let n_stretches = n_stretches(n_rows);
    let n_rows_each = n_rows.div_ceil(n_stretches);
    for at in (thread..n_stretches * N_ATOMS_MAX).step_by(n_threads) {
        let (stretch, k) = (at / N_ATOMS_MAX, at % N_ATOMS_MAX);
        if k < n_atoms {
            let mut sum = 0.0;
            for row in stretch * n_rows_each..n_rows.min((stretch + 1) * n_rows_each) {
                sum += targets.get(row * n_columns + branch * n_atoms + k);
            }
            sums.set(at, sum);
        }
    }
    // Between each stretch's sums and the sums of all stretches.
    thread::sync_threads();
    for k in (thread..n_atoms).step_by(n_threads) {
        let mut sum = 0.0;
        for stretch in 0..n_stretches {
            sum += sums.get(stretch * N_ATOMS_MAX + k);
        }
        means.set(k, sum / n_rows as f32);
    }
    // Between each atom's mean and its neighbours' reads.
    thread::sync_threads();
    let first = branch * n_widths;
    for k in (thread..n_widths).step_by(n_threads) {
        let mass = 0.5 * (means.get(k) + means.get(k + 1));
        moved.set(k, spacing.get(first + k) - SPACING_RATE * (mass - 1.0 / n_widths as f32));
    }
    // Between each width's step and everyone's mean of all.
    thread::sync_threads();
    for k in (thread..n_widths).step_by(n_threads) {
        let mut sum = 0.0;
        for other in 0..n_widths {
            sum += moved.get(other);
        }
        proposed.set(first + k, (moved.get(k) - sum / n_widths as f32).clamp(-SPACING_BOUND, SPACING_BOUND));
    }
}
