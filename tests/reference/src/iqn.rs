//! IQN (Dabney et al. 2018, arXiv:1806.06923): quantiles of the return from h, at fixed levels.
//!
//! phi(tau) = ReLU(W_phi cos(pi i tau) + b), i = 0..63 (equation 4); (h * phi) -> SiLU layer -> 13 values; quantile Huber loss, kappa 1
//! (equation 3 and the paper's per-sample loss: sum over N, mean over N').
//! Differs from the paper on purpose: levels are the midpoints (k + 1/2) / N, so that phi is computed once a step.

use std::f64::consts::PI;

use crate::activation::{silu, silu_slope};
use crate::config::{N_ACTIONS, N_BRANCHES, Sizes, first_action};
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::precision::Precision;

/// Threshold of the Huber loss.
pub const KAPPA: f64 = 1.0;

/// Level of quantile k of n: (k + 1/2) / n.
pub fn level(k: usize, n: usize) -> f64 {
    (k as f64 + 0.5) / n as f64
}

/// What the forward pass leaves for the backward one.
#[derive(Clone, Debug)]
pub struct IqnPass {
    h: Matrix,
    cosines: Matrix,
    phi_pre: Matrix,
    /// phi of each level `[N, H]`.
    pub phi: Matrix,
    product: Matrix,
    pre: Matrix,
    hidden: Matrix,
    /// Quantile n of row i at row i N + n, an action a column `[B N, 13]`.
    pub quantiles: Matrix,
}

/// Runs the head on h `[B, H]`.
pub fn forward(s: &Sizes, precision: Precision, p: &Tensors, h: &Matrix) -> IqnPass {
    let n = s.quantiles;
    let cosines = Matrix::from_fn(n, s.cosines, |k, i| (PI * i as f64 * level(k, n)).cos());
    let mut phi_pre = precision.linear(&cosines, &p.matrix("iqn.phi.weight"));
    phi_pre.add_to_rows(p.slice("iqn.phi.bias"));
    let phi = phi_pre.map(|x| x.max(0.0));
    let product = Matrix::from_fn(h.n_rows * n, s.hidden, |row, j| h[(row / n, j)] * phi[(row % n, j)]);
    let mut pre = precision.linear(&product, &p.matrix("iqn.hidden.weight"));
    pre.add_to_rows(p.slice("iqn.hidden.bias"));
    let hidden = pre.map(silu);
    let mut quantiles = precision.linear(&hidden, &p.matrix("iqn.out.weight"));
    quantiles.add_to_rows(p.slice("iqn.out.bias"));
    IqnPass { h: h.clone(), cosines, phi_pre, phi, product, pre, hidden, quantiles }
}

impl IqnPass {
    /// Quantiles of one action of one branch of row `i`, in the order of the levels.
    pub fn of(&self, i: usize, b: usize, a: usize) -> Vec<f64> {
        let n = self.phi.n_rows;
        (0..n).map(|k| self.quantiles[(i * n + k, first_action(b) + a)]).collect()
    }
}

/// Quantile Huber loss of one row and branch, and its gradient with respect to the quantiles: sum over N, mean over N'.
pub fn quantile_huber(quantiles: &[f64], targets: &[f64]) -> (f64, Vec<f64>) {
    let mut loss = 0.0;
    let mut gradient = vec![0.0; quantiles.len()];
    for (k, quantile) in quantiles.iter().enumerate() {
        for target in targets {
            let delta = target - quantile;
            let weight = (level(k, quantiles.len()) - f64::from(u8::from(delta < 0.0))).abs() / targets.len() as f64;
            let huber = if delta.abs() <= KAPPA { 0.5 * delta * delta } else { KAPPA * (delta.abs() - 0.5 * KAPPA) };
            loss += weight * huber / KAPPA;
            gradient[k] -= weight * delta.clamp(-KAPPA, KAPPA) / KAPPA;
        }
    }
    (loss, gradient)
}

