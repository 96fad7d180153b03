//! What a training step tells the host.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;
use crate::nan_flags::N_STAGES;

/// The values of the latest finished step, in pinned memory that the device writes. Read it between the two stamps of
/// [`Control`](crate::Control), so that no read mixes two steps.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Readback {
    /// J, the objective of the step (weighted cross-entropy + CQL + IQN). Written by `adam_update` each step.
    pub total_loss: f32,
    /// Mean over the batch of (1/4 sum over branches of (E target - Q))^2, not importance-weighted. `adam_update`.
    pub mse_loss: f32,
    /// Squared norm of the gradient after the vaccine and before clipping. `adam_update`.
    pub grad_norm_sq: f32,
    /// Mean of the online Q over batch, branches and actions. `post_aux`, every 50 steps, as are the next four.
    pub q_mean: f32,
    /// Least Q.
    pub q_min: f32,
    /// Greatest Q.
    pub q_max: f32,
    /// Population variance of Q.
    pub q_variance: f32,
    /// Mean over batch and branches of the greatest action's Q.
    pub avg_max_q: f32,
    /// Mean causal sensitivity over features. `maintenance`, every `causal.every` steps.
    pub causal_mean_sens: f32,
    /// This step's faults, a word a stage: see [`nan_flags`](crate::nan_flags).
    pub nan_flags: [u32; N_STAGES],
}

assert_layout!(Readback, size 64, align 64,
    total_loss: f32 = 0, mse_loss: f32 = 4, grad_norm_sq: f32 = 8, q_mean: f32 = 12, q_min: f32 = 16, q_max: f32 = 20,
    q_variance: f32 = 24, avg_max_q: f32 = 28, causal_mean_sens: f32 = 32, nan_flags: [u32; N_STAGES] = 36);
