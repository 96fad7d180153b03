//! Child graph `adam_grad`: the gradient's norms, and which updates are applied.

use gpu_kernels::gate::{gate_step, gate_step_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape};
use shared_types::{GateParams, learner};

use super::StepParts;
use crate::agent::Learners;
use crate::market::Step;

/// A bit for each learner that updates.
fn learners_on(on: &Learners) -> u32 {
    let switches = [
        (learner::THETA, true),
        (learner::IQL_HIGH, on.iql),
        (learner::IQL_LOW, on.iql),
        (learner::SELECTIVITY, on.selectivity),
        (learner::DENOISE, on.denoise),
    ];
    switches.into_iter().fold(0, |bits, (learner, on)| bits | u32::from(on) << learner)
}

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    let norm =
        gradient_norm::launch(agent.parameters.gradient.view(), memory.ranges.view(), memory.norm_partials.view_mut());
    let params = GateParams {
        learners: learners_on(&agent.learners),
        adaptive_clip: u32::from(agent.learners.adaptive_clip),
        weight_decay: parts.config.weight_decay as f32,
        reserved: 0,
    };
    let gate = gate_step::launch(
        memory.totals.view(),
        memory.head_losses.view(),
        memory.ranges.view(),
        memory.norm_partials.view(),
        agent.scalars.view(),
        agent.bus.view(),
        agent.seeded.view(),
        agent.counters.view_mut(),
        memory.gate.view_mut(),
        memory.update.view_mut(),
        memory.flags.view_mut(),
        params,
    );
    let lanes = parts.device.row_lanes();
    vec![(gradient_norm_shape(&memory.range_list, lanes), norm), (gate_step_shape(lanes), gate)]
}
