//! The internal state vector (section 5): indices, moving averages, health.

use std::collections::VecDeque;

/// Entries.
pub const LEN: usize = 64;
/// Indices, named as in section 5.
pub mod index {
    #![expect(missing_docs, reason = "the names are section 5's, which documents them")]
    pub const LOSS_EMA: usize = 0;
    pub const LOSS_SLOW: usize = 1;
    pub const GRAD_NORM_EMA: usize = 2;
    pub const TD_EMA: usize = 3;
    pub const TD_VAR_EMA: usize = 4;
    pub const Q_MEAN_EMA: usize = 5;
    pub const Q_VAR_EMA: usize = 6;
    pub const REWARD_EMA: usize = 7;
    pub const REWARD_VAR_EMA: usize = 8;
    pub const IQN_IQR: usize = 9;
    pub const IQL_GAP: usize = 10;
    pub const CAUSAL_MEAN: usize = 11;
    pub const HEALTH: usize = 12;
    pub const SKIPPED_UPDATES: usize = 13;
    pub const CQL_EMA: usize = 14;
    pub const DENOISE_EMA: usize = 15;
    pub const SELECT_RATE: usize = 16;
    pub const SPARSITY: usize = 17;
    pub const VACCINE_COS_EMA: usize = 18;
    pub const POPART_MEAN: usize = 19;
    pub const POPART_STD: usize = 20;
    pub const IQN_READINESS: usize = 21;
    pub const CLIP_EMA: usize = 22;
    pub const ATOM_BOUNDS: usize = 23;
    pub const REGIME_VOLATILITY: usize = 39;
    pub const REGIME_TREND: usize = 40;
    pub const EPSILON: usize = 41;
    pub const TAU: usize = 42;
    pub const GAMMA: usize = 43;
    pub const KELLY_CAP: usize = 44;
    pub const RISK_ETA: usize = 45;
}

/// Usual rate of a moving average.
pub const RATE: f64 = 0.01;
/// Rate of `loss_slow`.
pub const SLOW_RATE: f64 = 0.001;
/// Steps over which skipped updates lower the health.
pub const SKIP_WINDOW: usize = 1000;

/// The vector, and which of its averages have had a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Isv {
    /// Entries.
    pub entries: [f64; LEN],
    seeded: [bool; LEN],
    /// Whether each of the last [`SKIP_WINDOW`] steps was skipped.
    skips: VecDeque<bool>,
}

impl Isv {
    /// The vector before the first step.
    pub fn at_start(tau_init: f64, epsilon_start: f64, (v_min, v_max): (f64, f64)) -> Self {
        let mut entries = [0.0; LEN];
        entries[index::GAMMA] = 0.99;
        entries[index::TAU] = tau_init;
        entries[index::EPSILON] = epsilon_start;
        for one in [index::KELLY_CAP, index::RISK_ETA, index::HEALTH, index::POPART_STD] {
            entries[one] = 1.0;
        }
        for b in 0..crate::config::N_BRANCHES {
            entries[index::ATOM_BOUNDS + 2 * b] = v_min;
            entries[index::ATOM_BOUNDS + 2 * b + 1] = v_max;
        }
        Self { entries, seeded: [false; LEN], skips: VecDeque::new() }
    }

    /// The vector as a dump holds it after at least one applied step: every average has had a sample, and `recent_skips` of the last
    /// steps were skipped.
    pub fn from_entries(entries: [f64; LEN], recent_skips: usize) -> Self {
        Self { entries, seeded: [true; LEN], skips: std::iter::repeat_n(true, recent_skips).collect() }
    }

    /// m <- m + rate (x - m); the first sample seeds it, a non-finite one leaves it alone.
    pub fn average(&mut self, entry: usize, sample: f64, rate: f64) {
        if !sample.is_finite() {
            return;
        }
        let m = &mut self.entries[entry];
        *m = if self.seeded[entry] { *m + rate * (sample - *m) } else { sample };
        self.seeded[entry] = true;
    }

    /// An average that has had a sample.
    pub fn seeded(&self, entry: usize) -> Option<f64> {
        self.seeded[entry].then_some(self.entries[entry])
    }

    /// Counts the step and renews the health.
    pub fn close_step(&mut self, skipped: bool) {
        self.skips.push_back(skipped);
        if self.skips.len() > SKIP_WINDOW {
            self.skips.pop_front();
        }
        self.entries[index::SKIPPED_UPDATES] += f64::from(u8::from(skipped));
        let recent = self.skips.iter().filter(|skipped| **skipped).count();
        self.entries[index::HEALTH] = health(recent, self.entries[index::LOSS_EMA], self.entries[index::LOSS_SLOW]);
    }
}

/// 1 / ((1 + k)(1 + |loss_ema - loss_slow| / (loss_slow + 1e-6))), k the updates skipped in the last 1,000 steps.
pub fn health(recent_skips: usize, loss_ema: f64, loss_slow: f64) -> f64 {
    1.0 / ((1.0 + recent_skips as f64) * (1.0 + (loss_ema - loss_slow).abs() / (loss_slow + 1e-6)))
}
