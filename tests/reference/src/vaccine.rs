//! GradVac (Wang et al. 2021, arXiv:2010.05874, equations 2 and 3) between this step's gradient and the last applied one.

use crate::matrix::{dot, norm};

/// Rate of phi, the moving average of the cosine; it starts at 0 and the first cosine does not seed it, as in the paper.
pub const VACCINE_RATE: f64 = 0.01;
/// Bound of phi in the formula.
pub const PHI_BOUND: f64 = 0.99;

/// What the comparison with the snapshot gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vaccine {
    /// Cosine of gradient and snapshot.
    pub cosine: f64,
    /// What the snapshot is multiplied by before it is added; 0 when the cosine is not under phi.
    pub multiple: f64,
    /// phi after this step's cosine.
    pub phi: f64,
}

/// |g| (phi sqrt(1 - cos^2) - cos sqrt(1 - phi^2)) / (|s| sqrt(1 - phi^2)): adding it times s makes the cosine phi.
pub fn gradvac_multiple(gradient_norm: f64, snapshot_norm: f64, cosine: f64, phi: f64) -> f64 {
    let phi = phi.clamp(-PHI_BOUND, PHI_BOUND);
    let (sine, phi_sine) = ((1.0 - cosine * cosine).max(0.0).sqrt(), (1.0 - phi * phi).sqrt());
    gradient_norm * (phi * sine - cosine * phi_sine) / (snapshot_norm * phi_sine)
}

/// Compares, and says what to add. `None` when one of the two has no length.
pub fn vaccine(gradient: &[f64], snapshot: &[f64], phi: f64, weight: f64) -> Option<Vaccine> {
    let (g, s) = (norm(gradient), norm(snapshot));
    if g == 0.0 || s == 0.0 {
        return None;
    }
    let cosine = (dot(gradient, snapshot) / (g * s)).clamp(-1.0, 1.0);
    let multiple = if cosine < phi { weight * gradvac_multiple(g, s, cosine, phi) } else { 0.0 };
    Some(Vaccine { cosine, multiple, phi: phi + VACCINE_RATE * (cosine - phi) })
}
