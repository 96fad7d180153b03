//! What the step works on, beside the agent itself.

use gpu_kernels::adamw::CHUNK;
use gpu_kernels::c51::{loss_partials_len, row_loss};
use gpu_kernels::causal::n_pass_rows;
use gpu_kernels::norm::{learner_range, n_partial_norms};
use gpu_kernels::prune;
use gpu_kernels::scan::n_scan_blocks;
use gpu_kernels::seg_tree::{TreeMemory, TreeShape};
use half::bf16;
use shared_types::market::{N_BRANCHES, N_FEATURES};
use shared_types::{
    GradientNorm, IqlTotals, LearnerRange, LossTotals, PruneTensor, Readback, SnapshotProducts, UpdateScalars,
    VaccineScalars, due, learner, nan_flags,
};

use super::chunks::chunk_bytes;
use crate::agent::layout::{Group, Layout};
use crate::agent::{Agent, Backward, Denoise, Iqn, Pass, Risk, Selectivity, ValueHeads, width};
use crate::config::{Config, Sampler};
use crate::device::{Buffer, Device, Part};
use crate::error::DeviceError;
use crate::replay::Ring;

/// Learners in the order of [`shared_types::learner`].
pub const LEARNER_GROUPS: [Group; learner::N_LEARNERS] =
    [Group::Theta, Group::Attention, Group::Iqn, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];

/// The ring of transitions with its priorities.
pub struct Replay {
    /// Columns; written by the collector.
    pub ring: Ring,
    /// The priorities' sum tree \[2 N\]; written by `per_priority` and, for new transitions, the collector.
    pub tree: Buffer<f32>,
    /// Scratch of the tree's updates.
    pub owners: Buffer<u64>,
    /// \[1\], the highest priority so far; written by `per_priority`.
    pub max_priority: Buffer<f32>,
    lanes: u32,
}

impl Replay {
    /// An empty one of `n_slots`, a power of two.
    pub fn new(device: &Device, n_slots: usize, window: usize) -> Result<Self, DeviceError> {
        let tree = TreeShape::for_slots(n_slots).expect("a capacity of 1 to 2^27");
        assert_eq!(tree.capacity(), n_slots, "the capacity is a power of two");
        Ok(Self {
            ring: Ring::new(device, n_slots, window)?,
            tree: device.alloc_zeroed(tree.n_nodes())?,
            owners: device.alloc_zeroed(tree.owners_len())?,
            max_priority: device.upload(&[1.0])?,
            lanes: device.row_lanes(),
        })
    }

    /// Forgets every transition.
    pub fn restart(&self) -> Result<(), DeviceError> {
        self.tree.zero()?;
        self.owners.zero()?;
        self.max_priority.write(&[1.0])
    }

    /// The tree's part.
    pub fn tree_memory(&self) -> TreeMemory {
        TreeMemory {
            tree: self.tree.view().memory().clone(),
            owners: self.owners.view().memory().clone(),
            max_priority: self.max_priority.view().memory().clone(),
            lanes: self.lanes,
        }
    }
}

/// A sampled batch; written by `per_sample`.
pub struct Batch {
    /// Slots of the rows, \[B\].
    pub indices: Buffer<u32>,
    /// Their priorities, \[B\].
    pub priorities: Buffer<f32>,
    /// Importance weights in (0, 1\], \[B\].
    pub weights: Buffer<f32>,
    /// s, \[B, state_stride\].
    pub states: Buffer<f32>,
    /// s', \[B, state_stride\].
    pub next_states: Buffer<f32>,
    /// Actions, \[B\].
    pub actions: Buffer<[u8; N_BRANCHES]>,
    /// r, \[B\].
    pub rewards: Buffer<f32>,
    /// \[B\].
    pub dones: Buffer<u8>,
    /// n, \[B\].
    pub discount_powers: Buffer<f32>,
    /// 1 for rows whose goal is another than when they were collected, \[B\].
    pub relabelled: Buffer<u8>,
    /// What the sampler by running sums works on, where it is chosen.
    pub scan: Option<ScanMemory>,
}

