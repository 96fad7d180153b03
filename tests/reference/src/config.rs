//! Sizes, switches and constants of a step.

use crate::precision::Precision;

/// Branches of the action.
pub const N_BRANCHES: usize = 4;
/// Actions of each branch: direction, size, order, hold.
pub const BRANCH_SIZES: [usize; N_BRANCHES] = [4, 3, 3, 3];
/// Names of the branches.
pub const BRANCH_NAMES: [&str; N_BRANCHES] = ["direction", "size", "order", "hold"];
/// Actions of all branches: outputs of the IQN head.
pub const N_ACTIONS: usize = 13;
/// Actions of the direction branch, in the order in which section 7 names them.
pub mod direction {
    /// Target position below zero.
    pub const SHORT: usize = 0;
    /// Target position above zero.
    pub const LONG: usize = 1;
    /// Target position zero.
    pub const FLAT: usize = 2;
    /// No order.
    pub const HOLD: usize = 3;
}
/// Entries of the internal state vector that modulate the trunk.
pub const N_FILM_INPUTS: usize = 12;

/// First action of branch `branch` among all 13.
pub fn first_action(branch: usize) -> usize {
    BRANCH_SIZES[..branch].iter().sum()
}

/// Every dimension of the network. The design fixes all but the first four; tests use small ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bars T of the window, a multiple of `attention_heads`.
    pub window: usize,
    /// Width H of the trunk, a multiple of `groups`.
    pub hidden: usize,
    /// Width of the hidden layer of V, of A_b and of IQN.
    pub branch_hidden: usize,
    /// Atoms K of a return distribution.
    pub atoms: usize,
    /// Market features F of a bar.
    pub features: usize,
    /// Portfolio features.
    pub portfolio: usize,
    /// Width of a bar's embedding and of the output of the temporal block.
    pub temporal: usize,
    /// Heads of the scan.
    pub scan_heads: usize,
    /// Channels of a head of the scan.
    pub scan_head_width: usize,
    /// Width of B and C: columns of a head's state.
    pub scan_state: usize,
    /// Taps of the causal convolution.
    pub conv_taps: usize,
    /// Width of the attention's embedding and output.
    pub attention: usize,
    /// Heads of both attentions.
    pub attention_heads: usize,
    /// Width of the denoise bottleneck.
    pub bottleneck: usize,
    /// Residual blocks L of the trunk.
    pub blocks: usize,
    /// Groups of the variable selection.
    pub groups: usize,
    /// Cosines of IQN's embedding of the quantile level.
    pub cosines: usize,
    /// Quantile levels N = N' of IQN.
    pub quantiles: usize,
    /// Width of the hidden layer of V_high and V_low.
    pub iql_hidden: usize,
}

impl Sizes {
    /// The design's network with the four sizes that a preset chooses.
    pub const fn new(window: usize, hidden: usize, branch_hidden: usize, atoms: usize) -> Self {
        Self {
            window,
            hidden,
            branch_hidden,
            atoms,
            features: 24,
            portfolio: 15,
            temporal: 64,
            scan_heads: 4,
            scan_head_width: 32,
            scan_state: 16,
            conv_taps: 4,
            attention: 64,
            attention_heads: 4,
            bottleneck: 32,
            blocks: 2,
            groups: 8,
            cosines: 64,
            quantiles: 8,
            iql_hidden: 128,
        }
    }

    /// Preset `tiny`.
    pub const TINY: Self = Self::new(4, 32, 16, 51);
    /// Preset `small`.
    pub const SMALL: Self = Self::new(8, 64, 32, 51);
    /// Preset `full`.
    pub const FULL: Self = Self::new(16, 512, 128, 51);
    /// Every part at a size at which each parameter can be differentiated numerically in seconds.
    pub const MINIATURE: Self = Self {
        window: 4,
        hidden: 8,
        branch_hidden: 4,
        atoms: 5,
        features: 6,
        portfolio: 3,
        temporal: 4,
        scan_heads: 2,
        scan_head_width: 3,
        scan_state: 2,
        conv_taps: 4,
        attention: 4,
        attention_heads: 2,
        bottleneck: 4,
        blocks: 2,
        groups: 4,
        cosines: 4,
        quantiles: 3,
        iql_hidden: 5,
    };

