//! Functions of real numbers that both targets compute alike: the square root is the machine's correctly rounded one, the
//! others are the same code on both.
//!
//! [`exp`] and what is made of it are plain arithmetic with selections instead of branches, so that the CPU's compiler takes
//! four elements at once. A NaN goes through all of them.

use cuda_std::{GpuFloat, fast};

/// ln 2 in two parts: the first has 9 bits, so that a whole number of up to 15 bits times it is exact.
pub(crate) const LN_2_HIGH: f32 = 355.0 / 512.0;
pub(crate) const LN_2_LOW: f32 = -2.121_944_4e-4;
/// 1.5 * 2^23: adding it leaves a number of at most 2^22 as a whole number in the lowest bits.
pub(crate) const WHOLE: f32 = 12_582_912.0;
/// 1 / 7! down to 1 / 2!: Taylor's series of (e^r - 1 - r) / r^2, the highest power first.
pub(crate) const EXP_SERIES: [f32; 6] = [1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

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

/// 1 / (1 + e^-x), relative error at most 2^-21.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    sigmoids(x).0
}

/// ln(1 + e^x), relative error at most 2^-20, without overflow for any x.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    // A NaN fails the comparison and comes out of the second term.
    (if x > 0.0 { x } else { 0.0 }) + ln_1p(exp(-x.abs()))
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

/// exp(x) for x <= 0, as softmax needs it, within 2^-22 of itself; 0 under -87, NaN for NaN. No branch, so that loops over
/// it become vector code on the CPU.
///
/// x = n ln 2 + r, |r| <= ln 2 / 2 + 2^-20, n times the first part of ln 2 is exact: r is within 2^-25. Taylor's
/// series to r^7 leaves r^8 / 8! < 6e-9. The last two additions round: 2^-24 each of a result of at least 0.7.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    let shifted = x * core::f32::consts::LOG2_E + WHOLE;
    let n = shifted - WHOLE;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let [seventh, sixth, fifth, fourth, third, second] = EXP_SERIES;
    let tail = fourth + r * (fifth + r * (sixth + r * seventh));
    let series = 1.0 + (r + r * r * (second + r * (third + r * tail)));
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x < -87.0 { 0.0 } else { series * scale }
}

/// ln x of a positive normal number, within 2^-22 of itself; NaN for NaN. No branch, so that loops over it become vector code
/// on the CPU.
///
/// x = 2^e m, m in [sqrt(1/2), sqrt 2); ln m = f - f^2 / 2 + f^3 P(f), f = m - 1 exactly, with the minimax polynomial P of
/// Moshier's Cephes (`logf`); e ln 2 is added in two parts.
#[inline(always)]
pub fn ln_normal(x: f32) -> f32 {
    /// Bits of sqrt(1/2).
    const LEAST: u32 = 0x3f35_04f3;
    let above = x.to_bits().wrapping_sub(LEAST);
    let e = (above as i32 >> 23) as f32;
    let f = f32::from_bits((above & 0x007f_ffff) + LEAST) - 1.0;
    let p = 7.037_683_6e-2;
    let p = -1.151_461e-1 + f * p;
    let p = 1.167_699_87e-1 + f * p;
    let p = -1.242_014_1e-1 + f * p;
    let p = 1.424_932_3e-1 + f * p;
    let p = -1.666_805_7e-1 + f * p;
    let p = 2.000_071_4e-1 + f * p;
    let p = -2.499_999_4e-1 + f * p;
    let p = 3.333_333e-1 + f * p;
    let square = f * f;
    let ln_m = f + (f * square * p + (e * LN_2_LOW - 0.5 * square));
    if x.is_nan() { x } else { ln_m + e * LN_2_HIGH }
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

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: f64 = 1.0 / 4_194_304.0;

    #[test]
    fn the_exponential_holds_its_bound() {
        let mut worst = 0.0f64;
        // Every 97th f32 from -87 to -2^-30, and 0.
        for bits in (0x3080_0000u32..=87f32.to_bits()).step_by(97) {
            let x = -f32::from_bits(bits);
            worst = worst.max((exp_nonpositive(x) as f64 / libm::exp(x as f64) - 1.0).abs());
        }
        assert!(worst < BOUND, "off by {worst:e}");
        assert_eq!((exp_nonpositive(0.0), exp_nonpositive(-0.0)), (1.0, 1.0));
        assert_eq!(
            (exp_nonpositive(-87.1), exp_nonpositive(f32::MIN), exp_nonpositive(f32::NEG_INFINITY)),
            (0.0, 0.0, 0.0)
        );
        assert!(exp_nonpositive(f32::NAN).is_nan());
    }

    #[test]
    fn the_logarithm_holds_its_bound() {
        let mut worst = 0.0f64;
        // Every 199th normal f32, and all near 1, where the result is small.
        let near_1 = 1f32.to_bits() - 50_000..1f32.to_bits() + 50_000;
        for bits in (f32::MIN_POSITIVE.to_bits()..=f32::MAX.to_bits()).step_by(199).chain(near_1) {
            let want = libm::log(f32::from_bits(bits) as f64);
            let off = (ln_normal(f32::from_bits(bits)) as f64 - want).abs();
            worst = worst.max(if want == 0.0 { off * 1e9 } else { off / want.abs() });
        }
        assert!(worst < BOUND, "off by {worst:e}");
        assert!(ln_normal(f32::NAN).is_nan());
    }
}
