//! The host's inputs to a step, the step counters, and what the counters kernel derives from both.

use bytemuck::{Pod, Zeroable};

use crate::{assert_layout, due};

/// The control page, pinned and mapped: the host's only inputs while training, and the stamps of the readback.
///
/// The last kernel of a step writes `stamp_begin`, then its mirrors, then `stamp_end`, each with system-scope release
/// order. A reader loads `stamp_end`, copies, loads `stamp_begin`, and keeps the copy when the two are equal.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Control {
    /// Learning rate of every optimiser.
    pub lr: f32,
    /// Bound on the gradient's norm.
    pub clip: f32,
    /// Exponent of the importance weights at the start of a fold.
    pub beta0: f32,
    /// Reserved, zero.
    pub flags: u32,
    /// `rng_step` of the step whose mirrors are being written; the device's.
    pub stamp_begin: u32,
    /// `rng_step` of the last step whose mirrors are complete; the device's.
    pub stamp_end: u32,
    /// Zero.
    pub reserved: [u32; 10],
}

assert_layout!(Control, size 64, align 64,
    lr: f32 = 0, clip: f32 = 4, beta0: f32 = 8, flags: u32 = 12, stamp_begin: u32 = 16, stamp_end: u32 = 20,
    reserved: [u32; 10] = 24);

/// Step counters. All rise by 1 each step; a learner whose update was gated takes its own 1 back, so that bias correction
/// counts applied updates. `rng_step` never goes back.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counters {
    /// Applied updates of trunk and branches.
    pub adam_t: i32,
    /// Of the selectivity head.
    pub sel_t: i32,
    /// Of the denoise head.
    pub denoise_t: i32,
    /// Of IQL's high head.
    pub iql_t: i32,
    /// Of IQL's low head.
    pub iql_low_t: i32,
    /// Of IQN's head.
    pub iqn_t: i32,
    /// Of the attention.
    pub attn_t: i32,
    /// Steps run, gated ones too: word 2 of the Philox counter.
    pub rng_step: i32,
}

assert_layout!(Counters, size 32, align 32,
    adam_t: i32 = 0, sel_t: i32 = 4, denoise_t: i32 = 8, iql_t: i32 = 12, iql_low_t: i32 = 16, iqn_t: i32 = 20,
    attn_t: i32 = 24, rng_step: i32 = 28);

/// Residual blocks that stochastic depth may skip.
pub const N_DEPTH_BLOCKS: usize = 2;

/// What `increment_step_counters` works out for the rest of the step; device-resident.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct StepScalars {
    /// Learning rate, from [`Control`].
    pub lr: f32,
    /// Bound on the gradient's norm, from [`Control`].
    pub clip: f32,
    /// Exponent of the importance weights.
    pub beta: f32,
    /// Rate of the target EMA.
    pub tau: f32,
    /// Stochastic depth of each residual block: 1 keeps its branch, 0 skips it.
    pub depth_mask: [f32; N_DEPTH_BLOCKS],
    /// ISV's health at the last epoch boundary, 1 before the first; `tau_update` alone writes it.
    pub health_at_epoch: f32,
    /// Flags, from [`Control`].
    pub flags: u32,
}

assert_layout!(StepScalars, size 32, align 32,
    lr: f32 = 0, clip: f32 = 4, beta: f32 = 8, tau: f32 = 12, depth_mask: [f32; N_DEPTH_BLOCKS] = 16,
    health_at_epoch: f32 = 24, flags: u32 = 28);

/// Constants of a run that the step's schedules use; passed by value, so baked into the captured graph.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Schedule {
    /// tau at step 0.
    pub tau_init: f32,
    /// tau from `anneal_steps` on.
    pub tau_final: f32,
    /// Steps over which tau falls.
    pub anneal_steps: u32,
    /// Steps over which beta rises to 1.
    pub total_steps: u32,
    /// Key of the random generator: low word, high word of the seed.
    pub seed: [u32; 2],
    /// Probability that the last residual block is kept.
    pub depth_keep_last: f32,
    /// Steps from one time to the next of each kind of work in [`due`]; 0 for never.
    pub every: [u32; due::N],
}

assert_layout!(Schedule, size 36, align 4,
    tau_init: f32 = 0, tau_final: f32 = 4, anneal_steps: u32 = 8, total_steps: u32 = 12, seed: [u32; 2] = 16,
    depth_keep_last: f32 = 24, every: [u32; due::N] = 28);
