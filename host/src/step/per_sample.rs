//! Child graph `per_sample`: a prioritized batch, its importance weights, its states in padded rows, its other columns.

use gpu_kernels::gather::{gather_f32_rows_padded, gather_f32_rows_padded_shape};
use gpu_kernels::hindsight::{goal_column, her_relabel, her_relabel_shape};
use gpu_kernels::is_weights::{per_is_weights, per_is_weights_shape};
use gpu_kernels::non_finite::{flag_non_finite, flag_non_finite_shape};
use gpu_kernels::scan::{
    i64_to_u32, scan_block_sums, scan_offsets, scan_offsets_shape, scan_prefix, scan_sample, scan_sample_shape,
    scan_shape,
};
use gpu_kernels::seg_tree::{seg_tree_sample, seg_tree_sample_shape};
use gpu_kernels::transitions::{gather_transitions, gather_transitions_shape};
use shared_types::market::N_BRANCHES;
use shared_types::nan_flags;

use super::{StepParts, seed};
use crate::device::{Buffer, Part};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, batch, lanes) = (parts.agent, &parts.memory.batch, parts.device.row_lanes());
    let weights = per_is_weights::launch(batch.priorities.view(), agent.scalars.view(), batch.weights.view_mut());
    let flag = |values: &Buffer<f32>| {
        let launch = flag_non_finite::launch(values.view(), parts.memory.flags.view_mut(), nan_flags::SAMPLE as u32);
        (flag_non_finite_shape(values.len(), lanes), launch)
    };
    let mut steps = sample(parts);
    steps.push((per_is_weights_shape(lanes), weights));
    steps.extend(gather(parts, batch.indices.all()));
    steps.extend(relabel(parts));
    steps.extend([&batch.states, &batch.next_states, &batch.rewards, &batch.weights].map(flag));
    steps
}

/// Slots and their priorities, by the sampler that the configuration names.
fn sample(parts: &StepParts<'_>) -> Vec<Step> {
    let (replay, batch, n) = (parts.replay, &parts.memory.batch, parts.config.batch);
    let (counters, seed) = (parts.agent.counters.view(), seed(parts.config));
    let Some(scan) = &batch.scan else {
        let (indices, priorities) = (batch.indices.view_mut(), batch.priorities.view_mut());
        let launch = seg_tree_sample::launch(replay.tree.view(), counters, indices, priorities, seed);
        let launch = launch.moves("tree", replay.tree_memory().shape().bytes_of_ways(n));
        return vec![(seg_tree_sample_shape(n), launch)];
    };
    let capacity = parts.config.capacity;
    let leaves = || replay.tree.slice(capacity..2 * capacity).view();
    let (max, sums, prefix) = (|| replay.max_priority.view(), &scan.block_sums, &scan.prefix);
    let (wide, drawn) = (&scan.indices, batch.priorities.view_mut());
    let draw = scan_sample::launch(leaves(), prefix.view(), counters, wide.view_mut(), drawn, seed);
    // At least what was drawn.
    let draw = draw.moves("priorities", size_of::<f32>() * n).moves("prefix", size_of::<u64>() * n);
    vec![
        (scan_shape(capacity), scan_block_sums::launch(leaves(), max(), sums.view_mut())),
        (scan_offsets_shape(), scan_offsets::launch(sums.view_mut())),
        (scan_shape(capacity), scan_prefix::launch(leaves(), max(), sums.view(), prefix.view_mut())),
        (scan_sample_shape(n), draw),
        (scan_sample_shape(n), i64_to_u32::launch(wide.view(), batch.indices.view_mut())),
    ]
}

/// Some rows get the goal that their episode reached later.
fn relabel(parts: &StepParts<'_>) -> Option<Step> {
    let (config, ring, batch) = (parts.config, &parts.replay.ring, &parts.memory.batch);
    let launch = her_relabel::launch(
        batch.indices.view(),
        ring.episode_ids.view(),
        ring.achieved.view(),
        parts.agent.counters.view(),
        parts.collector.view(),
        batch.states.view_mut(),
        batch.next_states.view_mut(),
        batch.rewards.view_mut(),
        batch.relabelled.view_mut(),
        seed(config),
        config.environments as u32,
        goal_column(config.window as usize) as u32,
        config.her.ratio as f32,
        (config.reward_scale * config.her.weight) as f32,
    );
    // A picked row finds its episode's end, takes a donor, and changes goal and reward.
    let picked = (config.her.ratio * config.batch as f64) as usize * size_of::<f32>();
    let launch = launch
        .moves("episodes", 2 * picked)
        .moves("achieved", 2 * picked)
        .moves("states", 2 * picked)
        .moves("next_states", picked)
        .moves("rewards", 2 * picked);
    config.learners.her.then_some((her_relabel_shape(config.batch), launch))
}

/// The transitions of the slots `indices`, \[B\], become the batch.
pub(super) fn gather(parts: &StepParts<'_>, indices: Part<'_, u32>) -> Vec<Step> {
    let (ring, batch, sizes) = (&parts.replay.ring, &parts.memory.batch, parts.agent.sizes());
    let (n, width, stride) = (parts.config.batch, sizes.state_dim() as u32, sizes.state_stride() as u32);
    let rows = |from: &Buffer<f32>, to: &Buffer<f32>| {
        let launch = gather_f32_rows_padded::launch(from.view(), indices.view(), to.view_mut(), width, stride);
        let launch = launch.moves("source", size_of::<f32>() * n * width as usize);
        (gather_f32_rows_padded_shape(n), launch)
    };
    let columns = gather_transitions::launch(
        indices.view(),
        ring.actions.view(),
        ring.rewards.view(),
        ring.dones.view(),
        ring.discount_powers.view(),
        batch.actions.view_mut(),
        batch.rewards.view_mut(),
        batch.dones.view_mut(),
        batch.discount_powers.view_mut(),
    );
    let columns = columns
        .moves("actions", size_of_val(&[0u8; N_BRANCHES]) * n)
        .moves("rewards", size_of::<f32>() * n)
        .moves("dones", size_of::<u8>() * n)
        .moves("discount_powers", size_of::<f32>() * n);
    vec![
        rows(&ring.states, &batch.states),
        rows(&ring.next_states, &batch.next_states),
        (gather_transitions_shape(n), columns),
    ]
}
