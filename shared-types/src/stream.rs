//! Stream numbers of the random generator: word 1 of the Philox counter (element, stream, rng_step, 0).
//!
//! Each use has its own, so that no two uses draw the same numbers. Element is the batch row where nothing else is said.

/// Position inside its stratum of a drawn transition.
pub const PER_SAMPLE: u32 = 0;
/// Whether a row is relabelled.
pub const HER_PICK: u32 = 1;
/// Which later transition of its episode gives a relabelled row its goal.
pub const HER_DONOR: u32 = 2;
/// Stochastic depth; element = residual block.
pub const DEPTH: u32 = 3;
/// Noise on features; element = row * F + feature.
pub const DENOISE: u32 = 4;
/// Row shift of the causal sensitivity; element 0.
pub const CAUSAL: u32 = 5;
/// Goal of an episode at its reset; element = environment, as in the next four.
pub const GOAL: u32 = 6;
/// First bar of an episode.
pub const EPISODE_START: u32 = 7;
/// Length of an environment's first episode.
pub const EPISODE_LENGTH: u32 = 8;
/// Whether a branch explores; element = environment * branches + branch.
pub const EXPLORE: u32 = 9;
/// Action of a branch that explores; element = environment * branches + branch.
pub const EXPLORE_ACTION: u32 = 10;
/// Start vectors of the power iteration; element = flat index.
pub const SPECTRAL: u32 = 11;
/// Blocks of the bootstrap.
pub const BOOTSTRAP: u32 = 12;
/// Actions of the random baseline.
pub const RANDOM_BASELINE: u32 = 13;
/// The market simulator.
pub const SIMULATOR: u32 = 14;
/// Initial values: tensor i of the layout draws from `PARAMETERS + i`, element = flat index, rng_step 0.
pub const PARAMETERS: u32 = 1000;

/// All streams with a number of their own, for the test that no two share one.
pub const ALL: [(&str, u32); 15] = [
    ("per_sample", PER_SAMPLE),
    ("her_pick", HER_PICK),
    ("her_donor", HER_DONOR),
    ("depth", DEPTH),
    ("denoise", DENOISE),
    ("causal", CAUSAL),
    ("goal", GOAL),
    ("episode_start", EPISODE_START),
    ("episode_length", EPISODE_LENGTH),
    ("explore", EXPLORE),
    ("explore_action", EXPLORE_ACTION),
    ("spectral", SPECTRAL),
    ("bootstrap", BOOTSTRAP),
    ("random_baseline", RANDOM_BASELINE),
    ("simulator", SIMULATOR),
];
