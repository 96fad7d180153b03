//! The market side: features, actions, environments, and what crosses from them into replay.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// Market features of a bar, in the order of [`feature`].
pub const N_FEATURES: usize = 24;
/// Portfolio features, in the order of [`portfolio`].
pub const N_PORTFOLIO: usize = 15;
/// Portfolio features and the goal after them.
pub const N_ACCOUNT: usize = N_PORTFOLIO + 1;
/// Bars at the start of a series whose features are not used: indicators settle there.
pub const WARM_UP_BARS: usize = 128;
/// Bars over which the equity's latest return and volatility are taken.
pub const N_RECENT: usize = 20;
/// Most bars of an n-step sum.
pub const MAX_N_STEP: usize = 8;
/// Branches of an action.
pub const N_BRANCHES: usize = 4;
/// Choices of each branch: direction, size, order, minimum hold.
pub const BRANCH_SIZES: [usize; N_BRANCHES] = [4, 3, 3, 3];
/// Choices of the size branch, of kelly_cap.
pub const SIZES: [f32; 3] = [1.0 / 3.0, 2.0 / 3.0, 1.0];

/// Width of a state row for a window of so many bars: [window x F features | portfolio | goal].
pub const fn state_dim(window: usize) -> usize {
    window * N_FEATURES + N_ACCOUNT
}

/// Indices of a bar's features.
pub mod feature {
    /// Log return over 1 bar; the next three over 5, 15, 60 bars.
    pub const RETURN_1: usize = 0;
    /// Log return over 5 bars.
    pub const RETURN_5: usize = 1;
    /// Log return over 15 bars.
    pub const RETURN_15: usize = 2;
    /// Log return over 60 bars.
    pub const RETURN_60: usize = 3;
    /// Realised volatility over 15 bars.
    pub const VOLATILITY_15: usize = 4;
    /// Realised volatility over 60 bars.
    pub const VOLATILITY_60: usize = 5;
    /// (high - low) / close.
    pub const RANGE: usize = 6;
    /// Where the close lies between low (0) and high (1).
    pub const CLOSE_LOCATION: usize = 7;
    /// Volume's z-score over 60 bars.
    pub const VOLUME_Z: usize = 8;
    /// Relative strength over 14 bars, 0 to 100 (Wilder).
    pub const RSI: usize = 9;
    /// Average true range over 14 bars / close (Wilder).
    pub const ATR: usize = 10;
    /// Histogram of MACD 12/26/9 / close.
    pub const MACD: usize = 11;
    /// Distance of the close to its mean of 20 bars, in their standard deviation.
    pub const MEAN_DISTANCE: usize = 12;
    /// Time of day, sine.
    pub const DAY_SIN: usize = 13;
    /// Time of day, cosine.
    pub const DAY_COS: usize = 14;
    /// Day of the week, sine.
    pub const WEEK_SIN: usize = 15;
    /// Day of the week, cosine.
    pub const WEEK_COS: usize = 16;
    /// Order-flow imbalance over 1 bar, -1 to 1.
    pub const FLOW_1: usize = 17;
    /// Order-flow imbalance over 5 bars.
    pub const FLOW_5: usize = 18;
    /// Order-flow imbalance over 15 bars.
    pub const FLOW_15: usize = 19;
    /// Spread / mid.
    pub const SPREAD: usize = 20;
    /// (microprice - mid) / mid.
    pub const MICROPRICE: usize = 21;
    /// Trade count's z-score over 60 bars.
    pub const TRADES_Z: usize = 22;
    /// Bars missing since the last one.
    pub const GAP: usize = 23;

    /// Names, in order.
    pub const NAMES: [&str; super::N_FEATURES] = [
        "return_1",
        "return_5",
        "return_15",
        "return_60",
        "volatility_15",
        "volatility_60",
        "range",
        "close_location",
        "volume_z",
        "rsi",
        "atr",
        "macd",
        "mean_distance",
        "day_sin",
        "day_cos",
        "week_sin",
        "week_cos",
        "flow_1",
        "flow_5",
        "flow_15",
        "spread",
        "microprice",
        "trades_z",
        "gap",
    ];

