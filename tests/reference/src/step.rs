//! One training step, in the order of section 6's table: what every child graph computes, as values.
//!
//! All that the section calls "as the step began" is read from the state before anything is written; the writes come last, together,
//! and only where the step is not gated (I5).

mod auxiliary;
mod outputs;
mod state;
mod theta;

pub use auxiliary::{Auxiliary, HeadLoss};
pub use outputs::{HeadUpdate, Named, Outputs, QStatistics, named_tensors};
pub use state::{Batch, Draws, IqnAverages, State};
pub use theta::ThetaUpdate;

use crate::adam::{clip_scale, group_norm, target_ema, update_group};
use crate::c51;
use crate::config::{Config, N_BRANCHES};
use crate::isv::{RATE, SLOW_RATE, index};
use crate::layout::{Group, Tensors, trunk_matrices};
use crate::matrix::{Matrix, mean, variance};
use crate::network::{self, NetworkPass};
use crate::objective::{Constants, Objective, gradients, objective};
use crate::schedule::{self, Counters};
use crate::spectral::{self, PowerIteration};
use crate::trunk::{TrunkContext, depth_masks, film_inputs, keep_probabilities};
use crate::{atoms, causal, double_dqn, iqn, pruning, replay, risk, selectivity};

/// Runs one step and moves `state` on.
pub fn step(state: &mut State, batch: &Batch, draws: &Draws) -> Outputs {
    let config = state.config.clone();
    let before = state.clone();
    let counters = before.counters.incremented();
    let tau = schedule::tau(counters.adam_t, config.anneal_steps, config.tau, before.health_at_epoch);

    let spectra = [power_iterations(&config, &before, false), power_iterations(&config, &before, true)];
    let contexts = contexts(&config, &before, &spectra, &draws.depth_uniforms);
    let next = NextState::new(&config, &before, batch, &contexts);
    let constants = Constants {
        states: &batch.states,
        actions: &batch.actions,
        weights: &batch.weights,
        targets: &next.targets,
        quantile_targets: next.quantile_targets.as_deref(),
        atoms: &before.atoms,
        context: &contexts.online,
        heads: &before.params,
        readiness: before.readiness(),
    };
    let at = objective(&config, &before.params, &constants);
    let first = gradients(&config, &before.params, &constants, &at);
    let aux = Auxiliary::new(&config, &before, batch, draws, &at, &first);
    let update = ThetaUpdate::new(&config, &before, &counters, &first.params);
    let gated = !(at.total.is_finite() && update.norm.is_finite());
    let causal = (config.learners.causal && counters.rng_step.is_multiple_of(config.causal_every)).then(|| {
        causal::sensitivities(
            &config,
            &before.params,
            &batch.states,
            &contexts.keep,
            &before.atoms,
            draws.causal_uniform,
        )
    });
    let td_modulated = modulated(&config, &aux, &at.losses.td);
    let priorities = priorities(&config, batch, &td_modulated, gated);

    state.counters = counters;
    for (vectors, iterations) in [&mut state.online_u, &mut state.target_u].into_iter().zip(&spectra) {
        *vectors = iterations.iter().map(|iteration| iteration.u.clone()).collect();
    }
    state.masks = update.masks.clone();
    let heads = apply(state, &config, gated, tau, &aux, &update, &first.params);
    if !gated {
        average(state, &config, batch, &at, &aux, &update);
        if config.learners.spacing && counters.rng_step.is_multiple_of(config.stats_every) {
            state.spacing =
                state.spacing.iter().zip(&next.targets).map(|(x, targets)| atoms::next_spacing(x, targets)).collect();
        }
    }
    finish(state, &counters, gated, tau, &at, causal.as_deref());
    state.max_priority = priorities.iter().flatten().copied().fold(state.max_priority, f64::max);
    Outputs { gated, tau, spectra, next, at, first, aux, update, heads, causal, td_modulated, priorities }
}

/// One power iteration for each trunk matrix of the online network, or of what targets come from.
fn power_iterations(config: &Config, before: &State, of_target: bool) -> Vec<PowerIteration> {
    let has_own = of_target && config.learners.target_ema;
    let (p, vectors) = if has_own { (&before.target, &before.target_u) } else { (&before.params, &before.online_u) };
    let names = trunk_matrices(&config.sizes);
    names.iter().zip(vectors).map(|(name, u)| spectral::power_iteration(&p.matrix(name), u)).collect()
}

/// What modulates the trunk in each kind of pass.
#[derive(Clone, Debug)]
struct Contexts {
    /// Online training passes: masks.
    online: TrunkContext,
    /// Target passes: keep probabilities.
    target: TrunkContext,
    /// Online network with keep probabilities.
    keep: TrunkContext,
}

