//! What must hold between keys. What holds for one key alone is its range.

use super::keys::Config;

/// Keys that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenRule {
    /// The keys concerned.
    pub keys: &'static [&'static str],
    /// What must hold, and what to do.
    pub reason: &'static str,
}

/// Keys, whether they fit, and what must hold.
type Rule = (&'static [&'static str], fn(&Config) -> bool, &'static str);

/// A device counts steps and bars in 31 bits.
const COUNTED_MOST: u64 = i32::MAX as u64;

/// First what does not depend on another rule, so that the first message names the cause.
const RULES: &[Rule] = &[
    (
        &["capacity", "environments", "n_step"],
        |c| c.environments <= c.capacity / (2 * c.n_step.max(1) as usize),
        "the ring must hold at least 2 n_step bars of all environments; raise `capacity` or lower `environments`",
    ),
    (
        &["capacity", "environments"],
        |c| c.environments > 0 && c.capacity.is_multiple_of(c.environments),
        "the capacity must be a multiple of the environments, whose transitions lie side by side in the ring",
    ),
    (
        &["batch", "capacity"],
        |c| c.batch <= c.capacity,
        "a batch cannot be larger than the ring; lower `batch` or raise `capacity`",
    ),
    (
        &["warmup", "capacity"],
        |c| c.warmup <= c.capacity,
        "the ring cannot hold so many transitions; lower `warmup` or raise `capacity`",
    ),
    (
        &["n_step", "episode_len"],
        |c| c.n_step < c.episode_len,
        "an episode must be longer than the reward's sum; raise `episode_len` or lower `n_step`",
    ),
    (&["v_min", "v_max"], |c| c.v_min < c.v_max, "the lowest atom must lie under the highest; raise `v_max`"),
    (
        &["tau_final", "tau_init"],
        |c| c.tau_final <= c.tau_init,
        "the target's rate falls over a run; lower `tau_final` or raise `tau_init`",
    ),
    (&["e_end", "e_start"], |c| c.e_end <= c.e_start, "exploration falls over a run; lower `e_end` or raise `e_start`"),
    (
        &["prune.start", "prune.end"],
        |c| c.prune.start < c.prune.end,
        "pruning must begin before it ends; lower `prune.start` or raise `prune.end`",
    ),
    (
        &["folds", "epochs", "steps_per_epoch"],
        |c| (c.folds as u64).saturating_mul(c.steps_per_fold()) <= COUNTED_MOST,
        "a run has at most 2147483647 steps; lower `epochs` or `steps_per_epoch`",
    ),
    (
        &["epochs", "bars_per_epoch", "warmup"],
        |c| u64::from(c.epochs) * u64::from(c.bars_per_epoch) + c.warmup_bars() <= COUNTED_MOST,
        "an environment runs through at most 2147483647 bars; lower `epochs` or `bars_per_epoch`",
    ),
];

impl Config {
    /// Whether the keys fit each other. Each key alone lies in its range already, whatever laid it there.
    pub fn validate(&self) -> Result<(), BrokenRule> {
        match RULES.iter().find(|(_, holds, _)| !holds(self)) {
            Some(&(keys, _, reason)) => Err(BrokenRule { keys, reason }),
            None => Ok(()),
        }
    }
}
