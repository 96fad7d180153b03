//! The sum tree of prioritized replay (Schaul et al. 2016, appendix B.2.1).
//!
//! 2N f32 for N = 2^k slots: the priority of slot i at N + i, node j = tree\[2j\] + tree\[2j+1\], the root at 1; entry 0 is not
//! used. Priorities are >= 0, and 0 for a slot without a transition.
//!
//! **Every node is always exactly the f32 sum of its two children.** An update recomputes ancestors from the leaves up
//! instead of adding differences, so nothing drifts, and a tree after any number of updates equals, bit for bit, the tree
//! built from its leaves. f32 addition commutes, so the order in which children arrive cannot be seen.
//!
//! **Updating** takes a launch for the leaves and one for each group of levels:
//!
//! 1. [`seg_tree_update_leaves()`] (or [`seg_tree_insert()`]) puts each new priority into its leaf *with the sign bit set*, by an
//!    integer maximum. Bits of non-negative f32 are ordered as the numbers are, and any of them with the sign bit set exceeds
//!    any without: so this step's highest wins over all others of this step and over the old value, in one atomic operation.
//!    For each group of 128 leaves under which a leaf changed, the highest batch row becomes the group's owner.
//! 2. [`seg_tree_update_groups()`], a warp a batch row: the group's owner alone clears the signs and sums seven levels. For N above
//!    2^20 a second launch does the same for the 128-node groups seven levels up.
//! 3. [`seg_tree_top()`]: one block sums the last levels, at most 13.
//!
//! Work grows with the batch and with the number of launches, ceil((k - 13) / 7) + 2, not with N.
//!
//! Owners are elected by the highest (epoch, row + 1), the epoch being a device-resident count of finished updates: so the
//! previous update's owners lose without a clearing pass.

mod groups;
mod leaves;
mod sample;
#[cfg(not(target_os = "cuda"))]
mod sequence;

pub use groups::*;
pub use leaves::*;
pub use sample::*;
#[cfg(not(target_os = "cuda"))]
pub use sequence::*;

/// Levels that a warp sums: 128 nodes, four a lane.
pub const GROUP_LEVELS: u32 = 7;
/// Nodes of a group's lowest level.
pub const GROUP_NODES: usize = 1 << GROUP_LEVELS;
/// Levels that the last block sums at most.
pub const TOP_LEVELS_MAX: u32 = 13;
/// Largest capacity, as a power of two: two stages of groups and the top.
pub const LOG_CAPACITY_MAX: u32 = TOP_LEVELS_MAX + 2 * GROUP_LEVELS;

/// The shape of a tree: how its levels are divided among launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    log_capacity: u32,
}

impl TreeShape {
    /// The tree for at least `n_slots` slots: capacity is the next power of two. `None` above 2^27 slots, or for none.
    pub const fn for_slots(n_slots: usize) -> Option<Self> {
        if n_slots == 0 || n_slots > 1 << LOG_CAPACITY_MAX {
            return None;
        }
        Some(Self { log_capacity: n_slots.next_power_of_two().trailing_zeros() })
    }

    /// The shape of a tree of `n_nodes` = 2N entries.
    #[inline(always)]
    pub const fn of_nodes(n_nodes: usize) -> Self {
        Self { log_capacity: n_nodes.trailing_zeros() - 1 }
    }

    /// N, the slots.
    #[inline(always)]
    pub const fn capacity(self) -> usize {
        1 << self.log_capacity
    }

    /// 2N, the entries of the tree.
    #[inline(always)]
    pub const fn n_nodes(self) -> usize {
        2 << self.log_capacity
    }

    /// k, the levels above the leaves.
    #[inline(always)]
    pub const fn log_capacity(self) -> u32 {
        self.log_capacity
    }

    /// Stages of groups before the top.
    #[inline(always)]
    pub const fn n_group_stages(self) -> u32 {
        self.log_capacity.saturating_sub(TOP_LEVELS_MAX).div_ceil(GROUP_LEVELS)
    }

    /// Bytes of the pairs of nodes that `n` ways from the root to leaves pass, each pair once.
    pub fn bytes_of_ways(self, n: usize) -> usize {
        (0..self.log_capacity).map(|level| n.min(1 << level) * 2 * size_of::<f32>()).sum()
    }

    /// Bytes of the nodes that change in stage `stage` of an update of `n` leaves, each written once, and of the pairs that they are
    /// the sums of.
    pub fn bytes_of_stage(self, stage: u32, n: usize) -> usize {
        let lowest = self.log_capacity - GROUP_LEVELS * stage;
        (1..=GROUP_LEVELS).map(|up| n.min(1 << (lowest - up)) * 3 * size_of::<f32>()).sum()
    }

    /// Groups of stage `stage`.
    #[inline(always)]
    pub const fn n_groups(self, stage: u32) -> usize {
        self.capacity() >> (GROUP_LEVELS * (stage + 1))
    }

    /// First entry of stage `stage` in the array of owners.
    #[inline(always)]
    pub const fn owners_start(self, stage: u32) -> usize {
        let mut start = 1;
        let mut before = 0;
        while before < stage {
            start += self.n_groups(before);
            before += 1;
        }
        start
    }

    /// Entries of the array of owners: the epoch, then the groups of each stage.
    pub const fn owners_len(self) -> usize {
        self.owners_start(self.n_group_stages())
    }

    /// Nodes at the lowest level of the top.
    #[inline(always)]
    pub const fn n_top_nodes(self) -> usize {
        self.capacity() >> (GROUP_LEVELS * self.n_group_stages())
    }
}
