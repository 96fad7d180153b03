//! The sums above the leaves.

use cuda_std::prelude::*;

use super::leaves::{ballot, owner_entry};
use super::{GROUP_LEVELS, GROUP_NODES, TreeShape};
use crate::lanes::{self, N_LANES};

const GROUP_THREADS: u32 = 128;
const TOP_THREADS: u32 = 1024;
/// Nodes a lane loads at once.
const VECTOR: usize = 4;

/// Rows, or groups, of a block of one thread.
const GROUPS_ALONE: usize = 64;

/// Launch of [`seg_tree_update_groups()`] for `n` rows: a warp a row, or 64 rows for a block of one thread.
pub const fn seg_tree_update_groups_shape(n: usize, lanes: u32) -> LaunchShape {
    groups_shape(n, lanes)
}

/// Launch of [`seg_tree_build()`] for one stage of `shape`: a warp a group, or 64 groups for a block of one thread.
pub const fn seg_tree_build_shape(shape: TreeShape, stage: u32, lanes: u32) -> LaunchShape {
    groups_shape(shape.n_groups(stage), lanes)
}

const fn groups_shape(n: usize, lanes: u32) -> LaunchShape {
    if lanes == 1 {
        LaunchShape::cover(n.div_ceil(GROUPS_ALONE), 1)
    } else {
        LaunchShape::cover(n * N_LANES, GROUP_THREADS)
    }
}

/// Launch of [`seg_tree_top()`]: one block.
pub const fn seg_tree_top_shape(lanes: u32) -> LaunchShape {
    LaunchShape::linear(1, lanes::block_threads(TOP_THREADS, lanes))
}

/// Calls `work` with each number under `n` that this warp, or this lone thread, has, and with the lane.
#[inline(always)]
fn for_groups(n: usize, work: impl Fn(usize, usize)) {
    if lanes::of_block(GROUP_THREADS) == 1 {
        let first = thread::block_idx_x() as usize * GROUPS_ALONE;
        for number in first..n.min(first + GROUPS_ALONE) {
            work(number, 0);
        }
        return;
    }
    let thread = thread::index_1d() as usize;
    if thread / N_LANES < n {
        work(thread / N_LANES, thread % N_LANES);
    }
}

/// Later launches of an update: seven levels above each group that changed, by the warp of the row that owns it.
///
/// Stage 0 starts at the leaves, stage s at the nodes 7 s levels up. Shapes: indices `[n]`; owners
/// [[`TreeShape::owners_len`]]; tree \[2N\], from a multiple of 16 bytes. Launch: [`seg_tree_update_groups_shape`], after the
/// leaves' launch or the stage before.
#[kernel(cooperative, max_threads = 128)]
pub fn seg_tree_update_groups(
    indices: GlobalSlice<u32>,
    owners: GlobalSlice<u64>,
    tree: GlobalSliceMut<f32>,
    stage: u32,
) {
    let shape = TreeShape::of_nodes(tree.len());
    for_groups(indices.len(), |row, lane| {
        let slot = indices.get(row) as usize;
        // The same for the whole warp, which so stays together.
        if owners.get(owner_entry(shape, stage, slot)) == ballot(owners.get(0), row) {
            let lowest = (shape.capacity() + slot) >> (GROUP_LEVELS * stage);
            sum_group(&tree, lowest & !(GROUP_NODES - 1), GROUP_LEVELS, lane, stage == 0);
        }
    });
}

/// Launches of a build: seven levels above every group of stage `stage`, from the leaves up, then [`seg_tree_top()`].
///
/// Shapes: tree \[2N\] with its leaves filled, from a multiple of 16 bytes. Launch: [`seg_tree_build_shape`].
#[kernel(cooperative, max_threads = 128)]
pub fn seg_tree_build(tree: GlobalSliceMut<f32>, stage: u32) {
    let shape = TreeShape::of_nodes(tree.len());
    let lowest = shape.capacity() >> (GROUP_LEVELS * stage);
    for_groups(shape.n_groups(stage), |group, lane| {
        sum_group(&tree, lowest + group * GROUP_NODES, GROUP_LEVELS, lane, stage == 0);
    });
}

