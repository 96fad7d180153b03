//! CVaR of a categorical distribution (Rockafellar and Uryasev 2000; Dabney et al. 2018, section 3) and the descent of its level.

use crate::activation::argmax;
use crate::c51::Distributions;
use crate::config::{BRANCH_SIZES, N_BRANCHES};

/// CVaR_eta = (1 / eta) sum_k min(p_k, max(0, eta - F_{k-1})) z_k: mean of the worst share eta. Atoms ascend.
pub fn cvar(p: &[f64], z: &[f64], eta: f64) -> f64 {
    let mut below = 0.0;
    let mut sum = 0.0;
    for (p, z) in p.iter().zip(z) {
        sum += p.min(f64::max(0.0, eta - below)) * z;
        below += p;
    }
    sum / eta
}

/// Actions with the greatest CVaR of one row, the lowest index among equals: how collection and evaluation rank.
pub fn greedy(d: &Distributions, i: usize, atoms: &[Vec<f64>], eta: f64) -> [usize; N_BRANCHES] {
    std::array::from_fn(|b| {
        let values: Vec<f64> = (0..BRANCH_SIZES[b]).map(|a| cvar(d.p_of(i, b, a), &atoms[b], eta)).collect();
        argmax(&values)
    })
}

/// - mean over batch and branches of the CVaR of the actions taken.
pub fn cvar_loss(d: &Distributions, actions: &[[usize; N_BRANCHES]], atoms: &[Vec<f64>], eta: f64) -> f64 {
    let sum: f64 = actions
        .iter()
        .enumerate()
        .flat_map(|(i, taken)| (0..N_BRANCHES).map(move |b| cvar(d.p_of(i, b, taken[b]), &atoms[b], eta)))
        .sum();
    -sum / (actions.len() * N_BRANCHES) as f64
}

/// eta - lr (cvar_loss - target), in [0.05, 1].
pub fn next_eta(eta: f64, cvar_loss: f64, lr: f64, target: f64) -> f64 {
    (eta - lr * (cvar_loss - target)).clamp(0.05, 1.0)
}
