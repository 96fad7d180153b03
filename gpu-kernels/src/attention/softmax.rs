//! Softmax over the keys of each query, and the gradient through it. Scores lie as `[keys, queries]`; a thread takes a vector of queries.

use core::marker::PhantomData;

use cuda_std::prelude::*;
use cuda_std::view::{Panel, PanelMut};

use super::axis::{Place, Units};
use crate::floats::{Floats, Vector};
use crate::four::Four;
use crate::tile::Team;

/// This thread's share of the queries, a vector at a time: where its scores of the first key lie. An iterator, since a
/// closure's call is not always inlined, and then the number of tokens is none that the compiler knows.
#[inline(always)]
fn queries<V: Vector>(units: Units, n_tokens: usize, team: Team) -> impl Iterator<Item = usize> {
    let across = n_tokens / V::N;
    let of_item = move |item| item / across * n_tokens * n_tokens + item % across * V::N;
    team.each(units.n * across).map(of_item)
}

/// Whether the queries are whole vectors: fours always are.
#[inline(always)]
fn are_whole<V: Vector>(n_tokens: usize) -> bool {
    V::N == Four::N || n_tokens.is_multiple_of(V::N)
}

/// What a vector of queries has for each key.
#[derive(Clone, Copy)]
struct OfQueries<V> {
    from: Panel<f32>,
    to: PanelMut<f32>,
    n_keys: usize,
    vector: PhantomData<V>,
}

impl<V: Vector> OfQueries<V> {
    /// Of an array whose element `first` is the first key's. All of it is read before it is written.
    #[inline(always)]
    fn new(array: &SharedSlice<f32>, first: usize, n_keys: usize) -> Self {
        let from = array.panel::<4>(first, n_keys, n_keys, V::N);
        Self { from, to: array.panel_mut::<4>(first, n_keys, n_keys, V::N), n_keys, vector: PhantomData }
    }

    /// Of a key under `n_keys`.
    #[inline(always)]
    fn get(&self, key: usize) -> V {
        // SAFETY: a row of the panel, by this method's contract, and all of its columns, in the block's shared memory.
        unsafe { V::of_panel(&self.from, key, 0) }
    }

    /// Of a key under `n_keys`.
    #[inline(always)]
    fn set(&self, key: usize, value: V) {
        // SAFETY: as above.
        unsafe { value.to_panel(&self.to, key, 0) };
    }
}

/// Replaces S by P = softmax(scale S), as an operand. Ends with a barrier.
#[inline(always)]
pub(super) fn softmax<V: Vector>(
    units: Units,
    n_tokens: usize,
    scale: f32,
    scores: &SharedSlice<f32>,
    place: Place<V>,
) {
    if are_whole::<V>(n_tokens) {
        softmax_in::<V, V>(units, n_tokens, scale, scores, place);
    } else {
        softmax_in::<V, Four>(units, n_tokens, scale, scores, place);
    }
    // The weights are complete.
    thread::sync_threads();
}

/// [`softmax`] in vectors Q.
#[inline(always)]
fn softmax_in<V: Vector, Q: Vector>(
    units: Units,
    n_tokens: usize,
    scale: f32,
    scores: &SharedSlice<f32>,
    place: Place<V>,
) {
    for first in queries::<Q>(units, n_tokens, place.team) {
        let scores = OfQueries::<Q>::new(scores, first, n_tokens);
        let over_sum = exponentials(&scores, scale);
        for key in 0..n_tokens {
            scores.set(key, (scores.get(key) * over_sum).rounded(place.precision));
        }
    }
}

/// Replaces S by P = softmax(scale S), and dP by dS = P (dP - sum over keys of P dP), both as operands. Ends with a barrier.
#[inline(always)]
pub(super) fn softmax_backward<V: Vector>(
    units: Units,
    n_tokens: usize,
    scale: f32,
    scores: &SharedSlice<f32>,
    dweights: &SharedSlice<f32>,
    place: Place<V>,
) {
    if are_whole::<V>(n_tokens) {
        softmax_backward_in::<V, V>(units, n_tokens, scale, scores, dweights, place);
    } else {
        softmax_backward_in::<V, Four>(units, n_tokens, scale, scores, dweights, place);
    }
    // Weights and gradients are complete.
    thread::sync_threads();
}

/// [`softmax_backward`] in vectors Q.
#[inline(always)]
fn softmax_backward_in<V: Vector, Q: Vector>(
    units: Units,
    n_tokens: usize,
    scale: f32,
    scores: &SharedSlice<f32>,
    dweights: &SharedSlice<f32>,
    place: Place<V>,
) {
    for first in queries::<Q>(units, n_tokens, place.team) {
        let scores = OfQueries::<Q>::new(scores, first, n_tokens);
        let dweights = OfQueries::<Q>::new(dweights, first, n_tokens);
        let over_sum = exponentials(&scores, scale);
        let mut inner = Q::ZERO;
        for key in 0..n_tokens {
            inner = inner.add_product(scores.get(key) * over_sum, dweights.get(key));
        }
        for key in 0..n_tokens {
            let weights = scores.get(key) * over_sum;
            let dscores = weights * (dweights.get(key) - inner);
            scores.set(key, weights.rounded(place.precision));
            dweights.set(key, dscores.rounded(place.precision));
        }
    }
}

/// Replaces S by exp(scale (S - max over keys)); 1 / the sum over keys. A NaN among the keys goes into all of them.
#[inline(always)]
fn exponentials<Q: Vector>(scores: &OfQueries<Q>, scale: f32) -> Q {
    let mut most = scores.get(0);
    for key in 1..scores.n_keys {
        most = scores.get(key).max(most);
    }
    let scale = Q::splat(scale);
    let mut sum = Q::ZERO;
    for key in 0..scores.n_keys {
        let of_key = ((scores.get(key) - most) * scale).exp_nonpositive();
        scores.set(key, of_key);
        sum = sum + of_key;
    }
    sum.rcp()
}
