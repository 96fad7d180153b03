//! Convolution, scan and gate of a tile, in f32, forward.

use cuda_std::{fast, prelude::*};

use super::parameters::{Parameters, offset};
use super::tile::Made;
use super::{CHANNELS, HEAD_WIDTH, INNER, N_HEADS, SCANNED, STATE, TAPS};
use crate::tile::{Team, Tile};

/// 1 / (1 + e^-x).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    fast::rcp(1.0 + fast::exp(-x))
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

/// A channel's taps and bias.
#[derive(Clone, Copy)]
pub(super) struct Filter {
    pub taps: [f32; TAPS],
    pub bias: f32,
}

impl Filter {
    #[inline(always)]
    pub fn of(p: &Parameters<'_>, channel: usize) -> Self {
        Self { taps: p.flat.load(offset::CONV + channel * TAPS), bias: p.get(offset::CONV_BIAS, channel) }
    }

    /// The convolution over a bar's last inputs, the present one last.
    #[inline(always)]
    pub fn apply(&self, inputs: [f32; TAPS]) -> f32 {
        let mut sum = self.bias;
        for (tap, input) in self.taps.iter().zip(&inputs) {
            sum += tap * input;
        }
        sum
    }
}

/// A channel's inputs of the convolution up to bar `t` of the row whose bars begin at `first`, zeros before the window.
#[inline(always)]
pub(super) fn inputs(raw: &SharedSlice<f32>, first: usize, t: usize, channel: usize) -> [f32; TAPS] {
    core::array::from_fn(|tap| {
        let back = TAPS - 1 - tap;
        if t >= back { raw.get((first + t - back) * SCANNED + channel) } else { 0.0 }
    })
}

/// Makes B, C of the last bars, and dt. Ends with a barrier.
#[inline(always)]
pub(super) fn mix(p: &Parameters<'_>, made: &Made, tile: Tile, team: Team) {
    let activated = |bar: usize, channel: usize| {
        let first = tile.row_of(bar) * tile.window;
        let x = Filter::of(p, channel).apply(inputs(&made.raw, first, bar - first, channel));
        x * sigmoid(x)
    };
    for index in team.each(tile.n_bars() * STATE) {
        made.b.set(index, activated(index / STATE, INNER + index % STATE));
    }
    for index in team.each(tile.n_rows * STATE) {
        made.c.set(index, activated(tile.last(index / STATE), INNER + STATE + index % STATE));
    }
    for index in team.each(tile.n_bars() * N_HEADS) {
        let (bar, head) = (index / N_HEADS, index % N_HEADS);
        made.dt.set(index, softplus(made.raw.get(bar * SCANNED + CHANNELS + head) + p.get(offset::DT_BIAS, head)));
    }
    // B, C, dt are written by one thread and read by others.
    thread::sync_threads();
    for bar in team.each(tile.n_bars()) {
        let mut sum = [0.0; 4];
        for n in (0..STATE).step_by(4) {
            let (b, c): ([f32; 4], [f32; 4]) =
                (made.b.load(bar * STATE + n), made.c.load(tile.row_of(bar) * STATE + n));
            for l in 0..4 {
                sum[l] += b[l] * c[l];
            }
        }
        made.score.set(bar, (sum[0] + sum[1]) + (sum[2] + sum[3]));
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

/// Makes y and the gated y of the last bars; `keep` takes x after SiLU, by its place in
/// `[bars, 128]`. Ends with a barrier.
#[inline(always)]
pub(super) fn scan(p: &Parameters<'_>, made: &Made, tile: Tile, team: Team, keep: impl Fn(usize, f32)) {
    for index in team.each(tile.n_rows * INNER) {
        let (row, channel) = (index / INNER, index % INNER);
        let (head, first) = (channel / HEAD_WIDTH, row * tile.window);
        let filter = Filter::of(p, channel);
        let mut window = [0.0f32; TAPS];
        let (mut y, mut x) = (0.0f32, 0.0f32);
        for bar in first..first + tile.window {
            let [_, a, b, c] = window;
            window = [a, b, c, made.raw.get(bar * SCANNED + channel)];
            let convolved = filter.apply(window);
            x = convolved * sigmoid(convolved);
            y += weight(made, bar, head) * x;
            keep(bar * INNER + channel, x);
        }
        y += p.get(offset::D, head) * x;
        let z = made.z.get(index);
        made.y.set(index, y);
        made.gated.set(index, y * z * sigmoid(z));
    }
    // The gated rows are complete.
    thread::sync_threads();
}
