//! The words of [`Readback::nan_flags`](crate::Readback::nan_flags): which stage of a step met a non-finite value.
//!
//! A word is 0 when its stage met none; otherwise its bits say where.

/// Stages of a step, one word each.
pub const N_STAGES: usize = 7;

/// Sampled states, rewards or importance weights.
pub const SAMPLE: usize = 0;
/// Activations or losses of the online pass.
pub const FORWARD: usize = 1;
/// Target distribution.
pub const DDQN: usize = 2;
/// Losses or gradients of the auxiliary heads.
pub const AUX: usize = 3;
/// Gradient of the objective.
pub const GRADIENT: usize = 4;
/// Parameters or moments as the update would leave them.
pub const UPDATE: usize = 5;
/// TD errors that keep their leaves.
pub const PRIORITY: usize = 6;

/// Names in the order of the words, for logs and JSON.
pub const NAMES: [&str; N_STAGES] = ["sample", "forward", "ddqn", "aux", "gradient", "update", "priority"];

/// Bit of a word: a value was NaN.
pub const NAN: u32 = 1 << 0;
/// Bit of a word: a value was infinite.
pub const INFINITE: u32 = 1 << 1;
/// Bit of a word: the stage's update was gated because of it.
pub const GATED: u32 = 1 << 2;
