//! What the configuration says of trading.

use std::ops::Range;

use shared_types::EnvParams;
use shared_types::market::MAX_N_STEP;

/// One basis point.
const BP: f64 = 1e-4;

/// Costs, basis points of the value traded; a side where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Half the spread, for bars without measured quotes.
    pub half_spread_bp: f64,
    /// Fee of a market order.
    pub taker_bp: f64,
    /// Fee of a limit order.
    pub maker_bp: f64,
    /// Financing of a short position, a year.
    pub short_financing_bp: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self { half_spread_bp: 1.0, taker_bp: 2.0, maker_bp: 1.0, short_financing_bp: 0.0 }
    }
}

impl Costs {
    /// Half spread of bars without measured quotes, of the price.
    pub fn half_spread(&self) -> f64 {
        self.half_spread_bp * BP
    }
}

/// How episodes run and what they reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Bars of a state's window.
    pub window: u32,
    /// Bars of an episode.
    pub episode_len: u32,
    /// Most bars of a reward's n-step sum.
    pub n_step: u32,
    /// Choices of the minimum-hold branch, bars.
    pub min_hold: [u32; 3],
    /// Weight of an increase of the episode's maximum drawdown.
    pub lambda_dd: f64,
    /// Multiplies stored rewards.
    pub reward_scale: f64,
    /// Weight of |goal - achieved| in stored rewards.
    pub her_weight: f64,
    /// Costs.
    pub costs: Costs,
}

/// Why rules do not fit a part of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// The n-step sum is too short or too long.
    #[error("`n_step` is {0}; it must lie between 1 and {most}", most = MAX_N_STEP)]
    NStep(u32),
    /// A window without bars.
    #[error("`window` is 0; it must be at least 1")]
    Window,
    /// A part without room for an episode behind the first window.
    #[error(
        "a part of {part} bars has no room for a window of {window} and an episode of {episode_len}; \
         take more bars or a smaller `episode_len`"
    )]
    Part {
        /// Bars of the part.
        part: usize,
        /// Bars of a window.
        window: u32,
        /// Bars of an episode.
        episode_len: u32,
    },
}

impl Rules {
    /// The environments' constants on the bars `part`, whose bar sigma is `bar_sigma`.
    ///
    /// Decisions begin where the window lies inside the part. Costs are as configured, all orders allowed.
    pub fn params(&self, part: &Range<usize>, bar_sigma: f32, seed: u64) -> Result<EnvParams, RulesError> {
        if self.n_step == 0 || self.n_step as usize > MAX_N_STEP {
            return Err(RulesError::NStep(self.n_step));
        }
        if self.window == 0 {
            return Err(RulesError::Window);
        }
        let (window, episode_len) = (self.window as usize, self.episode_len as usize);
        if episode_len == 0 || part.len() < window + episode_len {
            let (window, episode_len) = (self.window, self.episode_len);
            return Err(RulesError::Part { part: part.len(), window, episode_len });
        }
        Ok(EnvParams {
            first_bar: (part.start + window - 1) as u32,
            last_bar: (part.end - 1) as u32,
            episode_len: self.episode_len,
            window: self.window,
            n_step: self.n_step,
            flags: 0,
            min_hold: self.min_hold,
            bar_sigma,
            taker: (self.costs.taker_bp * BP) as f32,
            maker: (self.costs.maker_bp * BP) as f32,
            short_financing: (self.costs.short_financing_bp * BP) as f32,
            cost_scale: 1.0,
            lambda_dd: self.lambda_dd as f32,
            reward_scale: self.reward_scale as f32,
            her_weight: self.her_weight as f32,
            reserved: 0,
            seed: [seed as u32, (seed >> 32) as u32],
        })
    }
}