    /// Whether the feature is a sine or cosine, which are not scaled.
    pub const fn is_phase(index: usize) -> bool {
        index >= DAY_SIN && index <= WEEK_COS
    }
}

/// Indices of the portfolio features; [`GOAL`](portfolio::GOAL) follows them.
pub mod portfolio {
    /// Position, of equity.
    pub const POSITION: usize = 0;
    /// Unrealised profit / (s sqrt(1 + bars held)).
    pub const UNREALISED: usize = 1;
    /// Bars held / 15.
    pub const BARS_HELD: usize = 2;
    /// Minimum hold left / 15.
    pub const HOLD_LEFT: usize = 3;
    /// ln(equity / start) / (s sqrt(episode_len)).
    pub const EQUITY: usize = 4;
    /// Log drawdown from the episode's peak / (s sqrt(episode_len)).
    pub const DRAWDOWN: usize = 5;
    /// Log return of the equity over the last 20 bars / (s sqrt 20).
    pub const RECENT_RETURN: usize = 6;
    /// Standard deviation of the equity's log returns over the last 20 bars / s.
    pub const RECENT_VOLATILITY: usize = 7;
    /// Last direction, one-hot, to 11.
    pub const LAST_DIRECTION: usize = 8;
    /// Cap on the position.
    pub const KELLY_CAP: usize = 12;
    /// Exploration rate.
    pub const EPSILON: usize = 13;
    /// Share of the episode that is over.
    pub const PROGRESS: usize = 14;
    /// The episode's goal.
    pub const GOAL: usize = 15;
}

/// Choices of the direction branch.
pub mod direction {
    /// Target -size.
    pub const SHORT: u8 = 0;
    /// Target size.
    pub const LONG: u8 = 1;
    /// Target 0.
    pub const FLAT: u8 = 2;
    /// No order.
    pub const HOLD: u8 = 3;
}

/// Choices of the order branch.
pub mod order {
    /// At the next open.
    pub const MARKET: u8 = 0;
    /// Limit at the close, for one bar.
    pub const LIMIT_AT_CLOSE: u8 = 1;
    /// Limit half of the half spread from the close towards the market, for one bar.
    pub const LIMIT_INSIDE: u8 = 2;
}

/// What an environment needs of a bar: 32 bytes, one memory sector. Prices are moves from the previous close, p / close - 1,
/// which keeps f32's relative precision for the move itself.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct MarketBar {
    /// First price.
    pub open: f32,
    /// Highest price.
    pub high: f32,
    /// Lowest price.
    pub low: f32,
    /// Last price.
    pub close: f32,
    /// Half spread / price, before [`EnvParams::cost_scale`].
    pub half_spread: f32,
    /// Time since the last bar, years of 365.25 days.
    pub elapsed_years: f32,
    /// Share of the training part's bars whose realised volatility over 60 bars is no higher.
    pub regime_volatility: f32,
    /// Mean / standard deviation of the last 60 one-bar returns, within +-1.
    pub regime_trend: f32,
}

assert_layout!(MarketBar, size 32, align 32,
    open: f32 = 0, high: f32 = 4, low: f32 = 8, close: f32 = 12, half_spread: f32 = 16, elapsed_years: f32 = 20,
    regime_volatility: f32 = 24, regime_trend: f32 = 28);

