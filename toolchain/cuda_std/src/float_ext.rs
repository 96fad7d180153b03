//! Functions beyond the standard library's, by the published crate's names.

use crate::float::{GpuFloat, Sealed};

/// More mathematics for `f32` and `f64`. From the crate `libm` on both targets, or from those functions as each method says.
pub trait FloatExt: Sized + Sealed {
    /// cos(pi x); exact at multiples of one half.
    fn cospi(self) -> Self;
    /// erf(x).
    fn error_function(self) -> Self;
    /// 1 - erf(x), accurate where that is small.
    fn complementary_error_function(self) -> Self;
    /// The x whose [`Self::complementary_error_function`] is this: infinite at 0 and 2, NaN outside. By Newton's method from
    /// an asymptotic start, in f64; within four units in the last place of f32, and 1e-14 relative in f64.
    fn inv_complementary_error_function(self) -> Self;
    /// exp(x^2) erfc(x), which stays finite where erfc is 0: by a continued fraction from x = 4 on.
    fn scaled_complementary_error_function(self) -> Self;
    /// The mantissa in [0.5, 1) and the exponent: x = mantissa * 2^exponent.
    fn frexp(self) -> (Self, i32);
    /// The exponent without its bias: x = m * 2^e with m in [1, 2). `i32::MAX` for infinities and NaN, `i32::MIN` for zero.
    fn unbiased_exp(self) -> i32;
    /// Bessel function of the first kind, order 0.
    fn j0(self) -> Self;
    /// Bessel function of the first kind, order 1.
    fn j1(self) -> Self;
    /// Bessel function of the first kind, order `order`.
    fn jn(self, order: i32) -> Self;
    /// x * 2^exp.
    fn ldexp(self, exp: i32) -> Self;
    /// ln |gamma(x)|.
    fn log_gamma(self) -> Self;
    /// ln(1 + x), accurate near 0.
    fn log1p(self) -> Self;
    /// The standard normal distribution function.
    fn norm_cdf(self) -> Self;
    /// Its inverse: the standard normal quantile; infinite at 0 and 1, NaN outside.
    fn inv_norm_cdf(self) -> Self;
    /// 1 / cbrt(x).
    fn rcbrt(self) -> Self;
    /// x clamped to [0, 1]; NaN gives 0.
    fn saturate(self) -> Self;
    /// x * 2^exp.
    fn scale_by_n(self, exp: i32) -> Self;
    /// (sin(pi x), cos(pi x)).
    fn sincospi(self) -> (Self, Self);
    /// sin(pi x); exact at multiples of one half.
    fn sinpi(self) -> Self;
    /// The gamma function.
    fn gamma(self) -> Self;
    /// Bessel function of the second kind, order 0.
    fn y0(self) -> Self;
    /// Bessel function of the second kind, order 1.
    fn y1(self) -> Self;
    /// Bessel function of the second kind, order `order`.
    fn yn(self, order: i32) -> Self;
}

