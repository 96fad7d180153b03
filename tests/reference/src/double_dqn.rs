//! Targets (section 6.5): the online network chooses (van Hasselt, Guez, Silver 2016, arXiv:1509.06461), the target network
//! values, and the distribution is projected back onto the atoms (Bellemare et al. 2017, equation 7).

use crate::c51::{Distributions, power, project};
use crate::config::N_BRANCHES;
use crate::matrix::Matrix;

/// gamma^n (1 - done).
pub fn discount(gamma: f64, n_steps: u32, done: bool) -> f64 {
    if done { 0.0 } else { power(gamma, n_steps) }
}

/// Target distributions of each branch `[B, K]`: each branch bootstraps its own, at its own greedy action.
pub fn targets(
    online_next: &Distributions,
    target_next: &Distributions,
    rewards: &[f64],
    discounts: &[f64],
    atoms: &[Vec<f64>],
) -> Vec<Matrix> {
    let mut targets: Vec<Matrix> = atoms.iter().map(|z| Matrix::zeros(rewards.len(), z.len())).collect();
    for i in 0..rewards.len() {
        let greedy = online_next.greedy(i);
        for b in 0..N_BRANCHES {
            let row = project(target_next.p_of(i, b, greedy[b]), rewards[i], discounts[i], &atoms[b]);
            targets[b].row_mut(i).copy_from_slice(&row);
        }
    }
    targets
}

/// Target quantiles of IQN, `[row][branch][N']`: r + gamma^n (1 - done) Z'(s', a*).
pub fn quantile_targets(
    online_next: &Distributions,
    next: &crate::iqn::IqnPass,
    rewards: &[f64],
    discounts: &[f64],
) -> Vec<[Vec<f64>; N_BRANCHES]> {
    (0..rewards.len())
        .map(|i| {
            let greedy = online_next.greedy(i);
            std::array::from_fn(|b| next.of(i, b, greedy[b]).iter().map(|z| rewards[i] + discounts[i] * z).collect())
        })
        .collect()
}