/// Loss, a plain mean over batch and branches, and its gradient with respect to [`IqnPass::quantiles`].
///
/// `targets[i][b]` are the N' target quantiles r + gamma^n (1 - done) Z'(s', a*).
pub fn loss(pass: &IqnPass, actions: &[[usize; N_BRANCHES]], targets: &[[Vec<f64>; N_BRANCHES]]) -> (f64, Matrix) {
    let (n, share) = (pass.phi.n_rows, 1.0 / (actions.len() * N_BRANCHES) as f64);
    let mut total = 0.0;
    let mut dquantiles = Matrix::zeros(actions.len() * n, N_ACTIONS);
    for (i, taken) in actions.iter().enumerate() {
        for b in 0..N_BRANCHES {
            let (loss, gradient) = quantile_huber(&pass.of(i, b, taken[b]), &targets[i][b]);
            total += share * loss;
            for (k, d) in gradient.iter().enumerate() {
                dquantiles[(i * n + k, first_action(b) + taken[b])] += share * d;
            }
        }
    }
    (total, dquantiles)
}

/// Adds the gradients of the head's parameters to `grads`; returns the gradient of h `[B, H]`.
pub fn backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    pass: &IqnPass,
    dquantiles: &Matrix,
    grads: &mut Tensors,
) -> Matrix {
    grads.add("iqn.out.bias", &dquantiles.sum_of_rows());
    grads.add("iqn.out.weight", &precision.linear_dw(dquantiles, &pass.hidden).values);
    let dhidden = precision.linear_dx(dquantiles, &p.matrix("iqn.out.weight"));
    let dpre = dhidden.zip(&pass.pre, |d, x| d * silu_slope(x));
    grads.add("iqn.hidden.bias", &dpre.sum_of_rows());
    grads.add("iqn.hidden.weight", &precision.linear_dw(&dpre, &pass.product).values);
    let dproduct = precision.linear_dx(&dpre, &p.matrix("iqn.hidden.weight"));
    let mut dh = Matrix::zeros(pass.h.n_rows, s.hidden);
    let mut dphi = Matrix::zeros(s.quantiles, s.hidden);
    for row in 0..dproduct.n_rows {
        let (i, k) = (row / s.quantiles, row % s.quantiles);
        for j in 0..s.hidden {
            dh[(i, j)] += dproduct[(row, j)] * pass.phi[(k, j)];
            dphi[(k, j)] += dproduct[(row, j)] * pass.h[(i, j)];
        }
    }
    let dphi_pre = dphi.zip(&pass.phi_pre, |d, x| if x > 0.0 { d } else { 0.0 });
    grads.add("iqn.phi.bias", &dphi_pre.sum_of_rows());
    grads.add("iqn.phi.weight", &precision.linear_dw(&dphi_pre, &pass.cosines).values);
    dh
}

/// Weight of the loss in the objective, as the step begins: clip(1 - EMA of the loss / its first value, 0, 1).
pub fn readiness(loss_ema: f64, first_loss: f64) -> f64 {
    (1.0 - loss_ema / first_loss).clamp(0.0, 1.0)
}

/// Interquartile range of quantiles at midpoint levels, linear between them.
pub fn interquartile_range(quantiles: &[f64]) -> f64 {
    quantile_at(quantiles, 0.75) - quantile_at(quantiles, 0.25)
}

/// Quantile at a level, linear between the midpoints, constant outside them.
pub fn quantile_at(quantiles: &[f64], at: f64) -> f64 {
    let position = (at * quantiles.len() as f64 - 0.5).clamp(0.0, (quantiles.len() - 1) as f64);
    let lower = (position.floor() as usize).min(quantiles.len() - 1);
    let upper = (lower + 1).min(quantiles.len() - 1);
    quantiles[lower] + (position - lower as f64) * (quantiles[upper] - quantiles[lower])
}
