//! What the auxiliary learners' kernels tell each other.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// PopArt's averages of q over batches; all zero before the first. It lives from step to step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct PopArt {
    /// mu: of q. In f64, as nu: nu - mu^2 is small beside both.
    pub mean: f64,
    /// nu: of q^2.
    pub square: f64,
    /// 1 once a batch was taken in.
    pub seeded: u32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(PopArt, size 24, align 8, mean: f64 = 0, square: f64 = 8, seeded: u32 = 16, reserved: u32 = 20);

/// What IQL's heads found in a step's batch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct IqlTotals {
    /// PopArt with this batch.
    pub popart: PopArt,
    /// Its std.
    pub std: f32,
    /// std before / std: what the last layers are multiplied by.
    pub shrink: f32,
    /// (mu before - mu) / std: what is then added to their biases.
    pub shift: f32,
    /// Mean of V_high - V_low.
    pub gap: f32,
}

assert_layout!(IqlTotals, size 40, align 8,
    popart: PopArt = 0, std: f32 = 24, shrink: f32 = 28, shift: f32 = 32, gap: f32 = 36);
