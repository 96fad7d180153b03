//! Child graph `maintenance`: what is due only every so many steps.

use gpu_kernels::atoms::{atom_spacing, atom_spacing_shape, target_mass_partials, target_mass_partials_shape};

use super::{STATS_EVERY, StepParts};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
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
    vec![(target_mass_partials_shape(n), partials), (atom_spacing_shape(), spacing)]
}
