//! `gradient_norm` and `flag_non_finite`. What `gate_step` makes of the partial norms is in `gate`.

use gpu_kernels::non_finite::{flag_non_finite, flag_non_finite_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape, learner_range, n_partial_norms};
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, SIZES, Tolerance};
use onegraph_tests::{Case, Outcome, case};
use shared_types::nan_flags::{INFINITE, NAN};
use shared_types::{GradientNorm, LearnerRange};

pub fn cases() -> Vec<Case> {
    vec![
        case("norm::each_learner_has_its_own", |device| Lab::on_all_lanes(device, each_learner_has_its_own)),
        case("norm::the_same_gradient_gives_the_same_bits", |device| {
            Lab::on_all_lanes(device, the_same_gradient_gives_the_same_bits)
        }),
        case("norm::what_is_no_number_is_found_wherever_it_is", |device| {
            Lab::on_all_lanes(device, what_is_no_number_is_found_wherever_it_is)
        }),
        case("norm::flags_are_added_to_the_stage_s_word", |device| {
            Lab::on_all_lanes(device, flags_are_added_to_the_stage_s_word)
        }),
    ]
}

/// Ranges of these lengths, one after the other.
fn ranges(lengths: &[usize]) -> Vec<LearnerRange> {
    let mut ranges: Vec<LearnerRange> = Vec::new();
    for len in lengths {
        let before = ranges.last().copied();
        let start = before.map_or(0, |before| (before.start + before.len) as usize);
        ranges.push(learner_range(start, *len, before));
    }
    ranges
}

fn partials(lab: &Lab, gradient: &[f32], ranges: &[LearnerRange]) -> Result<Vec<GradientNorm>, DeviceError> {
    let partials = lab.upload(&vec![GradientNorm { sum_of_squares: f32::NAN, flags: 99 }; n_partial_norms(ranges)])?;
    let (gradient, table) = (lab.upload(gradient)?, lab.upload(ranges)?);
    let masks = lab.zeroed(0)?;
    let launch = gradient_norm::launch(gradient.view(), masks.view(), table.view(), partials.view_mut());
    lab.run(gradient_norm_shape(ranges, lab.lanes()), launch)?;
    partials.read()
}

/// Past 512 tiles of 1,024 a block takes more than one.
const LENGTHS: [usize; 7] = [600_000 / 64 * 64, 64, 960, 1024, 1088, 0, 70_016];

/// A partial norm adds at most ceil(n / (1,024 partials)) squares one after the other and 10 levels: the module's bound less the
/// second stage's 21, of a block of one thread as of one of many.
fn each_learner_has_its_own(lab: &Lab) -> Outcome {
    let ranges = ranges(&LENGTHS);
    let mut numbers = Numbers::new(1);
    let gradient: Vec<f32> = (0..LENGTHS.iter().sum()).map(|_| numbers.heavy() * 1e-3).collect();
    let partials = partials(lab, &gradient, &ranges)?;
    assert!(partials.iter().all(|partial| partial.flags == 0));
    for (l, range) in ranges.iter().enumerate() {
        let (first, n) = (range.first_partial as usize, range.n_partials as usize);
        let elements = &gradient[range.start as usize..(range.start + range.len) as usize];
        assert_eq!(n, LENGTHS[l].div_ceil(1024).min(512));
        if n == 0 {
            continue;
        }
        let stretch = LENGTHS[l].div_ceil(1024).div_ceil(n) * 1024;
        // With 586 tiles for 512 blocks, two each, the last blocks have none.
        let want: Vec<f64> = (0..n)
            .map(|part| elements.iter().skip(part * stretch).take(stretch).map(|g| f64::from(*g).powi(2)).sum())
            .collect();
        let got: Vec<f32> = partials[first..first + n].iter().map(|partial| partial.sum_of_squares).collect();
        let depth = if lab.lanes() == 1 { stretch / 32 + 14 } else { stretch / 1024 + 11 } as f64;
        Tolerance { absolute: f64::MIN_POSITIVE, relative: depth * 2f64.powi(-24) }.check(
            &format!("partial norms of {} elements", LENGTHS[l]),
            &got,
            &want,
        )?;
    }
    Ok(())
}

fn the_same_gradient_gives_the_same_bits(lab: &Lab) -> Outcome {
    let ranges = ranges(&[70_016, 4160]);
    let mut numbers = Numbers::new(2);
    let gradient: Vec<f32> = (0..70_016 + 4160).map(|_| numbers.heavy()).collect();
    let first = partials(lab, &gradient, &ranges)?;
    for _ in 0..3 {
        let again = partials(lab, &gradient, &ranges)?;
        assert!(first.iter().zip(&again).all(|(a, b)| a.sum_of_squares.to_bits() == b.sum_of_squares.to_bits()));
    }
    Ok(())
}

fn what_is_no_number_is_found_wherever_it_is(lab: &Lab) -> Outcome {
    let ranges = ranges(&[5184, 64, 1088]);
    let n = 5184 + 64 + 1088;
    let negative_nan = f32::from_bits(f32::NAN.to_bits() | 1 << 31);
    for (value, flag) in
        [(f32::NAN, NAN), (negative_nan, NAN), (f32::INFINITY, INFINITE), (f32::NEG_INFINITY, INFINITE)]
    {
        for at in [0, 1023, 1025, 5183, 5184, 5247, 5248, n - 1] {
            let mut gradient = vec![1.0f32; n];
            gradient[at] = value;
            let found = partials(lab, &gradient, &ranges)?;
            for range in &ranges {
                let (first, n) = (range.first_partial as usize, range.n_partials as usize);
                let flags = found[first..first + n].iter().fold(0, |flags, partial| flags | partial.flags);
                let here = (range.start..range.start + range.len).contains(&(at as u32));
                assert_eq!(flags, if here { flag } else { 0 }, "{value} at {at}, learner from {}", range.start);
            }
        }
    }
    // The largest numbers are numbers, though the sum of their squares is not.
    let found = partials(lab, &vec![f32::MAX; n], &ranges)?;
    assert!(found.iter().all(|partial| partial.flags == 0 && partial.sum_of_squares == f32::INFINITY));
    Ok(())
}

fn flags_are_added_to_the_stage_s_word(lab: &Lab) -> Outcome {
    for n in SIZES {
        let mut values: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { f32::MAX } else { -0.0 }).collect();
        let flags = lab.upload(&[8u32; 7])?;
        let flag = |values: &[f32], stage: u32| -> Result<Vec<u32>, DeviceError> {
            let values = lab.upload(values)?;
            lab.run(
                flag_non_finite_shape(n, lab.lanes()),
                flag_non_finite::launch(values.view(), flags.view_mut(), stage),
            )?;
            flags.read()
        };
        assert_eq!(flag(&values, 2)?, [8; 7], "n = {n}: numbers leave no flag");
        if n == 0 {
            continue;
        }
        values[n / 3] = f32::NEG_INFINITY;
        assert_eq!(flag(&values, 2)?, [8, 8, 8 | INFINITE, 8, 8, 8, 8], "n = {n}");
        values[n - 1] = f32::NAN;
        let both = if n / 3 == n - 1 { NAN } else { NAN | INFINITE };
        assert_eq!(flag(&values, 6)?, [8, 8, 8 | INFINITE, 8, 8, 8, 8 | both], "n = {n}");
    }
    Ok(())
}
