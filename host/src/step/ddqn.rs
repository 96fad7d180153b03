//! Child graph `ddqn`: online and target passes on s', greedy actions, projected target distributions, IQN's target quantiles.

use gpu_kernels::c51::{c51_q, c51_targets, c51_targets_shape};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::non_finite::{flag_non_finite, flag_non_finite_shape};
use shared_types::{StepScalars, nan_flags};

use super::StepParts;
use crate::device::Buffer;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (memory, lanes) = (parts.memory, parts.device.row_lanes());
    let mut steps = targets(parts, &parts.agent.scalars);
    let iqn = memory.iqn.iter();
    steps.extend(iqn.flat_map(|iqn| iqn.forward_next(&memory.target_next, parts.agent.parameters.bootstrapped())));
    let flag = flag_non_finite::launch(memory.targets.view(), memory.flags.view_mut(), nan_flags::DDQN as u32);
    steps.push((flag_non_finite_shape(memory.targets.len(), lanes), flag));
    steps
}

/// The batch's target distributions, with the online pass of the stochastic depth in `depth`.
pub(super) fn targets(parts: &StepParts<'_>, depth: &Buffer<StepScalars>) -> Vec<Step> {
    let (agent, memory, batch) = (parts.agent, parts.memory, &parts.memory.batch);
    let (parameters, bus, online) = (&agent.parameters, &agent.bus, &agent.parameters.online.flat);
    let (n, lanes) = (parts.config.batch, parts.device.row_lanes());
    let mut steps = memory.online_next.forward(&batch.next_states, &parameters.online, online, depth, bus);
    let q = c51_q::launch(
        memory.online_next.heads.view(),
        agent.atoms.view(),
        agent.columns(),
        memory.next_q.view_mut(),
        memory.next_actions.view_mut(),
    );
    steps.push((row_shape(n, lanes), q));
    let target = parameters.bootstrapped();
    steps.extend(memory.target_next.forward(&batch.next_states, target, online, &agent.keep, bus));
    let targets = c51_targets::launch(
        memory.target_next.heads.view(),
        memory.next_actions.view(),
        batch.rewards.view(),
        batch.dones.view(),
        batch.discount_powers.view(),
        bus.view(),
        agent.atoms.view(),
        agent.columns(),
        memory.targets.view_mut(),
    );
    steps.push((c51_targets_shape(n, lanes), targets));
    steps
}
