//! Child graph `maintenance`: what is due only every so many steps. It waits for the targets, and for nothing behind them: what it finds
//! is taken over in `adam_update`, where it is known whether the step is gated.

use gpu_kernels::atoms::{atom_spacing, atom_spacing_shape};
use gpu_kernels::c51::c51_q;
use gpu_kernels::causal::{causal_rows, causal_rows_shape, causal_sensitivity, causal_sensitivity_shape};
use gpu_kernels::lanes::row_shape;
use shared_types::due;
use shared_types::market::N_FEATURES;

use super::{StepParts, seed};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let when_due = |work: usize, steps: Vec<Step>| {
        steps.into_iter().map(move |(shape, launch)| (shape, launch.only_if(&parts.memory.due_word(work).ptr())))
    };
    let (causes, spacing) = (measure_causes(parts), propose_spacing(parts));
    when_due(due::CAUSAL, causes).chain(when_due(due::SPACING, spacing)).collect()
}

/// How much the policy's values hang on each feature of the last bar, with the parameters as the step began.
fn measure_causes(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, config) = (parts.agent, parts.memory, parts.config);
    let Some(causal) = &memory.causal else { return Vec::new() };
    let rows = causal_rows::launch(
        memory.batch.states.view(),
        memory.due_word(due::CAUSAL).view(),
        causal.rows.view_mut(),
        seed(config),
        agent.sizes().state_stride() as u32,
        (config.window as usize - 1) as u32 * N_FEATURES as u32,
    );
    let mut steps = vec![(causal_rows_shape(), rows)];
    let online = &agent.parameters.online;
    steps.extend(causal.pass.forward_as(&memory.online_next, &causal.rows, online, &online.flat, &agent.keep));
    let heads = causal.pass.heads.view();
    let (q, actions) = (causal.q.view_mut(), causal.actions.view_mut());
    let lanes = parts.device.row_lanes();
    let values = c51_q::launch(heads, agent.atoms.view(), agent.columns(), q, actions);
    steps.push((row_shape(causal.actions.len(), lanes), values));
    let (sensitivity, mean) = (causal.sensitivity.view_mut(), causal.mean.view_mut());
    let told = causal_sensitivity::launch(causal.q.view(), sensitivity, mean, memory.readback.view_mut());
    steps.push((causal_sensitivity_shape(lanes), told));
    steps
}

/// Where the atoms' spacing is to move, by the targets' mass.
fn propose_spacing(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    if !agent.learners.spacing {
        return Vec::new();
    }
    let (targets, spacing) = (memory.targets.view(), agent.spacing.view());
    let proposed = atom_spacing::launch(targets, spacing, memory.proposed_spacing.view_mut());
    vec![(atom_spacing_shape(parts.device.row_lanes()), proposed)]
}
