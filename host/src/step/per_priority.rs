//! Child graph `per_priority`: the batch's TD errors become priorities, the tree's sums follow, and the host is told.

use gpu_kernels::publish::{publish, publish_shape};
use gpu_kernels::rescore::{mark_scored, mark_scored_shape};

use super::{STATS_EVERY, StepParts};
use crate::device::Part;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, pages) = (parts.agent, parts.memory, parts.pages);
    let mut steps = priorities(parts, memory.batch.indices.all());
    // SAFETY: each page holds one element; the host reads them by atomics and writes none but `control`'s inputs, by fields.
    let publish = unsafe {
        publish::launch(
            memory.totals.view(),
            memory.update.view(),
            agent.counters.view(),
            agent.bus.view(),
            memory.flags.view_mut(),
            memory.readback.view_mut(),
            pages.control.ptr_mut(),
            pages.counters.ptr_mut(),
            pages.isv.ptr_mut(),
            pages.readback.ptr_mut(),
            if agent.learners.q_statistics { STATS_EVERY } else { 0 },
        )
    };
    steps.push((publish_shape(), publish));
    steps
}

/// The slots `indices`, \[B\], take the priorities of the batch's TD errors.
pub(super) fn priorities(parts: &StepParts<'_>, indices: Part<'_, u32>) -> Vec<Step> {
    let (replay, td_errors) = (parts.replay, parts.memory.td_errors.view());
    let alpha = parts.config.per.alpha as f32;
    let mut steps = replay.tree_memory().update(indices.view().memory(), td_errors.memory(), alpha);
    let counters = parts.agent.counters.view();
    let mark = mark_scored::launch(indices.view(), td_errors, counters, replay.ring.last_scored.view_mut());
    let mark = mark.moves("last_scored", size_of::<u32>() * parts.config.batch);
    steps.push((mark_scored_shape(parts.config.batch), mark));
    steps
}
