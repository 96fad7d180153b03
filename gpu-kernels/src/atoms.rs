//! Atoms of the return distributions, and the spacing that moves them to where returns are.
//!
//! z_k = v_min + (v_max - v_min) c_k, c = \[0, cumsum softmax(spacing)\], the last atom v_max exactly. Every so many steps
//! spacing_k -= 0.05 (mass_k - 1 / (K - 1)) with mass_k = (m_k + m_{k+1}) / 2 of the batch's plain mean target m: less room
//! where there is more than a fair share. Then centred and clipped to +-3. Atoms are fixed within an epoch; they take the
//! spacing over at its boundary.

use cuda_std::prelude::*;
use shared_types::market::N_BRANCHES;
use shared_types::{Counters, isv};

use crate::heads::N_ATOMS_MAX;
use crate::math;

/// Rate of a spacing's steps.
pub const SPACING_RATE: f32 = 0.05;
/// Bound on a spacing.
pub const SPACING_BOUND: f32 = 3.0;

/// Threads of a block of [`target_mass_partials()`]: one for each branch's atom at most.
const N_COLUMNS_MAX: usize = N_BRANCHES * N_ATOMS_MAX;
/// Rows that a block adds up, unless there are more than [`N_BLOCKS_MAX`] times as many.
const ROWS_A_BLOCK: usize = 64;
const N_BLOCKS_MAX: usize = 128;

/// Launch of [`atoms_update()`]: a block a branch.
pub const fn atoms_update_shape() -> LaunchShape {
    LaunchShape::linear(N_BRANCHES as u32, 1)
}

/// Blocks of [`target_mass_partials()`] for `n_rows` rows.
pub const fn n_mass_blocks(n_rows: usize) -> usize {
    let n = n_rows.div_ceil(ROWS_A_BLOCK);
    if n == 0 {
        1
    } else if n > N_BLOCKS_MAX {
        N_BLOCKS_MAX
    } else {
        n
    }
}

/// Launch of [`target_mass_partials()`] for `n_rows` rows: a thread for each atom of each branch.
pub const fn target_mass_partials_shape(n_rows: usize) -> LaunchShape {
    LaunchShape::linear(n_mass_blocks(n_rows) as u32, N_COLUMNS_MAX as u32)
}

/// Launch of [`atom_spacing()`]: a block a branch.
pub const fn atom_spacing_shape() -> LaunchShape {
    LaunchShape::linear(N_BRANCHES as u32, N_ATOMS_MAX as u32)
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

/// First stage of the mean target: each block's sums over its stretch of rows, row after row; nothing in a step that is not
/// due.
///
/// Shapes: targets `[B, 4, K]`; counters \[1\]; every in steps, 0 for never; partials [[`n_mass_blocks`] (B), 4, K]. Launch:
/// [`target_mass_partials_shape`].
#[kernel]
pub fn target_mass_partials(
    targets: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    every: u32,
    n_rows: u32,
    partials: GlobalSliceMut<f32>,
) {
    if !is_due(&counters.get(0), every) {
        return;
    }
    let (n_rows, block, column) = (n_rows as usize, thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let n_columns = (targets.len() as u32 / n_rows as u32) as usize;
    if column >= n_columns {
        return;
    }
    let stretch = (n_rows as u32).div_ceil(thread::grid_dim_x()) as usize;
    let end = n_rows.min((block + 1) * stretch);
    let mut sum = 0.0;
    for row in block * stretch..end {
        sum += targets.get(row * n_columns + column);
    }
    partials.set(block * n_columns + column, sum);
}

/// Second stage: moves the spacing, unless the step is gated or not due.
///
/// Shapes: partials as [`target_mass_partials()`] leaves them, B = `n_rows`; counters, gate \[1\], gate 0 for a step that is not
/// gated; spacing \[4, K - 1\]. Launch: [`atom_spacing_shape`].
#[kernel(cooperative, max_threads = 64)]
pub fn atom_spacing(
    partials: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    every: u32,
    gate: GlobalSlice<u32>,
    n_rows: u32,
    spacing: GlobalSliceMut<f32>,
) {
    let means = shared_slice![f32; N_ATOMS_MAX];
    let moved = shared_slice![f32; N_ATOMS_MAX];
    if gate.get(0) != 0 || !is_due(&counters.get(0), every) {
        return;
    }
    let (branch, k) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    let n_widths = spacing.len() / N_BRANCHES;
    let (n_atoms, n_columns) = (n_widths + 1, spacing.len() + N_BRANCHES);
    if k < n_atoms {
        let mut sum = 0.0;
        for block in 0..partials.len() as u32 / n_columns as u32 {
            let block = block as usize;
            sum += partials.get(block * n_columns + branch * n_atoms + k);
        }
        means.set(k, sum / n_rows as f32);
    }
    // Between each atom's mean and its neighbours' reads.
    thread::sync_threads();
    let at = branch * n_widths + k;
    if k < n_widths {
        let mass = 0.5 * (means.get(k) + means.get(k + 1));
        moved.set(k, spacing.get(at) - SPACING_RATE * (mass - 1.0 / n_widths as f32));
    }
    // Between each width's step and everyone's mean of all.
    thread::sync_threads();
    if k < n_widths {
        let mut sum = 0.0;
        for other in 0..n_widths {
            sum += moved.get(other);
        }
        spacing.set(at, (moved.get(k) - sum / n_widths as f32).clamp(-SPACING_BOUND, SPACING_BOUND));
    }
}

/// Whether the step that the counters stand at is one of every `every`.
#[inline(always)]
pub(crate) fn is_due(counters: &Counters, every: u32) -> bool {
    every > 0 && (counters.rng_step as u32).is_multiple_of(every)
}
