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

/// `base` to a whole power, by repeated squaring: at most 62 roundings.
#[inline]
pub fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut square, mut value) = (base, 1.0);
    while exponent != 0 {
        if exponent & 1 != 0 {
            value *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    value
}
