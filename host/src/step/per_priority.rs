//! Child graph `per_priority`: the batch's TD errors become priorities, the tree's sums follow, and the host is told.

use gpu_kernels::publish::{publish, publish_shape};

use super::{STATS_EVERY, StepParts};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, pages) = (parts.agent, parts.memory, parts.pages);
    let (indices, td_errors) = (memory.batch.indices.view(), memory.td_errors.view());
    let alpha = parts.config.per.alpha as f32;
    let mut steps = parts.replay.tree_memory().update(indices.memory(), td_errors.memory(), alpha);
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
            STATS_EVERY,
        )
    };
    steps.push((publish_shape(), publish));
    steps
}
