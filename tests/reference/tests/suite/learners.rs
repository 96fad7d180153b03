//! IQN, IQL with PopArt, selectivity, denoise, risk: known answers and invariants.

use reference::config::{Sizes, direction};
use reference::denoise;
use reference::iql::{self, POPART_MIN_STD, PopArt, expectile_loss};
use reference::iqn::{self, interquartile_range, level, quantile_at, quantile_huber, readiness};
use reference::layout::Tensors;
use reference::matrix::{Matrix, dot, mean};
use reference::precision::Precision::Exact;
use reference::risk::{cvar, cvar_loss, greedy, next_eta};
use reference::selectivity::{self, counts, market_part};

use crate::support::*;

const S: Sizes = Sizes::MINIATURE;

#[test]
fn quantile_levels_are_midpoints() {
    let levels: Vec<f64> = (0..8).map(|k| level(k, 8)).collect();
    assert_eq!(levels, [0.0625, 0.1875, 0.3125, 0.4375, 0.5625, 0.6875, 0.8125, 0.9375]);
    assert_close("mean level", mean(&levels), 0.5, 1e-15);
}

#[test]
fn quantile_huber_known_answers() {
    // Two quantiles at levels 1/4, 3/4; one target: delta = 1/2 - 0 and 1/2 - 2.
    let (loss, gradient) = quantile_huber(&[0.0, 2.0], &[0.5]);
    // 1/4 * 1/8 + |3/4 - 1| (3/2 - 1/2).
    assert_close("loss", loss, 0.25 * 0.125 + 0.25, 1e-15);
    assert_close("inside kappa", gradient[0], -0.25 * 0.5, 1e-15);
    assert_close("outside kappa", gradient[1], 0.25, 1e-15);
    // Sum over N, mean over N': a target twice is a target once.
    assert_close("mean over targets", quantile_huber(&[0.0, 2.0], &[0.5, 0.5]).0, loss, 1e-15);
    assert_close("sum over quantiles", quantile_huber(&[0.5], &[0.0]).0, 0.5 * 0.125, 1e-15);
}

/// Descending the quantile loss with a small kappa's effect (targets far apart) puts half of the targets under the median quantile.
#[test]
fn quantiles_descend_to_the_midpoint_quantiles() {
    // Far more targets apart than kappa: gradient is nearly that of the plain quantile loss.
    let targets: Vec<f64> = (0..200).map(|i| f64::from(i) * 10.0).collect();
    let mut quantiles = vec![0.0; 4];
    for _ in 0..20_000 {
        let (_, gradient) = quantile_huber(&quantiles, &targets);
        for (q, g) in quantiles.iter_mut().zip(gradient) {
            *q -= 2.0 * g;
        }
    }
    for (k, q) in quantiles.iter().enumerate() {
        // The target's own quantile at the level, to within the spacing of 10.
        assert_close("quantile", *q, level(k, 4) * 2000.0, 10.0);
    }
}

#[test]
fn interquartile_range_is_linear_between_midpoints() {
    let eight: Vec<f64> = [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0].to_vec();
    // 0.25 is half of the way from level 3/16 to 5/16, 0.75 from 11/16 to 13/16.
    assert_close("range", interquartile_range(&eight), 18.0 - 2.0, 1e-14);
    assert_close("a midpoint", quantile_at(&eight, 0.4375), 6.0, 1e-14);
    assert_close("past the ends", quantile_at(&eight, 0.0), 0.0, 1e-14);
}

#[test]
fn iqn_embedding_by_hand() {
    let p = lively_parameters(&S, 1);
    let h = Matrix::from_values(1, S.hidden, vec![1.0; S.hidden]);
    let pass = iqn::forward(&S, Exact, &p, &h);
    let w = p.matrix("iqn.phi.weight");
    for k in 0..S.quantiles {
        let cosines: Vec<f64> =
            (0..S.cosines).map(|i| (std::f64::consts::PI * i as f64 * (k as f64 + 0.5) / 3.0).cos()).collect();
        for j in 0..S.hidden {
            let want = (dot(w.row(j), &cosines) + p.slice("iqn.phi.bias")[j]).max(0.0);
            assert_close("phi", pass.phi[(k, j)], want, 1e-14);
        }
    }
    assert!(pass.phi.values.contains(&0.0), "the ReLU cuts somewhere, or it is not tested");
}

#[test]
fn readiness_rises_as_the_loss_falls() {
    assert_eq!(readiness(2.0, 2.0), 0.0);
    assert_eq!(readiness(0.5, 2.0), 0.75);
    assert_eq!(readiness(3.0, 2.0), 0.0, "worse than at the start");
    assert_eq!(readiness(0.0, 2.0), 1.0);
}

