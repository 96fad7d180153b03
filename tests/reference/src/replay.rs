//! Arithmetic of prioritized replay (Schaul et al. 2016, arXiv:1511.05952) and of hindsight relabelling (Andrychowicz et al. 2017,
//! arXiv:1707.01495, strategy `future`).

use crate::matrix::Matrix;
use crate::precision::round_bf16;

/// Added to |td|.
pub const PRIORITY_EPSILON: f64 = 1e-6;
/// Bound of the modulation's exponent: ln 4.
pub const MODULATION_BOUND: f64 = 2.0 * std::f64::consts::LN_2;

/// p = (|td| + 1e-6)^alpha, of the td as the bf16 buffer holds it.
pub fn priority(td: f64, alpha: f64) -> f64 {
    (round_bf16(td).abs() + PRIORITY_EPSILON).powf(alpha)
}

/// w_k = (n P(i_k))^-beta / max (section 3.4). `n` counts the transitions held, `total` is the sum of their priorities.
pub fn importance_weights(priorities: &[f64], total: f64, n: usize, beta: f64) -> Vec<f64> {
    let raw: Vec<f64> = priorities.iter().map(|p| (n as f64 * p / total).powf(-beta)).collect();
    let top = raw.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    raw.into_iter().map(|w| w / top).collect()
}

/// Masses at which a stratified batch descends: u_k = (k + xi_k) total / B.
pub fn stratified(xi: &[f64], total: f64) -> Vec<f64> {
    let n_batch = xi.len() as f64;
    xi.iter().enumerate().map(|(k, xi)| (k as f64 + xi) * total / n_batch).collect()
}

/// Writes leaf priorities: of several rows with one slot the highest of this step wins, also when it is under the old value; `None`
/// keeps the leaf.
pub fn write_leaves(leaves: &mut [f64], slots: &[usize], priorities: &[Option<f64>]) {
    for (slot, priority) in slots.iter().zip(priorities) {
        let Some(priority) = priority else { continue };
        let others = slots.iter().zip(priorities).filter(|(other, _)| *other == slot).filter_map(|(_, p)| *p);
        leaves[*slot] = others.fold(*priority, f64::max);
    }
}

/// The slot whose span of the prefix sum holds `mass`, never one with priority 0; `None` when all are 0.
pub fn slot_of(priorities: &[f64], mass: f64) -> Option<usize> {
    let mut below = 0.0;
    let mut last = None;
    for (slot, p) in priorities.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        below += p;
        last = Some(slot);
        if mass < below {
            break;
        }
    }
    last
}

/// td exp(clip(beta_adv adv, -ln 4, ln 4)), adv = (q - V_high) / (std + 1e-6).
pub fn modulated_td(td: f64, q: f64, v_high: f64, popart_std: f64, beta_adv: f64) -> f64 {
    let advantage = (q - v_high) / (popart_std + 1e-6);
    td * (beta_adv * advantage).clamp(-MODULATION_BOUND, MODULATION_BOUND).exp()
}

/// Rows gathered from `source` `[N, d]` into rows of `stride`, the rest zero.
pub fn gather_rows_padded(source: &Matrix, indices: &[usize], stride: usize) -> Matrix {
    Matrix::from_fn(indices.len(), stride, |i, j| if j < source.n_cols { source[(indices[i], j)] } else { 0.0 })
}

/// Where the ring stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Slots N.
    pub capacity: usize,
    /// Environments E: slot i's successor is (i + E) mod N.
    pub n_environments: usize,
    /// Next slot to be written.
    pub head: usize,
}

impl Ring {
    /// M: later transitions of slot i's episode, up to the write head: the longest run of i + jE, j = 1.., with i's episode.
    pub fn n_donors(&self, slot: usize, episodes: &[u32]) -> usize {
        let until_head = match (self.head + self.capacity - slot) % self.capacity {
            0 => self.capacity,
            distance => distance,
        };
        (1..)
            .take_while(|j| j * self.n_environments < until_head)
            .take_while(|j| episodes[(slot + j * self.n_environments) % self.capacity] == episodes[slot])
            .count()
    }

    /// Donor j = 1 + floor(xi M), as a slot; `None` when M = 0.
    pub fn donor(&self, slot: usize, episodes: &[u32], xi: f64) -> Option<usize> {
        let m = self.n_donors(slot, episodes);
        let j = 1 + (xi * m as f64).floor() as usize;
        (m > 0).then_some((slot + j * self.n_environments) % self.capacity)
    }
}

/// r' = r + reward_scale her_weight (|goal - a| - |goal' - a|), a the row's own achieved.
pub fn relabelled_reward(
    reward: f64,
    goal: f64,
    new_goal: f64,
    achieved: f64,
    reward_scale: f64,
    her_weight: f64,
) -> f64 {
    reward + reward_scale * her_weight * ((goal - achieved).abs() - (new_goal - achieved).abs())
}
