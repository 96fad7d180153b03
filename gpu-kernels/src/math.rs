//! Functions of real numbers that both targets compute alike: the square root is the machine's correctly rounded one, the
//! others are the same code on both.

use cuda_std::GpuFloat;

/// Square root, correctly rounded.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    GpuFloat::sqrt(x)
}

/// Natural logarithm, within 1 unit in the last place.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    libm::logf(x)
}

/// `base` to the power `exponent`, within 1 unit in the last place.
#[inline(always)]
pub fn pow(base: f32, exponent: f32) -> f32 {
    libm::powf(base, exponent)
}

/// e to the power `x`, within 1 unit in the last place.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    libm::expf(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x / (1 + e^-x) (Elfwing et al. 2017, SiLU).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Derivative of [`silu`]: s (1 + x (1 - s)), s the sigmoid of x.
#[inline(always)]
pub fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}
