//! Child graph `counters`: all eight counters one further, the step's scalars from the control page, and what is due.

use gpu_kernels::counters::{increment_step_counters, increment_step_counters_shape};

use super::{StepParts, schedule};
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let agent = parts.agent;
    // SAFETY: the page holds one `Control`, which the host writes by whole fields if at all.
    let launch = unsafe {
        increment_step_counters::launch(
            parts.pages.control.ptr(),
            agent.counters.view_mut(),
            agent.scalars.view_mut(),
            agent.bus.view_mut(),
            parts.memory.due.view_mut(),
            schedule(parts.config),
        )
    };
    vec![(increment_step_counters_shape(), launch)]
}