#[test]
fn expectile_loss_known_answers() {
    assert_eq!(expectile_loss(0.75, 3.0, 1.0), (3.0, -3.0));
    assert_eq!(expectile_loss(0.75, 1.0, 3.0), (1.0, 1.0));
    let (half, _) = expectile_loss(0.5, 1.0, 3.0);
    assert_eq!(half, 2.0, "expectile 1/2 is half the square");
}

/// The expectile e of {0, 1} with equal chances solves e (1 - v) = (1 - e) v: v = e.
#[test]
fn expectile_of_a_coin() {
    for expectile in [0.1, 0.5, 0.9] {
        let mut v = 0.0;
        for _ in 0..2_000 {
            v -= 0.2 * (expectile_loss(expectile, 0.0, v).1 + expectile_loss(expectile, 1.0, v).1);
        }
        assert_close("expectile", v, expectile, 1e-9);
    }
}

#[test]
fn popart_preserves_outputs_and_tracks_moments() {
    let mut numbers = Numbers(4);
    let h = numbers.matrix(5, S.hidden, 1.0);
    let mut p = lively_parameters(&S, 4);
    let mut popart = PopArt { moments: None };
    assert_eq!((popart.mean(), popart.std()), (0.0, 1.0), "before the first batch");
    for round in 0..20 {
        let q: Vec<f64> = numbers.vector(16, 2.0 + f64::from(round)).iter().map(|q| q + 3.0).collect();
        let values = |popart: &PopArt, p: &Tensors| -> Vec<f64> {
            iql::forward(Exact, p, "iql_high", &h).outputs.iter().map(|out| popart.value(*out)).collect()
        };
        let (before, next) = (values(&popart, &p), popart.updated(&q));
        popart.rescale(&next, &mut p, "iql_high");
        for (after, before) in values(&next, &p).iter().zip(before) {
            assert_close("value", *after, before, 1e-11);
        }
        if round == 0 {
            assert_close("the first batch seeds", next.mean(), mean(&q), 1e-14);
            assert_close("its deviation", next.std(), reference::matrix::variance(&q).sqrt(), 1e-13);
        }
        popart = next;
    }
    assert_close("normalised and back", popart.value(popart.normalised(1.7)), 1.7, 1e-14);
    let constant = PopArt { moments: None }.updated(&[2.0; 4]);
    assert_eq!(constant.std(), POPART_MIN_STD, "a constant q does not divide by 0");
}

#[test]
fn popart_second_batch_by_hand() {
    // mu 1 -> 1 + 0.01 (3 - 1) = 1.02; nu 2 -> 2 + 0.01 (10 - 2) = 2.08.
    let second = PopArt { moments: Some((1.0, 2.0)) }.updated(&[2.0, 4.0]);
    let (mu, nu) = second.moments.expect("two batches");
    assert_close("mu", mu, 1.02, 1e-15);
    assert_close("nu", nu, 2.08, 1e-15);
    assert_close("std", second.std(), (2.08f64 - 1.02 * 1.02).sqrt(), 1e-15);
}

#[test]
fn cvar_known_answers_and_mean_at_1() {
    let (p, z) = ([0.25, 0.25, 0.5], [-4.0, 0.0, 2.0]);
    assert_eq!(cvar(&p, &z, 1.0), 0.0, "the mean: -1 + 0 + 1");
    assert_eq!(cvar(&p, &z, 0.25), -4.0, "the worst quarter");
    assert_eq!(cvar(&p, &z, 0.5), -2.0);
    assert_eq!(cvar(&p, &z, 0.125), -4.0, "less than the worst atom's mass");
    assert_eq!(cvar(&p, &z, 0.75), (-4.0 * 0.25 + 2.0 * 0.25) / 0.75);
    let mut numbers = Numbers(5);
    for _ in 0..50 {
        let p = numbers.distributions(1, 9).values;
        let mut z = numbers.vector(9, 5.0);
        z.sort_by(f64::total_cmp);
        assert_close("CVaR at 1", cvar(&p, &z, 1.0), dot(&p, &z), 1e-13);
        let levels = [0.05, 0.2, 0.4, 0.7, 1.0].map(|eta| cvar(&p, &z, eta));
        assert!(levels.is_sorted_by(|a, b| *a <= b + 1e-12), "CVaR rises with eta: {levels:?}");
    }
}