fn contexts(config: &Config, before: &State, spectra: &[Vec<PowerIteration>; 2], depth_uniforms: &[f64]) -> Contexts {
    let on = &config.learners;
    let film = on.film.then(|| film_inputs(&before.isv.entries));
    let keep = if on.depth {
        keep_probabilities(config.sizes.blocks, config.depth_keep_last)
    } else {
        vec![1.0; config.sizes.blocks]
    };
    let masks = if on.depth { depth_masks(depth_uniforms, &keep) } else { keep.clone() };
    let scales = |iterations: &[PowerIteration]| -> Vec<f64> {
        let scale = |one: &PowerIteration| if on.spectral { spectral::scale(one.sigma, config.sigma_max) } else { 1.0 };
        iterations.iter().map(scale).collect()
    };
    let context = |iterations: &[PowerIteration], depth: &[f64]| TrunkContext {
        film,
        scales: scales(iterations),
        depth: depth.to_vec(),
    };
    Contexts {
        online: context(&spectra[0], &masks),
        target: context(&spectra[1], &keep),
        keep: context(&spectra[0], &keep),
    }
}

/// Priority refresh at the epoch's boundary: the td of each row, with keep probabilities in every pass, no modulation and no
/// relabelling. The power iteration is run once more from the state's vectors, as the boundary does, and not stored.
pub fn rescored_td(state: &State, batch: &Batch) -> Vec<f64> {
    let config = &state.config;
    let spectra = [power_iterations(config, state, false), power_iterations(config, state, true)];
    let contexts = contexts(config, state, &spectra, &[]);
    let keep = Contexts { online: contexts.keep.clone(), ..contexts };
    let next = NextState::new(config, state, batch, &keep);
    let pass = network::forward(config, &state.params, &state.params, &batch.states, &keep.keep, &state.atoms);
    c51::losses(&pass.distributions, &batch.actions, &next.targets, &state.atoms).td
}

/// What the next states give: child graph `ddqn`.
#[derive(Clone, Debug)]
pub struct NextState {
    /// Online pass on s'.
    pub online: NetworkPass,
    /// Target pass on s'.
    pub target: NetworkPass,
    /// gamma^n (1 - done) `[B]`.
    pub discounts: Vec<f64>,
    /// Target distributions of each branch `[B, K]`.
    pub targets: Vec<Matrix>,
    /// Target quantiles, unless IQN is off.
    pub quantile_targets: Option<Vec<[Vec<f64>; N_BRANCHES]>>,
}

impl NextState {
    fn new(config: &Config, before: &State, batch: &Batch, contexts: &Contexts) -> Self {
        let run = |p: &Tensors, context: &TrunkContext| {
            network::forward(config, p, &before.params, &batch.next_states, context, &before.atoms)
        };
        let target_params = if config.learners.target_ema { &before.target } else { &before.params };
        let online = run(&before.params, &contexts.online);
        let target = run(target_params, &contexts.target);
        let gamma = before.isv.entries[index::GAMMA];
        let discounts: Vec<f64> =
            batch.n_steps.iter().zip(&batch.dones).map(|(n, done)| double_dqn::discount(gamma, *n, *done)).collect();
        let (chooses, values) = (&online.distributions, &target.distributions);
        let targets = double_dqn::targets(chooses, values, &batch.rewards, &discounts, &before.atoms);
        let quantile_targets = config.learners.iqn.then(|| {
            let head = iqn::forward(&config.sizes, config.precision, target_params, &target.trunk.output);
            double_dqn::quantile_targets(chooses, &head, &batch.rewards, &discounts)
        });
        Self { online, target, discounts, targets, quantile_targets }
    }
}

fn modulated(config: &Config, aux: &Auxiliary, td: &[f64]) -> Vec<f64> {
    if !config.learners.iql {
        return td.to_vec();
    }
    let std = aux.popart.std();
    td.iter()
        .enumerate()
        .map(|(i, td)| replay::modulated_td(*td, aux.q[i], aux.v_high[i], std, config.beta_adv))
        .collect()
}

/// New leaf of each row; `None` keeps the old one: gated step, relabelled row, non-finite td.
fn priorities(config: &Config, batch: &Batch, td: &[f64], gated: bool) -> Vec<Option<f64>> {
    let writes = |i: usize| !gated && !batch.relabelled[i] && td[i].is_finite();
    (0..td.len()).map(|i| writes(i).then(|| replay::priority(td[i], config.alpha))).collect()
}