/// Memory of the sampler by running sums.
pub struct ScanMemory {
    /// Sums of blocks, then of all blocks before each.
    pub block_sums: Buffer<u64>,
    /// Running sums of the priorities, \[N\].
    pub prefix: Buffer<u64>,
    /// Slots, \[B\].
    pub indices: Buffer<i64>,
}

impl ScanMemory {
    fn new(device: &Device, config: &Config) -> Result<Self, DeviceError> {
        Ok(Self {
            block_sums: device.alloc_zeroed(n_scan_blocks(config.capacity))?,
            prefix: device.alloc_zeroed(config.capacity)?,
            indices: device.alloc_zeroed(config.batch)?,
        })
    }
}

/// Device memory of a step.
pub struct StepMemory {
    /// The batch.
    pub batch: Batch,
    /// Online pass on s'.
    pub online_next: Pass,
    /// Target pass on s'; of the online network where there is no target.
    pub target_next: Pass,
    /// Online pass on s.
    pub online: Pass,
    /// Its backward pass.
    pub backward: Backward,
    /// IQN's head on both, unless off; written by `ddqn` and `forward`.
    pub iqn: Option<Iqn>,
    /// IQL's heads on it, unless off; written by `aux`.
    pub value_heads: Option<ValueHeads>,
    /// Selectivity on it, unless off; written by `post_aux`, as the next two.
    pub selectivity: Option<Selectivity>,
    /// Denoise, unless off.
    pub denoise: Option<Denoise>,
    /// Risk, unless off.
    pub risk: Option<Risk>,
    /// Online Q of s', \[B, 13\]; written by `ddqn`.
    pub next_q: Buffer<f32>,
    /// Greedy actions on s', \[B\]; written by `ddqn`.
    pub next_actions: Buffer<[u8; N_BRANCHES]>,
    /// Target distributions, \[B, 4, K\]; written by `ddqn`.
    pub targets: Buffer<f32>,
    /// Online Q of s, \[B, 13\]; written by `forward`.
    pub q: Buffer<f32>,
    /// Losses of each row, \[B, 4\]; written by `forward`.
    pub row_losses: Buffer<f32>,
    /// Scratch of their means.
    pub loss_partials: Buffer<f64>,
    /// \[1\]; written by `forward`.
    pub totals: Buffer<LossTotals>,
    /// Own losses of the learners but theta, \[6\]; written by `aux` and `post_aux`, 0 for what is off.
    pub head_losses: Buffer<f32>,
    /// \[7\], each learner's range of the flat vectors; written once.
    pub ranges: Buffer<LearnerRange>,
    /// The same, on the host.
    pub range_list: Vec<LearnerRange>,
    /// Partial norms of all learners; written by `adam_grad`.
    pub norm_partials: Buffer<GradientNorm>,
    /// Products with the last applied gradient, the vaccine's; empty without it. Written by `adam_grad`.
    pub products: Buffer<SnapshotProducts>,
    /// \[1\], what the vaccine adds; written by `adam_grad`.
    pub vaccine: Buffer<VaccineScalars>,
    /// What pruning works on, where it is on.
    pub prune: Option<PruneMemory>,
    /// \[1\], 1 when the step is gated; written by `adam_grad`.
    pub gate: Buffer<u32>,
    /// \[7\], each learner's scalars; written by `adam_grad`.
    pub update: Buffer<UpdateScalars>,
    /// What each chunk of 64 elements is, for the sweep; written once.
    pub chunks: Buffer<u8>,
    /// \[7\], this step's faults; each stage its own, cleared by the step's last kernel.
    pub flags: Buffer<u32>,
    /// Of each kind of work in [`due`] rng_step in a step that does it, else 0; written by `counters`.
    pub due: Buffer<u32>,
    /// Where the atoms' spacing is to move, \[4, K - 1\]; empty without it. Written by `maintenance`, taken over by `adam_update`.
    pub proposed_spacing: Buffer<f32>,
    /// What the causal sensitivity works on, where it is on; written by `maintenance`.
    pub causal: Option<CausalMemory>,
    /// \[B\]; written by `iql_modulate`.
    pub td_errors: Buffer<bf16>,
    /// \[1\], on the device; its mirror is in the host's pages.
    pub readback: Buffer<Readback>,
    /// In place of what a learner that is off would give.
    pub(super) no_floats: Buffer<f32>,
    pub(super) no_totals: Buffer<IqlTotals>,
}

