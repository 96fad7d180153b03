//! The attention over channels of a row by a warp. Queries, keys and values lie in shared memory as `[16, 64]`, slots below slots
//! (`column_of`); 16 queries of a head at a time meet all 64 keys in registers.

use super::forward::scale;
use super::parameters::Block;
use super::tensor_row::{Wide, inverse_rms, operands, over_column, softmax};
use super::tensor_weights::TensorWeights;
use super::{N_HEADS, TENSOR_BARS, WIDTH};
use crate::fragments::{Lane, Stored, a_of, each, multiply};
use crate::lanes;

/// Matrices `[16, 64]` of a warp.
#[derive(Clone, Copy)]
pub(super) struct Channels {
    /// X, bars below bars.
    pub x: Stored,
    /// Queries, keys and values, slots below slots.
    pub q: Stored,
    pub k: Stored,
    pub v: Stored,
    /// P V of all heads, likewise; may be `q`.
    pub mixed: Stored,
}

impl Channels {
    /// X + MHA(X) over channels, bars below bars, in place of X; zeros from bar T on. `put_shift` gets a query of `[heads, 64]` and the
    /// shift of its weights.
    #[inline(always)]
    pub fn attend(&self, w: &TensorWeights<'_>, x: &mut Wide, put_shift: impl Fn(usize, f32)) {
        let at = Lane::new();
        // What lay here before has been read.
        lanes::sync();
        super::tensor_row::put(&self.x, &operands(x), at);
        // Products across read other lanes' elements.
        lanes::sync();
        self.project(w);
        // Queries, keys and values are complete.
        lanes::sync();
        let factor = scale(w.window) * core::f32::consts::LOG2_E;
        for query in (0..WIDTH).step_by(16) {
            let at = Lane::new();
            let q = self.q.a_across(at, |slot| slot, query);
            let mut mixed = [[0.0f32; 4]; 2];
            for head in 0..N_HEADS {
                let mut weights = compare(columns_of_head(q, head, at), &self.k, at);
                let [upper, lower] = softmax(&mut weights, factor, WIDTH, at);
                if at.column() == 0 {
                    put_shift(head * WIDTH + query + at.row(), upper);
                    put_shift(head * WIDTH + query + at.row() + 8, lower);
                }
                let weights = operands(&weights);
                let mut sums = [0.0f32; 4];
                each!(S in [0 1 2 3] {
                    multiply(weights[S], self.v.b_single(at, first_slot(head), 16 * S), &mut sums);
                });
                add_of_head(&mut mixed, &sums, head, at);
            }
            // The queries have been read where what is mixed may come.
            lanes::sync();
            put_across(&self.mixed, query, &mixed, at);
        }
        // What is mixed is complete.
        lanes::sync();
        let at = Lane::new();
        let wo = w.channels.a(at, |i| 3 * TENSOR_BARS + i, 0);
        each!(J in [0 1 2 3] {
            let [low, high] = self.mixed.b_across(at, |slot| slot, 16 * J);
            multiply(wo, low, &mut x[2 * J]);
            multiply(wo, high, &mut x[2 * J + 1]);
        });
    }

    #[inline(always)]
    fn project(&self, w: &TensorWeights<'_>) {
        let at = Lane::new();
        let [wq, wk, wv] = [0, 1, 2].map(|number| w.channels.a(at, |i| number * TENSOR_BARS + i, 0));
        for channel in (0..WIDTH).step_by(16) {
            let [low, high] = self.x.b_across(at, |bar| bar, channel);
            let project = |to: &Stored, w: [u32; 4]| {
                let mut sums = [[0.0f32; 4]; 2];
                multiply(w, low, &mut sums[0]);
                multiply(w, high, &mut sums[1]);
                to.put(at, channel, a_of(&sums));
            };
            project(&self.q, wq);
            project(&self.k, wk);
            project(&self.v, wv);
        }
    }
}

