//! Mathematics: precise and fast.

use cuda_std::{FloatExt, fast, prelude::*};

use crate::put_rows;

/// Functions of the first table, as [`float_math_f32()`] and [`float_math_f64()`] write them: one row of `values.len()` each.
pub const FLOAT_FUNCTIONS: [&str; 26] = [
    "floor", "ceil", "round", "trunc", "fract", "abs", "signum", "sqrt", "exp", "exp2", "ln", "log2", "log10", "cbrt",
    "sin", "cos", "tan", "asin", "atan", "sinh", "tanh", "asinh", "exp_m1", "ln_1p", "powi3", "mul_add",
];

macro_rules! float_math {
    ($name:ident, $type:ident) => {
        /// Row f of the output is function f of [`FLOAT_FUNCTIONS`]; `mul_add` is x x + 1.
        #[kernel]
        pub fn $name(values: GlobalSlice<$type>, out: GlobalSliceMut<$type>) {
            let (index, n) = (thread::index_1d() as usize, values.len());
            if index >= n {
                return;
            }
            let x = values.get(index);
            let results = [
                GpuFloat::floor(x),
                GpuFloat::ceil(x),
                GpuFloat::round(x),
                GpuFloat::trunc(x),
                GpuFloat::fract(x),
                GpuFloat::abs(x),
                GpuFloat::signum(x),
                GpuFloat::sqrt(x),
                GpuFloat::exp(x),
                GpuFloat::exp2(x),
                GpuFloat::ln(x),
                GpuFloat::log2(x),
                GpuFloat::log10(x),
                GpuFloat::cbrt(x),
                GpuFloat::sin(x),
                GpuFloat::cos(x),
                GpuFloat::tan(x),
                GpuFloat::asin(x),
                GpuFloat::atan(x),
                GpuFloat::sinh(x),
                GpuFloat::tanh(x),
                GpuFloat::asinh(x),
                GpuFloat::exp_m1(x),
                GpuFloat::ln_1p(x),
                GpuFloat::powi(x, 3),
                GpuFloat::mul_add(x, x, 1.0),
            ];
            put_rows(&out, index, n, results);
        }
    };
}

float_math!(float_math_f32, f32);
float_math!(float_math_f64, f64);

/// Rows erf, erfc, norm_cdf, inv_norm_cdf of norm_cdf, sinpi, cospi, log_gamma of |x| + 1, saturate.
#[kernel]
pub fn float_ext(values: GlobalSlice<f64>, out: GlobalSliceMut<f64>) {
    let (index, n) = (thread::index_1d() as usize, values.len());
    if index >= n {
        return;
    }
    let x = values.get(index);
    let results = [
        x.error_function(),
        x.complementary_error_function(),
        x.norm_cdf(),
        x.norm_cdf().inv_norm_cdf(),
        x.sinpi(),
        x.cospi(),
        (x.abs() + 1.0).log_gamma(),
        x.saturate(),
    ];
    put_rows(&out, index, n, results);
}

/// Rows exp2, log2 of |x|, rsqrt of |x|, rcp, sqrt of |x|, tanh, sin, cos, exp, ln of |x|, sigmoid, tf32, exp2 flushed.
#[kernel]
pub fn fast_math(values: GlobalSlice<f32>, out: GlobalSliceMut<f32>) {
    let (index, n) = (thread::index_1d() as usize, values.len());
    if index >= n {
        return;
    }
    let x = values.get(index);
    let results = [
        fast::exp2(x),
        fast::log2(x.abs()),
        fast::rsqrt(x.abs()),
        fast::rcp(x),
        fast::sqrt(x.abs()),
        fast::tanh(x),
        fast::sin(x),
        fast::cos(x),
        fast::exp(x),
        fast::ln(x.abs()),
        fast::sigmoid(x),
        fast::round_tf32(x),
        fast::exp2_flushed(x),
    ];
    put_rows(&out, index, n, results);
}

/// Pairs of values packed as bf16 and as f16, rows of half as many words.
#[kernel]
pub fn packed_halves(values: GlobalSlice<f32>, out: GlobalSliceMut<u32>) {
    let (index, n) = (thread::index_1d() as usize, values.len() / 2);
    if index < n {
        let [low, high] = values.load::<2>(2 * index);
        out.set(index, fast::pack_bf16x2(low, high));
        out.set(n + index, fast::pack_f16x2(low, high));
    }
}

/// Quotients and remainders of 128-bit integers: rows quotient, remainder.
#[kernel]
pub fn wide_division(a: GlobalSlice<i128>, b: GlobalSlice<i128>, out: GlobalSliceMut<i128>) {
    let (index, n) = (thread::index_1d() as usize, a.len());
    if index < n {
        let (a, b) = (a.get(index), b.get(index));
        out.set(index, a.wrapping_div(b));
        out.set(n + index, a.wrapping_rem(b));
    }
}
