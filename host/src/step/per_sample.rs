//! Child graph `per_sample`: a prioritized batch, its importance weights, its states in padded rows, its other columns.

use gpu_kernels::gather::{gather_f32_rows_padded, gather_f32_rows_padded_shape};
use gpu_kernels::is_weights::{per_is_weights, per_is_weights_shape};
use gpu_kernels::non_finite::{flag_non_finite, flag_non_finite_shape};
use gpu_kernels::seg_tree::{seg_tree_sample, seg_tree_sample_shape};
use gpu_kernels::transitions::{gather_transitions, gather_transitions_shape};
use shared_types::nan_flags;

use super::{StepParts, seed};
use crate::device::{Buffer, Part};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, replay, batch) = (parts.agent, parts.replay, &parts.memory.batch);
    let (n, lanes) = (parts.config.batch, parts.device.row_lanes());
    let sample = seg_tree_sample::launch(
        replay.tree.view(),
        agent.counters.view(),
        batch.indices.view_mut(),
        batch.priorities.view_mut(),
        seed(parts.config),
    );
    let weights = per_is_weights::launch(batch.priorities.view(), agent.scalars.view(), batch.weights.view_mut());
    let flag = |values: &Buffer<f32>| {
        let launch = flag_non_finite::launch(values.view(), parts.memory.flags.view_mut(), nan_flags::SAMPLE as u32);
        (flag_non_finite_shape(values.len(), lanes), launch)
    };
    let mut steps = vec![(seg_tree_sample_shape(n), sample), (per_is_weights_shape(lanes), weights)];
    steps.extend(gather(parts, batch.indices.all()));
    steps.extend([&batch.states, &batch.next_states, &batch.rewards, &batch.weights].map(flag));
    steps
}

/// The transitions of the slots `indices`, \[B\], become the batch.
pub(super) fn gather(parts: &StepParts<'_>, indices: Part<'_, u32>) -> Vec<Step> {
    let (ring, batch, sizes) = (&parts.replay.ring, &parts.memory.batch, parts.agent.sizes());
    let (n, width, stride) = (parts.config.batch, sizes.state_dim() as u32, sizes.state_stride() as u32);
    let rows = |from: &Buffer<f32>, to: &Buffer<f32>| {
        let launch = gather_f32_rows_padded::launch(from.view(), indices.view(), to.view_mut(), width, stride);
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
    vec![
        rows(&ring.states, &batch.states),
        rows(&ring.next_states, &batch.next_states),
        (gather_transitions_shape(n), columns),
    ]
}
