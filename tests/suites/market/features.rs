//! The features against an f64 reference, by hand where a number is simple, and at their edges.

use gpu_kernels::market::features::{day_turns, sin_turns, week_turns};
use gpu_kernels::market::terms::corwin_schultz;
use host::data::Bars;
use host::device::Device;
use host::market::rules::Costs;
use onegraph_tests::{Case, Outcome, case};
use shared_types::market::{N_FEATURES, WARM_UP_BARS, feature};

use crate::feature_reference as reference;
use crate::world::{Lab, MINUTE_NS, MONDAY_NS, Measured, ensure, made_up};

pub fn cases() -> Vec<Case> {
    vec![
        case("features_of_ohlcv_equal_the_reference", |device| equal_the_reference(device, Measured::Nothing)),
        case("features_of_measured_bars_equal_the_reference", |device| {
            equal_the_reference(device, Measured::Everything)
        }),
        case("features_scale_by_the_training_part", features_scale_by_the_training_part),
        case("features_of_a_price_that_never_moves_are_zero", features_of_a_price_that_never_moves_are_zero),
        case("case_p_features_stay_finite_through_jumps_and_huge_volumes", case_p_features_stay_finite),
        case("features_of_every_length_down_to_none", features_of_every_length),
        case("corwin_schultz_known_answers", corwin_schultz_known_answers),
        case("times_of_day_and_week_by_hand", times_of_day_and_week_by_hand),
        case("features_are_the_same_bits_twice", features_are_the_same_bits_twice),
    ]
}

/// Every feature of bars 128 to 699 against the reference.
///
/// Tolerance: both sides compute in f64 (2^-53 = 1.1e-16) and differ in the order of at most 60 additions and in what is
/// subtracted first. The worst case is a z-score, whose 60 additions are magnified by mean / deviation, under 1e3 here:
/// 60 * 1.1e-16 * 1e3 = 7e-12. Sines and cosines are f32 within 2^-23, of an argument rounded to f32: pi 2^-23.
fn equal_the_reference(device: &Device, measured: Measured) -> Outcome {
    let bars = made_up(700, 1, measured);
    let world = Lab::new(device)?.world(&bars, 128..700, &Costs::default())?;
    let got = world.series.raw.read()?;
    ensure!(got[..WARM_UP_BARS * N_FEATURES].iter().all(|&value| value == 0.0), "the warm-up is not zero");
    let mut worst = 0.0f64;
    for t in WARM_UP_BARS..bars.len() {
        for (index, want) in reference::raw(&bars, t).into_iter().enumerate() {
            let tolerance = if feature::is_phase(index) { 5e-7 } else { 1e-11 * (1.0 + want.abs()) };
            let value = got[t * N_FEATURES + index];
            let share = (value - want).abs() / tolerance;
            ensure!(share <= 1.0, "{} of bar {t} is {value}, {want} expected", feature::NAMES[index]);
            worst = worst.max(share);
        }
    }
    println!("{:.1}% of the tolerance used", 100.0 * worst);
    let varied = |index: usize| got[WARM_UP_BARS * N_FEATURES..].iter().skip(index).step_by(N_FEATURES);
    for (index, name) in feature::NAMES.iter().enumerate() {
        let unmeasured = measured == Measured::Nothing && [feature::MICROPRICE, feature::TRADES_Z].contains(&index);
        let varies = varied(index).any(|value| value != varied(index).next().unwrap());
        ensure!(varies != unmeasured, "{name}: the test's bars show it at one value alone");
    }
    Ok(())
}

/// Mean and deviation are the training part's (bars 150 to 449, more than one chunk, with a remainder), the result within
/// +-5, and every bar of the series is scaled.
///
/// Tolerance: the quotient is rounded to f32 once, 5 * 2^-24 = 3e-7; the scales' own error is of order 1e-12.
fn features_scale_by_the_training_part(device: &Device) -> Outcome {
    let bars = made_up(600, 2, Measured::Everything);
    let world = Lab::new(device)?.world(&bars, 150..450, &Costs::default())?;
    let (raw, got) = (world.series.raw.read()?, world.market.features.read()?);
    let mut n_clipped = 0;
    for index in 0..N_FEATURES {
        let column: Vec<f64> = raw.iter().skip(index).step_by(N_FEATURES).copied().collect();
        let (mean, std) = reference::mean_std(&column[150..450]);
        let scale = world.fitted.scales[index];
        ensure!((scale.mean - mean).abs() <= 1e-12 * (1.0 + mean.abs()), "mean {} for {mean}", scale.mean);
        ensure!((scale.std - std).abs() <= 1e-12 * (1.0 + std), "deviation {} for {std}", scale.std);
        for (t, &x) in column.iter().enumerate() {
            let want = if feature::is_phase(index) { x } else { ((x - mean) / std).clamp(-5.0, 5.0) };
            let value = got[t * N_FEATURES + index];
            ensure!((value as f64 - want).abs() <= 4e-7, "{} of bar {t}: {value} for {want}", feature::NAMES[index]);
            n_clipped += (want.abs() == 5.0) as usize;
        }
    }
    ensure!(n_clipped > 0, "no value reached the clip");
    let returns: Vec<f64> = raw.iter().step_by(N_FEATURES).copied().collect();
    let sigma = reference::mean_std(&returns[150..450]).1;
    ensure!((world.fitted.bar_sigma as f64 / sigma - 1.0).abs() < 1e-7, "bar sigma {}", world.fitted.bar_sigma);
    Ok(())
}

