//! The configuration of a run.
//!
//! One table, in `keys`, says of every key its type, presets, range, unit and meaning; the structs, the TOML reader, its
//! messages, the effective configuration and `docs/configuration.md` all come from it, so that no two of them disagree.
//!
//! | file | holds |
//! |---|---|
//! | `keys` | the table |
//! | `setting`, `range` | how a value of each type is read, written and bounded |
//! | `layers` | preset, then file, then `--set`; which layer a value came from |
//! | `rules` | what must hold between keys |
//! | `text` | the effective configuration as TOML, and the documentation's tables |
//! | `memory` | bytes that a run needs on its device and on the host |

mod error;
mod keys;
mod layers;
mod memory;
mod range;
mod rules;
mod setting;
#[cfg(test)]
mod tests;
mod text;

pub use error::{ConfigError, Origin};
pub use keys::{
    Causal, Config, Costs, Denoise, Her, KEYS, Key, Learners, Per, Prune, Risk, SECTIONS, Select, Sim, Vaccine,
};
pub use layers::Layers;
pub use memory::{MemoryError, MemoryEstimate, MemoryPart, bytes_text};
pub use range::Range;
pub use rules::BrokenRule;
pub use setting::Sampler;
pub use text::documentation;

use crate::market::rules::{self as market, Rules};

/// Named sets of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// For continuous integration: seconds.
    Tiny,
    /// The CPU's default: a useful run in minutes.
    Small,
    /// The GPU's default.
    Full,
}

impl Preset {
    /// All of them, smallest first.
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Small, Self::Full];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Full => "full",
        }
    }
}

/// Where the bars of a run come from; some presets depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// The built-in simulator.
    Simulator,
    /// Market files.
    Files,
}

impl Config {
    /// The values of a preset.
    pub fn preset(preset: Preset, source: DataSource) -> Self {
        let mut config = Self::of_column(preset as usize);
        // Real markets change over the years, so that one test part would judge one regime.
        if source == DataSource::Files && preset == Preset::Full {
            config.folds = 3;
        }
        config
    }

    /// Training steps of one fold.
    pub fn steps_per_fold(&self) -> u64 {
        u64::from(self.epochs) * u64::from(self.steps_per_epoch)
    }

    /// Whether any weight is ever pruned.
    pub fn prunes(&self) -> bool {
        self.learners.pruning && self.prune.final_sparsity > 0.0
    }

    /// Bars that all environments run through before the first step, so that at least `warmup` transitions are complete.
    pub fn warmup_bars(&self) -> u64 {
        (self.warmup as u64).div_ceil(self.environments as u64) + u64::from(self.n_step) - 1
    }

    /// Costs as the market takes them.
    pub fn market_costs(&self) -> market::Costs {
        let Costs { half_spread_bp, taker_bp, maker_bp, short_financing_bp } = self.costs;
        market::Costs { half_spread_bp, taker_bp, maker_bp, short_financing_bp }
    }

    /// Episodes and rewards as the market takes them.
    pub fn market_rules(&self) -> Rules {
        Rules {
            window: self.window,
            episode_len: self.episode_len,
            n_step: self.n_step,
            min_hold: self.min_hold,
            lambda_dd: self.lambda_dd,
            reward_scale: self.reward_scale,
            her_weight: if self.learners.her { self.her.weight } else { 0.0 },
            costs: self.market_costs(),
        }
    }
}
