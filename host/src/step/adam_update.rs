//! Child graph `adam_update`: AdamW with the target's EMA and the operands in one sweep, then the internal state vector.

use gpu_kernels::adamw::{adamw, adamw_shape};
use gpu_kernels::isv::{isv_update, isv_update_shape};

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, p) = (parts.agent, parts.memory, &parts.agent.parameters);
    let sweep = adamw::launch(
        p.gradient.view(),
        memory.chunks.view(),
        memory.update.view(),
        memory.vaccine.view(),
        agent.masks.view(),
        agent.snapshot.view_mut(),
        p.online.flat.view_mut(),
        p.first_moments.view_mut(),
        p.second_moments.view_mut(),
        p.target.flat.view_mut(),
        p.online.shadow.view_mut(),
        p.target.shadow.view_mut(),
        memory.flags.view_mut(),
        p.precision,
    );
    let isv = isv_update::launch(
        memory.totals.view(),
        memory.update.view(),
        memory.vaccine.view(),
        agent.counters.view(),
        memory.iqn_loss().view(),
        agent.iqn_averages.view_mut(),
        agent.bus.view_mut(),
        agent.seeded.view_mut(),
        agent.skipped.view_mut(),
    );
    vec![(adamw_shape(p.online.flat.len(), parts.device.row_lanes()), sweep), (isv_update_shape(), isv)]
}
