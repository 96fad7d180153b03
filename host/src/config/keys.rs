//! Every key: type, values of the presets `[tiny, small, full]`, range, unit, meaning.

use shared_types::Precision;
use shared_types::market::MAX_N_STEP;

use super::range::{Range, above, below, from, multiple, power_of_two, whole};
use super::setting::{Sampler, Setting};
use crate::data::simulate::{Market, N_BARS_MAX};

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with the section before a dot.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Its unit; "-" for a plain number, a switch or a word.
    pub unit: &'static str,
    /// The values that it may have.
    pub range: Range,
    pub(super) read: fn(&Config) -> toml::Value,
    pub(super) write: fn(&mut Config, &toml::Value) -> bool,
}

/// The structs, and [`KEYS`] over all of them, from one list. `as` names a key whose name is a word of Rust's own.
macro_rules! keys {
    (
        Config {
            $(
                $(#[doc = $root_doc:literal])+
                $root:ident: $root_type:ty = $root_presets:expr, $root_range:expr, $root_unit:literal;
            )+
        }
        $(
            $(#[doc = $section_doc:literal])+
            $section:ident: $Section:ident {
                $(
                    $(#[doc = $doc:literal])+
                    $key:ident $(as $alias:literal)?: $type:ty = $presets:expr, $range:expr, $unit:literal;
                )+
            }
        )+
    ) => {
        /// The configuration of a run: one field for every key.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $( $(#[doc = $root_doc])+ pub $root: $root_type, )+
            $( $(#[doc = $section_doc])+ pub $section: $Section, )+
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Section {
                $( $(#[doc = $doc])+ pub $key: $type, )+
            }
        )+

        impl Config {
            /// The preset of column 0, 1 or 2.
            pub(super) fn of_column(column: usize) -> Self {
                Self {
                    $( $root: { let presets: [$root_type; 3] = $root_presets; presets[column] }, )+
                    $( $section: $Section {
                        $( $key: { let presets: [$type; 3] = $presets; presets[column] }, )+
                    }, )+
                }
            }
        }

        /// All keys, in the order of the documentation.
        pub static KEYS: &[Key] = &[
            $( Key {
                name: stringify!($root),
                doc: concat!($($root_doc),+),
                unit: $root_unit,
                range: $root_range,
                read: |config| config.$root.write(),
                write: |config, value| Setting::read(value).map(|read| config.$root = read).is_some(),
            }, )+
            $( $( Key {
                name: key_name!($section $key $($alias)?),
                doc: concat!($($doc),+),
                unit: $unit,
                range: $range,
                read: |config| config.$section.$key.write(),
                write: |config, value| Setting::read(value).map(|read| config.$section.$key = read).is_some(),
            }, )+ )+
        ];

        /// The sections, in the order of the documentation, each with what it is about.
        pub static SECTIONS: &[(&str, &str)] = &[ $( (stringify!($section), concat!($($section_doc),+)), )+ ];
    };
}

macro_rules! key_name {
    ($section:ident $key:ident) => {
        concat!(stringify!($section), ".", stringify!($key))
    };
    ($section:ident $key:ident $alias:literal) => {
        concat!(stringify!($section), ".", $alias)
    };
}

keys! {
    Config {
        /// Seed of network, exploration, sampling and simulated market. The same seed, program and device give the same bits.
        seed: u64 = [0; 3], whole(0, i64::MAX), "-";
        /// What products with weight matrices round their operands to; `f32` leaves them, for comparison with another implementation.
        precision: Precision = [Precision::Bf16; 3], Range::Choice(&["bf16", "f32"]), "-";

        /// Parts of the walk-forward: each trains, validates and tests on later bars than the one before it.
        folds: usize = [1; 3], whole(1, 100), "folds";
        /// Epochs of each fold.
        epochs: u32 = [5, 20, 200], whole(1, 1_000_000), "epochs";
        /// Training steps of an epoch.
        steps_per_epoch: u32 = [20, 100, 178], whole(1, 1_000_000), "steps";
        /// Epochs between checkpoints from which a run can be gone on with. The best agent so far is kept in any case.
        checkpoint_every: u32 = [1, 1, 100], whole(1, 1_000_000), "epochs";
        /// Environments that collect in parallel; the capacity is a multiple of it.
        environments: usize = [16, 64, 4096], power_of_two(1, 1 << 20), "environments";
        /// Bars that every environment runs through in an epoch.
        bars_per_epoch: u32 = [32, 128, 32], whole(1, 1_000_000), "bars";
        /// Transitions in the replay ring before the first step of a fold.
        warmup: usize = [512, 4_096, 131_072], whole(1, 1 << 27), "transitions";

        /// Bars that a state shows.
        window: u32 = [4, 8, 16], multiple(4, 4, 64), "bars";
        /// Bars after which an episode is cut.
        episode_len: u32 = [64, 250, 512], whole(2, 1_000_000), "bars";
        /// Choices of the minimum-hold branch, counted from the fill.
        min_hold: [u32; 3] = [[1, 2, 4], [1, 2, 4], [1, 5, 15]], Range::Rising { most: 1_000 }, "bars";
        /// Bars of the reward's sum in a transition.
        n_step: u32 = [3; 3], whole(1, MAX_N_STEP as i64), "bars";
        /// Multiplies the rewards that are stored, so that returns fit between the outer atoms.
        reward_scale: f64 = [0.2; 3], above(0.0, 100.0), "-";
        /// Weight of an increase of the episode's maximum log drawdown in the reward.
        lambda_dd: f64 = [0.1; 3], from(0.0, 100.0), "-";

        /// Width H of the trunk.
        hidden: usize = [32, 64, 512], multiple(32, 32, 2048), "columns";
        /// Width of the hidden layers of V, of the advantages and of IQN.
        branch_hidden: usize = [16, 32, 128], multiple(16, 16, 1024), "columns";
        /// Atoms K of a return distribution.
        atoms: usize = [51; 3], whole(2, 64), "atoms";
        /// Lowest atom of every branch.
        v_min: f64 = [-3.0, -1.5, -3.0], from(-1e6, 1e6), "scaled return";
        /// Highest atom of every branch.
        v_max: f64 = [3.0, 1.5, 3.0], from(-1e6, 1e6), "scaled return";
        /// Keep probability of the last residual block under stochastic depth.
        depth_keep_last: f64 = [0.9; 3], above(0.0, 1.0), "probability";
        /// Bound on the spectral norm of each of the trunk's matrices.
        sigma_max: f64 = [3.0; 3], above(0.0, 1e6), "-";

        /// Transitions B of a batch.
        batch: usize = [32, 128, 8192], whole(1, 1 << 17), "transitions";
        /// Slots N of the replay ring.
        capacity: usize = [1 << 12, 1 << 16, 1 << 20], power_of_two(64, 1 << 27), "transitions";
        /// Learning rate of every optimiser, constant.
        lr: f64 = [2e-3, 2e-3, 3e-4], above(0.0, 1.0), "a step";
        /// Control clip: bound on the gradient's norm at the first update, and the most that the adaptive clip allows.
        clip: f64 = [10.0; 3], above(0.0, 1e6), "gradient norm";
        /// Decoupled decay of matrices.
        weight_decay: f64 = [1e-4; 3], from(0.0, 1.0), "a step, times lr";
        /// Rate of the target network's moving average at a fold's start.
        tau_init: f64 = [0.05, 0.05, 0.01], above(0.0, 1.0), "a step";
        /// The same rate at a fold's end; the way between is a half cosine. Both are multiplied by 0.5 + 0.5 health.
        tau_final: f64 = [0.01, 0.01, 0.001], above(0.0, 1.0), "a step";
        /// Exploration rate at a fold's start.
        e_start: f64 = [1.0; 3], from(0.0, 1.0), "probability";
        /// Lowest exploration rate.
        e_end: f64 = [0.05, 0.05, 0.02], from(0.0, 1.0), "probability";
        /// Epochs in which the exploration rate falls to 1/e of its way.
        decay: f64 = [2.0, 2.0, 20.0], above(0.0, 1e6), "epochs";
        /// Weight of conservative Q-learning in the objective.
        alpha_cql: f64 = [0.001; 3], from(0.0, 100.0), "-";
        /// Weight of the implicit quantile loss in the objective, at full readiness.
        lambda_iqn: f64 = [0.1; 3], from(0.0, 100.0), "-";
        /// How strongly IQL's advantage modulates the TD errors.
        beta_adv: f64 = [1.0; 3], from(0.0, 100.0), "-";
    }

    /// Costs a side, unless a file's own quotes say more.
    costs: Costs {
        /// Half the spread, for bars without measured quotes.
        half_spread_bp: f64 = [1.0; 3], from(0.0, 1_000.0), "basis points of the value traded";
        /// Fee of a market order.
        taker_bp: f64 = [2.0; 3], from(0.0, 1_000.0), "basis points of the value traded";
        /// Fee of a limit order; below 0 it is a rebate.
        maker_bp: f64 = [1.0; 3], from(-10.0, 1_000.0), "basis points of the value traded";
        /// Financing of a short position.
        short_financing_bp: f64 = [0.0; 3], from(0.0, 100_000.0), "basis points a year";
    }

    /// The built-in market, which is traded without `--data`.
    sim: Sim {
        /// Which market.
        market: Market = [Market::Regimes; 3], Range::Choice(&["regimes", "mean-reverting", "random-walk"]), "-";
        /// Its length.
        bars: u32 = [3_000, 40_000, 200_000], whole(1, N_BARS_MAX), "bars";
    }

    /// Prioritized replay.
    per: Per {
        /// Which kernels draw a batch: a descent of the sum tree, or a prefix sum and binary search.
        sampler: Sampler = [Sampler::Tree; 3], Range::Choice(&["tree", "scan"]), "-";
        /// Exponent of the priorities; 0 samples uniformly.
        alpha: f64 = [0.6; 3], from(0.0, 1.0), "-";
        /// Exponent of the importance weights at a fold's start; it rises to 1.
        beta0: f64 = [0.4; 3], from(0.0, 1.0), "-";
        /// Transitions, those scored longest ago, whose priorities are worked out anew after each epoch; 0 for none.
        rescore: u32 = [512, 4_096, 65_536], whole(0, 1 << 27), "transitions";
    }

    /// Hindsight experience replay.
    her: Her {
        /// Weight of the distance from the goal in stored rewards.
        weight: f64 = [0.01; 3], from(0.0, 100.0), "-";
        /// Share of a batch whose goal is replaced.
        ratio: f64 = [0.25; 3], from(0.0, 1.0), "probability";
    }

    /// Selectivity: whether to trade at all.
    select: Select {
        /// P(trade) under which the policy goes flat; of `learners.selectivity`.
        threshold: f64 = [0.4; 3], from(0.0, 1.0), "probability";
    }

    /// Denoising bottleneck.
    denoise: Denoise {
        /// Standard deviation of the noise on the last bar's features.
        noise: f64 = [0.1; 3], from(0.0, 10.0), "scaled feature";
    }

    /// Risk level of the policy.
    risk: Risk {
        /// Rate at which the CVaR level moves.
        lr: f64 = [1e-3; 3], from(0.0, 1.0), "a step";
        /// Loss at which the CVaR level rests.
        target: f64 = [0.0; 3], from(-1e6, 1e6), "scaled return";
    }

    /// Pruning of trunk and heads.
    prune: Prune {
        /// Sparsity at the end; 0 is off.
        final_sparsity as "final": f64 = [0.0; 3], below(0.0, 1.0), "share of weights";
        /// Step from which masks are renewed.
        start: u32 = [0, 400, 7_120], whole(0, i32::MAX as i64), "steps";
        /// Step from which the sparsity is final.
        end: u32 = [100, 1_600, 28_480], whole(1, i32::MAX as i64), "steps";
        /// Steps between renewals.
        every: u32 = [100; 3], whole(1, i32::MAX as i64), "steps";
    }

    /// Gradient vaccine between successive steps.
    vaccine: Vaccine {
        /// Weight of the last applied gradient that is added on conflict.
        weight: f64 = [1.0; 3], from(0.0, 100.0), "-";
    }

    /// Causal sensitivity of the policy to each feature.
    causal: Causal {
        /// Steps between measurements.
        every: u32 = [100; 3], whole(1, i32::MAX as i64), "steps";
    }

    /// Parts of the agent, each of which can be left out.
    learners: Learners {
        /// Mamba2 block over the window.
        temporal: bool = [false; 3], Range::Switch, "-";
        /// Attention over bars and channels.
        attention: bool = [false; 3], Range::Switch, "-";
        /// Modulation of the trunk by the internal state vector.
        film: bool = [true; 3], Range::Switch, "-";
        /// Spectral norm of the trunk's matrices.
        spectral: bool = [true; 3], Range::Switch, "-";
        /// Stochastic depth.
        depth: bool = [true; 3], Range::Switch, "-";
        /// Variable selection of each branch.
        selection: bool = [true; 3], Range::Switch, "-";
        /// Spacing of the atoms that follows the returns.
        spacing: bool = [true; 3], Range::Switch, "-";
        /// Conservative Q-learning. Off, entry 14 of the internal state vector stays 0.
        cql: bool = [true; 3], Range::Switch, "-";
        /// Implicit quantile head.
        iqn: bool = [false; 3], Range::Switch, "-";
        /// Implicit Q-learning, and the modulation of TD errors by its advantage.
        iql: bool = [false; 3], Range::Switch, "-";
        /// PopArt on IQL's heads; without `learners.iql` it does nothing. Off, the heads learn plain Q: mean 0 and deviation 1 throughout.
        popart: bool = [true; 3], Range::Switch, "-";
        /// Hindsight experience replay, its term in the reward included.
        her: bool = [true; 3], Range::Switch, "-";
        /// Selectivity.
        selectivity: bool = [false; 3], Range::Switch, "-";
        /// Denoising bottleneck.
        denoise: bool = [false; 3], Range::Switch, "-";
        /// Movement of the CVaR level.
        risk: bool = [false; 3], Range::Switch, "-";
        /// Statistics of Q. Off, `q` is null in the metrics, and entries 5 and 6 of the internal state vector, which modulate the trunk,
        /// stay 0.
        q_statistics: bool = [true; 3], Range::Switch, "-";
        /// The target network as a moving average of the online one. Off, there is no target network: targets come from the online
        /// parameters as the step begins, with keep probabilities in place of stochastic depth. For ablations: nothing then keeps
        /// the targets from running after the values.
        target_ema: bool = [true; 3], Range::Switch, "-";
        /// Pruning, if `prune.final` is above 0.
        pruning: bool = [true; 3], Range::Switch, "-";
        /// Gradient vaccine.
        vaccine: bool = [true; 3], Range::Switch, "-";
        /// Clip that follows the gradient's norm; off, the control clip alone.
        adaptive_clip: bool = [true; 3], Range::Switch, "-";
        /// Causal sensitivity.
        causal: bool = [true; 3], Range::Switch, "-";
    }
}
