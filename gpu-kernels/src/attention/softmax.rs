//! Softmax over the keys of each query, and the gradient through it. Scores lie as `[keys, queries]`; a thread takes four queries.

use cuda_std::prelude::*;

use super::axis::{Place, Units};
use crate::four::Four;
use crate::tile_product::{Operand, Rows};

/// This thread's share of the queries, four at a time: where the unit's scores begin, and the first query. An iterator, since a
/// closure's call is not always inlined, and then the number of tokens is none that the compiler knows.
#[inline(always)]
fn queries(units: Units, n_tokens: usize, place: Place) -> impl Iterator<Item = (usize, usize)> {
    let across = n_tokens / 4;
    let of_item = move |item| (item / across * n_tokens * n_tokens, item % across * 4);
    place.team.each(units.n * across).map(of_item)
}

/// A unit's scores. Of a view of their own length the compiler can leave out checks.
#[inline(always)]
fn of_unit(scores: &SharedSlice<f32>, first: usize, n_tokens: usize) -> Rows {
    Rows::new(scores.sub(first..first + n_tokens * n_tokens), n_tokens)
}

/// Replaces S by P = softmax(scale S), as an operand. Ends with a barrier.
#[inline(always)]
pub(super) fn softmax(units: Units, n_tokens: usize, scale: f32, scores: &SharedSlice<f32>, place: Place) {
    for (first, query) in queries(units, n_tokens, place) {
        let scores = of_unit(scores, first, n_tokens);
        let over_sum = exponentials(scores, n_tokens, query, scale);
        for key in 0..n_tokens {
            let weights = scores.four(key, query) * over_sum;
            scores.from.store(key * n_tokens + query, weights.rounded(place.precision).lanes());
        }
    }
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
    for (first, query) in queries(units, n_tokens, place) {
        let (scores, dweights) = (of_unit(scores, first, n_tokens), of_unit(dweights, first, n_tokens));
        let over_sum = exponentials(scores, n_tokens, query, scale);
        let mut inner = Four::ZERO;
        for key in 0..n_tokens {
            inner = inner.add_product(scores.four(key, query) * over_sum, dweights.four(key, query));
        }
        for key in 0..n_tokens {
            let at = key * n_tokens + query;
            let weights = scores.four(key, query) * over_sum;
            let dscores = weights * (dweights.four(key, query) - inner);
            scores.from.store(at, weights.rounded(place.precision).lanes());
            dweights.from.store(at, dscores.rounded(place.precision).lanes());
        }
    }
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
        scores.from.store(key * n_tokens + query, of_key.lanes());
        sum = sum + of_key;
    }
    let [a, b, c, d] = sum.lanes();
    Four::new([1.0 / a, 1.0 / b, 1.0 / c, 1.0 / d])
}
