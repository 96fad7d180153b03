//! Selectivity: P(trade) = sigmoid(w h + b), h held constant, under binary cross-entropy against "the market paid".
//!
//! | value | equation |
//! |---|---|
//! | counts | the direction taken is short or long, and the online net's greedy one |
//! | label y | r / reward_scale + her_weight \|goal - achieved\| > 0: the market part of the stored reward |
//! | loss | mean over the rows that count of softplus(l) - y l, 0 if none does; l = w h + b |
//!
//! The layer is a slice of the flat parameters whose first H elements are the weights and whose last is the bias.

use cuda_std::prelude::*;
use shared_types::market::direction;

use crate::block::{self, N_WARPS};
use crate::c51::highest;
use crate::heads::N_ACTIONS;
use crate::sweep::{self, VECTOR, Vector, add, row_total};
use crate::{lanes, math};

/// Constants of [`selectivity_loss()`]; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectParams {
    /// Column of a state that holds the goal.
    pub goal_column: u32,
    /// What stored rewards were multiplied by.
    pub reward_scale: f32,
    /// Weight of the distance from the goal in them.
    pub her_weight: f32,
    /// P(trade) from which a row is counted into the rate.
    pub threshold: f32,
}

/// Launch of [`selectivity_loss()`].
pub const fn selectivity_loss_shape(lanes: u32) -> LaunchShape {
    block::shape(lanes)
}

/// Logit and probability of each row.
///
/// Shapes: h `[R, H]`, H a multiple of 4; layer `[H + 1 or more]`; logits, p_trade `[R]`. Error of a logit: (H / (4 lanes) + 7) 2^-24 of
/// sum |w h|. Launch: [`lanes::row_shape`] (R, lanes).
#[kernel(cooperative, max_threads = 256)]
pub fn trade_probability(
    h: GlobalSlice<f32>,
    layer: GlobalSlice<f32>,
    logits: GlobalSliceMut<f32>,
    p_trade: GlobalSliceMut<f32>,
) {
    let n_rows = logits.len();
    let Some(row) = lanes::row_index(n_rows) else { return };
    let width = sweep::n_rows(h.len(), n_rows);
    let mut sums = [0.0; VECTOR];
    let mut at = VECTOR * thread::thread_idx_x() as usize;
    while at < width {
        let (h, w): (Vector, Vector) = (h.load(row * width + at), layer.load(at));
        add(&mut sums, |k| w[k] * h[k]);
        at += VECTOR * lanes::of_row();
    }
    let logit = row_total(sums) + layer.get(layer.len() - 1);
    if thread::thread_idx_x() == 0 {
        logits.set(row, logit);
        p_trade.set(row, math::sigmoid(logit));
    }
}

/// The loss, its gradient by the logits, and the share of rows whose P(trade) reaches the threshold.
///
/// Shapes: logits, p_trade, actions, rewards `[B]`; q `[B, 13]`, online on s; states `[B, stride]`; achieved `[N]`, of the ring, and
/// indices `[B]`, the rows' slots; d_logits `[B]`; loss, rate, d_bias \[1\]. Launch: [`selectivity_loss_shape`].
#[kernel(cooperative, max_threads = 1024)]
pub fn selectivity_loss(
    logits: GlobalSlice<f32>,
    p_trade: GlobalSlice<f32>,
    q: GlobalSlice<f32>,
    actions: GlobalSlice<[u8; 4]>,
    rewards: GlobalSlice<f32>,
    states: GlobalSlice<f32>,
    achieved: GlobalSlice<f32>,
    indices: GlobalSlice<u32>,
    d_logits: GlobalSliceMut<f32>,
    loss: GlobalSliceMut<f32>,
    rate: GlobalSliceMut<f32>,
    d_bias: GlobalSliceMut<f32>,
    params: SelectParams,
) {
    let scratch = shared_slice![f64; 4 * N_WARPS];
    let n_rows = logits.len();
    let stride = sweep::n_rows(states.len(), n_rows);
    let mut found = [0.0; 4];
    block::for_rows(n_rows, |row| {
        let greedy = highest([0, 1, 2, 3].map(|action| q.get(row * N_ACTIONS + action)));
        let (mut d, mut entropy) = (0.0, 0.0);
        if counts(actions.get(row)[0], greedy) {
            let goal = states.get(row * stride + params.goal_column as usize);
            let off_goal = (goal - achieved.get(indices.get(row) as usize)).abs();
            (entropy, d) = cross_entropy(logits.get(row), paid(rewards.get(row), off_goal, &params));
            found[0] += 1.0;
        }
        d_logits.set(row, d);
        let reaches = if p_trade.get(row) >= params.threshold { 1.0 } else { 0.0 };
        found[1] += entropy as f64;
        found[2] += d as f64;
        found[3] += reaches;
    });
    let [n_counted, entropy, d, n_reaching] = block::sums(found, &scratch);
    let share = if n_counted > 0.0 { 1.0 / n_counted } else { 0.0 };
    block::for_rows(n_rows, |row| d_logits.set(row, d_logits.get(row) * share as f32));
    if thread::thread_idx_x() == 0 {
        loss.set(0, (entropy * share) as f32);
        d_bias.set(0, (d * share) as f32);
        rate.set(0, (n_reaching / n_rows as f64) as f32);
    }
}

/// Whether a row counts.
#[inline]
pub fn counts(taken: u8, greedy: u8) -> bool {
    taken == greedy && (taken == direction::SHORT || taken == direction::LONG)
}

/// Whether the market part of a stored reward is positive.
///
/// The stored reward was rounded a few times, each by at most 2^-24 of its goal term where the market part is small. What lies within
/// that is 0: a market that paid nothing must not count as one that paid.
#[inline]
pub fn paid(reward: f32, off_goal: f32, params: &SelectParams) -> bool {
    const SLACK: f32 = 1.0 / (1 << 21) as f32;
    let goal_term = params.her_weight * off_goal;
    reward / params.reward_scale + goal_term > SLACK * goal_term
}

/// softplus(l) - y l, which is softplus(-l) for y = 1, and its derivative by l.
#[inline]
pub fn cross_entropy(logit: f32, label: bool) -> (f32, f32) {
    if label { (math::softplus(-logit), -math::sigmoid(-logit)) } else { (math::softplus(logit), math::sigmoid(logit)) }
}
