//! Work of a step that is due only every so many steps: where each kind of it has its word on the device.
//!
//! `increment_step_counters` writes the words in every step: rng_step where the work is due, else 0. Launches hang on them, and what
//! they find is taken over by who comes later in the same step.

/// Causal sensitivity.
pub const CAUSAL: usize = 0;
/// Spacing of the atoms.
pub const SPACING: usize = 1;
/// Words.
pub const N: usize = 2;
