//! Norm, gate, scan and convolution of a tile, backward.

use cuda_std::prelude::*;

use super::parameters::{Parameters, offset};
use super::scan::{Filter, rate, sigmoid, weight};
use super::tile::{Back, Made};
use super::{CHANNELS, HEAD_WIDTH, INNER, N_HEADS, SCANNED, STATE, TAPS};
use crate::floats::Floats;
use crate::four::Four;
use crate::tile::{Team, Tile};

/// d SiLU(x) / dx, s the sigmoid of x.
#[inline(always)]
fn silu_slope<F: Floats>(x: F, s: F) -> F {
    s * F::splat(1.0).add_product(x, F::splat(1.0) - s)
}

/// From RMSNorm's output to y, over which its gradient is written, and z; the gain's gradient. With r the scale:
/// dx_j = r gain_j dy_j - x_j r^3 / 128 sum_k gain_k dy_k x_k, dgain_j = sum of dy_j x_j r. `dnormed` `[rows, 128]`; `put_dz` takes
/// the gradient by z of a row from a column on, F's columns at a time; `add` what is added to a parameter's. Ends with a barrier.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all by name, and inlined")]
pub(super) fn gate<F: Floats>(
    p: &Parameters<'_>,
    made: &Made,
    back: &Back,
    dnormed: &SharedSlice<f32>,
    tile: Tile,
    team: Team,
    put_dz: impl Fn(usize, usize, F),
    mut add: impl FnMut(usize, f32),
) {
    for row in team.each(tile.n_rows) {
        let mut sums = Four::ZERO;
        for j in (0..INNER).step_by(4) {
            let at = row * INNER + j;
            let (dy, x, gain) = (dnormed.load(at), made.gated.load(at), p.flat.load(offset::GAIN + j));
            sums = sums.add_product(Four::new(gain) * Four::new(dy), Four::new(x));
        }
        back.inner.set(row, sums.sum());
    }
    for j in team.each(INNER / F::N).map(|item| item * F::N) {
        let mut sum = F::ZERO;
        for row in 0..tile.n_rows {
            let at = row * INNER + j;
            let product = F::load(dnormed, at) * F::load(&made.gated, at);
            sum = sum.add_product(product, F::splat(made.scale.get(row)));
        }
        sum.each(offset::GAIN + j, 1, &mut add);
    }
    // A row's inner product is made by one thread.
    thread::sync_threads();
    for index in team.each(tile.n_rows * INNER / F::N).map(|item| item * F::N) {
        let (row, j) = (index / INNER, index % INNER);
        let r = made.scale.get(row);
        let dgated = F::splat(r) * F::load_global(p.flat, offset::GAIN + j) * F::load(dnormed, index)
            - F::load(&made.gated, index) * F::splat(r * r * r / INNER as f32 * back.inner.get(row));
        let z = F::load(&made.z, index);
        let s = sigmoid(z);
        put_dz(row, j, dgated * F::load(&made.y, index) * silu_slope(z, s));
        (dgated * z * s).store(&made.y, index);
    }
    // The gradient by y is complete.
    thread::sync_threads();
}

/// From y to dt, and to what x, B and C still need. `put` takes the gradient by in_proj's output of a bar, by its column from x on.
/// Ends with a barrier.
#[inline(always)]
pub(super) fn scan(
    p: &Parameters<'_>,
    made: &Made,
    back: &Back,
    tile: Tile,
    team: Team,
    put: impl Fn(usize, usize, f32),
) {
    for index in team.each(tile.n_bars() * N_HEADS) {
        let (bar, head) = (index / N_HEADS, index % N_HEADS);
        let (of_x, of_dy) = (bar * INNER + head * HEAD_WIDTH, tile.row_of(bar) * INNER + head * HEAD_WIDTH);
        let mut sums = Four::ZERO;
        for q in (0..HEAD_WIDTH).step_by(4) {
            let (x, dy) = (back.x.load(of_x + q), made.y.load(of_dy + q));
            sums = sums.add_product(Four::new(dy), Four::new(x));
        }
        back.g.set(index, sums.sum());
    }
    // g is made by one thread and read by others.
    thread::sync_threads();
    for index in team.each(tile.n_bars() * N_HEADS) {
        let (bar, head) = (index / N_HEADS, index % N_HEADS);
        let mut before = 0.0;
        for earlier in tile.row_of(bar) * tile.window..bar {
            before += back.g.get(earlier * N_HEADS + head) * weight(made, earlier, head);
        }
        let (dt, rate) = (made.dt.get(index), rate(p, head));
        // left is L dt, and dt > 0: where softplus underflows to 0, so does its slope.
        let decay = if dt > 0.0 { made.left.get(index) / dt } else { 0.0 };
        let ddt = back.g.get(index) * decay * made.score.get(bar) - rate * before;
        let draw = ddt * sigmoid(made.raw.get(bar * SCANNED + CHANNELS + head) + p.get(offset::DT_BIAS, head));
        back.ddt.set(index, draw);
        back.da_log.set(index, -rate * dt * before);
        put(bar, CHANNELS + head, draw);
    }
    // What is left of a bar's gradients is read by others.
    thread::sync_threads();
}

