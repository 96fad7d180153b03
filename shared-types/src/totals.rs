//! The batch's means and variances that a step leaves for its end.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// Scalars of a step's losses, over the whole batch.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct LossTotals {
    /// Mean of w_i CE_i.
    pub weighted_ce: f32,
    /// Mean KL, before modulation.
    pub td_mean: f32,
    /// Population variance of the KL.
    pub td_var: f32,
    /// Mean of (1/4 sum over branches of (E target - Q))^2, not importance-weighted.
    pub mse: f32,
    /// CQL's term, before its weight; NaN where CQL is off.
    pub cql: f32,
    /// The objective J.
    pub total: f32,
    /// Mean of the online Q over batch, branches and actions.
    pub q_mean: f32,
    /// Least Q.
    pub q_min: f32,
    /// Greatest Q.
    pub q_max: f32,
    /// Population variance of Q.
    pub q_variance: f32,
    /// Mean over batch and branches of the greatest action's Q.
    pub avg_max_q: f32,
    /// Mean of r, after HER.
    pub reward_mean: f32,
    /// Population variance of r.
    pub reward_var: f32,
    /// Zero.
    pub reserved: [f32; 3],
}

assert_layout!(LossTotals, size 64, align 64,
    weighted_ce: f32 = 0, td_mean: f32 = 4, td_var: f32 = 8, mse: f32 = 12, cql: f32 = 16, total: f32 = 20, q_mean: f32 = 24,
    q_min: f32 = 28, q_max: f32 = 32, q_variance: f32 = 36, avg_max_q: f32 = 40, reward_mean: f32 = 44, reward_var: f32 = 48,
    reserved: [f32; 3] = 52);
