//! Child graph `aux`: IQL's value heads on h of the online pass.

use shared_types::learner;

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    let Some(heads) = &memory.value_heads else { return Vec::new() };
    // The first learner, theta, has no loss of its own.
    let losses = memory.head_losses.slice(learner::IQL_HIGH - 1..learner::IQL_LOW);
    let popart = agent.popart.slice(0..usize::from(agent.learners.popart));
    heads.launches(&memory.online, &memory.q, &memory.batch.actions, &agent.parameters, popart, losses)
}