/// Last launch of an update or a build: all levels above the last stage of groups, and the epoch.
///
/// Shapes: tree \[2N\], from a multiple of 16 bytes; owners [[`TreeShape::owners_len`]], whose entry 0 rises by 1. Launch:
/// [`seg_tree_top_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn seg_tree_top(tree: GlobalSliceMut<f32>, owners: GlobalSliceMut<u64>) {
    let thread = thread::thread_idx_x() as usize;
    let (warp, lane) = (thread / N_LANES, thread % N_LANES);
    let shape = TreeShape::of_nodes(tree.len());
    let leaves = shape.n_group_stages() == 0;
    let mut n_nodes = shape.n_top_nodes();
    if lanes::of_block(TOP_THREADS) == 1 {
        sum_alone(&tree, n_nodes, n_nodes.trailing_zeros(), leaves);
        owners.set(0, owners.get(0) + 1);
        return;
    }
    if n_nodes > GROUP_NODES {
        let mut first = n_nodes + warp * GROUP_NODES;
        while first < 2 * n_nodes {
            sum_group(&tree, first, GROUP_LEVELS, lane, leaves);
            first += TOP_THREADS as usize / N_LANES * GROUP_NODES;
        }
        n_nodes /= GROUP_NODES;
        // Between the warps' writes of this level and the first warp's reads of it.
        thread::sync_threads();
        if warp == 0 {
            sum_group(&tree, n_nodes, n_nodes.trailing_zeros(), lane, false);
        }
    } else if warp == 0 {
        sum_group(&tree, n_nodes, n_nodes.trailing_zeros(), lane, leaves);
    }
    if thread == 0 {
        owners.set(0, owners.get(0) + 1);
    }
}

/// Sums `n_levels` levels (at most seven) above the 2^`n_levels` nodes from `first`, a warp together. With `leaves` those nodes
/// are leaves, whose signs are marks that it clears.
#[inline(always)]
fn sum_group(tree: &GlobalSliceMut<f32>, first: usize, n_levels: u32, lane: usize, leaves: bool) {
    if n_levels < 2 {
        if lane == 0 {
            sum_few(tree, first, n_levels, leaves);
        }
        return;
    }
    if lanes::of_block(GROUP_THREADS) == 1 {
        sum_alone(tree, first, n_levels, leaves);
        return;
    }
    let n_lanes = 1 << (n_levels - 2);
    let works = lane < n_lanes;
    let at = first + VECTOR * lane;
    let mut sum = 0.0;
    if works {
        let nodes = if leaves { clean_leaves(tree, at) } else { tree.load(at) };
        let pairs = [nodes[0] + nodes[1], nodes[2] + nodes[3]];
        sum = pairs[0] + pairs[1];
        tree.store(at / 2, pairs);
        tree.set(at / 4, sum);
    }
    // One node a lane now. Each round adds the neighbour's and halves the number of lanes that hold a node of their own.
    let node = at / 4;
    let mut distance = 1;
    while distance < n_lanes {
        sum += lanes::across(sum, distance as u32);
        if works && lane & (2 * distance - 1) == 0 {
            tree.set(node / (2 * distance), sum);
        }
        distance *= 2;
    }
}

/// [`sum_group`] by one thread, of any number of levels. Sums are of two numbers each: both ways give the same bits.
#[inline(always)]
fn sum_alone(tree: &GlobalSliceMut<f32>, first: usize, n_levels: u32, leaves: bool) {
    if n_levels < 2 {
        sum_few(tree, first, n_levels, leaves);
        return;
    }
    let (mut first, mut n, mut leaves) = (first, 1usize << n_levels, leaves);
    while n >= VECTOR {
        let mut at = first;
        while at < first + n {
            let nodes = if leaves { clean_leaves(tree, at) } else { tree.load(at) };
            tree.store(at / 2, [nodes[0] + nodes[1], nodes[2] + nodes[3]]);
            at += VECTOR;
        }
        (first, n, leaves) = (first / 2, n / 2, false);
    }
    sum_few(tree, first, 1, false);
}

/// Four leaves without their marks, written back if there were any.
#[inline(always)]
fn clean_leaves(tree: &GlobalSliceMut<f32>, at: usize) -> [f32; VECTOR] {
    let leaves: [f32; VECTOR] = tree.load(at);
    let clean = leaves.map(f32::abs);
    if leaves.iter().any(|leaf| leaf.is_sign_negative()) {
        tree.store(at, clean);
    }
    clean
}

/// Trees of one slot, whose leaf is the root, and of two.
#[inline(always)]
fn sum_few(tree: &GlobalSliceMut<f32>, first: usize, n_levels: u32, leaves: bool) {
    if leaves {
        for node in first..first + (1 << n_levels) {
            tree.set(node, tree.get(node).abs());
        }
    }
    if n_levels == 1 {
        tree.set(first / 2, tree.get(first) + tree.get(first + 1));
    }
}