    /// Width of an unpadded state: window, portfolio, goal.
    pub const fn state_dim(&self) -> usize {
        self.window * self.features + self.portfolio + 1
    }

    /// `state_dim` rounded up to a multiple of 64: distance of two rows in the trainer's buffers.
    pub const fn state_stride(&self) -> usize {
        self.state_dim().div_ceil(64) * 64
    }

    /// Where each part of u begins.
    pub const fn input(&self) -> InputColumns {
        let portfolio = self.features;
        let goal = portfolio + self.portfolio;
        let temporal = goal + 1;
        let attention = temporal + self.temporal;
        let bottleneck = attention + self.attention;
        InputColumns { portfolio, goal, temporal, attention, bottleneck, width: bottleneck + self.bottleneck }
    }

    /// Channels of z, of x and of y in the temporal block.
    pub const fn scan_inner(&self) -> usize {
        self.scan_heads * self.scan_head_width
    }

    /// Channels that the convolution sees: x, B, C.
    pub const fn conv_channels(&self) -> usize {
        self.scan_inner() + 2 * self.scan_state
    }

    /// Outputs of in_proj: z, x, B, C, dt.
    pub const fn scan_projection(&self) -> usize {
        2 * self.scan_inner() + 2 * self.scan_state + self.scan_heads
    }
}

/// First column of each part of the trunk's input u; the last bar's features begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputColumns {
    /// Portfolio features.
    pub portfolio: usize,
    /// The goal.
    pub goal: usize,
    /// Output of the temporal block.
    pub temporal: usize,
    /// Output of the attention.
    pub attention: usize,
    /// Denoise bottleneck.
    pub bottleneck: usize,
    /// Width of u.
    pub width: usize,
}

/// Which parts are on. A part that is off leaves the layout of the parameters as it is; what it would give to u is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learners {
    /// Temporal block.
    pub temporal: bool,
    /// Attention.
    pub attention: bool,
    /// Modulation of the trunk by the internal state vector.
    pub film: bool,
    /// Spectral norm.
    pub spectral: bool,
    /// Stochastic depth: off, every block always counts in full, in all passes.
    pub depth: bool,
    /// Per-branch variable selection: off, every branch sees h.
    pub selection: bool,
    /// Moving atoms.
    pub spacing: bool,
    /// CQL.
    pub cql: bool,
    /// IQN, its head and its part in the objective.
    pub iqn: bool,
    /// IQL, and the modulation of td errors by its advantage.
    pub iql: bool,
    /// PopArt on IQL's heads: off, mu 0 and std 1.
    pub popart: bool,
    /// Selectivity.
    pub selectivity: bool,
    /// Denoise, its bottleneck in u included.
    pub denoise: bool,
    /// Descent of risk_eta.
    pub risk: bool,
    /// Statistics of Q.
    pub q_statistics: bool,
    /// The target network: off, targets come from the online parameters as the step begins.
    pub target_ema: bool,
    /// Pruning.
    pub pruning: bool,
    /// Vaccine.
    pub vaccine: bool,
    /// Adaptive clip: off, the control clip alone.
    pub adaptive_clip: bool,
    /// Causal sensitivity.
    pub causal: bool,
}

impl Learners {
    /// Trunk, branches, C51, double DQN, prioritized replay's weights, Adam, target EMA.
    pub const CORE: Self = Self {
        temporal: false,
        attention: false,
        film: false,
        spectral: false,
        depth: false,
        selection: false,
        spacing: false,
        cql: false,
        iqn: false,
        iql: false,
        popart: false,
        selectivity: false,
        denoise: false,
        risk: false,
        q_statistics: false,
        target_ema: true,
        pruning: false,
        vaccine: false,
        adaptive_clip: false,
        causal: false,
    };
    /// Everything.
    pub const FULL: Self = Self {
        temporal: true,
        attention: true,
        film: true,
        spectral: true,
        depth: true,
        selection: true,
        spacing: true,
        cql: true,
        iqn: true,
        iql: true,
        popart: true,
        selectivity: true,
        denoise: true,
        risk: true,
        q_statistics: true,
        target_ema: true,
        pruning: true,
        vaccine: true,
        adaptive_clip: true,
        causal: true,
    };
}

