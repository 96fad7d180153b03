//! Functions of real numbers that both targets compute alike: the square root is the machine's correctly rounded one, the
//! others are the same code on both.
//!
//! [`exp`] and what is made of it are plain arithmetic with selections instead of branches, so that the CPU's compiler takes
//! four elements at once. A NaN goes through all of them.

use cuda_std::{GpuFloat, fast};

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

/// e^x, relative error at most 2^-22 where the result is a normal number; 0 far below, infinite past 88.73.
///
/// x = n ln 2 + r with |r| <= ln(2) / 2, e^r by a polynomial (coefficients of Cephes' `expf`).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: a number under 2^22 added to it leaves its nearest integer in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    /// ln 2 in two parts; n times the first is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // Past these bounds the result is 0 or infinite in any case.
    let x = x.clamp(-105.0, 89.0);
    let rounded = x * core::f32::consts::LOG2_E + ROUNDER;
    let whole = rounded - ROUNDER;
    let r = (x - whole * LN_2[0]) - whole * LN_2[1];
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    // 2^n in two factors, since n passes the exponents of normal numbers.
    let n = (rounded.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let half = n >> 1;
    (p * (r * r) + r + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// Sigmoid of x and of -x: both without cancellation, and without overflow for any x.
#[inline(always)]
fn sigmoids(x: f32) -> (f32, f32) {
    let e = exp(-x.abs());
    // The sum lies in [1, 2], where the approximate reciprocal is within 1 unit in the last place.
    let greater = fast::rcp(1.0 + e);
    let lesser = e * greater;
    if x >= 0.0 { (greater, lesser) } else { (lesser, greater) }
}

/// SiLU(x) = x / (1 + e^-x), relative error at most 2^-21.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoids(x).0
}

/// d SiLU / dx = s (1 + x (1 - s)), s = sigmoid(x); error at most 2^-20.
#[inline(always)]
pub fn silu_slope(x: f32) -> f32 {
    let (s, rest) = sigmoids(x);
    s * (1.0 + x * rest)
}

/// tanh x, relative error at most 2^-21: a polynomial (coefficients of Cephes' `tanhf`) under 0.625, 1 - 2 / (e^2x + 1) above.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let square = x * x;
    let p = -5.704_988_7e-3;
    let p = p * square + 2.063_908_8e-2;
    let p = p * square - 5.373_971_6e-2;
    let p = p * square + 1.333_144_2e-1;
    let p = p * square - 3.333_328e-1;
    let small = p * square * x + x;
    let large = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 {
        small
    } else if x < 0.0 {
        -large
    } else {
        large
    }
}

/// ln(1 + x) for finite x > -1, relative error at most 2^-21: ln(u) x / (u - 1) with u = 1 + x rounded (Goldberg 1991, theorem 4).
#[inline(always)]
pub fn ln_1p(x: f32) -> f32 {
    let u = 1.0 + x;
    if u == 1.0 { x } else { ln(u) * (x / (u - 1.0)) }
}
