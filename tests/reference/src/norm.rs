//! RMSNorm (Zhang and Sennrich 2019, equation 4): y_j = gain_j x_j / sqrt(mean(x^2) + 1e-5), over a row.

use crate::matrix::{Matrix, dot};

/// Added to the mean square.
pub const RMS_EPSILON: f64 = 1e-5;

fn inverse_rms(x: &[f64]) -> f64 {
    1.0 / (dot(x, x) / x.len() as f64 + RMS_EPSILON).sqrt()
}

/// Normalises each row. Shapes: x `[n, d]`, gain `[d]` -> `[n, d]`.
pub fn rms_norm(x: &Matrix, gain: &[f64]) -> Matrix {
    let mut y = x.clone();
    for i in 0..x.n_rows {
        let r = inverse_rms(x.row(i));
        for (y, g) in y.row_mut(i).iter_mut().zip(gain) {
            *y *= g * r;
        }
    }
    y
}

/// Gradients (dx, dgain) of [`rms_norm`]: with r the inverse root mean square, dgain_j = sum_i dy_ij x_ij r_i and
/// dx_j = r gain_j dy_j - x_j r^3 / d sum_k gain_k dy_k x_k.
pub fn rms_norm_backward(x: &Matrix, gain: &[f64], dy: &Matrix) -> (Matrix, Vec<f64>) {
    let mut dx = Matrix::zeros(x.n_rows, x.n_cols);
    let mut dgain = vec![0.0; gain.len()];
    for i in 0..x.n_rows {
        let (x, dy, r) = (x.row(i), dy.row(i), inverse_rms(x.row(i)));
        let inner: f64 = (0..x.len()).map(|k| gain[k] * dy[k] * x[k]).sum();
        for j in 0..x.len() {
            dx[(i, j)] = r * gain[j] * dy[j] - x[j] * r.powi(3) / x.len() as f64 * inner;
            dgain[j] += dy[j] * x[j] * r;
        }
    }
    (dx, dgain)
}
