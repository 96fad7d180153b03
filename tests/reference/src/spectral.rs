//! Spectral norm (Miyato et al. 2018, arXiv:1802.05957, algorithm 1) by one power iteration a step.
//!
//! On purpose unlike the paper: weights are only scaled down, by 1 / max(1, sigma / sigma_max), and sigma is a constant in the
//! gradient.

use crate::matrix::{Matrix, dot, norm};

/// Added to the norms.
pub const POWER_EPSILON: f64 = 1e-12;
/// Iterations on the initial weights.
pub const N_START_ITERATIONS: usize = 15;

/// u and v after an iteration, and the estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerIteration {
    /// u' = W v / (|W v| + 1e-12).
    pub u: Vec<f64>,
    /// v = W^T u / (|W^T u| + 1e-12).
    pub v: Vec<f64>,
    /// sigma = u'^T W v.
    pub sigma: f64,
}

fn normalised(x: Vec<f64>) -> Vec<f64> {
    let length = norm(&x) + POWER_EPSILON;
    x.into_iter().map(|x| x / length).collect()
}

/// One iteration from u `[rows of W]`.
pub fn power_iteration(w: &Matrix, u: &[f64]) -> PowerIteration {
    let v = normalised((0..w.n_cols).map(|j| (0..w.n_rows).map(|i| w[(i, j)] * u[i]).sum()).collect());
    let wv: Vec<f64> = (0..w.n_rows).map(|i| dot(w.row(i), &v)).collect();
    let u = normalised(wv.clone());
    let sigma = dot(&u, &wv);
    PowerIteration { u, v, sigma }
}

/// u before the first step: the normalised start vector after [`N_START_ITERATIONS`] iterations.
pub fn start_vector(w: &Matrix, normals: &[f64]) -> Vec<f64> {
    let mut u = normalised(normals.to_vec());
    for _ in 0..N_START_ITERATIONS {
        u = power_iteration(w, &u).u;
    }
    u
}

/// Factor that makes the shadow of the master weights.
pub fn scale(sigma: f64, sigma_max: f64) -> f64 {
    1.0 / (sigma / sigma_max).max(1.0)
}
