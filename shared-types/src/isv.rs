//! The internal state vector: 64 `f32` that the stages of a step tell each other, and their indices.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// Entries of the vector.
pub const LEN: usize = 64;

/// EMA of the weighted cross-entropy, rate 0.01.
pub const LOSS_EMA: usize = 0;
/// EMA of the weighted cross-entropy, rate 0.001.
pub const LOSS_SLOW: usize = 1;
/// EMA of the gradient's norm before clipping.
pub const GRAD_NORM_EMA: usize = 2;
/// EMA of the batch's mean KL, before modulation.
pub const TD_EMA: usize = 3;
/// EMA of the batch's variance of the KL, before modulation.
pub const TD_VAR_EMA: usize = 4;
/// EMA of the mean of Q.
pub const Q_MEAN_EMA: usize = 5;
/// EMA of the variance of Q.
pub const Q_VAR_EMA: usize = 6;
/// EMA of the mean of r, after HER.
pub const REWARD_EMA: usize = 7;
/// EMA of the variance of r, after HER.
pub const REWARD_VAR_EMA: usize = 8;
/// Interquartile range of IQN's quantiles.
pub const IQN_IQR: usize = 9;
/// Mean of V_high - V_low.
pub const IQL_GAP: usize = 10;
/// Mean causal sensitivity.
pub const CAUSAL_MEAN: usize = 11;
/// Health of the training in (0, 1].
pub const HEALTH: usize = 12;
/// Updates skipped so far.
pub const SKIPPED_UPDATES: usize = 13;
/// EMA of the CQL term.
pub const CQL_EMA: usize = 14;
/// EMA of the denoise loss.
pub const DENOISE_EMA: usize = 15;
/// Share of rows whose P(trade) reaches the threshold.
pub const SELECT_RATE: usize = 16;
/// Share of pruned weights.
pub const SPARSITY: usize = 17;
/// EMA of the cosine between gradient and snapshot.
pub const VACCINE_COS_EMA: usize = 18;
/// PopArt's mean.
pub const POPART_MEAN: usize = 19;
/// PopArt's standard deviation.
pub const POPART_STD: usize = 20;
/// Weight in `[0, 1]` of IQN's loss in the objective.
pub const IQN_READINESS: usize = 21;
/// EMA of the gradient's norm before clipping, for the clip.
pub const CLIP_EMA: usize = 22;
/// Atom bounds: v_min of branch b at `ATOM_BOUNDS + 2 b`, v_max one further; to 30.
pub const ATOM_BOUNDS: usize = 23;
/// Percentile in `[0, 1]` of the present volatility.
pub const REGIME_VOLATILITY: usize = 39;
/// Mean over deviation of the last 60 bars' returns, clipped to +-1.
pub const REGIME_TREND: usize = 40;
/// Exploration rate.
pub const EPSILON: usize = 41;
/// Rate of the target EMA.
pub const TAU: usize = 42;
/// Discount of one bar.
pub const GAMMA: usize = 43;
/// Cap on the position, of equity.
pub const KELLY_CAP: usize = 44;
/// Risk level eta of CVaR.
pub const RISK_ETA: usize = 45;

/// The vector. Entries without an index above are reserved and zero.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Isv {
    /// Entries, by the indices of [`isv`](crate::isv).
    pub entries: [f32; LEN],
}

assert_layout!(Isv, size 256, align 64, entries: [f32; LEN] = 0);
const _: () = assert!(ATOM_BOUNDS + 2 * 4 == 31);

impl Isv {
    /// The vector before the first step: gamma 0.99, kelly_cap, risk_eta, health and popart_std 1, `v_min` and `v_max` as
    /// every branch's atom bounds, the rest 0.
    pub const fn at_start(tau_init: f32, epsilon_start: f32, v_min: f32, v_max: f32) -> Self {
        let mut entries = [0.0; LEN];
        entries[GAMMA] = 0.99;
        entries[TAU] = tau_init;
        entries[EPSILON] = epsilon_start;
        entries[KELLY_CAP] = 1.0;
        entries[RISK_ETA] = 1.0;
        entries[HEALTH] = 1.0;
        entries[POPART_STD] = 1.0;
        let mut branch = 0;
        while branch < 4 {
            entries[ATOM_BOUNDS + 2 * branch] = v_min;
            entries[ATOM_BOUNDS + 2 * branch + 1] = v_max;
            branch += 1;
        }
        Self { entries }
    }
}
