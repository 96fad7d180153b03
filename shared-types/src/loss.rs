//! Losses of a step's batch.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// Means over the batch, device-resident: `loss_totals` writes them, gating, ISV and readback read them.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct LossTotals {
    /// Mean of w_i CE_i.
    pub weighted_ce: f32,
    /// Mean of the KL, before modulation.
    pub td_mean: f32,
    /// Population variance of the KL, before modulation.
    pub td_var: f32,
    /// Mean of the squared gap between the target's mean and Q, not weighted.
    pub mse: f32,
    /// The CQL term, without its factor; 0 without CQL.
    pub cql: f32,
    /// J.
    pub objective: f32,
    /// Mean of Q over batch, branches and actions; as the next four 0 without statistics of Q.
    pub q_mean: f32,
    /// Least Q.
    pub q_min: f32,
    /// Greatest Q.
    pub q_max: f32,
    /// Population variance of Q.
    pub q_variance: f32,
    /// Mean over batch and branches of max_a Q.
    pub avg_max_q: f32,
    /// Mean of r.
    pub reward_mean: f32,
    /// Population variance of r.
    pub reward_var: f32,
    /// Zero.
    pub reserved: [u32; 3],
}

assert_layout!(LossTotals, size 64, align 64,
    weighted_ce: f32 = 0, td_mean: f32 = 4, td_var: f32 = 8, mse: f32 = 12, cql: f32 = 16, objective: f32 = 20,
    q_mean: f32 = 24, q_min: f32 = 28, q_max: f32 = 32, q_variance: f32 = 36, avg_max_q: f32 = 40,
    reward_mean: f32 = 44, reward_var: f32 = 48, reserved: [u32; 3] = 52);
