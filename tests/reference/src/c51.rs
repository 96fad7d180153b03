//! Categorical distributions (Bellemare, Dabney, Munos 2017, arXiv:1707.06887): mean, projection, cross-entropy, TD error.

use crate::activation::log_softmax;
use crate::config::{BRANCH_SIZES, N_BRANCHES};
use crate::matrix::{Matrix, dot};

/// Distributions of all branches for a batch.
#[derive(Clone, Debug)]
pub struct Distributions {
    /// ln p of each branch `[B, n_b K]`.
    pub log_p: Vec<Matrix>,
    /// p of each branch `[B, n_b K]`.
    pub p: Vec<Matrix>,
    /// Q = sum_k p_k z_k of each branch `[B, n_b]`.
    pub q: Vec<Matrix>,
}

impl Distributions {
    /// From the logits of each branch `[B, n_b K]` and its atoms.
    pub fn new(logits: &[Matrix], atoms: &[Vec<f64>]) -> Self {
        let mut all = Self { log_p: Vec::new(), p: Vec::new(), q: Vec::new() };
        for b in 0..N_BRANCHES {
            let k = atoms[b].len();
            let mut log_p = logits[b].clone();
            for i in 0..log_p.n_rows {
                for a in 0..BRANCH_SIZES[b] {
                    let row = log_softmax(&logits[b].row(i)[a * k..(a + 1) * k]);
                    log_p.row_mut(i)[a * k..(a + 1) * k].copy_from_slice(&row);
                }
            }
            let p = log_p.map(f64::exp);
            let q = Matrix::from_fn(p.n_rows, BRANCH_SIZES[b], |i, a| dot(&p.row(i)[a * k..(a + 1) * k], &atoms[b]));
            all.log_p.push(log_p);
            all.p.push(p);
            all.q.push(q);
        }
        all
    }

    /// p of one action: row `i`, branch `b`, action `a`.
    pub fn p_of(&self, i: usize, b: usize, a: usize) -> &[f64] {
        let k = self.p[b].n_cols / BRANCH_SIZES[b];
        &self.p[b].row(i)[a * k..(a + 1) * k]
    }

    /// ln p of one action.
    pub fn log_p_of(&self, i: usize, b: usize, a: usize) -> &[f64] {
        let k = self.p[b].n_cols / BRANCH_SIZES[b];
        &self.log_p[b].row(i)[a * k..(a + 1) * k]
    }

    /// Actions with the greatest mean, the lowest index among equals.
    pub fn greedy(&self, i: usize) -> [usize; N_BRANCHES] {
        std::array::from_fn(|b| crate::activation::argmax(self.q[b].row(i)))
    }

    /// q = 1/4 sum_b Q_b(s, a_b) of one row.
    pub fn mean_q(&self, i: usize, actions: &[usize; N_BRANCHES]) -> f64 {
        (0..N_BRANCHES).map(|b| self.q[b][(i, actions[b])]).sum::<f64>() / N_BRANCHES as f64
    }

    /// Q of every row, branch and action, row after row.
    pub fn all_q(&self) -> Vec<f64> {
        (0..self.q[0].n_rows).flat_map(|i| self.q.iter().flat_map(move |q| q.row(i).iter().copied())).collect()
    }
}

/// base^n by repeated multiplication.
pub fn power(base: f64, n: u32) -> f64 {
    (0..n).fold(1.0, |product, _| product * base)
}

/// The two atoms that share the mass of a value inside [z_0, z_{K-1}], as (lower index, share of lower, share of upper): the
/// upper is one further, and its share is 0 when the value lies on the lower atom.
pub fn neighbours(z: &[f64], value: f64) -> (usize, f64, f64) {
    let lower = z.partition_point(|&atom| atom <= value).saturating_sub(1);
    if lower + 1 == z.len() {
        return (lower, 1.0, 0.0);
    }
    let upper_share = (value - z[lower]) / (z[lower + 1] - z[lower]);
    (lower, 1.0 - upper_share, upper_share)
}

