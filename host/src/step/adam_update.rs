//! Child graph `adam_update`: what the auxiliary learners leave besides their Adams, AdamW with the target's EMA and the operands
//! in one sweep, then the internal state vector, and what `maintenance` proposed.

use cuda_std::launch::Launch;
use gpu_kernels::adamw::{adamw, adamw_shape};
use gpu_kernels::isv::{isv_update, isv_update_shape};
use gpu_kernels::settle::{RiskParams, settle_heads, settle_heads_shape};
use shared_types::nan_flags::PRIORITY;
use shared_types::{isv, learner};

use super::adam_grad::learners_on;
use super::chunks::sweep_writes_operand;
use super::{LEARNER_GROUPS, StepParts};
use crate::agent::Learners;
use crate::agent::layout::{Group, Tensor};
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
    let sweep = with_bytes(parts, sweep);
    let averages = isv_update::launch(
        memory.totals.view(),
        memory.update.view(),
        memory.vaccine.view(),
        agent.counters.view(),
        memory.iqn_loss().view(),
        agent.iqn_averages.view_mut(),
        memory.due.view(),
        memory.causal.as_ref().map_or(&memory.no_floats, |causal| &causal.mean).view(),
        memory.proposed_spacing.view(),
        // Empty as well where nothing is proposed.
        agent.spacing.slice(0..memory.proposed_spacing.len()).view_mut(),
        agent.bus.view_mut(),
        agent.seeded.view_mut(),
        agent.skipped.view_mut(),
        averages_off(&agent.learners),
    );
    let mut steps: Vec<Step> = settle(parts).into_iter().collect();
    steps.extend([(adamw_shape(p.online.flat.len(), parts.device.row_lanes()), sweep), (isv_update_shape(), averages)]);
    steps
}

/// A bit for each average of the losses' totals whose learner is off.
fn averages_off(on: &Learners) -> u64 {
    let switches = [(isv::CQL_EMA, on.cql), (isv::Q_MEAN_EMA, on.q_statistics), (isv::Q_VAR_EMA, on.q_statistics)];
    switches.into_iter().fold(0, |bits, (entry, on)| bits | u64::from(!on) << entry)
}

/// The sweep with what it moves where nothing is gated: of the learners that are on, gradients, and parameters and moments in place.
fn with_bytes(parts: &StepParts<'_>, sweep: Launch) -> Launch {
    let (agent, layout) = (parts.agent, &parts.agent.parameters.layout);
    let on = learners_on(&agent.learners);
    let is_on = |group: Group| LEARNER_GROUPS.iter().position(|of| *of == group).is_some_and(|at| on >> at & 1 != 0);
    let tensors = || layout.tensors().iter().filter(|tensor| is_on(tensor.group));
    let elements = |of: &dyn Fn(&&Tensor) -> bool| tensors().filter(of).map(Tensor::n_elements).sum::<usize>();
    let n_target = agent.parameters.target.flat.len();
    let in_target = |tensor: &&Tensor| tensor.offset < n_target;
    let (all, target) = (size_of::<f32>() * elements(&|_| true), size_of::<f32>() * elements(&in_target));
    let operand = size_of::<u16>() * agent.parameters.precision.words();
    let shadow = operand * elements(&|tensor| sweep_writes_operand(tensor));
    let target_shadow = operand * elements(&|tensor| sweep_writes_operand(tensor) && in_target(tensor));
    sweep
        .moves("gradient", all)
        .moves("snapshot", 2 * size_of::<f32>() * agent.snapshot.len())
        .moves("params", 2 * all)
        .moves("first", 2 * all)
        .moves("second", 2 * all)
        .moves("target", 2 * target)
        .moves("shadow", shadow)
        .moves("target_shadow", target_shadow)
}

/// PopArt, and the learners' entries of the internal state vector; nothing if none is on.
fn settle(parts: &StepParts<'_>) -> Option<Step> {
    let (agent, memory, config) = (parts.agent, parts.memory, parts.config);
    let on = &agent.learners;
    if !(on.iql || on.selectivity || on.denoise || on.risk) {
        return None;
    }
    let (flat, none) = (&agent.parameters.online.flat, || memory.no_floats.view());
    let has_popart = on.iql && on.popart;
    let [high, low] = last_layers(&agent.parameters.layout).map(|range| if has_popart { range } else { 0..0 });
    let denoise_loss = memory.head_losses.slice(learner::DENOISE - 1..learner::DENOISE);
    let launch = settle_heads::launch(
        memory.gate.view(),
        memory.value_heads.as_ref().map_or(memory.no_totals.view(), |heads| heads.totals.view()),
        memory.selectivity.as_ref().map_or_else(none, |learner| learner.rate.view()),
        if on.denoise { denoise_loss.view() } else { none() },
        memory.risk.as_ref().map_or_else(none, |learner| learner.loss.view()),
        agent.popart.slice(0..usize::from(has_popart)).view_mut(),
        flat.slice(high).view_mut(),
        flat.slice(low).view_mut(),
        agent.bus.view_mut(),
        agent.seeded.view_mut(),
        RiskParams { lr: config.risk.lr as f32, target: config.risk.target as f32 },
    );
    Some((settle_heads_shape(), launch))
}
