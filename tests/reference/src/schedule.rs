//! Counters and what follows from them (section 6.3).

use std::f64::consts::PI;

/// The step's counters; all rise by 1 at its start, and a gated learner takes its own back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Applied updates of theta.
    pub adam_t: u64,
    /// Of selectivity.
    pub sel_t: u64,
    /// Of denoise.
    pub denoise_t: u64,
    /// Of V_high.
    pub iql_t: u64,
    /// Of V_low.
    pub iql_low_t: u64,
    /// Of IQN's head.
    pub iqn_t: u64,
    /// Of the attention.
    pub attn_t: u64,
    /// Steps, gated ones included.
    pub rng_step: u64,
}

impl Counters {
    /// All eight one further.
    pub fn incremented(self) -> Self {
        Self {
            adam_t: self.adam_t + 1,
            sel_t: self.sel_t + 1,
            denoise_t: self.denoise_t + 1,
            iql_t: self.iql_t + 1,
            iql_low_t: self.iql_low_t + 1,
            iqn_t: self.iqn_t + 1,
            attn_t: self.attn_t + 1,
            rng_step: self.rng_step + 1,
        }
    }
}

/// min(step / length, 1); 1 when the length is 0.
pub fn progress(step: u64, length: u64) -> f64 {
    if length == 0 { 1.0 } else { (step as f64 / length as f64).min(1.0) }
}

/// Rate of the target EMA: tau_cosine (0.5 + 0.5 health), health as at the last epoch boundary.
pub fn tau(step: u64, anneal_steps: u64, (tau_init, tau_final): (f64, f64), health_at_epoch: f64) -> f64 {
    let cosine = 0.5 * (1.0 + (PI * progress(step, anneal_steps)).cos());
    (tau_final + (tau_init - tau_final) * cosine) * (0.5 + 0.5 * health_at_epoch)
}

/// Importance exponent: beta0 + (1 - beta0) min(step / total_steps, 1).
pub fn beta(step: u64, total_steps: u64, beta0: f64) -> f64 {
    beta0 + (1.0 - beta0) * progress(step, total_steps)
}
