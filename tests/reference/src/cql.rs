//! CQL(H) (Kumar et al. 2020, arXiv:2006.04779, equation 4): mean of logsumexp_a Q_b(s, a) - Q_b(s, a_b).

use crate::activation::{log_sum_exp, softmax};
use crate::c51::Distributions;
use crate::config::{BRANCH_SIZES, N_BRANCHES};
use crate::matrix::Matrix;

/// The term, a plain mean over batch and branches.
pub fn value(d: &Distributions, actions: &[[usize; N_BRANCHES]]) -> f64 {
    let mut sum = 0.0;
    for (i, taken) in actions.iter().enumerate() {
        for (q, a) in d.q.iter().zip(taken) {
            sum += log_sum_exp(q.row(i)) - q[(i, *a)];
        }
    }
    sum / (actions.len() * N_BRANCHES) as f64
}

/// Gradient of `factor` times [`value`] with respect to each branch's logits: through dQ / dlogit_k = p_k (z_k - Q).
pub fn dlogits(d: &Distributions, actions: &[[usize; N_BRANCHES]], atoms: &[Vec<f64>], factor: f64) -> Vec<Matrix> {
    let per_row = factor / (actions.len() * N_BRANCHES) as f64;
    (0..N_BRANCHES)
        .map(|b| {
            let k = atoms[b].len();
            let mut dlogits = Matrix::zeros(actions.len(), BRANCH_SIZES[b] * k);
            for (i, taken) in actions.iter().enumerate() {
                let policy = softmax(d.q[b].row(i));
                for (a, share) in policy.iter().enumerate() {
                    let dq = per_row * (share - f64::from(u8::from(a == taken[b])));
                    for (atom, z) in atoms[b].iter().enumerate() {
                        dlogits[(i, a * k + atom)] = dq * d.p_of(i, b, a)[atom] * (z - d.q[b][(i, a)]);
                    }
                }
            }
            dlogits
        })
        .collect()
}