/// The mean over bars of RMSNorm's output by X + MHA(X): `put` gets the first of two channels, and their means.
#[inline(always)]
pub(super) fn mean_of_norm(w: &TensorWeights<'_>, x: &Wide, put: impl Fn(usize, [f32; 2])) {
    let (at, over_window, gain) = (Lane::new(), 1.0 / w.window as f32, gains(w));
    each!(J in [0 1 2 3 4 5 6 7] {
        let mean = |upper: f32, lower: f32| {
            let squares = over_column(upper * upper + lower * lower);
            over_column(upper * gain[0] + lower * gain[1]) * inverse_rms(squares, over_window) * over_window
        };
        let means = [mean(x[J][0], x[J][2]), mean(x[J][1], x[J][3])];
        if at.row() == 0 {
            put(8 * J + at.column(), means);
        }
    });
}

/// Gains of the two bars of a lane; zeros from bar T on.
#[inline(always)]
pub(super) fn gains(w: &TensorWeights<'_>) -> [f32; 2] {
    let (at, first) = (Lane::new(), Block::channels(w.window).gain());
    let gain = |bar: usize| if bar < w.window { w.flat.get(first + bar) } else { 0.0 };
    [gain(at.row()), gain(at.row() + 8)]
}

/// The first of the eight slots among which a head's are.
#[inline(always)]
pub(super) fn first_slot(head: usize) -> usize {
    head / 2 * 8
}

/// Scores of 16 tokens against all of `y`: x y^T, of x `[16, slots]` as A and y `[slots, 64]`.
#[inline(always)]
pub(super) fn compare(x: [u32; 4], y: &Stored, at: Lane) -> Wide {
    let mut scores = Wide::default();
    each!(J in [0 1 2 3] {
        let [low, high] = y.b_across(at, |slot| slot, 16 * J);
        multiply(x, low, &mut scores[2 * J]);
        multiply(x, high, &mut scores[2 * J + 1]);
    });
    scores
}

/// A `[tokens, slots]` with zeros outside of a head's slots.
#[inline(always)]
pub(super) fn columns_of_head([a, b, c, d]: [u32; 4], head: usize, at: Lane) -> [u32; 4] {
    let own = at.column() / 4 == head % 2;
    let (low, high) = (own && head < 2, own && head >= 2);
    let keep = |word: u32, kept: bool| if kept { word } else { 0 };
    [keep(a, low), keep(b, low), keep(c, high), keep(d, high)]
}

/// A `[slots, tokens]`, likewise.
#[inline(always)]
pub(super) fn rows_of_head([a, b, c, d]: [u32; 4], head: usize, at: Lane) -> [u32; 4] {
    let own = at.row() / 4 == head % 2;
    let (low, high) = (own && head < 2, own && head >= 2);
    let keep = |word: u32, kept: bool| if kept { word } else { 0 };
    [keep(a, low), keep(b, high), keep(c, low), keep(d, high)]
}

/// Adds to `[tokens, 16 slots]` what a head has made of its eight slots, as far as they are its own.
#[inline(always)]
pub(super) fn add_of_head(to: &mut [[f32; 4]; 2], sums: &[f32; 4], head: usize, at: Lane) {
    let own = at.column() / 4 == head % 2;
    let (low, high) = (own && head < 2, own && head >= 2);
    each!(I in [0 1 2 3] {
        to[0][I] += if low { sums[I] } else { 0.0 };
        to[1][I] += if high { sums[I] } else { 0.0 };
    });
}

/// Stores `[16 tokens, 16 slots]` across: columns `first` to `first` + 15 of `[slots, tokens]`.
#[inline(always)]
pub(super) fn put_across(to: &Stored, first: usize, sums: &[[f32; 4]; 2], at: Lane) {
    each!(N in [0 1] {
        each!(I in [0 1 2 3] {
            to.set(8 * N + at.column() + I % 2, first + at.row() + I / 2 * 8, sums[N][I]);
        });
    });
}
