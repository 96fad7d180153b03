//! Child graph `maintenance`: what is due only every so many steps.

use gpu_kernels::atoms::{atom_spacing, atom_spacing_shape, target_mass_partials, target_mass_partials_shape};
use gpu_kernels::c51::c51_q;
use gpu_kernels::causal::{causal_rows, causal_rows_shape, causal_sensitivity, causal_sensitivity_shape};
use gpu_kernels::lanes::row_shape;
use shared_types::market::N_FEATURES;

use super::{STATS_EVERY, StepParts, seed};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let mut steps = measure_causes(parts);
    steps.extend(spacing(parts));
    steps
}

/// How much the policy's values hang on each feature of the last bar, with the parameters as the step began.
fn measure_causes(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, config) = (parts.agent, parts.memory, parts.config);
    let Some(causal) = &memory.causal else { return Vec::new() };
    let rows = causal_rows::launch(
        memory.batch.states.view(),
        agent.counters.view(),
        causal.rows.view_mut(),
        causal.due.view_mut(),
        seed(config),
        config.causal.every,
        agent.sizes().state_stride() as u32,
        (config.window as usize - 1) as u32 * N_FEATURES as u32,
    );
    let rows = rows.seldom_due("counters");
    let mut when_due = causal.pass.forward(
        &causal.rows,
        &agent.parameters.online,
        &agent.parameters.online.flat,
        &agent.keep,
        &agent.bus,
    );
    let heads = causal.pass.heads.view();
    let (q, actions) = (causal.q.view_mut(), causal.actions.view_mut());
    let lanes = parts.device.row_lanes();
    let values = c51_q::launch(heads, agent.atoms.view(), agent.columns(), q, actions);
    when_due.push((row_shape(causal.actions.len(), lanes), values));
    let (sensitivity, readback, bus) =
        (causal.sensitivity.view_mut(), memory.readback.view_mut(), agent.bus.view_mut());
    let told = causal_sensitivity::launch(causal.q.view(), sensitivity, readback, bus);
    when_due.push((causal_sensitivity_shape(lanes), told));
    let when_due = when_due.into_iter().map(|(shape, launch)| (shape, launch.only_if(&causal.due.ptr())));
    std::iter::once((causal_rows_shape(), rows)).chain(when_due).collect()
}

/// The atoms' spacing follows the targets' mass.
fn spacing(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    if !agent.learners.spacing {
        return Vec::new();
    }
    let n = parts.config.batch;
    let partials = target_mass_partials::launch(
        memory.targets.view(),
        agent.counters.view(),
        STATS_EVERY,
        n as u32,
        memory.mass_partials.view_mut(),
    );
    let spacing = atom_spacing::launch(
        memory.mass_partials.view(),
        agent.counters.view(),
        STATS_EVERY,
        memory.gate.view(),
        n as u32,
        agent.spacing.view_mut(),
    );
    let [partials, spacing] = [partials, spacing].map(|launch| launch.seldom_due("counters"));
    vec![(target_mass_partials_shape(n), partials), (atom_spacing_shape(), spacing)]
}
