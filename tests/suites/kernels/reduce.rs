//! Sums and maxima.

use gpu_kernels::reduce::{
    n_partials, reduce_max, reduce_max_partials, reduce_partials_shape, reduce_shape, reduce_sum, reduce_sum_partials,
};
use host::device::Device;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, SIZES, Tolerance};
use onegraph_tests::{Case, Outcome, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("reduce::whole_numbers_sum_exactly_at_every_size", whole_numbers_sum_exactly_at_every_size),
        case("reduce::sums_hold_their_bound", sums_hold_their_bound),
        case("reduce::the_same_numbers_give_the_same_bits", the_same_numbers_give_the_same_bits),
        case("reduce::a_nan_or_an_infinity_reaches_the_sum", a_nan_or_an_infinity_reaches_the_sum),
        case("reduce::the_maximum_is_found_wherever_it_is", the_maximum_is_found_wherever_it_is),
        case("reduce::maxima_pass_over_nans", maxima_pass_over_nans),
    ]
}

fn sum(lab: &Lab, values: &[f32]) -> Result<f32, DeviceError> {
    let (values, partials, result) = (lab.upload(values)?, lab.poisoned(n_partials(values.len()))?, lab.poisoned(1)?);
    let n = values.len();
    lab.run(reduce_partials_shape(n), reduce_sum_partials::launch(values.view(), partials.view_mut()))?;
    lab.run(reduce_shape(), reduce_sum::launch(partials.view(), result.view_mut()))?;
    Ok(result.read()?[0])
}

fn max(lab: &Lab, values: &[f32]) -> Result<f32, DeviceError> {
    let (values, partials, result) = (lab.upload(values)?, lab.poisoned(n_partials(values.len()))?, lab.poisoned(1)?);
    let n = values.len();
    lab.run(reduce_partials_shape(n), reduce_max_partials::launch(values.view(), partials.view_mut()))?;
    lab.run(reduce_shape(), reduce_max::launch(partials.view(), result.view_mut()))?;
    Ok(result.read()?[0])
}

/// Past 1,024 tiles of 1,024 a block takes more than one; the sums stay under 2^24, where f32 is exact.
const LARGE: usize = 1_100_003;

fn whole_numbers_sum_exactly_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in SIZES.into_iter().chain([1023, 1024, 1025, LARGE]) {
        let mut numbers = Numbers::new(n as u64);
        let values: Vec<f32> = (0..n).map(|_| numbers.below(15) as f32 - 7.0).collect();
        let want: f64 = values.iter().map(|&value| value as f64).sum();
        assert_eq!(sum(&lab, &values)? as f64, want, "n = {n}");
        if n <= 1024 {
            // One stage is enough.
            let (values, result) = (lab.upload(&values)?, lab.poisoned(1)?);
            lab.run(reduce_shape(), reduce_sum::launch(values.view(), result.view_mut()))?;
            assert_eq!(result.read()?[0] as f64, want, "n = {n}, one stage");
        }
    }
    Ok(())
}

/// (h + 24) 2^-24 sum |x|, as the module derives it.
fn sums_hold_their_bound(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in [1, 33, 1000, 70_001, LARGE] {
        let mut numbers = Numbers::new(n as u64);
        let values: Vec<f32> =
            (0..n).map(|_| numbers.heavy() * if numbers.below(2) == 0 { 1.0 } else { -1.0 }).collect();
        let want: f64 = values.iter().map(|&value| value as f64).sum();
        let magnitude: f64 = values.iter().map(|&value| value.abs() as f64).sum();
        let depth = n.div_ceil(n_partials(n) * 1024) + 24;
        Tolerance { absolute: depth as f64 * 2f64.powi(-24) * magnitude, relative: 0.0 }.check(
            &format!("sum of {n}"),
            &[sum(&lab, &values)?],
            &[want],
        )?;
    }
    Ok(())
}

fn the_same_numbers_give_the_same_bits(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(4);
    let values: Vec<f32> = (0..200_003).map(|_| numbers.heavy()).collect();
    let first = sum(&lab, &values)?.to_bits();
    for _ in 0..5 {
        assert_eq!(sum(&lab, &values)?.to_bits(), first);
    }
    Ok(())
}

fn a_nan_or_an_infinity_reaches_the_sum(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for at in [0, 1000, 70_000] {
        let mut values = vec![1.0f32; 70_001];
        values[at] = f32::INFINITY;
        assert_eq!(sum(&lab, &values)?, f32::INFINITY);
        values[at] = f32::NAN;
        assert!(sum(&lab, &values)?.is_nan(), "NaN at {at}");
    }
    Ok(())
}

fn the_maximum_is_found_wherever_it_is(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in SIZES.into_iter().filter(|n| *n > 0).chain([LARGE]) {
        for at in [0, n / 3, n - 1] {
            let mut values = vec![-2.0f32; n];
            values[at] = -1.0;
            assert_eq!(max(&lab, &values)?, -1.0, "n = {n}, at {at}");
        }
    }
    Ok(())
}

fn maxima_pass_over_nans(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut values = vec![f32::NAN; 5000];
    assert_eq!(max(&lab, &values)?, f32::NEG_INFINITY, "no number at all");
    values[4321] = -3.0;
    assert_eq!(max(&lab, &values)?, -3.0);
    values[17] = f32::INFINITY;
    assert_eq!(max(&lab, &values)?, f32::INFINITY);
    assert_eq!(max(&lab, &[])?, f32::NEG_INFINITY);
    Ok(())
}