impl StepMemory {
    /// Takes the memory.
    pub fn new(device: &Device, config: &Config, agent: &Agent) -> Result<Self, DeviceError> {
        let (n, sizes) = (config.batch, agent.sizes());
        let (parameters, on) = (&agent.parameters, &agent.learners);
        let pass = || Pass::new(device, parameters, n, on);
        let range_list = learner_ranges(&parameters.layout);
        Ok(Self {
            batch: Batch {
                indices: device.alloc_zeroed(n)?,
                priorities: device.alloc_zeroed(n)?,
                weights: device.alloc_zeroed(n)?,
                states: device.alloc_zeroed(n * sizes.state_stride())?,
                next_states: device.alloc_zeroed(n * sizes.state_stride())?,
                actions: device.alloc_zeroed(n)?,
                rewards: device.alloc_zeroed(n)?,
                dones: device.alloc_zeroed(n)?,
                discount_powers: device.alloc_zeroed(n)?,
                relabelled: device.alloc_zeroed(n)?,
                scan: (config.per.sampler == Sampler::Scan).then(|| ScanMemory::new(device, config)).transpose()?,
            },
            online_next: pass()?,
            target_next: pass()?,
            online: pass()?,
            backward: Backward::new(device, parameters, n, on)?,
            value_heads: on.iql.then(|| ValueHeads::new(device, parameters, n)).transpose()?,
            selectivity: on.selectivity.then(|| Selectivity::new(device, config, parameters, n)).transpose()?,
            denoise: on.denoise.then(|| Denoise::new(device, config, parameters, n)).transpose()?,
            risk: on.risk.then(|| Risk::new(device, n)).transpose()?,
            iqn: on.iqn.then(|| Iqn::new(device, parameters, n, config.lambda_iqn as f32)).transpose()?,
            next_q: device.alloc_zeroed(n * width::ACTIONS)?,
            next_actions: device.alloc_zeroed(n)?,
            targets: device.alloc_zeroed(n * N_BRANCHES * sizes.atoms)?,
            q: device.alloc_zeroed(n * width::ACTIONS)?,
            row_losses: device.alloc_zeroed(n * row_loss::N)?,
            loss_partials: device.alloc_zeroed(loss_partials_len(n))?,
            totals: device.alloc_zeroed(1)?,
            head_losses: device.alloc_zeroed(learner::N_LEARNERS - 1)?,
            ranges: device.upload(&range_list)?,
            norm_partials: device.alloc_zeroed(n_partial_norms(&range_list))?,
            products: device.alloc_zeroed(if agent.learners.vaccine {
                range_list[learner::THETA].n_partials as usize
            } else {
                0
            })?,
            vaccine: device.alloc_zeroed(1)?,
            prune: config.prunes().then(|| PruneMemory::new(device, &parameters.layout)).transpose()?,
            range_list,
            gate: device.alloc_zeroed(1)?,
            update: device.alloc_zeroed(learner::N_LEARNERS)?,
            chunks: device.upload(&chunk_bytes(&parameters.layout))?,
            flags: device.alloc_zeroed(nan_flags::N_STAGES)?,
            due: device.alloc_zeroed(due::N)?,
            proposed_spacing: device.alloc_zeroed(if on.spacing { agent.spacing.len() } else { 0 })?,
            causal: agent.learners.causal.then(|| CausalMemory::new(device, config, agent)).transpose()?,
            td_errors: device.alloc_zeroed(n)?,
            readback: device.alloc_zeroed(1)?,
            no_floats: device.alloc(0)?,
            no_totals: device.alloc(0)?,
        })
    }

