//! Child graph `post_aux`: selectivity, denoise, risk. Statistics of Q come with the losses' means in `forward`.

use shared_types::learner;

use super::StepParts;
use crate::market::Step;

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory, batch) = (parts.agent, parts.memory, &parts.memory.batch);
    let parameters = &agent.parameters;
    let loss = |learner: usize| memory.head_losses.slice(learner - 1..learner);
    let mut steps = Vec::new();
    if let Some(selectivity) = &memory.selectivity {
        let (ring, loss) = (&parts.replay.ring, loss(learner::SELECTIVITY));
        steps.extend(selectivity.launches(&memory.online, &memory.q, batch, ring, parameters, loss));
    }
    if let Some(denoise) = &memory.denoise {
        steps.extend(denoise.launches(&batch.states, &agent.counters, parameters, loss(learner::DENOISE)));
    }
    if let Some(risk) = &memory.risk {
        steps.extend(risk.launches(&memory.online, &batch.actions, agent));
    }
    steps
}
