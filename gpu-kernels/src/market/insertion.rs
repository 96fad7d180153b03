//! The way of complete n-step transitions from the environments' queue into the replay ring.
//!
//! At step t the transition of decision k = t - n_step + 1 is complete. With e the first step in k..=t that ended an episode,
//! else t: n = e - k + 1, r = sum_{i<n} gamma^i r_{k+i}, next state = the true state after step e. So an episode's last
//! decisions get n = n_step - 1, .., 1, no sum crosses an episode's end, and every step of E environments fills E slots:
//! the slot of an environment's next decision is (i + E) mod N.

use cuda_std::prelude::*;
use shared_types::market::{MAX_N_STEP, N_ACCOUNT, N_FEATURES, state_dim};
use shared_types::{Collector, Counters, EnvParams, PendingStep, isv};

use super::environment::window_start;

/// Launch of [`insert_transitions()`] for `n_envs` environments and states of `state_dim`: a thread an element.
pub const fn insert_transitions_shape(n_envs: usize, state_dim: usize) -> LaunchShape {
    LaunchShape::cover(n_envs * state_dim, 256)
}

/// Writes the transitions that became complete in this step into slots (head + env) mod N, and the slots into `slots`.
///
/// Reward = reward_scale (n-step market reward - her_weight |goal - achieved|). Launch it from the step `n_step` - 1 of a
/// queue on (counted from 0): before, no transition is complete and nothing is written.
/// Shapes: params, counters, collector \[1\]; bus \[64\]; features \[n, F\]; queue \[n_step, E\]; accounts
/// \[n_step, E, 2, 16\]; states, next_states \[N, window F + 16\]; the other replay columns \[N\]; slots \[E\]. Launch: [`insert_transitions_shape`].
#[kernel]
pub fn insert_transitions(
    params: GlobalSlice<EnvParams>,
    bus: GlobalSlice<f32>,
    counters: GlobalSlice<Counters>,
    collector: GlobalSlice<Collector>,
    features: GlobalSlice<f32>,
    queue: GlobalSlice<PendingStep>,
    accounts: GlobalSlice<f32>,
    states: GlobalSliceMut<f32>,
    next_states: GlobalSliceMut<f32>,
    actions: GlobalSliceMut<[u8; 4]>,
    rewards: GlobalSliceMut<f32>,
    dones: GlobalSliceMut<u8>,
    episode_ids: GlobalSliceMut<u32>,
    discount_powers: GlobalSliceMut<f32>,
    achieved: GlobalSliceMut<f32>,
    last_scored: GlobalSliceMut<u32>,
    slots: GlobalSliceMut<u32>,
) {
    let (params, collector) = (params.get(0), collector.get(0));
    let width = state_dim(params.window as usize);
    let (index, n_envs) = (thread::index_1d() as usize, slots.len());
    let (env, column) = (index / width, index % width);
    if env >= n_envs || collector.step + 1 < params.n_step {
        return;
    }
    let place = |step: u32| (step % params.n_step) as usize * n_envs + env;
    let row = transition(collector.step, params.n_step, |step| queue.get(place(step)).end);
    let (first, last) = (queue.get(place(row.first)), queue.get(place(row.last)));
    let slot = (collector.head as usize + env) % rewards.len();

    let n_market = params.window as usize * N_FEATURES;
    let (state, next_state) = if column < n_market {
        let window = |bar: u32| features.get(window_start(bar, n_market) + column);
        (window(first.bar), window(last.bar + 1))
    } else {
        let account = |step: u32, after: usize| accounts.get((2 * place(step) + after) * N_ACCOUNT + column - n_market);
        (account(row.first, 0), account(row.last, 1))
    };
    states.set(slot * width + column, state);
    next_states.set(slot * width + column, next_state);
    if column != 0 {
        return;
    }
    let market = n_step_sum(&row, bus.get(isv::GAMMA), |step| queue.get(place(step)).reward);
    let off_goal = (first.goal - last.achieved).abs();
    actions.set(slot, first.action);
    rewards.set(slot, params.reward_scale * (market - params.her_weight * off_goal));
    dones.set(slot, (last.end == PendingStep::DONE) as u8);
    episode_ids.set(slot, first.episode);
    discount_powers.set(slot, (row.last - row.first + 1) as f32);
    achieved.set(slot, last.achieved);
    last_scored.set(slot, counters.get(0).rng_step as u32);
    slots.set(env, slot as u32);
}

/// First and last step of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The step of its decision.
    pub first: u32,
    /// The step after which its next state is.
    pub last: u32,
}

/// The transition that is complete after `step`, `end(j)` being how step j ended.
#[inline]
pub fn transition(step: u32, n_step: u32, end: impl Fn(u32) -> u32) -> Transition {
    let first = step + 1 - n_step;
    let mut last = first;
    for _ in 1..MAX_N_STEP {
        if last < step && end(last) == PendingStep::GOES_ON {
            last += 1;
        }
    }
    Transition { first, last }
}

/// sum_i gamma^i r_i over a transition, gamma^i by repeated multiplication.
#[inline]
pub fn n_step_sum(row: &Transition, gamma: f32, reward: impl Fn(u32) -> f32) -> f32 {
    let (mut sum, mut discount) = (0.0, 1.0);
    for step in row.first..=row.last {
        sum += discount * reward(step);
        discount *= gamma;
    }
    sum
}