/// sin(pi x) and cos(pi x): the argument is reduced to [-1/4, 1/4] exactly, before pi comes in.
fn sin_cos_pi(x: f64) -> (f64, f64) {
    if !x.is_finite() {
        return (f64::NAN, f64::NAN);
    }
    let x = libm::fmod(x, 2.0);
    let quarter = libm::rint(2.0 * x);
    let (sin, cos) = libm::sincos((x - 0.5 * quarter) * core::f64::consts::PI);
    match (quarter as i32).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// exp(x^2) erfc(x).
fn scaled_erfc(x: f64) -> f64 {
    if x < 4.0 {
        return libm::exp(x * x) * libm::erfc(x);
    }
    // Laplace's continued fraction, 1/sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + ...))): 60 terms reach f64's precision at 4.
    let tail = (1..=60).rev().fold(x, |tail, k| x + 0.5 * f64::from(k) / tail);
    1.0 / (1.772_453_850_905_516 * tail)
}

/// The x with erfc(x) = p, by Newton's method on ln erfc, which is smooth and nearly quadratic on the whole line.
fn inverse_erfc(p: f64) -> f64 {
    if p > 1.0 {
        return if p <= 2.0 { -inverse_erfc_upper(2.0 - p) } else { f64::NAN };
    }
    inverse_erfc_upper(p)
}

fn inverse_erfc_upper(p: f64) -> f64 {
    if p.is_nan() || p <= 0.0 {
        return if p == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    let log_p = libm::log(p);
    // erfc(x) is about exp(-x^2) / (1 + x): a start that is right at 0 and in the tail's leading term.
    let mut x = libm::sqrt(-log_p);
    for _ in 0..12 {
        let scaled = scaled_erfc(x);
        // ln erfc = ln scaled - x^2; its derivative is -2 / (sqrt(pi) scaled).
        let residual = libm::log(scaled) - x * x - log_p;
        let step = residual * scaled * (0.5 * 1.772_453_850_905_516);
        x += step;
        if step.abs() <= 1e-15 * x.abs() {
            break;
        }
    }
    x
}

macro_rules! impl_ext {
    ($type:ident, $erf:ident, $erfc:ident, $frexp:ident, $ilogb:ident, $j0:ident, $j1:ident, $jn:ident, $ldexp:ident,
     $lgamma:ident, $log1p:ident, $tgamma:ident, $y0:ident, $y1:ident, $yn:ident) => {
        impl FloatExt for $type {
            fn cospi(self) -> Self {
                sin_cos_pi(self.into()).1 as $type
            }
            fn error_function(self) -> Self {
                libm::$erf(self)
            }
            fn complementary_error_function(self) -> Self {
                libm::$erfc(self)
            }
            fn inv_complementary_error_function(self) -> Self {
                inverse_erfc(self.into()) as $type
            }
            fn scaled_complementary_error_function(self) -> Self {
                scaled_erfc(self.into()) as $type
            }
            fn frexp(self) -> (Self, i32) {
                libm::$frexp(self)
            }
            fn unbiased_exp(self) -> i32 {
                if self == 0.0 {
                    i32::MIN
                } else if self.is_finite() {
                    libm::$ilogb(self)
                } else {
                    i32::MAX
                }
            }
            fn j0(self) -> Self {
                libm::$j0(self)
            }
            fn j1(self) -> Self {
                libm::$j1(self)
            }
            fn jn(self, order: i32) -> Self {
                libm::$jn(order, self)
            }
            fn ldexp(self, exp: i32) -> Self {
                libm::$ldexp(self, exp)
            }
            fn log_gamma(self) -> Self {
                libm::$lgamma(self)
            }
            fn log1p(self) -> Self {
                libm::$log1p(self)
            }
            fn norm_cdf(self) -> Self {
                (0.5 * libm::erfc(-f64::from(self) * core::f64::consts::FRAC_1_SQRT_2)) as $type
            }
            fn inv_norm_cdf(self) -> Self {
                (-core::f64::consts::SQRT_2 * inverse_erfc(2.0 * f64::from(self))) as $type
            }
            fn rcbrt(self) -> Self {
                1.0 / GpuFloat::cbrt(self)
            }
            fn saturate(self) -> Self {
                // `max` and `min` give way from NaN to the number.
                self.max(0.0).min(1.0)
            }
            fn scale_by_n(self, exp: i32) -> Self {
                libm::$ldexp(self, exp)
            }
            fn sincospi(self) -> (Self, Self) {
                let (sin, cos) = sin_cos_pi(self.into());
                (sin as $type, cos as $type)
            }
            fn sinpi(self) -> Self {
                sin_cos_pi(self.into()).0 as $type
            }
            fn gamma(self) -> Self {
                libm::$tgamma(self)
            }
            fn y0(self) -> Self {
                libm::$y0(self)
            }
            fn y1(self) -> Self {
                libm::$y1(self)
            }
            fn yn(self, order: i32) -> Self {
                libm::$yn(order, self)
            }
        }
    };
}

impl_ext!(f32, erff, erfcf, frexpf, ilogbf, j0f, j1f, jnf, ldexpf, lgammaf, log1pf, tgammaf, y0f, y1f, ynf);
impl_ext!(f64, erf, erfc, frexp, ilogb, j0, j1, jn, ldexp, lgamma, log1p, tgamma, y0, y1, yn);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_a_half_are_exact() {
        for (x, sin, cos) in
            [(0.0, 0.0, 1.0), (0.5, 1.0, 0.0), (1.0, 0.0, -1.0), (-0.5, -1.0, 0.0), (1e15 + 0.5, 1.0, 0.0)]
        {
            let (got_sin, got_cos) = x.sincospi();
            assert_eq!((got_sin.abs(), got_cos.abs()), (f64::abs(sin), f64::abs(cos)), "{x}");
            assert_eq!((got_sin + 0.0, got_cos + 0.0), (sin, cos), "{x}");
        }
    }

    /// The bound is the method's documented one; erfc's own condition number, about 2 x^2, multiplies its last place.
    #[test]
    fn the_inverse_undoes_erfc() {
        for step in -50..=260 {
            let x = f64::from(step) * 0.1;
            let p = libm::erfc(x);
            let back = p.inv_complementary_error_function();
            let bound = 1e-14 * x.abs().max(1.0) + if x < 0.0 { 2.3e-16 * libm::exp(x * x) } else { 0.0 };
            assert!((back - x).abs() <= bound, "erfc({x}) = {p}, back {back}, off by {}", back - x);
        }
        assert_eq!(0.0f64.inv_complementary_error_function(), f64::INFINITY);
        assert_eq!(2.0f64.inv_complementary_error_function(), f64::NEG_INFINITY);
        assert!(2.5f64.inv_complementary_error_function().is_nan());
    }

    /// exp(16) erfc(4) from either side of the switch, and the leading term 1 / (x sqrt(pi)) far out.
    #[test]
    fn the_scaled_function_is_continuous_and_decays() {
        let below = libm::exp(16.0) * libm::erfc(4.0);
        assert!((4.0f64.scaled_complementary_error_function() / below - 1.0).abs() < 1e-14);
        let far = 1e8f64.scaled_complementary_error_function() * 1e8 * core::f64::consts::PI.sqrt();
        assert!((far - 1.0).abs() < 1e-14);
    }

    #[test]
    fn the_normal_distribution_has_its_known_points() {
        assert_eq!(0.0f64.norm_cdf(), 0.5);
        // Phi(1.959963984540054) = 0.975, a standard table's value.
        assert!((1.959_963_984_540_054f64.norm_cdf() - 0.975).abs() < 1e-15);
        assert!((0.975f64.inv_norm_cdf() - 1.959_963_984_540_054).abs() < 1e-14);
    }

    #[test]
    fn exponents_and_saturation() {
        assert_eq!(8.0f32.unbiased_exp(), 3);
        assert_eq!(0.0f32.unbiased_exp(), i32::MIN);
        assert_eq!(f32::INFINITY.unbiased_exp(), i32::MAX);
        assert_eq!(FloatExt::frexp(8.0f64), (0.5, 4));
        assert_eq!((f32::NAN.saturate(), 2.0f32.saturate(), 0.25f32.saturate()), (0.0, 1.0, 0.25));
    }
}
