//! Child graph `adam_grad`: the temporal block's gradient, the gradient's norms, and which updates are applied.

use gpu_kernels::gate::{gate_step, gate_step_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape};
use shared_types::{GateParams, learner};

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    let norm =
        gradient_norm::launch(agent.parameters.gradient.view(), memory.ranges.view(), memory.norm_partials.view_mut());
    let params = GateParams {
        learners: 1 << learner::THETA,
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
    let temporal = memory.backward.temporal.as_ref();
    let mut steps: Vec<Step> =
        temporal.into_iter().flat_map(|block| block.launches(&memory.batch.states, &agent.parameters)).collect();
    steps.extend([(gradient_norm_shape(&memory.range_list, lanes), norm), (gate_step_shape(lanes), gate)]);
    steps
}
