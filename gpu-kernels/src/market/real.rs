//! Functions of real numbers that both targets compute alike.
//!
//! Features are worked out in f64: the fifth digit of a return is the eleventh of a price, and a bar's features are computed
//! once a series, so speed does not ask for less.

use cuda_std::GpuFloat;

/// Square root, correctly rounded.
#[inline(always)]
pub fn sqrt(x: f64) -> f64 {
    GpuFloat::sqrt(x)
}

/// Natural logarithm, within 1 unit in the last place.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// (e^x - 1) / (e^x + 1).
#[inline(always)]
pub fn half_tanh(x: f64) -> f64 {
    let less_one = libm::expm1(x);
    less_one / (less_one + 2.0)
}

/// ln(1 + x) of an f32, within 1 unit in the last place.
#[inline(always)]
pub fn ln_1p(x: f32) -> f32 {
    libm::log1pf(x)
}

/// `x` within +-`bound`; 0 if it is not a number.
#[inline(always)]
pub fn clip(x: f32, bound: f32) -> f32 {
    if x > bound {
        bound
    } else if x < -bound {
        -bound
    } else if x.is_nan() {
        0.0
    } else {
        x
    }
}
