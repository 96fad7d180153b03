//! Mathematics against the standard library in f64 (f32 functions) or itself (f64 functions).

use cuda_std::shape::LaunchShape;
use cuda_std::{bf16, f16};
use test_kernels::math;

use super::{Backend, random_bits, random_floats, unwritten};

/// The functions of `FLOAT_FUNCTIONS`, in order.
const REFERENCES: [fn(f64) -> f64; 26] = [
    f64::floor,
    f64::ceil,
    f64::round,
    f64::trunc,
    f64::fract,
    f64::abs,
    f64::signum,
    f64::sqrt,
    f64::exp,
    f64::exp2,
    f64::ln,
    f64::log2,
    f64::log10,
    f64::cbrt,
    f64::sin,
    f64::cos,
    f64::tan,
    f64::asin,
    f64::atan,
    f64::sinh,
    f64::tanh,
    f64::asinh,
    f64::exp_m1,
    f64::ln_1p,
    |x| x.powi(3),
    |x| x.mul_add(x, 1.0),
];

/// Whether `got` is within `units` of the last place of `want`, or both are NaN.
fn close(got: f64, want: f64, epsilon: f64, units: f64) -> bool {
    got == want
        || (got.is_nan() && want.is_nan())
        || (got - want).abs() <= units * epsilon * want.abs().max(f64::MIN_POSITIVE)
}