/// The gradients of dt_bias, A_log and D, one thread a head.
#[inline(always)]
pub(super) fn heads(back: &Back, tile: Tile, team: Team, mut add: impl FnMut(usize, f32)) {
    for index in team.each(3 * N_HEADS) {
        let (which, head) = (index / N_HEADS, index % N_HEADS);
        let mut sum = 0.0;
        match which {
            0 => (0..tile.n_bars()).for_each(|bar| sum += back.ddt.get(bar * N_HEADS + head)),
            1 => (0..tile.n_bars()).for_each(|bar| sum += back.da_log.get(bar * N_HEADS + head)),
            _ => (0..tile.n_rows).for_each(|row| sum += back.g.get(tile.last(row) * N_HEADS + head)),
        }
        add(offset::of_head(which) + head, sum);
    }
}

/// From x, B and C through SiLU and the convolution to in_proj's outputs, which `put` takes as in [`scan`], F's channels at a time.
/// `channels` are the first ones of the thread's, `rows` those that it walks; `finish` takes channels' sums over them.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all by name, and inlined")]
pub(super) fn convolution<F: Floats>(
    p: &Parameters<'_>,
    made: &Made,
    back: &Back,
    tile: Tile,
    channels: impl Iterator<Item = usize>,
    rows: impl Iterator<Item = usize> + Clone,
    put: impl Fn(usize, usize, F),
    finish: impl Fn(usize, FilterGradient<F>),
) {
    let ds = |bar: usize| {
        let (g, left): ([f32; 4], [f32; 4]) = (back.g.load(bar * N_HEADS), made.left.load(bar * N_HEADS));
        (g[0] * left[0] + g[1] * left[1]) + (g[2] * left[2] + g[3] * left[3])
    };
    for channel in channels {
        let mut walk = Walk { channel, filter: Filter::of(p, channel), gradient: FilterGradient::NONE };
        for row in rows.clone() {
            let (first, last) = (row * tile.window, tile.last(row));
            if channel < INNER {
                let head = channel / HEAD_WIDTH;
                let (dy, skip) = (F::load(&made.y, row * INNER + channel), p.get(offset::D, head));
                walk.over(
                    made,
                    first,
                    last,
                    &put,
                    #[inline(always)]
                    |bar| F::splat(weight(made, bar, head) + if bar == last { skip } else { 0.0 }) * dy,
                );
            } else if channel < INNER + STATE {
                let c = F::load(&made.c, row * STATE + channel - INNER);
                walk.over(
                    made,
                    first,
                    last,
                    &put,
                    #[inline(always)]
                    |bar| F::splat(ds(bar)) * c,
                );
            } else {
                let n = channel - INNER - STATE;
                let mut dc = F::ZERO;
                walk.over(
                    made,
                    first,
                    last,
                    &put,
                    #[inline(always)]
                    |bar| {
                        dc = dc.add_product(F::splat(ds(bar)), F::load(&made.b, bar * STATE + n));
                        // C counts at the last bar alone.
                        if bar == last { dc } else { F::ZERO }
                    },
                );
            }
        }
        finish(channel, walk.gradient);
    }
}

/// The gradients of the taps and the bias of F's channels.
#[derive(Clone, Copy)]
pub(super) struct FilterGradient<F> {
    pub taps: [F; TAPS],
    pub bias: F,
}

impl<F: Floats> FilterGradient<F> {
    const NONE: Self = Self { taps: [F::ZERO; TAPS], bias: F::ZERO };
}

/// Channels on their way over the bars of rows.
struct Walk<F> {
    channel: usize,
    filter: Filter<F>,
    gradient: FilterGradient<F>,
}

impl<F: Floats> Walk<F> {
    /// Over a row's bars, `first` to `last`; `dactivated` gives the gradient by SiLU's output, bar after bar.
    #[inline(always)]
    fn over(
        &mut self,
        made: &Made,
        first: usize,
        last: usize,
        put: &impl Fn(usize, usize, F),
        mut dactivated: impl FnMut(usize) -> F,
    ) {
        // Inputs up to the present bar; and what its and the three inputs before have of their gradients.
        let (mut window, mut pending) = ([F::ZERO; TAPS], [F::ZERO; TAPS]);
        for bar in first..=last {
            let [_, a, b, c] = window;
            window = [a, b, c, F::load(&made.raw, bar * SCANNED + self.channel)];
            let convolved = self.filter.apply(window);
            let dconvolved = dactivated(bar) * silu_slope(convolved, sigmoid(convolved));
            self.gradient.bias = self.gradient.bias + dconvolved;
            for tap in 0..TAPS {
                self.gradient.taps[tap] = self.gradient.taps[tap].add_product(dconvolved, window[tap]);
                pending[tap] = pending[tap].add_product(dconvolved, self.filter.taps[tap]);
            }
            // The input three bars back has met all of its taps.
            let [done, a, b, c] = pending;
            if bar >= first + (TAPS - 1) {
                put(bar - (TAPS - 1), self.channel, done);
            }
            pending = [a, b, c, F::ZERO];
        }
        let [a, b, c, _] = pending;
        put(last - 2, self.channel, a);
        put(last - 1, self.channel, b);
        put(last, self.channel, c);
    }
}
