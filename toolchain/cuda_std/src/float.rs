//! The mathematics of `f32` and `f64` that `core` leaves to the platform.
//!
//! On the GPU: square root, rounding to integers, absolute value, sign and fused multiply-add are the GPU's own
//! instructions; the rest is the crate `libm`, which needs no device library and is accurate to about one unit in the last
//! place. On the CPU target: the standard library. The two may differ in the last places. For speed rather than
//! accuracy see [`crate::fast`].

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
pub(crate) use private::Sealed;

/// The functions that `std` gives to floats, for kernels.
#[allow(missing_docs, reason = "each is the standard library's method of that name")]
pub trait GpuFloat: Copy + PartialOrd + Sealed {
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    /// To the nearest integer, halves away from zero.
    fn round(self) -> Self;
    fn trunc(self) -> Self;
    fn fract(self) -> Self;
    fn abs(self) -> Self;
    fn signum(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    fn div_euclid(self, rhs: Self) -> Self;
    fn rem_euclid(self, rhs: Self) -> Self;
    fn powi(self, n: i32) -> Self;
    fn powf(self, n: Self) -> Self;
    fn sqrt(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn ln(self) -> Self;
    fn log(self, base: Self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn cbrt(self) -> Self;
    fn hypot(self, other: Self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn atan2(self, other: Self) -> Self;
    fn sin_cos(self) -> (Self, Self);
    fn exp_m1(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
}

/// Forwards to a function on the GPU and to the standard library on the CPU.
macro_rules! forward {
    ($type:ident: $($name:ident($($argument:ident),*) => $gpu:path;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $argument: Self)*) -> Self {
            crate::target::target!(gpu { $gpu(self $(, $argument)*) } cpu { $type::$name(self $(, $argument)*) })
        }
    )*};
}

macro_rules! impl_float {
    ($type:ident, { $($forwards:tt)* }, $fmod:path, $sincos:path) => {
        impl GpuFloat for $type {
            forward!($type: $($forwards)*);

            #[inline(always)]
            fn fract(self) -> Self {
                self - GpuFloat::trunc(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $type::abs(self)
            }

            #[inline(always)]
            fn signum(self) -> Self {
                $type::signum(self)
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                $type::copysign(self, sign)
            }

            #[inline(always)]
            fn div_euclid(self, rhs: Self) -> Self {
                let quotient = GpuFloat::trunc(self / rhs);
                if $fmod(self, rhs) < 0.0 {
                    return if rhs > 0.0 { quotient - 1.0 } else { quotient + 1.0 };
                }
                quotient
            }

            #[inline(always)]
            fn rem_euclid(self, rhs: Self) -> Self {
                let remainder = $fmod(self, rhs);
                if remainder < 0.0 { remainder + rhs.abs() } else { remainder }
            }

            /// By squaring: at most 62 products, each rounded.
            #[inline(always)]
            fn powi(self, n: i32) -> Self {
                let (mut base, mut left, mut product) = (self, n.unsigned_abs(), 1.0);
                while left > 0 {
                    if left & 1 == 1 {
                        product *= base;
                    }
                    base *= base;
                    left >>= 1;
                }
                if n < 0 { 1.0 / product } else { product }
            }

            #[inline(always)]
            fn log(self, base: Self) -> Self {
                GpuFloat::ln(self) / GpuFloat::ln(base)
            }

            #[inline(always)]
            fn sin_cos(self) -> (Self, Self) {
                crate::target::target!(gpu { $sincos(self) } cpu { $type::sin_cos(self) })
            }
        }
    };
}

impl_float!(f32, {
    floor() => core::f32::math::floor;
    ceil() => core::f32::math::ceil;
    round() => core::f32::math::round;
    trunc() => core::f32::math::trunc;
    mul_add(a, b) => core::f32::math::mul_add;
    sqrt() => core::f32::math::sqrt;
    powf(n) => libm::powf;
    exp() => libm::expf;
    exp2() => libm::exp2f;
    ln() => libm::logf;
    log2() => libm::log2f;
    log10() => libm::log10f;
    cbrt() => libm::cbrtf;
    hypot(other) => libm::hypotf;
    sin() => libm::sinf;
    cos() => libm::cosf;
    tan() => libm::tanf;
    asin() => libm::asinf;
    acos() => libm::acosf;
    atan() => libm::atanf;
    atan2(other) => libm::atan2f;
    exp_m1() => libm::expm1f;
    ln_1p() => libm::log1pf;
    sinh() => libm::sinhf;
    cosh() => libm::coshf;
    tanh() => libm::tanhf;
    asinh() => libm::asinhf;
    acosh() => libm::acoshf;
    atanh() => libm::atanhf;
}, libm::fmodf, libm::sincosf);

impl_float!(f64, {
    floor() => core::f64::math::floor;
    ceil() => core::f64::math::ceil;
    round() => core::f64::math::round;
    trunc() => core::f64::math::trunc;
    mul_add(a, b) => core::f64::math::mul_add;
    sqrt() => core::f64::math::sqrt;
    powf(n) => libm::pow;
    exp() => libm::exp;
    exp2() => libm::exp2;
    ln() => libm::log;
    log2() => libm::log2;
    log10() => libm::log10;
    cbrt() => libm::cbrt;
    hypot(other) => libm::hypot;
    sin() => libm::sin;
    cos() => libm::cos;
    tan() => libm::tan;
    asin() => libm::asin;
    acos() => libm::acos;
    atan() => libm::atan;
    atan2(other) => libm::atan2;
    exp_m1() => libm::expm1;
    ln_1p() => libm::log1p;
    sinh() => libm::sinh;
    cosh() => libm::cosh;
    tanh() => libm::tanh;
    asinh() => libm::asinh;
    acosh() => libm::acosh;
    atanh() => libm::atanh;
}, libm::fmod, libm::sincos);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that are exact in binary, so that equality is too.
    #[test]
    fn own_functions_agree_with_the_standard_library() {
        for (x, y) in [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-7.5, -2.0), (6.0, 3.0), (-6.0, 3.0)] {
            assert_eq!(GpuFloat::div_euclid(x, y), f64::div_euclid(x, y), "{x} / {y}");
            assert_eq!(GpuFloat::rem_euclid(x, y), f64::rem_euclid(x, y), "{x} mod {y}");
            assert_eq!(GpuFloat::fract(x), f64::fract(x), "{x}");
        }
        for n in [0, 1, 2, 5, 30, -1, -4] {
            assert_eq!(GpuFloat::powi(-2.0f32, n), f32::powi(-2.0, n), "-2 to the power {n}");
        }
        assert_eq!(GpuFloat::log(8.0f64, 2.0), 3.0);
    }
}
