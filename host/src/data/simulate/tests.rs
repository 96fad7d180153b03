//! The simulated markets have the properties they claim, within four standard errors of each estimate.

use super::*;

const N: u32 = 40_000;

fn returns(x: &[f64]) -> Vec<f64> {
    x.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Sum of a_i b_i over the sum of a_i^2: the regression of b on a without a constant.
fn slope(a: &[f64], b: &[f64]) -> f64 {
    let (mut ab, mut aa) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        ab += a * b;
        aa += a * a;
    }
    ab / aa
}

fn root_mean_square(x: &[f64]) -> f64 {
    (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt()
}

fn markets(seed: u64) -> impl Iterator<Item = (Market, Bars)> {
    let all = [Market::Regimes, Market::MeanReverting, Market::RandomWalk];
    all.into_iter().map(move |market| (market, Simulation { market, n_bars: N, seed }.bars()))
}

#[test]
fn bars_agree_with_themselves_and_the_first_open_follows_the_last_close() {
    for (market, bars) in markets(3) {
        assert_eq!(bars.len(), N as usize);
        for i in 0..bars.len() {
            let bar = bars.bar(i);
            assert!(0.0 < bar.low && bar.low <= bar.open.min(bar.close), "{market:?} {i}");
            assert!(bar.high.is_finite() && bar.high >= bar.open.max(bar.close), "{market:?} {i}");
            assert!(bar.volume > 0.0 && bar.volume.is_finite(), "{market:?} {i}");
            assert!((1e-6..1e-2).contains(&bar.measured[Measure::Spread as usize]), "{market:?} {i}");
        }
        // The open is one path step after the last close, so it is closer to it than the close is, on the average.
        let gap: f64 = (1..bars.len()).map(|i| (bars.open[i] / bars.close[i - 1]).ln().powi(2)).sum();
        let bar: f64 = returns(&deviations(&bars)).iter().map(|r| r * r).sum();
        // Variance ratio 1/16 for the walk; four standard errors of a variance of 40,000 normals are 4 sqrt(2/N).
        if market == Market::RandomWalk {
            assert!((gap / bar * 16.0 - 1.0).abs() < 4.0 * (2.0 * 2.0 / f64::from(N)).sqrt(), "{}", gap / bar);
        }
    }
}

/// What is asked of the mean-reverting market, and of the walk beside it: basis points, bars, and no other spread.
#[test]
fn the_markets_numbers_are_those_asked_for() {
    let bp = |fraction: f64| (1e4 * fraction * 1e6).round() / 1e6;
    assert_eq!((HALF_LIFE_BARS, bp(BAR_SIGMA), bp(HALF_SPREAD)), (5.0, 20.0, 1.0));
    assert_eq!((TAKER_BP, MAKER_BP, N_BARS_DEFAULT), (2.0, 1.0, 40_000));
    for (market, bars) in markets(1).filter(|(market, _)| *market != Market::Regimes) {
        let spread = bars.spread.expect("the simulator quotes a spread");
        assert!(spread.iter().all(|spread| *spread == 2.0 * HALF_SPREAD), "{market:?}");
    }
}

#[test]
fn mean_reversion_has_the_half_life_and_sigma_it_claims() {
    for seed in 0..5 {
        let bars = Simulation { market: Market::MeanReverting, n_bars: N, seed }.bars();
        let x = deviations(&bars);
        let n = x.len() as f64;
        let a = (-1.0f64 / HALF_LIFE_BARS).exp2();
        // The least-squares a of an AR(1) has standard error sqrt((1 - a^2) / n) and bias about -2 a / n.
        let estimate = slope(&x[..x.len() - 1], &x[1..]);
        assert!((estimate - a).abs() < 4.0 * ((1.0 - a * a) / n).sqrt() + 2.0 / n, "seed {seed}: a {estimate}");
        // The mean square of a Gaussian series has relative variance (2/n) sum over lags of rho^2, and for the
        // differences of an AR(1) rho_k = -(1 - a)/2 a^(k - 1); the root halves the relative error.
        let rho_squares = 1.0 + 2.0 * ((1.0 - a) / 2.0).powi(2) / (1.0 - a * a);
        let error = 0.5 * (2.0 * rho_squares / n).sqrt();
        let sigma = root_mean_square(&returns(&x));
        assert!((sigma / BAR_SIGMA - 1.0).abs() < 4.0 * error, "seed {seed}: sigma {sigma}");
        // No random walk: the stationary spread is reached, and not left, in either half.
        let stationary = BAR_SIGMA / (2.0 * (1.0 - a)).sqrt();
        let error = 0.5 * (2.0 * (1.0 + a * a) / (1.0 - a * a) / (n / 2.0)).sqrt();
        for half in x.chunks(x.len() / 2) {
            let spread = root_mean_square(half);
            assert!((spread / stationary - 1.0).abs() < 4.0 * error, "seed {seed}: {spread}");
        }
    }
}

#[test]
fn a_random_walk_has_no_memory() {
    for seed in 0..5 {
        let bars = Simulation { market: Market::RandomWalk, n_bars: N, seed }.bars();
        let r = returns(&deviations(&bars));
        let n = r.len() as f64;
        // Autocorrelations of independent numbers have standard error 1 / sqrt(n); 4 of them over 10 lags and 5
        // seeds are passed by chance once in 300 times, and the seeds are fixed.
        for lag in 1..=10 {
            let rho = slope(&r[..r.len() - lag], &r[lag..]);
            assert!(rho.abs() < 4.0 / n.sqrt(), "seed {seed}, lag {lag}: {rho}");
        }
        let sigma = root_mean_square(&r);
        assert!((sigma / BAR_SIGMA - 1.0).abs() < 4.0 * (0.5 / n).sqrt(), "seed {seed}: {sigma}");
        let drift = r.iter().sum::<f64>() / n;
        assert!(drift.abs() < 4.0 * BAR_SIGMA / n.sqrt(), "seed {seed}: {drift}");
    }
}

#[test]
fn regimes_have_a_daily_rhythm_that_spread_and_volume_follow() {
    let bars = Simulation { market: Market::Regimes, n_bars: 200_000, seed: 1 }.bars();
    let r = returns(&deviations(&bars));
    let per_day = (86_400 * SECOND_NS / BAR_NS) as usize;
    let mean_at = |column: &[f64], hour: usize| {
        let at = |i: usize| column[i..i + per_day / 24].iter().sum::<f64>() / (per_day / 24) as f64;
        let days: Vec<f64> = (0..column.len() / per_day).map(|day| at(day * per_day + hour * per_day / 24)).collect();
        days.iter().sum::<f64>() / days.len() as f64
    };
    let moves: Vec<f64> = r.iter().map(|r| r.abs()).collect();
    let spread = bars.spread.as_deref().expect("the simulator quotes a spread");
    // The daily curve says 1.7 at 14:30 and 0.55 at its trough, 9:00; a factor of two is far outside any noise of
    // 694 days of 12 bars (relative error of a mean of |normal| 0.76 / sqrt(8333) = 0.8%).
    assert!(mean_at(&moves, 14) > 2.0 * mean_at(&moves, 9));
    assert!(mean_at(spread, 14) > 1.4 * mean_at(spread, 9));
    assert!(mean_at(&bars.volume, 14) > 1.4 * mean_at(&bars.volume, 9));
    // The bar sigma holds on average, noise regime or not; regimes and slow volatility make few independent pieces,
    // about 200,000 / 480, hence the wide bound.
    let sigma = root_mean_square(&r);
    assert!((sigma / BAR_SIGMA - 1.0).abs() < 0.15, "{sigma}");
}

#[test]
fn the_seed_is_the_market() {
    for (market, bars) in markets(7) {
        assert_eq!(Simulation { market, n_bars: N, seed: 7 }.bars(), bars);
        assert_ne!(Simulation { market, n_bars: N, seed: 8 }.bars().close, bars.close);
        // A shorter market is the beginning of a longer one: no bar depends on later ones.
        assert_eq!(Simulation { market, n_bars: 100, seed: 7 }.bars().close, bars.close[..100]);
    }
}
