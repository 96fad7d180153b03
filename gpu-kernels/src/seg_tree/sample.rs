//! Stratified draws from the tree.

use cuda_std::prelude::*;
use shared_types::{Counters, stream};

use super::TreeShape;
use crate::philox;

/// Launch of [`seg_tree_sample()`] for a batch of `n`: a thread a draw, in small blocks so that they spread over the chip.
pub const fn seg_tree_sample_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 64)
}

/// Draws one slot from each of B strata of equal mass: u_k = (k + xi_k) root / B, then down the tree.
///
/// u is f64 all the way: in f32 a fortieth of the slots of a heavy-tailed tree of 2^20 could never be drawn. The way goes right
/// only where the right subtree's sum is > 0, so a slot of priority 0 is never returned, whatever the rounding. xi_k is element
/// k of stream `PER_SAMPLE` at this step. A tree whose root is 0 has nothing to draw: the caller does not sample it.
/// Shapes: tree \[2N\] from a multiple of 16 bytes, counters \[1\], indices and priorities \[B\]. Launch:
/// [`seg_tree_sample_shape`].
/// Source: Schaul et al. 2016, appendix B.2.1.
#[kernel]
pub fn seg_tree_sample(
    tree: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    indices: GlobalSliceMut<u32>,
    priorities: GlobalSliceMut<f32>,
    seed: [u32; 2],
) {
    let row = thread::index_1d() as usize;
    let n = indices.len();
    if row >= n {
        return;
    }
    let xi = philox::uniform(seed, stream::PER_SAMPLE, counters.get(0).rng_step as u32, row as u32);
    let shape = TreeShape::of_nodes(tree.len());
    let mut walk = Walk { node: 1, mass: stratum_point(row, xi, n, tree.get(1)), sum: tree.get(1) };
    let mut levels = shape.log_capacity();
    while levels >= 3 {
        walk.three_levels_down(tree.load(8 * walk.node), tree.load(8 * walk.node + 4));
        levels -= 3;
    }
    while levels > 0 {
        let [left, right] = tree.load(2 * walk.node);
        walk.down(left, right);
        levels -= 1;
    }
    indices.set(row, (walk.node - shape.capacity()) as u32);
    priorities.set(row, walk.sum);
}

/// The point u_k of stratum `row` of `n` over a mass `total`.
#[inline]
pub fn stratum_point(row: usize, xi: f32, n: usize, total: f32) -> f64 {
    (row as f64 + xi as f64) * (total as f64 / n as f64)
}

/// Where a draw stands on its way down.
struct Walk {
    node: usize,
    /// What is left of u inside the node.
    mass: f64,
    /// The node's sum.
    sum: f32,
}

impl Walk {
    /// Three levels down with one 32-byte sector of memory, the eight great-grandchildren: the sums between are theirs,
    /// exactly, so they need not be loaded, and the chain of dependent loads is a third as long.
    #[inline(always)]
    fn three_levels_down(&mut self, left: [f32; 4], right: [f32; 4]) {
        let (left_pairs, right_pairs) = (pair_sums(left), pair_sums(right));
        let goes_right = self.down(left_pairs[0] + left_pairs[1], right_pairs[0] + right_pairs[1]);
        let (pairs, leaves) = if goes_right { (right_pairs, right) } else { (left_pairs, left) };
        if self.down(pairs[0], pairs[1]) {
            self.down(leaves[2], leaves[3]);
        } else {
            self.down(leaves[0], leaves[1]);
        }
    }

    /// One level down, given the children's sums; whether it went right.
    #[inline(always)]
    fn down(&mut self, left: f32, right: f32) -> bool {
        let goes_right = goes_right(self.mass, left, right);
        if goes_right {
            self.mass -= left as f64;
        }
        self.sum = if goes_right { right } else { left };
        self.node = 2 * self.node + goes_right as usize;
        goes_right
    }
}

#[inline(always)]
fn pair_sums(nodes: [f32; 4]) -> [f32; 2] {
    [nodes[0] + nodes[1], nodes[2] + nodes[3]]
}

/// Whether a draw with `mass` left goes right.
#[inline]
pub fn goes_right(mass: f64, left: f32, right: f32) -> bool {
    mass >= left as f64 && right > 0.0
}