/// Action 0 is sure of 0.4, action 1 an even chance of -1 and 2, whose mean is 0.5 and whose worst half is -1.
#[test]
fn risk_turns_the_choice() {
    let atoms = vec![vec![-1.0, 0.4, 2.0]; 4];
    let logits: Vec<Matrix> = reference::config::BRANCH_SIZES
        .iter()
        .map(|n| {
            Matrix::from_fn(1, n * 3, |_, j| match (j / 3, j % 3) {
                (0, 1) | (1, 0 | 2) => 60.0,
                (2.., 0) => 60.0,
                _ => 0.0,
            })
        })
        .collect();
    let d = reference::c51::Distributions::new(&logits, &atoms);
    assert_eq!((d.greedy(0), greedy(&d, 0, &atoms, 1.0), greedy(&d, 0, &atoms, 0.5)), ([1; 4], [1; 4], [0; 4]));
    assert_close("loss", cvar_loss(&d, &[[0, 1, 0, 1]], &atoms, 0.5), -(0.4 - 1.0 + 0.4 - 1.0) / 4.0, 1e-12);
}

#[test]
fn boundary_range_is_a_mean_over_rows_and_branches_at_the_greedy_action() {
    let p = lively_parameters(&S, 8);
    let mut numbers = Numbers(8);
    let h = numbers.matrix(2, S.hidden, 1.0);
    let pass = iqn::forward(&S, Exact, &p, &h);
    let atoms = vec![vec![-1.0, 1.0]; 4];
    let logits: Vec<Matrix> = reference::config::BRANCH_SIZES.iter().map(|n| numbers.matrix(2, n * 2, 1.0)).collect();
    let d = reference::c51::Distributions::new(&logits, &atoms);
    let mut sum = 0.0;
    for i in 0..2 {
        for (b, a) in d.greedy(i).into_iter().enumerate() {
            let z = pass.of(i, b, a);
            // Three midpoints, 1/6, 1/2, 5/6: the quartiles lie a quarter of the way in from the ends.
            sum += (z[2] + 0.25 * (z[1] - z[2])) - (z[0] + 0.25 * (z[1] - z[0]));
        }
    }
    assert_close("range", reference::boundary::iqn_iqr(&pass, &d), sum / 8.0, 1e-14);
}

#[test]
fn eta_descends_within_its_bounds() {
    assert_close("one step", next_eta(0.5, 2.0, 0.1, 1.0), 0.4, 1e-15);
    assert_eq!(next_eta(0.5, 100.0, 0.1, 0.0), 0.05);
    assert_eq!(next_eta(0.5, -100.0, 0.1, 0.0), 1.0);
}

#[test]
fn selectivity_counts_greedy_trades_only() {
    use direction::*;
    for (taken, greedy, want) in
        [(SHORT, SHORT, true), (LONG, LONG, true), (SHORT, LONG, false), (FLAT, FLAT, false), (HOLD, HOLD, false)]
    {
        assert_eq!(counts(taken, greedy), want, "{taken} {greedy}");
    }
    // Stored 0.2 (0.5 - 0.01 |1 - 0.4|); the market part is 0.5 again, also after relabelling to goal 0.4.
    let stored = 0.2 * (0.5 - 0.01 * 0.6);
    assert_close("market part", market_part(stored, 0.2, 0.01, 1.0, 0.4), 0.5, 1e-15);
    let relabelled = reference::replay::relabelled_reward(stored, 1.0, 0.4, 0.4, 0.2, 0.01);
    assert_close("after relabelling", market_part(relabelled, 0.2, 0.01, 0.4, 0.4), 0.5, 1e-15);
}

#[test]
fn selectivity_loss_known_answers() {
    let mut p = lively_parameters(&S, 6);
    p.slice_mut("select.weight").fill(0.0);
    p.slice_mut("select.bias").fill(3f64.ln());
    let h = Matrix::zeros(3, S.hidden);
    let mut grads = Tensors::zeros(&p.layout);
    let result = selectivity::loss(&p, &h, &[Some(true), None, Some(false)], &mut grads);
    // P = 3/4: -(ln 3/4 + ln 1/4) / 2.
    assert_close("loss", result.loss, -(0.75f64.ln() + 0.25f64.ln()) / 2.0, 1e-15);
    assert_close("gradient of the bias", grads.slice("select.bias")[0], (-0.25 + 0.75) / 2.0, 1e-15);
    assert_eq!((result.n_counted, selectivity::rate(&result.p_trade, 0.4)), (2, 1.0));
    let none = selectivity::loss(&p, &h, &[None; 3], &mut grads);
    assert_eq!(none.loss, 0.0, "no row counts");
}

#[test]
fn denoise_is_a_mean_over_rows_and_features() {
    let mut p = lively_parameters(&S, 7);
    for name in ["denoise.decoder.weight", "denoise.decoder.bias"] {
        p.slice_mut(name).fill(0.0);
    }
    let clean = Matrix::from_fn(2, S.features, |i, j| (i + j) as f64);
    let loss = denoise::loss(Exact, &p, &clean.map(|x| x + 0.1), &clean, &mut Tensors::zeros(&p.layout));
    // Decoded is 0: the mean square of 0..5 and 1..6.
    assert_close("loss", loss, (55.0 + 91.0) / 12.0, 1e-13);
}
