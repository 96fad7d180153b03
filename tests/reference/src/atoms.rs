//! Atoms of the return distributions and their spacing (section 6.5).

use crate::activation::softmax;
use crate::matrix::{Matrix, mean};

/// Rate of the spacing's steps.
pub const SPACING_RATE: f64 = 0.05;
/// Bound on a spacing.
pub const SPACING_BOUND: f64 = 3.0;

/// z_k = v_min + (v_max - v_min) c_k, c = [0, cumsum softmax(spacing)]; the last atom is v_max exactly. `spacing` [K - 1] -> `[K]`.
pub fn atoms(spacing: &[f64], (v_min, v_max): (f64, f64)) -> Vec<f64> {
    let mut share = 0.0;
    let mut z = vec![v_min];
    for width in softmax(spacing) {
        share += width;
        z.push(v_min + (v_max - v_min) * share);
    }
    *z.last_mut().expect("at least one atom") = v_max;
    z
}

/// Spacing after an update: less room where the mean target has more than its share of mass.
///
/// spacing_k - 0.05 (mass_k - 1 / (K - 1)), mass_k = (m_k + m_{k+1}) / 2, m the plain batch mean of `targets` `[B, K]`; then centred and
/// clipped to +-3.
pub fn next_spacing(spacing: &[f64], targets: &Matrix) -> Vec<f64> {
    let m: Vec<f64> = targets.sum_of_rows().iter().map(|sum| sum / targets.n_rows as f64).collect();
    let fair = 1.0 / spacing.len() as f64;
    let moved: Vec<f64> =
        spacing.iter().enumerate().map(|(k, x)| x - SPACING_RATE * ((m[k] + m[k + 1]) / 2.0 - fair)).collect();
    let centre = mean(&moved);
    moved.iter().map(|x| (x - centre).clamp(-SPACING_BOUND, SPACING_BOUND)).collect()
}