    /// The word of `work`, \[1\], that its launches hang on.
    pub(super) fn due_word(&self, work: usize) -> Part<'_, u32> {
        self.due.slice(work..work + 1)
    }

    /// IQN's own loss among [`head_losses`](Self::head_losses), \[1\]; \[0\] with IQN off. The first learner, theta, has none there.
    pub(super) fn iqn_loss(&self) -> Part<'_, f32> {
        self.head_losses.slice(if self.iqn.is_some() { learner::IQN - 1..learner::IQN } else { 0..0 })
    }
}

/// Memory of the causal sensitivity, R = min(256, B).
pub struct CausalMemory {
    /// Rows with and without interventions, \[25 R, state_stride\].
    pub rows: Buffer<f32>,
    /// Online pass on the rows.
    pub pass: Pass,
    /// Its Q, \[25 R, 13\].
    pub q: Buffer<f32>,
    /// Its greedy actions, \[25 R\].
    pub actions: Buffer<[u8; N_BRANCHES]>,
    /// Each feature's sensitivity when it was measured last, \[24\].
    pub sensitivity: Buffer<f32>,
    /// Their mean, \[1\]; taken over by `adam_update`.
    pub mean: Buffer<f32>,
}

impl CausalMemory {
    fn new(device: &Device, config: &Config, agent: &Agent) -> Result<Self, DeviceError> {
        let n = n_pass_rows(config.batch);
        Ok(Self {
            rows: device.alloc_zeroed(n * agent.sizes().state_stride())?,
            pass: Pass::new(device, &agent.parameters, n, &agent.learners)?,
            q: device.alloc_zeroed(n * width::ACTIONS)?,
            actions: device.alloc_zeroed(n)?,
            sensitivity: device.alloc_zeroed(N_FEATURES)?,
            mean: device.alloc_zeroed(1)?,
        })
    }
}

/// Memory of pruning.
pub struct PruneMemory {
    /// The tensor of each chunk of 64 parameters, if it is pruned; written once.
    pub chunks: Buffer<u8>,
    /// \[P\], the tensors that are pruned, with their thresholds.
    pub tensors: Buffer<PruneTensor>,
    /// Counts of weights by size, \[P, 65536\]; zeros between two renewals.
    pub bins: Buffer<u32>,
}

impl PruneMemory {
    fn new(device: &Device, layout: &Layout) -> Result<Self, DeviceError> {
        let mut chunks = vec![prune::NOT_PRUNED; layout.n_elements() / CHUNK];
        let mut tensors = Vec::new();
        for tensor in layout.tensors().iter().filter(|tensor| tensor.prunable) {
            let range = tensor.range();
            chunks[range.start / CHUNK..range.end.div_ceil(CHUNK)].fill(tensors.len() as u8);
            let (start, end) = (range.start as u32, range.end as u32);
            tensors.push(PruneTensor { start, end, ..PruneTensor::default() });
        }
        Ok(Self {
            chunks: device.upload(&chunks)?,
            bins: device.alloc_zeroed(tensors.len() * prune::N_BINS)?,
            tensors: device.upload(&tensors)?,
        })
    }
}

fn learner_ranges(layout: &Layout) -> Vec<LearnerRange> {
    let mut ranges: Vec<LearnerRange> = Vec::new();
    for group in LEARNER_GROUPS {
        let range = layout.group(group);
        ranges.push(learner_range(range.start, range.len(), ranges.last().copied()));
    }
    ranges
}
