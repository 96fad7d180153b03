//! The random generator.

use gpu_kernels::philox::{self, philox_normal, philox_shape, philox_uniform, philox_words};
use host::device::Device;
use onegraph_tests::lab::{Lab, SIZES, Tolerance};
use onegraph_tests::{Case, Outcome, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("philox::published_vectors", published_vectors),
        case("philox::elements_count_word_0_and_wrap", elements_count_word_0_and_wrap),
        case("philox::a_uniform_is_the_upper_24_bits_of_word_0", a_uniform_is_the_upper_24_bits_of_word_0),
        case("philox::a_normal_is_box_muller_of_words_0_and_1", a_normal_is_box_muller_of_words_0_and_1),
        case("philox::moments_are_those_of_the_distributions", moments_are_those_of_the_distributions),
        case("philox::seed_stream_and_step_each_change_every_draw", seed_stream_and_step_each_change_every_draw),
    ]
}

/// The rows `philox4x32 10` of `tests/kat_vectors` of Random123 1.14.0.
fn published_vectors(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let ones = 0xffff_ffff;
    let vectors = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in vectors {
        let words = lab.zeroed::<[u32; 4]>(1)?;
        lab.run(philox_shape(1), philox_words::launch(counter, key, words.view_mut()))?;
        assert_eq!(words.read()?, [expected], "counter {counter:x?}, key {key:x?}");
    }
    Ok(())
}

fn elements_count_word_0_and_wrap(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for len in SIZES {
        let words = lab.zeroed::<[u32; 4]>(len)?;
        lab.run(philox_shape(len), philox_words::launch([u32::MAX - 1, 5, 6, 7], [8, 9], words.view_mut()))?;
        let expected: Vec<_> =
            (0..len as u32).map(|i| philox::philox([(u32::MAX - 1).wrapping_add(i), 5, 6, 7], [8, 9])).collect();
        assert_eq!(words.read()?, expected, "len = {len}");
    }
    Ok(())
}

fn a_uniform_is_the_upper_24_bits_of_word_0(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for len in SIZES {
        let (words, values) = (lab.zeroed::<[u32; 4]>(len)?, lab.poisoned(len)?);
        lab.run(philox_shape(len), philox_words::launch([0, 3, 17, 0], [1, 2], words.view_mut()))?;
        lab.run(philox_shape(len), philox_uniform::launch([1, 2], 3, 17, values.view_mut()))?;
        for (block, value) in words.read()?.iter().zip(values.read()?) {
            assert_eq!((value as f64 * 16_777_216.0) as u32, block[0] >> 8);
            assert!((0.0..1.0).contains(&value));
        }
    }
    Ok(())
}

/// sqrt, -2 ln and the product round once each, ln is off by one unit in the last place: 4 x 2^-24 relative; the cosine is
/// off by 2^-23 at most, times a radius of at most sqrt(2 ln 2^24) = 5.8.
fn a_normal_is_box_muller_of_words_0_and_1(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let n = 100_003;
    let (words, values) = (lab.zeroed::<[u32; 4]>(n)?, lab.poisoned(n)?);
    lab.run(philox_shape(n), philox_words::launch([0, 4, 9, 0], [7, 0], words.view_mut()))?;
    lab.run(philox_shape(n), philox_normal::launch([7, 0], 4, 9, 1.0, values.view_mut()))?;
    let unit = |word: u32| (word >> 8) as f64 / 16_777_216.0;
    let want: Vec<f64> = words
        .read()?
        .iter()
        .map(|block| (-2.0 * (1.0 - unit(block[0])).ln()).sqrt() * (std::f64::consts::TAU * unit(block[1])).cos())
        .collect();
    Tolerance { absolute: 5.8 * 2f64.powi(-23), relative: 4.0 * 2f64.powi(-24) }.check(
        "normals",
        &values.read()?,
        &want,
    )
}

/// Each moment within five standard errors of a sample of n.
fn moments_are_those_of_the_distributions(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let n = 1_000_003;
    let values = lab.poisoned(n)?;
    let check = |what: &str, draws: Vec<f32>, mean: f64, variance: f64, fourth: f64| {
        let n = draws.len() as f64;
        let got_mean = draws.iter().map(|&x| x as f64).sum::<f64>() / n;
        let got_variance = draws.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / n;
        let (mean_error, variance_error) = ((variance / n).sqrt(), ((fourth - variance * variance) / n).sqrt());
        assert!((got_mean - mean).abs() < 5.0 * mean_error, "{what}: mean {got_mean}, {mean} expected");
        assert!((got_variance - variance).abs() < 5.0 * variance_error, "{what}: variance {got_variance}");
    };
    lab.run(philox_shape(n), philox_uniform::launch([11, 12], 0, 1, values.view_mut()))?;
    check("uniform", values.read()?, 0.5, 1.0 / 12.0, 1.0 / 80.0);
    lab.run(philox_shape(n), philox_normal::launch([11, 12], 0, 1, 2.0, values.view_mut()))?;
    check("normal times 2", values.read()?, 0.0, 4.0, 48.0);
    Ok(())
}

/// Two independent draws of 24 bits agree about once in 16.8 million: of 4,099, more than 3 would be a fault.
fn seed_stream_and_step_each_change_every_draw(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let n = 4099;
    let draw = |seed: [u32; 2], stream: u32, step: u32| -> Result<Vec<f32>, host::error::DeviceError> {
        let values = lab.poisoned(n)?;
        lab.run(philox_shape(n), philox_uniform::launch(seed, stream, step, values.view_mut()))?;
        values.read()
    };
    let base = draw([1, 2], 3, 4)?;
    assert_eq!(base, draw([1, 2], 3, 4)?, "the same arguments give the same draws");
    for (what, other) in [
        ("low seed", draw([0, 2], 3, 4)?),
        ("high seed", draw([1, 3], 3, 4)?),
        ("stream", draw([1, 2], 4, 4)?),
        ("step", draw([1, 2], 3, 5)?),
    ] {
        let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same <= 3, "{what}: {same} of {n} draws did not change");
    }
    Ok(())
}
