//! C51, double DQN, CQL: known answers worked by hand, and the faults that others met (G, H, J).

use crate::support::*;
use reference::activation::{argmax, log_softmax, log_sum_exp};
use reference::atoms::{atoms, next_spacing};
use reference::c51::{Distributions, cross_entropy, kl, loss_dlogits, losses, neighbours, power, project};
use reference::config::{BRANCH_SIZES, N_BRANCHES};
use reference::double_dqn::{discount, targets};
use reference::matrix::{Matrix, dot};
use reference::{cql, double_dqn};

const GRID: [f64; 3] = [-1.0, 0.0, 1.0];

/// Every number is a short binary fraction, so equality is exact.
#[test]
fn projection_known_answers() {
    let p = [0.25, 0.5, 0.25];
    let uneven = [-1.0, 0.0, 0.5, 3.0];
    for (why, z, p, reward, discount, want) in [
        ("T = z: nothing moves", &GRID[..], &p[..], 0.0, 1.0, &[0.25, 0.5, 0.25][..]),
        ("T = 0, 1/2, 1: the middle atom splits evenly", &GRID, &p, 0.5, 0.5, &[0.0, 0.5, 0.5]),
        ("terminal under the grid: all mass on atom 0", &GRID, &p, -5.0, 0.0, &[1.0, 0.0, 0.0]),
        ("terminal over the grid: all mass on the last", &GRID, &p, 5.0, 0.0, &[0.0, 0.0, 1.0]),
        ("terminal at -1/4: one quarter left, three right", &GRID, &p, -0.25, 0.0, &[0.25, 0.75, 0.0]),
        // T = 1, 2: 1 lies one fifth of the way from 1/2 to 3, of width 5/2.
        ("uneven: 1/2 falls on an atom", &uneven, &[0.0, 1.0, 0.0, 0.0], 0.5, 1.0, &[0.0, 0.0, 1.0, 0.0]),
        (
            "uneven: 7/4 is half of the way from 1/2 to 3",
            &uneven,
            &[0.5, 0.5, 0.0, 0.0],
            1.75,
            0.0,
            &[0.0, 0.0, 0.5, 0.5],
        ),
    ] {
        assert_eq!(project(p, reward, discount, z), want, "{why}");
    }
}

/// G: on an atom, past an end, terminal: mass is 1, no index passes the last atom, and an atom on another puts all of its mass there.
#[test]
fn case_g_projection_conserves_mass_and_stays_inside() {
    let mut numbers = Numbers(1);
    for round in 0..200 {
        let n = 2 + numbers.below(60);
        let z = atoms(&numbers.vector(n - 1, 3.0), (-10.0, 10.0));
        assert!(z.is_sorted_by(|a, b| a < b) && z[0] == -10.0 && z[n - 1] == 10.0, "atoms ascend to their bounds");
        let p = numbers.distributions(1, n).values;
        let on_atom = z[numbers.below(n)];
        for (reward, discount) in [
            (0.0, 1.0),
            (on_atom, 0.0),
            (on_atom, 0.5),
            (1e6, 0.9),
            (-1e6, 0.9),
            (10.0, 0.0),
            (-10.0, 0.0),
            (numbers.signed(3.0), numbers.uniform()),
        ] {
            let m = project(&p, reward, discount, &z);
            assert_close("mass", m.iter().sum(), 1.0, 1e-13);
            assert!(m.iter().all(|x| *x >= 0.0), "round {round}: {m:?}");
            let inside = z.iter().all(|atom| (reward + discount * atom).abs() <= 10.0);
            if inside {
                // Linear shares keep the mean of what is not clipped.
                assert_close("mean", dot(&m, &z), reward + discount * dot(&p, &z), 1e-12);
            }
        }
        for (k, atom) in z.iter().enumerate() {
            let (lower, share, rest) = neighbours(&z, *atom);
            assert_eq!((lower, share, rest), (k, 1.0, 0.0), "atom {k} of {n} lies on itself");
        }
    }
}

#[test]
fn atoms_known_answers() {
    let even = atoms(&[0.0; 4], (-10.0, 10.0));
    for (got, want) in even.iter().zip([-10.0, -5.0, 0.0, 5.0, 10.0]) {
        assert_close("zero spacing is uniform", *got, want, 1e-14);
    }
    // softmax(ln 3, 0) = (3/4, 1/4).
    let z = atoms(&[3f64.ln(), 0.0], (0.0, 8.0));
    assert_close("three quarters of the way", z[1], 6.0, 1e-14);
    assert_eq!((z[0], z[2]), (0.0, 8.0));
}

