//! Child graph `adam_update`: what the auxiliary learners leave besides their Adams, AdamW with the target's EMA and the operands
//! in one sweep, then the internal state vector.

use gpu_kernels::adamw::{adamw, adamw_shape};
use gpu_kernels::isv::{isv_update, isv_update_shape};
use gpu_kernels::settle::{RiskParams, settle_heads, settle_heads_shape};
use shared_types::learner;
use shared_types::nan_flags::PRIORITY;

use super::StepParts;
use crate::agent::value_heads::last_layers;
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
        // Without the last word, which `iql_modulate` may write beside this.
        memory.flags.slice(0..PRIORITY).view_mut(),
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
    let mut steps: Vec<Step> = settle(parts).into_iter().collect();
    steps.extend([(adamw_shape(p.online.flat.len(), parts.device.row_lanes()), sweep), (isv_update_shape(), isv)]);
    steps
}

/// PopArt, and the learners' entries of the internal state vector; nothing if none is on.
fn settle(parts: &StepParts<'_>) -> Option<Step> {
    let (agent, memory, config) = (parts.agent, parts.memory, parts.config);
    let on = &agent.learners;
    if !(on.iql || on.selectivity || on.denoise || on.risk) {
        return None;
    }
    let (flat, none) = (&agent.parameters.online.flat, || memory.no_floats.view());
    let [high, low] = last_layers(&agent.parameters.layout).map(|range| if on.iql { range } else { 0..0 });
    let denoise_loss = memory.head_losses.slice(learner::DENOISE - 1..learner::DENOISE);
    let launch = settle_heads::launch(
        memory.gate.view(),
        memory.value_heads.as_ref().map_or(memory.no_totals.view(), |heads| heads.totals.view()),
        memory.selectivity.as_ref().map_or_else(none, |learner| learner.rate.view()),
        if on.denoise { denoise_loss.view() } else { none() },
        memory.risk.as_ref().map_or_else(none, |learner| learner.loss.view()),
        agent.popart.view_mut(),
        flat.slice(high).view_mut(),
        flat.slice(low).view_mut(),
        agent.bus.view_mut(),
        agent.seeded.view_mut(),
        RiskParams { lr: config.risk.lr as f32, target: config.risk.target as f32 },
    );
    Some((settle_heads_shape(), launch))
}