/// Target EMA, PopArt, the heads' and the attention's Adams, AdamW. Returns what happened to each learner but theta.
fn apply(
    state: &mut State,
    config: &Config,
    gated: bool,
    tau: f64,
    aux: &Auxiliary,
    update: &ThetaUpdate,
    first: &Tensors,
) -> Vec<HeadUpdate> {
    let mut losses = aux.losses.clone();
    if config.learners.attention {
        losses.push((Group::Attention, HeadLoss { loss: 0.0, norm: group_norm(first, Group::Attention) }));
    }
    if !gated {
        let params = state.params.clone();
        if config.learners.target_ema {
            target_ema(&mut state.target, &params, tau);
        }
        state.popart = aux.popart;
        state.params = aux.rescaled.clone();
    }
    let mut heads = Vec::new();
    for (group, loss) in losses {
        let applied = !gated && loss.is_finite();
        let scale = clip_scale(loss.norm, config.clip);
        heads.push(HeadUpdate { group, loss: loss.loss, norm: loss.norm, scale, applied });
        if !applied {
            *state.counter(group) -= 1;
            continue;
        }
        let grads = if group == Group::Attention { first } else { &aux.grads };
        let t = *state.counter(group);
        update_group(&mut state.params, grads, &mut state.moments, (group, scale), t, config.lr, 0.0);
        if group == Group::Iqn {
            state.close_iqn(loss.loss);
        }
    }
    if gated {
        state.counters.adam_t -= 1;
        return heads;
    }
    let t = state.counters.adam_t;
    let theta = (Group::Theta, update.scale);
    update_group(&mut state.params, &update.gradient, &mut state.moments, theta, t, config.lr, config.weight_decay);
    pruning::apply_masks(&mut state.params, &update.masks);
    state.snapshot = Some(update.masked.clone());
    if let Some(vaccine) = &update.vaccine {
        state.vaccine_phi = vaccine.phi;
    }
    heads
}

/// Moving averages and the other entries that an applied step writes.
fn average(state: &mut State, config: &Config, batch: &Batch, at: &Objective, aux: &Auxiliary, update: &ThetaUpdate) {
    let q = at.pass.distributions.all_q();
    let td = &at.losses.td;
    let on = &config.learners;
    // An average takes in no sample of what is off.
    let of = |on: bool, sample: f64| if on { sample } else { f64::NAN };
    let isv = &mut state.isv;
    for (entry, sample) in [
        (index::LOSS_EMA, at.weighted_cross_entropy),
        (index::GRAD_NORM_EMA, update.norm),
        (index::CLIP_EMA, update.norm),
        (index::TD_EMA, mean(td)),
        (index::TD_VAR_EMA, variance(td)),
        (index::Q_MEAN_EMA, of(on.q_statistics, mean(&q))),
        (index::Q_VAR_EMA, of(on.q_statistics, variance(&q))),
        (index::REWARD_EMA, mean(&batch.rewards)),
        (index::REWARD_VAR_EMA, variance(&batch.rewards)),
        (index::CQL_EMA, of(on.cql, at.cql)),
        (index::DENOISE_EMA, aux.loss_of(Group::Denoise)),
    ] {
        isv.average(entry, sample, RATE);
    }
    isv.average(index::LOSS_SLOW, at.weighted_cross_entropy, SLOW_RATE);
    isv.entries[index::VACCINE_COS_EMA] = state.vaccine_phi;
    if on.iql {
        isv.entries[index::IQL_GAP] = mean(&aux.v_high) - mean(&aux.v_low);
        isv.entries[index::POPART_MEAN] = state.popart.mean();
        isv.entries[index::POPART_STD] = state.popart.std();
    }
    if on.selectivity {
        isv.entries[index::SELECT_RATE] = selectivity::rate(&aux.p_trade, config.select_threshold);
    }
    if on.pruning {
        isv.entries[index::SPARSITY] = pruning::masked_share(&update.masks);
    }
    if on.risk && aux.cvar_loss.is_finite() {
        let eta = &mut isv.entries[index::RISK_ETA];
        *eta = risk::next_eta(*eta, aux.cvar_loss, config.risk_lr, config.risk_target);
    }
    let readiness = state.readiness();
    state.isv.entries[index::IQN_READINESS] = readiness;
}

/// What every step writes, gated or not.
fn finish(state: &mut State, counters: &Counters, gated: bool, tau: f64, at: &Objective, causal: Option<&[f64]>) {
    state.isv.entries[index::TAU] = tau;
    if let Some(sensitivity) = causal.map(mean).filter(|mean| mean.is_finite()) {
        state.isv.entries[index::CAUSAL_MEAN] = sensitivity;
    }
    state.isv.close_step(gated);
    if state.config.learners.q_statistics && counters.rng_step.is_multiple_of(state.config.stats_every) {
        state.q_statistics = Some(QStatistics::new(&at.pass.distributions));
    }
}