/// Constants of the environments of one fold; device-resident, since a captured graph serves all folds.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct EnvParams {
    /// First bar on which an episode may start.
    pub first_bar: u32,
    /// Last bar of the part.
    pub last_bar: u32,
    /// Bars of an episode.
    pub episode_len: u32,
    /// Bars of a state's window.
    pub window: u32,
    /// Most bars of a reward's n-step sum, 1 to [`MAX_N_STEP`].
    pub n_step: u32,
    /// [`EnvParams::MARKET_ORDERS_ONLY`] or 0.
    pub flags: u32,
    /// Choices of the minimum-hold branch, bars.
    pub min_hold: [u32; 3],
    /// Bar sigma s: standard deviation of the training part's one-bar log returns.
    pub bar_sigma: f32,
    /// Fee of a market order, of the value traded.
    pub taker: f32,
    /// Fee of a limit order, of the value traded.
    pub maker: f32,
    /// Financing of a short position, of its value, a year.
    pub short_financing: f32,
    /// Multiplies every cost, the half spread too.
    pub cost_scale: f32,
    /// Weight of an increase of the episode's maximum drawdown in the reward.
    pub lambda_dd: f32,
    /// Multiplies the stored reward.
    pub reward_scale: f32,
    /// Weight of |goal - achieved| in the stored reward.
    pub her_weight: f32,
    /// Zero.
    pub reserved: u32,
    /// Key of the random generator: low word, high word of the seed.
    pub seed: [u32; 2],
}

impl EnvParams {
    /// Every order is a market order, whatever the order branch says.
    pub const MARKET_ORDERS_ONLY: u32 = 1;
}

assert_layout!(EnvParams, size 80, align 16,
    first_bar: u32 = 0, last_bar: u32 = 4, episode_len: u32 = 8, window: u32 = 12, n_step: u32 = 16, flags: u32 = 20,
    min_hold: [u32; 3] = 24, bar_sigma: f32 = 36, taker: f32 = 40, maker: f32 = 44, short_financing: f32 = 48,
    cost_scale: f32 = 52, lambda_dd: f32 = 56, reward_scale: f32 = 60, her_weight: f32 = 64, reserved: u32 = 68,
    seed: [u32; 2] = 72);

/// One environment between two bars: it has seen `bar` close and decides next. Written by `environment_reset` and
/// `environment_step`, or by the host and `evaluation_step`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct EnvState {
    /// The bar that closed last.
    pub bar: u32,
    /// Last bar of the path: there it ends.
    pub last_bar: u32,
    /// Position, of equity; constant until the next fill.
    pub position: f32,
    /// Profit on the open position since its entry, of equity, spread included, fees not.
    pub unrealised: f32,
    /// Bars since the position was opened, the fill's own included; 0 when flat.
    pub bars_held: u32,
    /// Decisions that the minimum hold still blocks.
    pub hold_left: u32,
    /// ln(equity / start of the episode).
    pub log_equity: f32,
    /// Highest `log_equity` of the episode, at least 0.
    pub peak: f32,
    /// Largest drop of `log_equity` from the peak before it in the episode.
    pub max_drawdown: f32,
    /// Log returns of the equity in the ring of [`N_RECENT`] so far.
    pub n_returns: u32,
    /// Bars of the episode so far.
    pub steps: u32,
    /// Bars after which the episode ends.
    pub length: u32,
    /// Identity of the episode.
    pub episode: u32,
    /// Goal of the episode, episode sigmas of log equity.
    pub goal: f32,
    /// Direction that was executed last.
    pub last_direction: u32,
    /// Sum of the net returns of the open position, of equity.
    pub trade_return: f32,
    /// Where the next bar is recorded in evaluation.
    pub record_idx: u32,
    /// [`EnvState::FINISHED`], [`EnvState::RUINED`] or 0.
    pub status: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

impl EnvState {
    /// The path has reached its last bar.
    pub const FINISHED: u32 = 1;
    /// The equity was lost; trading has ended.
    pub const RUINED: u32 = 2;
}

assert_layout!(EnvState, size 80, align 16,
    bar: u32 = 0, last_bar: u32 = 4, position: f32 = 8, unrealised: f32 = 12, bars_held: u32 = 16, hold_left: u32 = 20,
    log_equity: f32 = 24, peak: f32 = 28, max_drawdown: f32 = 32, n_returns: u32 = 36, steps: u32 = 40,
    length: u32 = 44, episode: u32 = 48, goal: f32 = 52, last_direction: u32 = 56, trade_return: f32 = 60,
    record_idx: u32 = 64, status: u32 = 68, reserved: [u32; 2] = 72);

