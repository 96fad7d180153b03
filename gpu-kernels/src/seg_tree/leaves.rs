//! New priorities into the leaves, and the election of each changed group's owner.

use cuda_std::prelude::*;
use half::bf16;

use super::{GROUP_LEVELS, TreeShape};
use crate::lanes::{self, N_LANES};
use crate::math;

/// Added to |td| so that no transition loses all chance (Schaul et al. 2016, section 3.3).
pub const PRIORITY_EPSILON: f32 = 1e-6;
/// Marks a leaf written in this update.
const FRESH: u32 = 1 << 31;

/// Launch of [`seg_tree_update_leaves()`] and [`seg_tree_insert()`] for `n` rows: a thread a row.
pub const fn seg_tree_leaves_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 64)
}

/// First launch of an update: p = (|td| + 1e-6)^alpha into the leaf of each row's slot, and into the maximum.
///
/// Of rows with one slot the highest p wins, also when it is under the old value. A row whose td is not finite keeps its leaf;
/// so does a row that is to be left out, whose td the caller sets to NaN. The test comes before the maximum, since the bits of
/// a NaN exceed any number's.
/// Shapes: indices, td `[n]`, indices under N; tree_bits \[2N\], the bits of the tree's f32; owners
/// [[`TreeShape::owners_len`]], zero at first; max_priority_bits \[1\], the bits of an f32 that only rises. Launch:
/// [`seg_tree_leaves_shape`].
#[kernel(cooperative)]
pub fn seg_tree_update_leaves(
    indices: GlobalSlice<u32>,
    td: GlobalSlice<bf16>,
    tree_bits: GlobalSliceMut<u32>,
    owners: GlobalSliceMut<u64>,
    max_priority_bits: GlobalSliceMut<u32>,
    alpha: f32,
) {
    let row = thread::index_1d() as usize;
    let shape = TreeShape::of_nodes(tree_bits.len());
    // 0 is no priority: those are all positive.
    let mut bits = 0;
    if row < indices.len() {
        let error = td.get(row).to_f32();
        if error.is_finite() {
            bits = priority(error, alpha, shape).to_bits();
            put(&tree_bits, &owners, shape, indices.get(row) as usize, row, bits);
        }
    }
    // One atomic a warp: of 8,192 on one address each would wait for those before it.
    let highest = lanes::largest(bits);
    if highest > 0 && row.is_multiple_of(N_LANES) {
        max_priority_bits.fetch_max(0, highest);
    }
}

/// First launch of an insertion: each row's slot gets the highest priority so far.
///
/// The maximum is of p, so alpha has been applied to it already. Shapes: indices `[n]` under N; max_priority \[1\]; the others as
/// [`seg_tree_update_leaves()`] has them. Launch: [`seg_tree_leaves_shape`].
#[kernel]
pub fn seg_tree_insert(
    indices: GlobalSlice<u32>,
    max_priority: GlobalSlice<f32>,
    tree_bits: GlobalSliceMut<u32>,
    owners: GlobalSliceMut<u64>,
) {
    let row = thread::index_1d() as usize;
    if row < indices.len() {
        let shape = TreeShape::of_nodes(tree_bits.len());
        put(&tree_bits, &owners, shape, indices.get(row) as usize, row, max_priority.get(0).to_bits());
    }
}

/// The priority of a finite TD error: (|td| + 1e-6)^alpha, at most what keeps a full tree's root finite.
#[inline]
pub fn priority(td: f32, alpha: f32, shape: TreeShape) -> f32 {
    math::pow(td.abs() + PRIORITY_EPSILON, alpha).min(f32::MAX / shape.n_nodes() as f32)
}

/// Writes a priority into its leaf and stands for owner of the groups above it.
#[inline(always)]
fn put(
    tree_bits: &GlobalSliceMut<u32>,
    owners: &GlobalSliceMut<u64>,
    shape: TreeShape,
    slot: usize,
    row: usize,
    bits: u32,
) {
    tree_bits.fetch_max(shape.capacity() + slot, bits | FRESH);
    let ballot = ballot(owners.get(0), row);
    for stage in 0..shape.n_group_stages() {
        owners.fetch_max(owner_entry(shape, stage, slot), ballot);
    }
}

/// What row `row` bids for a group in the update of epoch `epoch`.
#[inline(always)]
pub(super) const fn ballot(epoch: u64, row: usize) -> u64 {
    epoch << 32 | (row as u64 + 1)
}

/// Where the owner of the group above `slot` in stage `stage` is kept.
#[inline(always)]
pub(super) const fn owner_entry(shape: TreeShape, stage: u32, slot: usize) -> usize {
    shape.owners_start(stage) + (slot >> (GROUP_LEVELS * (stage + 1)))
}
