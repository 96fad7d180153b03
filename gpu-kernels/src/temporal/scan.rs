//! Convolution, scan and gate of a tile, in f32, forward.

use cuda_std::{fast, prelude::*};

use super::parameters::{Parameters, offset};
use super::tile::Made;
use super::{CHANNELS, HEAD_WIDTH, INNER, N_HEADS, SCANNED, STATE, TAPS};
use crate::floats::Floats;
use crate::four::Four;
use crate::tile::{Team, Tile};

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid<F: Floats>(x: F) -> F {
    (F::splat(1.0) + (-x).exp()).rcp()
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), and with e = e^-|x| <= 1, r = e / (2 + e) <= 1/3: ln(1 + e) = 2 sum_k r^(2k+1) / (2k+1).
/// Eight terms leave 2e-9 of it, where ln of 1 + e in f32 would lose the small e's last bits.
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    let e = fast::exp(-x.abs());
    let r = e * fast::rcp(2.0 + e);
    let square = r * r;
    let last = 1.0 / 9.0 + square * (1.0 / 11.0 + square * (1.0 / 13.0 + square * (1.0 / 15.0)));
    let sum = 1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * last)));
    x.max(0.0) + 2.0 * r * sum
}

/// The taps and the bias of F's channels.
#[derive(Clone, Copy)]
pub(super) struct Filter<F> {
    pub taps: [F; TAPS],
    pub bias: F,
}

impl<F: Floats> Filter<F> {
    /// From a channel on.
    #[inline(always)]
    pub fn of(p: &Parameters<'_>, channel: usize) -> Self {
        let bias = F::load_global(p.flat, offset::CONV_BIAS + channel);
        Self { taps: F::load_fours(p.flat, offset::CONV + channel * TAPS), bias }
    }

    /// The convolution over a bar's last inputs, the present one last.
    #[inline(always)]
    pub fn apply(&self, inputs: [F; TAPS]) -> F {
        let mut sum = self.bias;
        for (tap, input) in self.taps.iter().zip(&inputs) {
            sum = sum.add_product(*tap, *input);
        }
        sum
    }
}

/// Inputs of the convolution up to bar `t` of the row whose bars begin at `first`, from a channel on, zeros before the window.
#[inline(always)]
fn inputs<F: Floats>(raw: &SharedSlice<f32>, first: usize, t: usize, channel: usize) -> [F; TAPS] {
    [
        input(raw, first, t, 3, channel),
        input(raw, first, t, 2, channel),
        input(raw, first, t, 1, channel),
        input(raw, first, t, 0, channel),
    ]
}

/// The input `back` bars before bar `t`.
#[inline(always)]
fn input<F: Floats>(raw: &SharedSlice<f32>, first: usize, t: usize, back: usize, channel: usize) -> F {
    if t >= back { F::load(raw, (first + t - back) * SCANNED + channel) } else { F::ZERO }
}

/// SiLU of the convolution at a bar, from a channel on.
#[inline(always)]
fn activated<F: Floats>(p: &Parameters<'_>, made: &Made, tile: Tile, bar: usize, channel: usize) -> F {
    let first = tile.row_of(bar) * tile.window;
    let x: F = Filter::of(p, channel).apply(inputs(&made.raw, first, bar - first, channel));
    x * sigmoid(x)
}

/// Makes B, C of the last bars, and dt, F's channels at a time. Ends with a barrier.
#[inline(always)]
pub(super) fn mix<F: Floats>(p: &Parameters<'_>, made: &Made, tile: Tile, team: Team) {
    for index in team.each(tile.n_bars() * STATE / F::N).map(|item| item * F::N) {
        activated::<F>(p, made, tile, index / STATE, INNER + index % STATE).store(&made.b, index);
    }
    for index in team.each(tile.n_rows * STATE / F::N).map(|item| item * F::N) {
        activated::<F>(p, made, tile, tile.last(index / STATE), INNER + STATE + index % STATE).store(&made.c, index);
    }
    for index in team.each(tile.n_bars() * N_HEADS) {
        let (bar, head) = (index / N_HEADS, index % N_HEADS);
        made.dt.set(index, softplus(made.raw.get(bar * SCANNED + CHANNELS + head) + p.get(offset::DT_BIAS, head)));
    }
    // B, C, dt are written by one thread and read by others.
    thread::sync_threads();
    for bar in team.each(tile.n_bars()) {
        let mut sum = Four::ZERO;
        for n in (0..STATE).step_by(4) {
            let (b, c) = (made.b.load(bar * STATE + n), made.c.load(tile.row_of(bar) * STATE + n));
            sum = sum.add_product(Four::new(b), Four::new(c));
        }
        made.score.set(bar, sum.sum());
    }
    for index in team.each(tile.n_bars() * N_HEADS) {
        let (bar, head) = (index / N_HEADS, index % N_HEADS);
        let mut later = 0.0;
        for after in bar + 1..=tile.last(tile.row_of(bar)) {
            later += made.dt.get(after * N_HEADS + head);
        }
        let left = fast::exp(-rate(p, head) * later);
        made.left.set(index, left * made.dt.get(index));
    }
    // The weights of the bars are written and now read.
    thread::sync_threads();
}

/// exp(A_log).
#[inline(always)]
pub(super) fn rate(p: &Parameters<'_>, head: usize) -> f32 {
    fast::exp(p.get(offset::A_LOG, head))
}

/// w of a bar.
#[inline(always)]
pub(super) fn weight(made: &Made, bar: usize, head: usize) -> f32 {
    made.left.get(bar * N_HEADS + head) * made.score.get(bar)
}

/// Makes y and the gated y of the last bars, F's channels at a time; `keep` takes x after SiLU, by its place in
/// `[bars, 128]`. Ends with a barrier.
#[inline(always)]
pub(super) fn scan<F: Floats>(p: &Parameters<'_>, made: &Made, tile: Tile, team: Team, keep: impl Fn(usize, F)) {
    for index in team.each(tile.n_rows * INNER / F::N).map(|item| item * F::N) {
        let (row, channel) = (index / INNER, index % INNER);
        let (head, first) = (channel / HEAD_WIDTH, row * tile.window);
        let filter = Filter::of(p, channel);
        let mut window = [F::ZERO; TAPS];
        let (mut y, mut x) = (F::ZERO, F::ZERO);
        for bar in first..first + tile.window {
            let [_, a, b, c] = window;
            window = [a, b, c, F::load(&made.raw, bar * SCANNED + channel)];
            let convolved = filter.apply(window);
            x = convolved * sigmoid(convolved);
            y = y.add_product(F::splat(weight(made, bar, head)), x);
            keep(bar * INNER + channel, x);
        }
        y = y.add_product(F::splat(p.get(offset::D, head)), x);
        let z = F::load(&made.z, index);
        y.store(&made.y, index);
        (y * z * sigmoid(z)).store(&made.gated, index);
    }
    // The gated rows are complete.
    thread::sync_threads();
}
