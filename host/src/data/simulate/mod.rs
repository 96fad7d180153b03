//! Markets with known properties, drawn from a seed.
//!
//! A bar is made of [`PATH_STEPS`] steps of a log-price path: the first step's end is the open, the last one's the
//! close, and high and low are the extremes of all of them, so the four always agree with each other.

mod random;
mod regimes;
#[cfg(test)]
mod tests;

use super::bars::{Bar, Bars, Measure, SECOND_NS};
use random::normal;

/// Which market.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Market {
    /// Trend, mean reversion and noise in turn, with a daily rhythm of volatility, spread and volume.
    #[default]
    Regimes,
    /// The log price is an Ornstein-Uhlenbeck process with a half-life of 5 bars.
    MeanReverting,
    /// The log price is a random walk: nothing can be earned.
    RandomWalk,
}

impl Market {
    /// Its name on the command line and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regimes => "regimes",
            Self::MeanReverting => "mean-reverting",
            Self::RandomWalk => "random-walk",
        }
    }
}

/// Which market, how long, and from which seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Its kind.
    pub market: Market,
    /// Number of bars, at most [`N_BARS_MAX`].
    pub n_bars: u32,
    /// The same seed gives the same bars.
    pub seed: u64,
}

/// Standard deviation of one-bar log returns (for `Regimes`, on average): 20 basis points.
pub const BAR_SIGMA: f64 = 20e-4;
/// Half-life of a deviation of the mean-reverting market, in bars.
pub const HALF_LIFE_BARS: f64 = 5.0;
/// Half the quoted spread of `MeanReverting` and `RandomWalk`, as a fraction of the price: 1 basis point.
pub const HALF_SPREAD: f64 = 1e-4;
/// Fee of a market order on these markets, basis points a side.
pub const TAKER_BP: f64 = 2.0;
/// Fee of a limit order on these markets, basis points a side.
pub const MAKER_BP: f64 = 1.0;
/// Bars of the mean-reverting and the random-walk market where no other number is asked for.
pub const N_BARS_DEFAULT: u32 = 40_000;

/// The longest market: 95 years of bars, which still have a time.
pub const N_BARS_MAX: i64 = 10_000_000;

/// Length of a simulated bar.
pub const BAR_NS: i64 = 300 * SECOND_NS;
/// Steps of the price path within a bar.
pub const PATH_STEPS: u32 = 16;
/// 2024-01-01T00:00:00Z, a Monday.
const START_NS: i64 = 1_704_067_200 * SECOND_NS;
/// The price around which `MeanReverting` moves and from which the others start.
const START_PRICE: f64 = 100.0;
/// Median volume of a bar.
const MEDIAN_VOLUME: f64 = 1_000.0;

/// Elements of the random numbers of a bar after those of its path.
const VOLUME: u32 = PATH_STEPS;

impl Simulation {
    /// Draws the bars.
    pub fn bars(&self) -> Bars {
        let mut bars = match self.market {
            Market::Regimes => regimes::bars(self),
            Market::MeanReverting => self.homogeneous(OrnsteinUhlenbeck::new()),
            Market::RandomWalk => self.homogeneous(OrnsteinUhlenbeck::without_pull()),
        };
        bars.interval_ns = BAR_NS;
        bars
    }

    /// Bars of one law throughout, with the constant spread and a volume that follows the bar's range.
    fn homogeneous(&self, law: OrnsteinUhlenbeck) -> Bars {
        let mut bars = Bars::with_measures(&[Measure::Spread]);
        // One step before the first bar is drawn from the stationary law, so that no stretch at the start differs.
        let mut deviation = law.stationary_sigma * normal(self.seed, VOLUME + 1, 0);
        for step in 0..self.n_bars {
            let mut path = Path::default();
            for k in 0..PATH_STEPS {
                deviation = law.step_decay * deviation + law.step_sigma * normal(self.seed, k, step);
                path.push(deviation);
            }
            let activity = (path.high - path.low) / BAR_SIGMA;
            let volume = MEDIAN_VOLUME * (0.5 + 0.5 * activity) * (0.3 * normal(self.seed, VOLUME, step)).exp();
            bars.push(&path.bar(step, volume, 2.0 * HALF_SPREAD));
        }
        bars
    }
}

/// How far each close of [`Market::MeanReverting`] is from where the market returns to: its process itself.
pub fn deviations(bars: &Bars) -> Vec<f64> {
    bars.close.iter().map(|close| (close / START_PRICE).ln()).collect()
}

/// x' = decay x + sigma e over one path step; exact for the continuous process (Gillespie 1996).
#[derive(Clone, Copy, Debug)]
struct OrnsteinUhlenbeck {
    step_decay: f64,
    step_sigma: f64,
    stationary_sigma: f64,
}

impl OrnsteinUhlenbeck {
    /// Over a whole bar a = 2^(-1/half-life), and the variance of x' - x is 2 s^2 (1 - a) with s the stationary
    /// standard deviation: that makes the bar sigma.
    fn new() -> Self {
        let bar_decay = (-1.0 / HALF_LIFE_BARS).exp2();
        let step_decay = bar_decay.powf(1.0 / f64::from(PATH_STEPS));
        let stationary_sigma = BAR_SIGMA / (2.0 * (1.0 - bar_decay)).sqrt();
        let step_sigma = stationary_sigma * (1.0 - step_decay * step_decay).sqrt();
        Self { step_decay, step_sigma, stationary_sigma }
    }

    fn without_pull() -> Self {
        Self { step_decay: 1.0, step_sigma: BAR_SIGMA / f64::from(PATH_STEPS).sqrt(), stationary_sigma: 0.0 }
    }
}

/// The log prices of a bar, relative to the start price.
#[derive(Clone, Copy, Debug)]
struct Path {
    open: f64,
    high: f64,
    low: f64,
    close: f64,
}

impl Default for Path {
    fn default() -> Self {
        Self { open: f64::NAN, high: f64::NEG_INFINITY, low: f64::INFINITY, close: f64::NAN }
    }
}

impl Path {
    fn push(&mut self, log_price: f64) {
        if self.open.is_nan() {
            self.open = log_price;
        }
        self.high = self.high.max(log_price);
        self.low = self.low.min(log_price);
        self.close = log_price;
    }

    fn bar(&self, step: u32, volume: f64, spread: f64) -> Bar {
        let price = |log_price: f64| START_PRICE * log_price.exp();
        let mut measured = [f64::NAN; Measure::COUNT];
        measured[Measure::Spread as usize] = spread;
        Bar {
            time_ns: START_NS + i64::from(step) * BAR_NS,
            open: price(self.open),
            high: price(self.high),
            low: price(self.low),
            close: price(self.close),
            volume,
            measured,
        }
    }
}