/// Pruning's schedule, in steps of `rng_step`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PruneSchedule {
    /// Sparsity at the end, in [0, 1); 0 is off.
    pub final_sparsity: f64,
    /// First step that renews masks.
    pub start: u64,
    /// Step from which the sparsity is final.
    pub end: u64,
    /// Steps between renewals.
    pub every: u64,
}

/// Constants of a step. [`Config::new`] has the design's.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Dimensions.
    pub sizes: Sizes,
    /// Switches.
    pub learners: Learners,
    /// What products round.
    pub precision: Precision,
    /// Lower and upper bound of the atoms.
    pub atom_bounds: (f64, f64),
    /// Keep probability of the last residual block.
    pub depth_keep_last: f64,
    /// Bound on a trunk matrix's spectral norm.
    pub sigma_max: f64,
    /// Weight of CQL.
    pub alpha_cql: f64,
    /// Weight of IQN at full readiness.
    pub lambda_iqn: f64,
    /// Expectiles of V_high and V_low.
    pub expectiles: (f64, f64),
    /// Scale of stored rewards.
    pub reward_scale: f64,
    /// Weight of the goal's distance in the reward.
    pub her_weight: f64,
    /// Share of rows that are relabelled.
    pub her_ratio: f64,
    /// P(trade) from which a row counts as traded.
    pub select_threshold: f64,
    /// Standard deviation of the denoise noise.
    pub denoise_noise: f64,
    /// Learning rate of risk_eta.
    pub risk_lr: f64,
    /// cvar_loss at which risk_eta rests.
    pub risk_target: f64,
    /// Learning rate of the control page.
    pub lr: f64,
    /// Clip of the control page.
    pub clip: f64,
    /// Decoupled weight decay on matrices.
    pub weight_decay: f64,
    /// First value of beta, the importance exponent.
    pub beta0: f64,
    /// Steps over which beta rises to 1.
    pub total_steps: u64,
    /// tau at the start and at the end of the annealing.
    pub tau: (f64, f64),
    /// Steps over which tau is annealed.
    pub anneal_steps: u64,
    /// Exponent of priorities.
    pub alpha: f64,
    /// Temperature of the advantage's modulation.
    pub beta_adv: f64,
    /// Pruning.
    pub prune: PruneSchedule,
    /// Weight of the vaccine.
    pub vaccine_weight: f64,
    /// Steps between updates of the atoms' spacing and of Q's statistics.
    pub stats_every: u64,
    /// Steps between causal sensitivities.
    pub causal_every: u64,
}

impl Config {
    /// The design's values; lr and tau of the presets `tiny` and `small`.
    pub fn new(sizes: Sizes, learners: Learners) -> Self {
        Self {
            sizes,
            learners,
            precision: Precision::Exact,
            atom_bounds: (-10.0, 10.0),
            depth_keep_last: 0.9,
            sigma_max: 3.0,
            alpha_cql: 0.01,
            lambda_iqn: 0.1,
            expectiles: (0.9, 0.1),
            reward_scale: 0.2,
            her_weight: 0.01,
            her_ratio: 0.25,
            select_threshold: 0.4,
            denoise_noise: 0.1,
            risk_lr: 1e-3,
            risk_target: 0.0,
            lr: 2e-3,
            clip: 10.0,
            weight_decay: 1e-4,
            beta0: 0.4,
            total_steps: 2000,
            tau: (0.05, 0.01),
            anneal_steps: 2000,
            alpha: 0.6,
            beta_adv: 1.0,
            prune: PruneSchedule { final_sparsity: 0.0, start: 0, end: 1, every: 100 },
            vaccine_weight: 1.0,
            stats_every: 50,
            causal_every: 100,
        }
    }
}
