//! Scalar functions of the kernels against float64.

use gpu_kernels::math;
use onegraph_tests::lab::Tolerance;
use onegraph_tests::{Case, Outcome, host_case};
use reference::activation;

use super::support::{UNIT, wide};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("math::exp_holds_its_bound_over_its_whole_range", exp_holds_its_bound_over_its_whole_range),
        host_case("math::silu_and_its_slope_hold_their_bounds", silu_and_its_slope_hold_their_bounds),
        host_case("math::tanh_and_ln_1p_hold_their_bounds", tanh_and_ln_1p_hold_their_bounds),
        host_case("math::huge_arguments_and_nan_go_through", huge_arguments_and_nan_go_through),
    ]
}

/// Dense around 0, where the polynomials meet, and out to the ends.
fn arguments(end: f64, n: usize) -> Vec<f32> {
    let line = |end: f64| (0..=n).map(move |i| (end * (2.0 * i as f64 / n as f64 - 1.0)) as f32);
    line(end).chain(line(end / 100.0)).chain(line(1e-6)).collect()
}

fn exp_holds_its_bound_over_its_whole_range() -> Outcome {
    let x: Vec<f32> = arguments(87.3, 1_000_000);
    let got: Vec<f32> = x.iter().map(|&x| math::exp(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(f64::exp).collect();
    Tolerance { absolute: 0.0, relative: 4.0 * UNIT }.check("exp", &got, &want)?;
    // Results under the normal numbers keep an absolute error of their spacing.
    let x: Vec<f32> = (0..2000).map(|i| -86.0 - 0.01 * i as f32).collect();
    let got: Vec<f32> = x.iter().map(|&x| math::exp(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(f64::exp).collect();
    Tolerance { absolute: 2f64.powi(-148), relative: 4.0 * UNIT }.check("exp, subnormal", &got, &want)?;
    assert_eq!(math::exp(0.0), 1.0);
    Ok(())
}

/// SiLU: the exponential 4 units, the sum, the reciprocal and two products 1 or 2 each: 8. The slope is a sum of terms up to
/// 1.1 with as much each: 16, absolute.
fn silu_and_its_slope_hold_their_bounds() -> Outcome {
    let x = arguments(80.0, 200_000);
    let got: Vec<f32> = x.iter().map(|&x| math::silu(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(activation::silu).collect();
    Tolerance { absolute: 1e-40, relative: 8.0 * UNIT }.check("silu", &got, &want)?;
    let got: Vec<f32> = x.iter().map(|&x| math::silu_slope(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(activation::silu_slope).collect();
    Tolerance { absolute: 16.0 * UNIT, relative: 0.0 }.check("silu_slope", &got, &want)?;
    Ok(())
}

fn tanh_and_ln_1p_hold_their_bounds() -> Outcome {
    let x = arguments(20.0, 200_000);
    let got: Vec<f32> = x.iter().map(|&x| math::tanh(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(f64::tanh).collect();
    Tolerance { absolute: 1e-50, relative: 8.0 * UNIT }.check("tanh", &got, &want)?;
    let x: Vec<f32> = arguments(0.99, 200_000).into_iter().chain((0..120).map(|i| 2f32.powi(i))).collect();
    let got: Vec<f32> = x.iter().map(|&x| math::ln_1p(x)).collect();
    let want: Vec<f64> = wide(&x).into_iter().map(f64::ln_1p).collect();
    Tolerance { absolute: 1e-50, relative: 8.0 * UNIT }.check("ln_1p", &got, &want)?;
    Ok(())
}

fn huge_arguments_and_nan_go_through() -> Outcome {
    assert_eq!((math::exp(-1e4), math::exp(1e4)), (0.0, f32::INFINITY));
    assert_eq!((math::exp(f32::NEG_INFINITY), math::exp(f32::INFINITY)), (0.0, f32::INFINITY));
    assert_eq!((math::silu(-1e4), math::silu(1e4)), (0.0, 1e4));
    assert_eq!((math::silu_slope(-1e4), math::silu_slope(1e4)), (0.0, 1.0));
    assert_eq!((math::tanh(-1e4), math::tanh(1e4)), (-1.0, 1.0));
    for function in [math::exp, math::silu, math::silu_slope, math::tanh, math::ln_1p] {
        assert!(function(f32::NAN).is_nan());
    }
    Ok(())
}
