//! The five-state chain's exact solutions against the equations that define them, and against simulation.

use crate::support::*;
use reference::chain::{Chain, N_DIRECTIONS, N_STATES};
use reference::config::direction::{FLAT, HOLD, LONG, SHORT};

#[test]
fn optimal_values_known_answers() {
    let chain = Chain::default();
    let q = chain.optimal();
    // From state 4 staying pays 0.9 for ever: 0.9 / (1 - 0.9) = 9.
    assert_close("Q(4, flat)", q[4][FLAT], 9.0, 1e-12);
    assert_close("Q(4, long): the wall", q[4][LONG], 9.0, 1e-12);
    assert_close("Q(3, long)", q[3][LONG], 0.9 + 0.9 * 9.0, 1e-12);
    assert_close("Q(3, short)", q[3][SHORT], -0.3 + 0.9 * q[2][LONG], 1e-12);
    assert_close("Q(2, hold) = Q(2, flat)", q[2][HOLD], q[2][FLAT], 1e-12);
    // V(0) by going up: 0.1 - 0.27 + 0 + 0.9^3 * 9, against 0.4 / 0.1 = 4 for staying.
    let up = 0.1 - 0.9 * 0.3 + 0.729 * 9.0;
    assert_close("Q(0, long)", q[0][LONG], up, 1e-12);
    assert!(up > 4.0 && q[0][LONG] > q[0][FLAT]);
}

fn best(row: &[f64; N_DIRECTIONS]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn optimal_values_solve_bellmans_equation() {
    let chain = Chain { arrival_reward: [0.3, -0.2, 0.15, -0.4, 0.25], gamma: 0.9 };
    let q = chain.optimal();
    for s in 0..N_STATES {
        for a in 0..N_DIRECTIONS {
            let want = chain.reward(s, a) + 0.9 * best(&q[Chain::next(s, a)]);
            assert_close("Q*", q[s][a], want, 1e-12);
        }
    }
}

/// The three-step equation written out over all 16 paths of the two later actions.
#[test]
fn three_step_fixed_point_solves_its_equation() {
    let chain = Chain::default();
    let q = chain.fixed_point(3);
    for s in 0..N_STATES {
        for a in 0..N_DIRECTIONS {
            let mut want = 0.0;
            for a1 in 0..N_DIRECTIONS {
                for a2 in 0..N_DIRECTIONS {
                    let s1 = Chain::next(s, a);
                    let s2 = Chain::next(s1, a1);
                    let s3 = Chain::next(s2, a2);
                    let path = chain.reward(s, a)
                        + 0.9 * chain.reward(s1, a1)
                        + 0.81 * chain.reward(s2, a2)
                        + 0.729 * best(&q[s3]);
                    want += path / 16.0;
                }
            }
            assert_close("Q", q[s][a], want, 1e-12);
        }
    }
    assert!(best(&q[0]) < best(&chain.optimal()[0]), "two uniform steps cost something");
    assert_eq!(chain.fixed_point(1), chain.optimal());
}

#[test]
fn idle_branch_has_the_behaviours_value() {
    let chain = Chain::default();
    let v = chain.idle_value();
    for s in 0..N_STATES {
        let want: f64 = (0..N_DIRECTIONS).map(|a| (chain.reward(s, a) + 0.9 * v[Chain::next(s, a)]) / 4.0).sum();
        assert_close("V", v[s], want, 1e-12);
    }
    // Mean of many simulated returns from state 2: the standard error is under (range 12) / sqrt(20,000) = 0.085.
    let mut numbers = Numbers(3);
    let n = 20_000;
    let total: f64 = (0..n)
        .map(|_| {
            let (mut s, mut discount, mut sum) = (2, 1.0, 0.0);
            while discount > 1e-6 {
                let a = numbers.below(N_DIRECTIONS);
                sum += discount * chain.reward(s, a);
                s = Chain::next(s, a);
                discount *= 0.9;
            }
            sum
        })
        .sum();
    assert_close("simulated", total / f64::from(n), v[2], 4.0 * 0.085);
}

#[test]
fn values_stay_inside_the_default_atoms() {
    let chain = Chain::default();
    for n in [1, 3] {
        assert!(chain.fixed_point(n).iter().flatten().all(|q| q.abs() < 9.5));
    }
    // r + gamma z is inside [-10, 10] for every z in it, so that no projection clips and means are exact.
    let largest = chain.arrival_reward.iter().fold(0.0f64, |top, r| top.max(r.abs()));
    assert!(largest + 0.9 * 10.0 <= 10.0);
}
