//! The learners: parts of the flat parameters with a clip, a counter and a gate of their own, in the flat vector's order.

use crate::Counters;

/// Learners.
pub const N_LEARNERS: usize = 7;

/// Temporal block, trunk, W_isv and branches: AdamW on the objective.
pub const THETA: usize = 0;
/// Attention: Adam on the objective.
pub const ATTENTION: usize = 1;
/// IQN's head.
pub const IQN: usize = 2;
/// IQL's high value head.
pub const IQL_HIGH: usize = 3;
/// IQL's low value head.
pub const IQL_LOW: usize = 4;
/// Selectivity.
pub const SELECTIVITY: usize = 5;
/// Denoise.
pub const DENOISE: usize = 6;

/// Names in the order of the numbers, for logs and JSON.
pub const NAMES: [&str; N_LEARNERS] = ["theta", "attention", "iqn", "iql_high", "iql_low", "selectivity", "denoise"];

impl Counters {
    /// Applied updates of learner `learner`; theta's for a number that is none.
    #[inline]
    pub const fn applied(&self, learner: usize) -> i32 {
        match learner {
            ATTENTION => self.attn_t,
            IQN => self.iqn_t,
            IQL_HIGH => self.iql_t,
            IQL_LOW => self.iql_low_t,
            SELECTIVITY => self.sel_t,
            DENOISE => self.denoise_t,
            _ => self.adam_t,
        }
    }

    /// The counters after the learners whose bit is set in `gated` took their 1 back.
    #[inline]
    pub const fn without(self, gated: u32) -> Self {
        const fn back(count: i32, gated: u32, learner: usize) -> i32 {
            count.wrapping_sub((gated >> learner & 1) as i32)
        }
        Self {
            adam_t: back(self.adam_t, gated, THETA),
            sel_t: back(self.sel_t, gated, SELECTIVITY),
            denoise_t: back(self.denoise_t, gated, DENOISE),
            iql_t: back(self.iql_t, gated, IQL_HIGH),
            iql_low_t: back(self.iql_low_t, gated, IQL_LOW),
            iqn_t: back(self.iqn_t, gated, IQN),
            attn_t: back(self.attn_t, gated, ATTENTION),
            rng_step: self.rng_step,
        }
    }
}
