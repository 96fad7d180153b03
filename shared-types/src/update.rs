//! What the update's kernels tell each other: norms, scalars of each learner, skipped updates, the trunk's matrices.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// A learner's place in the flat parameters, and its partial norms in the list of all.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct LearnerRange {
    /// First element, a multiple of 64.
    pub start: u32,
    /// Elements, a multiple of 64.
    pub len: u32,
    /// First partial norm.
    pub first_partial: u32,
    /// Partial norms.
    pub n_partials: u32,
}

assert_layout!(LearnerRange, size 16, align 4, start: u32 = 0, len: u32 = 4, first_partial: u32 = 8, n_partials: u32 = 12);

/// Squared norm of a gradient, or of a stretch of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct GradientNorm {
    /// Sum of squares.
    pub sum_of_squares: f32,
    /// What the elements were besides numbers: bits of [`nan_flags`](crate::nan_flags).
    pub flags: u32,
}

assert_layout!(GradientNorm, size 8, align 4, sum_of_squares: f32 = 0, flags: u32 = 4);

/// Constants of a run for `gate_step`; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct GateParams {
    /// Bit l: learner l is on. A learner that is off is never updated, and its counter only rises.
    pub learners: u32,
    /// 1: from the second applied update on theta is clipped to min(control clip, 2 clip_ema). 0: to the control clip.
    pub adaptive_clip: u32,
    /// Weight decay of theta's matrices; the other learners have none.
    pub weight_decay: f32,
    /// Weight of the vaccine.
    pub vaccine_weight: f32,
}

assert_layout!(GateParams, size 16, align 4,
    learners: u32 = 0, adaptive_clip: u32 = 4, weight_decay: f32 = 8, vaccine_weight: f32 = 12);

/// Products of theta's gradient g and the last applied one s, or parts of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct SnapshotProducts {
    /// g s.
    pub dot: f32,
    /// |s|^2.
    pub squares: f32,
    /// |s|^2 over what the pruning mask keeps.
    pub kept_squares: f32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(SnapshotProducts, size 16, align 4, dot: f32 = 0, squares: f32 = 4, kept_squares: f32 = 8, reserved: u32 = 12);

/// What the gradient vaccine does in a step.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct VaccineScalars {
    /// What the last applied gradient is multiplied by before it is added.
    pub multiple: f32,
    /// Cosine of the two gradients.
    pub cosine: f32,
    /// 1 if there were two to compare.
    pub compared: u32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(VaccineScalars, size 16, align 16, multiple: f32 = 0, cosine: f32 = 4, compared: u32 = 8, reserved: u32 = 12);

/// When how much is pruned; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct PruneParams {
    /// Share of weights that go in the end.
    pub final_sparsity: f64,
    /// Step from which masks are renewed.
    pub start: u32,
    /// Last step at which they may be.
    pub end: u32,
    /// Steps between renewals.
    pub every: u32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(PruneParams, size 24, align 8,
    final_sparsity: f64 = 0, start: u32 = 8, end: u32 = 12, every: u32 = 16, reserved: u32 = 20);

/// A tensor that is pruned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct PruneTensor {
    /// First element in the flat parameters.
    pub start: u32,
    /// Behind its last.
    pub end: u32,
    /// Weights of lower bins go.
    pub threshold: u32,
    /// Weights that went.
    pub n_pruned: u32,
}

assert_layout!(PruneTensor, size 16, align 4, start: u32 = 0, end: u32 = 4, threshold: u32 = 8, n_pruned: u32 = 12);

/// What the sweep over a learner's parameters needs.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct UpdateScalars {
    /// [`GATED`](Self::GATED), [`STEP_GATED`](Self::STEP_GATED).
    pub gate: u32,
    /// Learning rate.
    pub lr: f32,
    /// min(1, clip / norm).
    pub gradient_scale: f32,
    /// 1 / (1 - 0.9^t), t counting applied updates, this one too.
    pub first_correction: f32,
    /// 1 / (1 - 0.999^t).
    pub second_correction: f32,
    /// Weight decay of the learner's matrices.
    pub weight_decay: f32,
    /// Rate of the target EMA.
    pub tau: f32,
    /// Squared norm of the learner's gradient before clipping.
    pub squared_norm: f32,
}

assert_layout!(UpdateScalars, size 32, align 32,
    gate: u32 = 0, lr: f32 = 4, gradient_scale: f32 = 8, first_correction: f32 = 12, second_correction: f32 = 16,
    weight_decay: f32 = 20, tau: f32 = 24, squared_norm: f32 = 28);

impl UpdateScalars {
    /// Bit of [`gate`](Self::gate): this learner's parameters and moments stay.
    pub const GATED: u32 = 1 << 0;
    /// Bit of [`gate`](Self::gate): the whole step is gated, so targets stay too.
    pub const STEP_GATED: u32 = 1 << 1;
}

/// Steps over which skipped updates lower the health.
pub const SKIP_WINDOW: usize = 1000;

/// Words of the device's record of them: bit i mod 32 of word i / 32 is set when the last step with rng_step mod 1,000 = i was
/// skipped, and the last word counts the bits that are set.
pub const SKIP_WORDS: usize = SKIP_WINDOW.div_ceil(32) + 1;

/// A matrix with a spectral norm: where it lies in the flat parameters, online and target alike.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SpectralMatrix {
    /// First element, a multiple of 64.
    pub offset: u32,
    /// Rows (outputs).
    pub n_rows: u32,
    /// Columns (inputs), a multiple of 4.
    pub n_cols: u32,
    /// First element of its u in the list of all.
    pub u_offset: u32,
}

assert_layout!(SpectralMatrix, size 16, align 4, offset: u32 = 0, n_rows: u32 = 4, n_cols: u32 = 8, u_offset: u32 = 12);
