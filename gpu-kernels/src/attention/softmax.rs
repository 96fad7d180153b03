//! Softmax over the keys of each query, and the gradient through it. Scores lie as `[keys, queries]`; a thread takes four queries.

use cuda_std::prelude::*;

use super::axis::{Place, Units};
use crate::four::Four;
use crate::tile_product::{Operand, Rows};

/// Runs over four queries of a unit at a time: the unit's scores, and the first query.
#[inline(always)]
fn each_queries(units: Units, n_tokens: usize, place: Place, run: impl Fn(usize, usize)) {
    let across = n_tokens / 4;
    for item in place.team.each(units.n * across) {
        run(item / across * n_tokens * n_tokens, item % across * 4);
    }
}

/// Replaces S by P = softmax(scale S), as an operand. Ends with a barrier.
#[inline(always)]
pub(super) fn softmax(units: Units, n_tokens: usize, scale: f32, scores: &SharedSlice<f32>, place: Place) {
    each_queries(units, n_tokens, place, |first, query| {
        let of_unit = Rows { from: *scores, first, stride: n_tokens };
        let over_sum = exponentials(of_unit, n_tokens, query, scale);
        for key in 0..n_tokens {
            let weights = of_unit.four(key, query) * over_sum;
            scores.store(first + key * n_tokens + query, weights.rounded(place.precision).lanes());
        }
    });
    // The weights are complete.
    thread::sync_threads();
}

/// Replaces S by P = softmax(scale S), and dP by dS = P (dP - sum over keys of P dP), both as operands. Ends with a barrier.
#[inline(always)]
pub(super) fn softmax_backward(
    units: Units,
    n_tokens: usize,
    scale: f32,
    scores: &SharedSlice<f32>,
    dweights: &SharedSlice<f32>,
    place: Place,
) {
    each_queries(units, n_tokens, place, |first, query| {
        let of_unit = Rows { from: *scores, first, stride: n_tokens };
        let gradients = Rows { from: *dweights, ..of_unit };
        let over_sum = exponentials(of_unit, n_tokens, query, scale);
        let mut inner = Four::ZERO;
        for key in 0..n_tokens {
            inner = inner.add_product(of_unit.four(key, query) * over_sum, gradients.four(key, query));
        }
        for key in 0..n_tokens {
            let at = first + key * n_tokens + query;
            let weights = of_unit.four(key, query) * over_sum;
            let dscores = weights * (gradients.four(key, query) - inner);
            scores.store(at, weights.rounded(place.precision).lanes());
            dweights.store(at, dscores.rounded(place.precision).lanes());
        }
    });
    // Weights and gradients are complete.
    thread::sync_threads();
}

/// Replaces S by exp(scale (S - max over keys)) for four queries; 1 / the sum over keys. A NaN among the keys goes into all of them.
#[inline(always)]
fn exponentials(scores: Rows, n_tokens: usize, query: usize, scale: f32) -> Four {
    let mut most = scores.four(0, query);
    for key in 1..n_tokens {
        most = scores.four(key, query).max(most);
    }
    let scale = Four::splat(scale);
    let mut sum = Four::ZERO;
    for key in 0..n_tokens {
        let of_key = ((scores.four(key, query) - most) * scale).exp_nonpositive();
        scores.from.store(scores.first + key * scores.stride + query, of_key.lanes());
        sum = sum + of_key;
    }
    let [a, b, c, d] = sum.lanes();
    Four::new([1.0 / a, 1.0 / b, 1.0 / c, 1.0 / d])
}