#[test]
fn spacing_narrows_where_mass_is() {
    // m = (1/2, 1/2, 0) + (1/4, 1/4, 1/2) over two rows = (3/8, 3/8, 1/4); masses 3/8, 5/16; fair share 1/2.
    let targets = Matrix::from_values(2, 3, vec![0.5, 0.5, 0.0, 0.25, 0.25, 0.5]);
    let next = next_spacing(&[0.0, 0.0], &targets);
    // -0.05 (-1/8) = 0.00625 and -0.05 (-3/16) = 0.009375, centred: -+0.0015625.
    assert_close("more mass, less room", next[0], -0.001_562_5, 1e-15);
    assert_close("less mass, more room", next[1], 0.001_562_5, 1e-15);
    let bounded = next_spacing(&[5.0, -5.0], &targets);
    assert_eq!(bounded, [3.0, -3.0]);
}

#[test]
fn kl_is_cross_entropy_less_the_targets_entropy() {
    let target = [0.5, 0.25, 0.25, 0.0];
    let log_p = log_softmax(&[0.3, -1.0, 2.0, 0.0]);
    let entropy = 0.5 * 2f64.ln() + 0.5 * 4f64.ln();
    assert_close("KL", kl(&target, &log_p), cross_entropy(&target, &log_p) - entropy, 1e-15);
    let itself: Vec<f64> = [0.5, 0.25, 0.125, 0.125].iter().map(|p: &f64| p.ln()).collect();
    assert_close("of itself", kl(&[0.5, 0.25, 0.125, 0.125], &itself), 0.0, 1e-15);
}

/// A batch of one with `logits` for each action of each branch.
fn one_row(atoms: &[Vec<f64>], logit: impl Fn(usize, usize, usize) -> f64) -> Distributions {
    let k = atoms[0].len();
    let logits: Vec<Matrix> =
        (0..N_BRANCHES).map(|b| Matrix::from_fn(1, BRANCH_SIZES[b] * k, |_, j| logit(b, j / k, j % k))).collect();
    Distributions::new(&logits, atoms)
}

/// H: logits of +-80: loss finite, gradient right (the log-softmax keeps what a probability of e^-160 would lose).
#[test]
fn case_h_logits_of_80() {
    let atoms = vec![vec![-1.0, 0.0, 1.0]; N_BRANCHES];
    let d = one_row(&atoms, |_, _, k| [80.0, -80.0, -80.0][k]);
    let target = Matrix::from_values(1, 3, vec![0.0, 0.0, 1.0]);
    let (all, taken) = (vec![target; N_BRANCHES], [[0; N_BRANCHES]]);
    let result = losses(&d, &taken, &all, &atoms);
    assert_close("cross-entropy", result.cross_entropy[0], 160.0, 1e-12);
    assert_close("td", result.td[0], 160.0, 1e-12);
    let gradient = loss_dlogits(&d, &taken, &all, &[1.0]);
    for (got, want) in gradient[0].row(0).iter().zip([0.25, 0.0, -0.25]) {
        assert_close("gradient", *got, want, 1e-15);
    }
    assert_close("Q", d.q[0][(0, 0)], -1.0, 1e-15);
    assert!(cql::value(&d, &taken).is_finite());
    assert_close("log-sum-exp", log_sum_exp(&[800.0, 800.0]), 800.0 + 2f64.ln(), 1e-12);
}

#[test]
fn losses_known_answers() {
    let atoms = vec![vec![-1.0, 0.0, 1.0]; N_BRANCHES];
    // Uniform distributions: ln 3 against any target, Q = 0.
    let d = one_row(&atoms, |_, _, _| 0.7);
    let sure = Matrix::from_values(1, 3, vec![0.0, 0.0, 1.0]);
    let even = Matrix::from_values(1, 3, vec![0.5, 0.0, 0.5]);
    let result = losses(&d, &[[1, 0, 2, 1]], &[sure.clone(), sure, even.clone(), even], &atoms);
    assert_close("cross-entropy", result.cross_entropy[0], 3f64.ln(), 1e-15);
    assert_close("td", result.td[0], 3f64.ln() - 0.5 * 2f64.ln(), 1e-15);
    // E target = 1, 1, 0, 0 and Q = 0: (1/2)^2.
    assert_close("mse", result.mse, 0.25, 1e-15);
}

#[test]
fn greedy_takes_the_lowest_index_of_equals() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
    let atoms = vec![vec![-1.0, 1.0]; N_BRANCHES];
    assert_eq!(one_row(&atoms, |_, _, _| 0.0).greedy(0), [0; N_BRANCHES]);
    let second = one_row(&atoms, |_, a, k| if a >= 1 && k == 1 { 1.0 } else { 0.0 });
    assert_eq!(second.greedy(0), [1; N_BRANCHES]);
}