/// What happened in one bar of one environment.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct BarRecord {
    /// Equity's simple return over the bar, net of costs.
    pub net_return: f32,
    /// Position at the bar's end, of equity.
    pub position: f32,
    /// Value traded, of equity.
    pub turnover: f32,
    /// Spread, fees and financing paid, of equity.
    pub cost: f32,
    /// Net return of the trade that was closed, of equity; 0 without [`BarRecord::CLOSED`].
    pub closed_return: f32,
    /// The bar.
    pub bar: u32,
    /// The decision as stored: direction as executed, the rest as chosen.
    pub action: [u8; N_BRANCHES],
    /// What happened, bits below.
    pub flags: u32,
}

impl BarRecord {
    /// An order filled.
    pub const FILLED: u32 = 1;
    /// A limit order was placed.
    pub const LIMIT: u32 = 2;
    /// A position was closed, or turned over.
    pub const CLOSED: u32 = 4;
    /// The equity was lost.
    pub const RUINED: u32 = 8;
}

assert_layout!(BarRecord, size 32, align 32,
    net_return: f32 = 0, position: f32 = 4, turnover: f32 = 8, cost: f32 = 12, closed_return: f32 = 16, bar: u32 = 20,
    action: [u8; N_BRANCHES] = 24, flags: u32 = 28);

/// One step of one environment, kept until its n-step transition is complete. Queue: `[n_step, E]`, row `step` mod n_step; what
/// the agent saw of its account before and after the step lies beside it, `[n_step, E, 2, 16]`.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct PendingStep {
    /// Bar of the decision; the step ends at the next.
    pub bar: u32,
    /// The decision as stored.
    pub action: [u8; N_BRANCHES],
    /// Market reward of the step, unscaled.
    pub reward: f32,
    /// ln(equity / start) / (s sqrt(episode_len)) after the step.
    pub achieved: f32,
    /// Identity of the episode.
    pub episode: u32,
    /// Goal of the episode.
    pub goal: f32,
    /// [`PendingStep::GOES_ON`], [`PendingStep::CUT`] or [`PendingStep::DONE`].
    pub end: u32,
    /// Zero.
    pub reserved: u32,
}

impl PendingStep {
    /// The episode goes on.
    pub const GOES_ON: u32 = 0;
    /// The step was the episode's last by length or by the end of the data: not a termination.
    pub const CUT: u32 = 1;
    /// Equity fell under half: a termination.
    pub const DONE: u32 = 2;
}

assert_layout!(PendingStep, size 32, align 32,
    bar: u32 = 0, action: [u8; N_BRANCHES] = 4, reward: f32 = 8, achieved: f32 = 12, episode: u32 = 16, goal: f32 = 20,
    end: u32 = 24, reserved: u32 = 28);

/// Where collection stands; device-resident, one writer: `collector_advance`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Collector {
    /// Steps of all environments so far: word 2 of the Philox counter in collection.
    pub step: u32,
    /// Slot of the ring that is written next.
    pub head: u32,
    /// Slots written, at most the capacity.
    pub filled: u32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(Collector, size 16, align 4, step: u32 = 0, head: u32 = 4, filled: u32 = 8, reserved: u32 = 12);

/// Mean over environments of what the epoch boundary reads: a partial sum, then the means.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct CollectorSums {
    /// Of [`MarketBar::regime_volatility`].
    pub regime_volatility: f32,
    /// Of [`MarketBar::regime_trend`].
    pub regime_trend: f32,
    /// Of clip(0.5 m / (s_e^2 + 1e-8), 0, 1).
    pub kelly: f32,
    /// Zero.
    pub reserved: u32,
}

assert_layout!(CollectorSums, size 16, align 16,
    regime_volatility: f32 = 0, regime_trend: f32 = 4, kelly: f32 = 8, reserved: u32 = 12);

/// How much a feature is shifted and divided by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct FeatureScale {
    /// Mean over the training part.
    pub mean: f64,
    /// Standard deviation (population) over the training part.
    pub std: f64,
}

assert_layout!(FeatureScale, size 16, align 8, mean: f64 = 0, std: f64 = 8);
