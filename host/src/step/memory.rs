//! What the step works on.

use bytemuck::Zeroable;
use gpu_kernels::seg_tree::{TreeMemory, TreeShape};
use half::bf16;
use shared_types::{Control, Counters, Schedule, StepScalars, isv};

use crate::device::{Buffer, Device, Pinned};
use crate::error::DeviceError;

/// The sizes that are fixed when the step is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSizes {
    /// Slots of the replay buffer, a power of two.
    pub capacity: usize,
    /// Rows of a batch.
    pub batch: usize,
    /// f32 of a state.
    pub state_dim: usize,
    /// f32 of a state in a batch, padded with zeros.
    pub state_stride: usize,
}

impl StepSizes {
    /// The preset `tiny`: 4 bars of 24 features, 15 portfolio features and a goal.
    pub const TINY: Self = Self { capacity: 1 << 12, batch: 32, state_dim: 4 * 24 + 15 + 1, state_stride: 128 };
}

/// Device memory of a step. Every buffer names its single writer.
pub struct StepMemory {
    /// The sizes.
    pub sizes: StepSizes,
    /// Constants of the run, baked into the graph.
    pub schedule: Schedule,
    /// \[1\], the host's inputs; written by the host.
    pub control: Pinned<Control>,
    /// \[1\]; written by `counters`.
    pub counters: Buffer<Counters>,
    /// \[1\]; written by `counters`.
    pub scalars: Buffer<StepScalars>,
    /// \[64\], the internal state vector; each entry has its own writer.
    pub isv: Buffer<f32>,
    /// The priorities' sum tree \[2 capacity\]; written by `per_priority`.
    pub tree: Buffer<f32>,
    /// Scratch of the tree's updates; written by `per_priority`.
    pub tree_owners: Buffer<u64>,
    /// \[1\], the highest priority so far; written by `per_priority`.
    pub max_priority: Buffer<f32>,
    /// \[capacity, state_dim\]; written by the collector.
    pub states: Buffer<f32>,
    /// \[capacity, state_dim\]; written by the collector.
    pub next_states: Buffer<f32>,
    /// \[batch\], slots of the sampled rows; written by `per_sample`.
    pub indices: Buffer<u32>,
    /// \[batch\]; written by `per_sample`.
    pub priorities: Buffer<f32>,
    /// \[batch\], importance weights in (0, 1\]; written by `per_sample`.
    pub weights: Buffer<f32>,
    /// \[batch, state_stride\]; written by `per_sample`.
    pub batch_states: Buffer<f32>,
    /// \[batch, state_stride\]; written by `per_sample`.
    pub batch_next_states: Buffer<f32>,
    /// \[batch\], TD errors.
    pub td_errors: Buffer<bf16>,
}

impl StepMemory {
    /// Takes the memory: zeros, the largest priority 1, health 1.
    ///
    /// # Panics
    /// If the capacity is no power of two that a tree can have.
    pub fn new(device: &Device, sizes: StepSizes, schedule: Schedule) -> Result<Self, DeviceError> {
        let tree = TreeShape::for_slots(sizes.capacity).expect("a capacity of 1 to 2^27");
        assert_eq!(tree.capacity(), sizes.capacity, "the capacity is a power of two");
        let mut bus = [0.0; isv::LEN];
        bus[isv::HEALTH] = 1.0;
        Ok(Self {
            sizes,
            schedule,
            control: device.pinned(1)?,
            counters: device.alloc_zeroed(1)?,
            scalars: device.upload(&[StepScalars { health_at_epoch: 1.0, ..StepScalars::zeroed() }])?,
            isv: device.upload(&bus)?,
            tree: device.alloc_zeroed(tree.n_nodes())?,
            tree_owners: device.alloc_zeroed(tree.owners_len())?,
            max_priority: device.upload(&[1.0])?,
            states: device.alloc_zeroed(sizes.capacity * sizes.state_dim)?,
            next_states: device.alloc_zeroed(sizes.capacity * sizes.state_dim)?,
            indices: device.alloc_zeroed(sizes.batch)?,
            priorities: device.alloc_zeroed(sizes.batch)?,
            weights: device.alloc_zeroed(sizes.batch)?,
            batch_states: device.alloc_zeroed(sizes.batch * sizes.state_stride)?,
            batch_next_states: device.alloc_zeroed(sizes.batch * sizes.state_stride)?,
            td_errors: device.alloc_zeroed(sizes.batch)?,
        })
    }

    /// The tree's part.
    pub fn tree_memory(&self) -> TreeMemory {
        TreeMemory {
            tree: self.tree.view().memory().clone(),
            owners: self.tree_owners.view().memory().clone(),
            max_priority: self.max_priority.view().memory().clone(),
        }
    }
}