#[test]
fn the_online_network_chooses_and_the_target_network_values() {
    let atoms = vec![vec![0.0, 1.0, 2.0]; N_BRANCHES];
    // Online prefers action 2, the target network action 0; the target's distribution of action 2 is all on atom 1.
    let online = one_row(&atoms, |_, a, k| if a == 2 && k == 2 { 60.0 } else { 0.0 });
    let target = one_row(&atoms, |_, a, k| if (a == 0 && k == 2) || (a == 2 && k == 1) { 80.0 } else { 0.0 });
    let got = targets(&online, &target, &[0.25], &[0.5], &atoms);
    for branch in &got {
        // 0.25 + 0.5 * 1 = 3/4 of the way to atom 1.
        for (got, want) in branch.row(0).iter().zip([0.25, 0.75, 0.0]) {
            assert_close("target", *got, want, 1e-15);
        }
    }
}

/// J: an episode that its length or the end of the data cuts has done = 0 and keeps bootstrapping, with its own n; only a terminal
/// transition stops.
#[test]
fn case_j_a_cut_episode_bootstraps() {
    assert_eq!(discount(0.5, 2, false), 0.25, "cut after two of three steps: gamma^2, not 0 and not gamma^3");
    assert_eq!(discount(0.5, 3, false), 0.125);
    assert_eq!(discount(0.5, 3, true), 0.0);
    assert_eq!(power(0.9, 3), 0.9 * 0.9 * 0.9);
    let atoms = vec![vec![-2.0, 0.0, 2.0]; N_BRANCHES];
    let next = one_row(&atoms, |_, _, k| if k == 2 { 80.0 } else { 0.0 });
    let cut = targets(&next, &next, &[1.0], &[discount(0.5, 1, false)], &atoms);
    assert_close("1 + 0.5 * 2", dot(cut[0].row(0), &atoms[0]), 2.0, 1e-12);
    let ended = targets(&next, &next, &[1.0], &[discount(0.5, 1, true)], &atoms);
    assert_close("1 alone", dot(ended[0].row(0), &atoms[0]), 1.0, 1e-12);
}

#[test]
fn cql_known_answers() {
    let atoms = vec![vec![-1.0, 1.0]; N_BRANCHES];
    // Equal Q: ln n of each branch.
    let d = one_row(&atoms, |_, _, _| 0.0);
    let want = (4f64.ln() + 3.0 * 3f64.ln()) / 4.0;
    assert_close("equal values", cql::value(&d, &[[0; N_BRANCHES]]), want, 1e-15);
    // The taken action far above the others: nothing to push down. Q of a pair (-x, x) is tanh x, so gaps stay under 2.
    let wide = vec![vec![-100.0, 100.0]; N_BRANCHES];
    let d = one_row(&wide, |_, a, k| if (a == 0) == (k == 1) { 40.0 } else { 0.0 });
    assert_close("taken is best", cql::value(&d, &[[0; N_BRANCHES]]), 0.0, 1e-12);
    assert_close("taken is worst", cql::value(&d, &[[1; N_BRANCHES]]), 200.0, 1e-10);
}

#[test]
fn quantile_targets_shift_and_scale() {
    let sizes = reference::config::Sizes::MINIATURE;
    let p = lively_parameters(&sizes, 3);
    let h = Numbers(3).matrix(1, sizes.hidden, 1.0);
    let pass = reference::iqn::forward(&sizes, reference::precision::Precision::Exact, &p, &h);
    let atoms = vec![vec![0.0, 1.0]; N_BRANCHES];
    let online = one_row(&atoms, |_, a, k| if a == 1 && k == 1 { 9.0 } else { 0.0 });
    let got = double_dqn::quantile_targets(&online, &pass, &[0.3], &[0.5]);
    for b in 0..N_BRANCHES {
        for (got, z) in got[0][b].iter().zip(pass.of(0, b, 1)) {
            assert_close("r + discount Z", *got, 0.3 + 0.5 * z, 1e-15);
        }
    }
}

#[test]
fn all_q_lists_every_action() {
    let atoms = vec![vec![-1.0, 1.0]; N_BRANCHES];
    let d = one_row(&atoms, |b, a, k| (b * 10 + a) as f64 * k as f64 * 0.1);
    let all = d.all_q();
    assert_eq!(all.len(), 13);
    assert_eq!(all[4], d.q[1][(0, 0)]);
    assert_close("mean over branches", d.mean_q(0, &[1, 2, 0, 1]), (all[1] + all[6] + all[7] + all[11]) / 4.0, 1e-15);
}