/// The crate `libm` documents errors of about one unit; four leave room for those functions that chain two.
pub fn float_math<B: Backend>(backend: &B) {
    let mut values = random_floats(19, 200, -8.0, 8.0);
    values.extend(random_floats(23, 100, -1.0, 1.0));
    values.extend([0.0, -0.0, 0.5, -0.5, 2.5, -2.5, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    let single: Vec<f32> = values.iter().map(|&x| x as f32).collect();
    let n = values.len();
    let shape = LaunchShape::cover(n, 64);
    let (input, out) = (backend.upload(&single), unwritten(backend, 26 * n, 1234.5f32));
    backend.run(shape, math::float_math_f32::launch(backend.view(&input), backend.view_mut(&out))).unwrap();
    let out32 = backend.read(&out);
    let (input, out) = (backend.upload(&values), unwritten(backend, 26 * n, 1234.5f64));
    backend.run(shape, math::float_math_f64::launch(backend.view(&input), backend.view_mut(&out))).unwrap();
    let out64 = backend.read(&out);
    for (function, reference) in REFERENCES.iter().enumerate() {
        let name = math::FLOAT_FUNCTIONS[function];
        for index in 0..n {
            let (x, got) = (f64::from(single[index]), out32[function * n + index]);
            let want = f64::from(reference(x) as f32);
            assert!(close(got.into(), want, f32::EPSILON.into(), 4.0), "f32 {name}({x}) = {got}, want {want}");
            let (x, got) = (values[index], out64[function * n + index]);
            let want = reference(x);
            assert!(close(got, want, f64::EPSILON, 4.0), "f64 {name}({x}) = {got}, want {want}");
        }
    }
}

/// Identities and known points, since the standard library has none of these.
pub fn float_ext<B: Backend>(backend: &B) {
    let values = [-1.5, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0];
    let n = values.len();
    let (input, out) = (backend.upload(&values), unwritten(backend, 8 * n, f64::NAN));
    backend
        .run(LaunchShape::linear(1, 32), math::float_ext::launch(backend.view(&input), backend.view_mut(&out)))
        .unwrap();
    let out = backend.read(&out);
    for (index, x) in values.into_iter().enumerate() {
        let [erf, erfc, cdf, quantile, sinpi, cospi, log_gamma, saturated] =
            core::array::from_fn(|row| out[row * n + index]);
        assert!((erf + erfc - 1.0).abs() <= 4.0 * f64::EPSILON, "erf({x}) + erfc({x})");
        // erf's series, which for |x| <= 2 has terms of at most 8 and so loses at most four bits.
        let mut term = x;
        let series: f64 = (0..60)
            .map(|k| {
                let value = term / f64::from(2 * k + 1);
                term *= -x * x / f64::from(k + 1);
                value
            })
            .sum::<f64>()
            * 2.0
            / std::f64::consts::PI.sqrt();
        assert!((erf - series).abs() < 64.0 * f64::EPSILON, "erf({x}) = {erf}, series {series}");
        assert!((quantile - x).abs() < 1e-13, "the quantile of cdf({x}) = {cdf} is {quantile}");
        assert!(
            (sinpi - (std::f64::consts::PI * x).sin()).abs() < 1e-15
                && (cospi - (std::f64::consts::PI * x).cos()).abs() < 1e-15
        );
        assert_eq!(saturated, x.clamp(0.0, 1.0));
        if x == 2.0 {
            assert!((log_gamma - 2f64.ln()).abs() < 4.0 * f64::EPSILON, "gamma(3) = 2");
        }
    }
}

/// Each bound is the one that `cuda_std::fast` documents.
pub fn fast_math<B: Backend>(backend: &B) {
    let values: Vec<f32> =
        random_floats(29, 500, -3.0, 3.0).into_iter().map(|x| x as f32).filter(|x| x.abs() > 1e-3).collect();
    let n = values.len();
    let (input, out) = (backend.upload(&values), unwritten(backend, 13 * n, f32::NAN));
    backend
        .run(LaunchShape::cover(n, 64), math::fast_math::launch(backend.view(&input), backend.view_mut(&out)))
        .unwrap();
    let out = backend.read(&out);
    for (index, &x) in values.iter().enumerate() {
        let (x, a) = (f64::from(x), f64::from(x.abs()));
        // Function, value, relative and absolute bound. A rounding to f32 (2^-24) comes on top of the CPU's precise value.
        let rounding = 2f64.powi(-24);
        for (row, (name, want, relative, absolute)) in [
            ("exp2", x.exp2(), 2f64.powf(-22.5), 0.0),
            ("log2", a.log2(), 2f64.powi(-22), 2f64.powi(-22)),
            ("rsqrt", 1.0 / a.sqrt(), 2f64.powf(-22.9), 0.0),
            ("rcp", 1.0 / x, 2f64.powi(-23), 0.0),
            ("sqrt", a.sqrt(), 2f64.powi(-23), 0.0),
            ("tanh", x.tanh(), 2f64.powi(-11), 0.0),
            ("sin", x.sin(), 0.0, 2f64.powf(-20.9)),
            ("cos", x.cos(), 0.0, 2f64.powf(-20.9)),
            ("exp", x.exp(), 2f64.powf(-22.5) + 2.0 * a * 2f64.powi(-24), 0.0),
            ("ln", a.ln(), 2f64.powi(-22) + 2f64.powi(-23), 2f64.powi(-22)),
            ("sigmoid", 1.0 / (1.0 + (-x).exp()), 0.0, 2f64.powi(-12)),
            ("tf32", x, 2f64.powi(-11), 0.0),
            ("exp2 flushed", x.exp2(), 2f64.powf(-22.5), 0.0),
        ]
        .into_iter()
        .enumerate()
        {
            let got = f64::from(out[row * n + index]);
            let bound = (relative + rounding) * want.abs() + absolute;
            assert!((got - want).abs() <= bound, "{name}({x}) = {got}, want {want} to {bound:e}");
        }
    }
}

pub fn packed_halves<B: Backend>(backend: &B) {
    let values: Vec<f32> = random_floats(31, 128, -100.0, 100.0).into_iter().map(|x| x as f32).collect();
    let (input, out) = (backend.upload(&values), unwritten(backend, 128, u32::MAX));
    backend
        .run(LaunchShape::linear(1, 64), math::packed_halves::launch(backend.view(&input), backend.view_mut(&out)))
        .unwrap();
    let pack = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let pairs = || values.chunks(2);
    let mut want: Vec<u32> =
        pairs().map(|p| pack(bf16::from_f32(p[0]).to_bits(), bf16::from_f32(p[1]).to_bits())).collect();
    want.extend(pairs().map(|p| pack(f16::from_f32(p[0]).to_bits(), f16::from_f32(p[1]).to_bits())));
    assert_eq!(backend.read(&out), want);
}

pub fn wide_division<B: Backend>(backend: &B) {
    let wide: Vec<i128> = random_bits(37)
        .zip(random_bits(41))
        .take(80)
        .map(|(high, low)| (u128::from(high) << 64 | u128::from(low)).cast_signed())
        .collect();
    // Divisors of every length, the sign mixed.
    let (a, b): (Vec<i128>, Vec<i128>) =
        wide.chunks(2).enumerate().map(|(i, pair)| (pair[0], pair[1] >> (3 * i) | 1)).unzip();
    let n = a.len();
    let (left, right, out) = (backend.upload(&a), backend.upload(&b), unwritten(backend, 2 * n, 0i128));
    let launch = math::wide_division::launch(backend.view(&left), backend.view(&right), backend.view_mut(&out));
    backend.run(LaunchShape::cover(n, 32), launch).unwrap();
    let quotients = a.iter().zip(&b).map(|(a, b)| a.wrapping_div(*b));
    let want: Vec<i128> = quotients.chain(a.iter().zip(&b).map(|(a, b)| a.wrapping_rem(*b))).collect();
    assert_eq!(backend.read(&out), want);
}
