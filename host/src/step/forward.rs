//! Child graph `forward`: the online pass on s, its loss, IQN down to the trunk, and the one backward pass.

use gpu_kernels::c51::{c51_loss, loss_partials, loss_partials_shape, loss_totals, loss_totals_shape};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::non_finite::{flag_non_finite, flag_non_finite_shape};
use shared_types::{StepScalars, nan_flags};

use super::StepParts;
use crate::agent::Iqn;
use crate::agent::iqn::Transitions;
use crate::device::Buffer;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, batch) = (parts.agent, parts.memory, &parts.memory.batch);
    let (parameters, pass) = (&agent.parameters, &parts.memory.online);
    let (n, lanes) = (parts.config.batch, parts.device.row_lanes());
    let mut steps = loss(parts, &agent.scalars);
    let partials = loss_partials::launch(
        memory.row_losses.view(),
        if agent.learners.q_statistics { memory.q.view() } else { memory.no_floats.view() },
        batch.rewards.view(),
        memory.loss_partials.view_mut(),
    );
    steps.push((loss_partials_shape(n, lanes), partials));
    let alpha_cql = alpha_cql(parts);
    let totals = loss_totals::launch(memory.loss_partials.view(), n as u32, alpha_cql, memory.totals.view_mut());
    steps.push((loss_totals_shape(lanes), totals));
    let flag = flag_non_finite::launch(memory.row_losses.view(), memory.flags.view_mut(), nan_flags::FORWARD as u32);
    steps.push((flag_non_finite_shape(memory.row_losses.len(), lanes), flag));
    steps.extend(memory.iqn.iter().flat_map(|iqn| of_iqn(parts, iqn)));
    let extra = memory.iqn.as_ref().map(|iqn| &iqn.d_h);
    steps.extend(memory.backward.launches(pass, parameters, &agent.scalars, &agent.spectral.scales, extra));
    steps
}

/// The online pass on s with the stochastic depth in `depth`, and each row's losses.
pub(super) fn loss(parts: &StepParts<'_>, depth: &Buffer<StepScalars>) -> Vec<Step> {
    let (agent, memory, batch) = (parts.agent, parts.memory, &parts.memory.batch);
    let (parameters, pass) = (&agent.parameters, &parts.memory.online);
    let mut steps = pass.forward(&batch.states, &parameters.online, &parameters.online.flat, depth, &agent.bus);
    let loss = c51_loss::launch(
        pass.heads.view(),
        batch.actions.view(),
        memory.targets.view(),
        batch.weights.view(),
        agent.atoms.view(),
        agent.columns(),
        agent.learners.cql.into(),
        alpha_cql(parts),
        memory.backward.d_heads.view_mut(),
        memory.row_losses.view_mut(),
        memory.q.view_mut(),
        parameters.precision,
    );
    steps.push((row_shape(parts.config.batch, parts.device.row_lanes()), loss));
    steps
}

/// IQN's head on the online pass: its loss, which joins the objective, and its gradients down to h.
fn of_iqn(parts: &StepParts<'_>, iqn: &Iqn) -> Vec<Step> {
    let (agent, memory, batch) = (parts.agent, parts.memory, &parts.memory.batch);
    let (parameters, pass) = (&agent.parameters, &memory.online);
    let of = Transitions {
        actions: &batch.actions,
        next_actions: &memory.next_actions,
        rewards: &batch.rewards,
        dones: &batch.dones,
        discount_powers: &batch.discount_powers,
    };
    let mut steps = iqn.forward(pass, &parameters.online);
    steps.extend(iqn.loss(&of, &agent.bus, memory.iqn_loss(), &memory.totals));
    steps.extend(iqn.backward(pass, parameters, &agent.bus));
    steps
}

/// Weight of CQL in the objective.
fn alpha_cql(parts: &StepParts<'_>) -> f32 {
    if parts.agent.learners.cql { parts.config.alpha_cql as f32 } else { 0.0 }
}
