//! Child graph `adam_grad`: the temporal block's and the attention's gradients, pruning masks, what the vaccine adds, the gradient's
//! norms, and which updates are applied.

use gpu_kernels::gate::{gate_step, gate_step_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape};
use gpu_kernels::prune::{prune_count, prune_masks, prune_shape, prune_threshold, prune_threshold_shape};
use gpu_kernels::vaccine::{snapshot_products, snapshot_products_shape};
use shared_types::{GateParams, PruneParams, learner};

use super::StepParts;
use crate::agent::Learners;
use crate::market::Step;

/// A bit for each learner that updates.
pub(super) fn learners_on(on: &Learners) -> u32 {
    let switches = [
        (learner::THETA, true),
        (learner::ATTENTION, on.attention),
        (learner::IQN, on.iqn),
        (learner::IQL_HIGH, on.iql),
        (learner::IQL_LOW, on.iql),
        (learner::SELECTIVITY, on.selectivity),
        (learner::DENOISE, on.denoise),
    ];
    switches.into_iter().fold(0, |bits, (learner, on)| bits | u32::from(on) << learner)
}

pub(super) fn launches(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, memory) = (parts.agent, parts.memory);
    let (gradient, masks) = (&agent.parameters.gradient, &agent.masks);
    let norm =
        gradient_norm::launch(gradient.view(), masks.view(), memory.ranges.view(), memory.norm_partials.view_mut());
    let products =
        snapshot_products::launch(gradient.view(), agent.snapshot.view(), masks.view(), memory.products.view_mut());
    let products = products.moves("gradient", size_of::<f32>() * agent.snapshot.len());
    let params = GateParams {
        learners: learners_on(&agent.learners),
        adaptive_clip: u32::from(agent.learners.adaptive_clip),
        weight_decay: parts.config.weight_decay as f32,
        vaccine_weight: parts.config.vaccine.weight as f32,
    };
    let gate = gate_step::launch(
        memory.totals.view(),
        memory.head_losses.view(),
        memory.ranges.view(),
        memory.norm_partials.view(),
        memory.products.view(),
        agent.scalars.view(),
        agent.bus.view(),
        agent.seeded.view(),
        agent.counters.view_mut(),
        memory.gate.view_mut(),
        memory.update.view_mut(),
        memory.vaccine.view_mut(),
        memory.flags.view_mut(),
        params,
    );
    let lanes = parts.device.row_lanes();
    let (temporal, attention) = (memory.backward.temporal.as_ref(), memory.backward.attention.as_ref());
    let (states, parameters) = (&memory.batch.states, &agent.parameters);
    let mut steps: Vec<Step> = temporal.into_iter().flat_map(|block| block.launches(states, parameters)).collect();
    steps.extend(attention.into_iter().flat_map(|attention| attention.launches(states, parameters)));
    steps.extend(prune(parts));
    steps.push((gradient_norm_shape(&memory.range_list, lanes), norm));
    if agent.learners.vaccine {
        steps.push((snapshot_products_shape(&memory.range_list[learner::THETA], lanes), products));
    }
    steps.push((gate_step_shape(lanes), gate));
    steps
}

/// Renews the masks when they are due.
fn prune(parts: &StepParts<'_>) -> Vec<Step> {
    let (agent, keys) = (parts.agent, &parts.config.prune);
    let Some(prune) = &parts.memory.prune else { return Vec::new() };
    let schedule = PruneParams {
        final_sparsity: keys.final_sparsity,
        start: keys.start,
        end: keys.end,
        every: keys.every,
        reserved: 0,
    };
    let (params, counters) = (&agent.parameters.online.flat, || agent.counters.view());
    let (chunks, tensors, bins) = (|| prune.chunks.view(), &prune.tensors, prune.bins.view_mut());
    let count = prune_count::launch(params.view(), chunks(), tensors.view(), counters(), bins, schedule);
    let threshold = prune_threshold::launch(prune.bins.view_mut(), tensors.view_mut(), counters(), schedule);
    let (masks, bus) = (agent.masks.view_mut(), agent.bus.view_mut());
    let renew = prune_masks::launch(params.view(), chunks(), tensors.view(), counters(), masks, bus, schedule);
    let [count, threshold, renew] = [count, threshold, renew].map(|launch| launch.seldom_due("counters"));
    let over_all = prune_shape(params.len());
    vec![(over_all, count), (prune_threshold_shape(tensors.len()), threshold), (over_all, renew)]
}
