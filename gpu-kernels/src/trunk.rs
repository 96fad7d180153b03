//! The trunk apart from its matrix products.
//!
//! h = SiLU(RMSNorm(W_in u + b)); FiLM (Perez et al. 2018): h (1 + g) + s with [g; s] = W_isv tanh(isv[0..12]); residual blocks
//! (He et al. 2016, pre-norm) h + m_l (W2 SiLU(W1 RMSNorm(h) + b1) + b2), m_l being stochastic depth's mask (Huang et al. 2016).
//! RMSNorm (Zhang and Sennrich 2019, equation 4): gain_j x_j / sqrt(mean(x^2) + 1e-5), over a row.
//!
//! | part | file |
//! |---|---|
//! | input u | [`input`] |
//! | FiLM's vector and its gradient | [`film`] |
//! | between the products, forwards | [`forward`] |
//! | between the products, backwards | [`backward`] |
//!
//! Widths H are multiples of 4. A kernel that reduces over a row gives it to the lanes of [`row_shape`](crate::lanes::row_shape); a lane
//! keeps its first four vectors in registers, so that rows of up to 512 are read once.

use crate::{math, sweep};

pub mod backward;
pub mod film;
pub mod forward;
pub mod input;

/// Added to the mean square.
const RMS_EPSILON: f32 = 1e-5;

/// 1 / sqrt(mean(x^2) + 1e-5) of a row, from the lanes' sums of squares.
#[inline(always)]
fn inverse_rms(squares: sweep::Vector, width: usize) -> f32 {
    1.0 / math::sqrt(sweep::row_total(squares) / width as f32 + RMS_EPSILON)
}