/// Distribution of reward + discount Z on the atoms (equation 7, for atoms of any spacing).
///
/// p over `z`, `[K]`; `discount` is gamma^n, 0 after a terminal step. Returns `[K]`.
pub fn project(p: &[f64], reward: f64, discount: f64, z: &[f64]) -> Vec<f64> {
    let mut projected = vec![0.0; z.len()];
    for (mass, atom) in p.iter().zip(z) {
        let (lower, share, rest) = neighbours(z, (reward + discount * atom).clamp(z[0], z[z.len() - 1]));
        projected[lower] += mass * share;
        if rest > 0.0 {
            projected[lower + 1] += mass * rest;
        }
    }
    projected
}

/// - sum_k target_k ln p_k.
pub fn cross_entropy(target: &[f64], log_p: &[f64]) -> f64 {
    -dot(target, log_p)
}

/// KL(target || p) = sum_k target_k (ln target_k - ln p_k), with 0 ln 0 = 0.
pub fn kl(target: &[f64], log_p: &[f64]) -> f64 {
    target.iter().zip(log_p).filter(|(t, _)| **t > 0.0).map(|(t, log_p)| t * (t.ln() - log_p)).sum()
}

/// Losses of a batch against its targets.
#[derive(Clone, Debug)]
pub struct Losses {
    /// CE_i = 1/4 sum_b cross-entropy `[B]`.
    pub cross_entropy: Vec<f64>,
    /// 1/4 sum_b KL(target_b || p_b) `[B]`: the TD error.
    pub td: Vec<f64>,
    /// (1/4 sum_b (E target_b - Q_b))^2, mean over the batch.
    pub mse: f64,
}

/// Losses of the actions taken. `targets` of each branch `[B, K]`.
pub fn losses(d: &Distributions, actions: &[[usize; N_BRANCHES]], targets: &[Matrix], atoms: &[Vec<f64>]) -> Losses {
    let branch_mean = |f: &dyn Fn(usize) -> f64| (0..N_BRANCHES).map(f).sum::<f64>() / N_BRANCHES as f64;
    let rows = 0..actions.len();
    let gap = |i: usize| branch_mean(&|b| dot(targets[b].row(i), &atoms[b]) - d.q[b][(i, actions[i][b])]);
    Losses {
        cross_entropy: rows
            .clone()
            .map(|i| branch_mean(&|b| cross_entropy(targets[b].row(i), d.log_p_of(i, b, actions[i][b]))))
            .collect(),
        td: rows.clone().map(|i| branch_mean(&|b| kl(targets[b].row(i), d.log_p_of(i, b, actions[i][b])))).collect(),
        mse: rows.clone().map(|i| gap(i).powi(2)).sum::<f64>() / actions.len() as f64,
    }
}

/// Gradient of mean_i(w_i CE_i) with respect to each branch's logits: w_i / (4 B) (p sum_k target_k - target) at the action taken.
pub fn loss_dlogits(
    d: &Distributions,
    actions: &[[usize; N_BRANCHES]],
    targets: &[Matrix],
    weights: &[f64],
) -> Vec<Matrix> {
    let n_batch = actions.len();
    (0..N_BRANCHES)
        .map(|b| {
            let mut dlogits = Matrix::zeros(n_batch, d.p[b].n_cols);
            let k = targets[b].n_cols;
            for i in 0..n_batch {
                let (a, target) = (actions[i][b], targets[b].row(i));
                let (p, mass) = (d.p_of(i, b, a), target.iter().sum::<f64>());
                for atom in 0..k {
                    dlogits[(i, a * k + atom)] =
                        weights[i] / (N_BRANCHES * n_batch) as f64 * (p[atom] * mass - target[atom]);
                }
            }
            dlogits
        })
        .collect()
}
