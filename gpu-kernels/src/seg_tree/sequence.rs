//! The launches of an update, an insertion and a build, in order: the same for graph, tests and benchmarks.

use cuda_std::launch::{DeviceSlice, DeviceSliceMut, Launch, MemoryRange};
use cuda_std::shape::LaunchShape;
use half::bf16;

use super::*;

/// A tree's device memory.
#[derive(Clone)]
pub struct TreeMemory {
    /// 2N f32.
    pub tree: MemoryRange,
    /// [`TreeShape::owners_len`] u64, zero at first.
    pub owners: MemoryRange,
    /// One f32, 1 at first.
    pub max_priority: MemoryRange,
    /// Lanes that the device gives a row, see [`row_shape`](crate::lanes::row_shape): with 1 a thread does a block's work.
    pub lanes: u32,
}

impl TreeMemory {
    /// The shape that the tree's size gives.
    pub fn shape(&self) -> TreeShape {
        TreeShape::of_nodes(self.tree.bytes() / size_of::<f32>())
    }

    /// Sets the priorities of `indices` (u32) from TD errors (`td`, bf16, as many).
    pub fn update(&self, indices: &MemoryRange, td: &MemoryRange, alpha: f32) -> Vec<(LaunchShape, Launch)> {
        let n = elements::<u32>(indices);
        let leaves = seg_tree_update_leaves::launch(
            read(indices),
            read::<bf16>(td),
            write(&self.tree),
            write(&self.owners),
            write(&self.max_priority),
            alpha,
        );
        let shape = self.shape();
        let owners = n * shape.n_group_stages() as usize * size_of::<u64>();
        let leaves = leaves.moves("tree_bits", n * size_of::<u32>()).moves("owners", owners);
        self.sums(indices, (seg_tree_leaves_shape(n), leaves))
    }

    /// Sets the priorities of `indices` (u32) to the highest so far.
    pub fn insert(&self, indices: &MemoryRange) -> Vec<(LaunchShape, Launch)> {
        let n = elements::<u32>(indices);
        let leaves =
            seg_tree_insert::launch(read(indices), read(&self.max_priority), write(&self.tree), write(&self.owners));
        self.sums(indices, (seg_tree_leaves_shape(n), leaves))
    }

    /// Sums all nodes above leaves that were filled.
    pub fn build(&self) -> Vec<(LaunchShape, Launch)> {
        let shape = self.shape();
        let stages = (0..shape.n_group_stages()).map(|stage| {
            (seg_tree_build_shape(shape, stage, self.lanes), seg_tree_build::launch(write(&self.tree), stage))
        });
        stages.chain([self.top()]).collect()
    }

    fn sums(&self, indices: &MemoryRange, leaves: (LaunchShape, Launch)) -> Vec<(LaunchShape, Launch)> {
        let n = elements::<u32>(indices);
        let stages = (0..self.shape().n_group_stages()).map(|stage| {
            let launch = seg_tree_update_groups::launch(read(indices), read(&self.owners), write(&self.tree), stage);
            let owners = n * size_of::<u64>();
            let launch = launch.moves("owners", owners).moves("tree", self.shape().bytes_of_stage(stage, n));
            (seg_tree_update_groups_shape(n, self.lanes), launch)
        });
        [leaves].into_iter().chain(stages).chain([self.top()]).collect()
    }

    fn top(&self) -> (LaunchShape, Launch) {
        let launch = seg_tree_top::launch(write(&self.tree), write(&self.owners));
        // Each node of the top once, and the epoch up.
        let nodes = 2 * self.shape().n_top_nodes() * size_of::<f32>();
        (seg_tree_top_shape(self.lanes), launch.moves("tree", nodes).moves("owners", 2 * size_of::<u64>()))
    }
}

fn elements<T>(range: &MemoryRange) -> usize {
    range.bytes() / size_of::<T>()
}

fn read<T>(range: &MemoryRange) -> DeviceSlice<'static, T> {
    // SAFETY: `T` is `f32`, `u32` or `u64` in every call here, and any bytes are values of these.
    unsafe { DeviceSlice::new(range.clone()) }
}

fn write<T>(range: &MemoryRange) -> DeviceSliceMut<'static, T> {
    // SAFETY: `T` is `f32`, `u32` or `u64` in every call here, and any bytes are values of these.
    unsafe { DeviceSliceMut::new(range.clone()) }
}