/// One price for all: no deviation, so every scaled feature but the phases is 0, and nothing is NaN. 0.1 is not a binary
/// fraction: a mean of 60 of them is off by rounding, which must not pass for a deviation.
fn features_of_a_price_that_never_moves_are_zero(device: &Device) -> Outcome {
    let n = 300;
    let column = || vec![0.1; n];
    let bars = Bars {
        interval_ns: MINUTE_NS,
        time_ns: (0..n as i64).map(|t| MONDAY_NS + t * MINUTE_NS).collect(),
        open: column(),
        high: column(),
        low: column(),
        close: column(),
        volume: column(),
        ..Bars::default()
    };
    let world = Lab::new(device)?.world(&bars, 128..300, &Costs::default())?;
    let (raw, got) = (world.series.raw.read()?, world.market.features.read()?);
    let last = &raw[(n - 1) * N_FEATURES..];
    ensure!(last[feature::RSI] == 50.0 && last[feature::CLOSE_LOCATION] == 0.5, "{last:?}");
    ensure!(last[feature::VOLUME_Z] == 0.0 && last[feature::MEAN_DISTANCE] == 0.0, "{last:?}");
    for (index, value) in got.iter().enumerate() {
        ensure!(feature::is_phase(index % N_FEATURES) || *value == 0.0, "element {index} is {value}");
    }
    ensure!(world.fitted.bar_sigma == 1e-8, "bar sigma {}", world.fitted.bar_sigma);
    Ok(())
}

/// Prices that jump a thousandfold up and down, volumes near the largest f64.
fn case_p_features_stay_finite(device: &Device) -> Outcome {
    let mut bars = made_up(400, 3, Measured::Everything);
    for t in 200..400 {
        let factor = if (t / 20) % 2 == 0 { 1000.0 } else { 1.0 };
        for column in [&mut bars.open, &mut bars.high, &mut bars.low, &mut bars.close] {
            column[t] *= factor;
        }
        bars.volume[t] = if t % 3 == 0 { f64::MAX } else { 0.0 };
    }
    let world = Lab::new(device)?.world(&bars, 128..400, &Costs::default())?;
    let got = world.market.features.read()?;
    ensure!(got.iter().all(|value| value.abs() <= 5.0), "a feature is outside +-5");
    let moves = world.market.bars.read()?;
    let in_range = |x: f32| (-0.999_999..=1e6).contains(&x);
    ensure!(
        moves.iter().all(|bar| [bar.open, bar.high, bar.low, bar.close].into_iter().all(in_range)),
        "a move is out of range"
    );
    ensure!(moves.iter().all(|bar| (0.0..=1.0).contains(&bar.regime_volatility)), "a share is outside [0, 1]");
    Ok(())
}

/// Lengths around a block, the warm-up and one chunk: nothing is read or written outside, whatever the checker sees.
fn features_of_every_length(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in [1, 2, 31, 127, 128, 129, 130, 255, 257, 385] {
        let bars = made_up(n, 4, Measured::Nothing);
        let world = lab.world(&bars, 0..n, &Costs::default())?;
        let got = world.market.features.read()?;
        ensure!(got.len() == n * N_FEATURES && got.iter().all(|value| value.is_finite()), "{n} bars");
    }
    Ok(())
}

/// Two equal bars of range h / l = e^x: beta = 2 x^2, gamma = x^2, alpha = x (2 - sqrt 2) / (3 - 2 sqrt 2) - x / sqrt(3 - 2 sqrt 2)
/// = x (sqrt 2 (sqrt 2 - 1) / (sqrt 2 - 1)^2 - 1 / (sqrt 2 - 1)) = x, so S = 2 tanh(x / 2). A bar moved wholly above or
/// below the close before it gives the same after the shift.
fn corwin_schultz_known_answers(_: &Device) -> Outcome {
    let bar = [101.0, 100.0];
    let want = 2.0 * (0.5 * (1.01f64).ln()).tanh();
    for (why, second, close) in [
        ("equal bars", [101.0, 100.0], 100.5),
        ("the second a gap of 7 higher", [108.0, 107.0], 100.0),
        ("the second a gap of 50 lower", [51.0, 50.0], 101.0),
    ] {
        let got = corwin_schultz(bar, close, second);
        ensure!((got - want).abs() < 1e-14, "{why}: {got}, {want} expected");
    }
    ensure!(corwin_schultz([2.0, 2.0], 2.0, [2.0, 2.0]) == 0.0, "no range, no spread");
    Ok(())
}

/// 1970-01-01 was a Thursday, 2024-01-01 a Monday; times before 1970 have days too.
fn times_of_day_and_week_by_hand(_: &Device) -> Outcome {
    let hour = 3_600_000_000_000i64;
    for (time, day, weekday) in [
        (0, 0.0, 3),
        (MONDAY_NS, 0.0, 0),
        (MONDAY_NS + 6 * hour, 0.25, 0),
        (MONDAY_NS + 6 * 24 * hour + 18 * hour, 0.75, 6),
        (-hour, 23.0 / 24.0, 2),
    ] {
        ensure!(day_turns(time) == day, "{time}: {} of the day", day_turns(time));
        ensure!(week_turns(time) == weekday as f32 / 7.0, "{time}: {} of the week", week_turns(time));
    }
    for (turns, want) in [(0.0, 0.0), (0.25, 1.0), (0.5, 0.0), (0.75, -1.0)] {
        ensure!((sin_turns(turns) - want).abs() < 2e-7, "sin of {turns} turns is {}", sin_turns(turns));
    }
    Ok(())
}

fn features_are_the_same_bits_twice(device: &Device) -> Outcome {
    let bars = made_up(500, 5, Measured::Everything);
    let run = || -> Result<_, onegraph_tests::Failed> {
        let world = Lab::new(device)?.world(&bars, 128..500, &Costs::default())?;
        Ok((world.market.features.read()?, world.market.bars.read()?, world.fitted))
    };
    ensure!(run()? == run()?, "two runs differ");
    Ok(())
}
