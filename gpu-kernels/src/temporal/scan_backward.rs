//! Norm, gate, scan and convolution of a tile, backward.

use cuda_std::prelude::*;

use super::parameters::{Parameters, offset};
use super::scan::{Filter, rate, sigmoid, weight};
use super::tile::{Back, Made};
use super::{CHANNELS, HEAD_WIDTH, INNER, N_HEADS, SCANNED, STATE, TAPS};
use crate::tile::{Team, Tile};

/// d SiLU(x) / dx, s the sigmoid of x.
#[inline(always)]
fn silu_slope(x: f32, s: f32) -> f32 {
    s * (1.0 + x * (1.0 - s))
}

/// From RMSNorm's output to y, over which its gradient is written, and z; the gain's gradient. With r the scale:
/// dx_j = r gain_j dy_j - x_j r^3 / 128 sum_k gain_k dy_k x_k, dgain_j = sum of dy_j x_j r. `dnormed` `[rows, 128]`; `put_dz` takes
/// the gradient by z of a row and column, `add` what is added to a parameter's. Ends with a barrier.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all by name, and inlined")]
pub(super) fn gate(
    p: &Parameters<'_>,
    made: &Made,
    back: &Back,
    dnormed: &SharedSlice<f32>,
    tile: Tile,
    team: Team,
    put_dz: impl Fn(usize, usize, f32),
    mut add: impl FnMut(usize, f32),
) {
    for row in team.each(tile.n_rows) {
        let mut sums = [0.0f32; 4];
        for j in (0..INNER).step_by(4) {
            let at = row * INNER + j;
            let (dy, x, gain): ([f32; 4], [f32; 4], [f32; 4]) =
                (dnormed.load(at), made.gated.load(at), p.flat.load(offset::GAIN + j));
            for l in 0..4 {
                sums[l] += gain[l] * dy[l] * x[l];
            }
        }
        back.inner.set(row, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    for j in team.each(INNER) {
        let mut sum = 0.0;
        for row in 0..tile.n_rows {
            sum += dnormed.get(row * INNER + j) * made.gated.get(row * INNER + j) * made.scale.get(row);
        }
        add(offset::GAIN + j, sum);
    }
    // A row's inner product is made by one thread.
    thread::sync_threads();
    for index in team.each(tile.n_rows * INNER) {
        let (row, j) = (index / INNER, index % INNER);
        let r = made.scale.get(row);
        let dgated = r * p.get(offset::GAIN, j) * dnormed.get(index)
            - made.gated.get(index) * (r * r * r / INNER as f32 * back.inner.get(row));
        let z = made.z.get(index);
        let s = sigmoid(z);
        put_dz(row, j, dgated * made.y.get(index) * silu_slope(z, s));
        made.y.set(index, dgated * z * s);
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
        let mut sums = [0.0f32; 4];
        for q in (0..HEAD_WIDTH).step_by(4) {
            let (x, dy): ([f32; 4], [f32; 4]) = (back.x.load(of_x + q), made.y.load(of_dy + q));
            for l in 0..4 {
                sums[l] += dy[l] * x[l];
            }
        }
        back.g.set(index, (sums[0] + sums[1]) + (sums[2] + sums[3]));
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

/// From x, B and C through SiLU and the convolution to in_proj's outputs, which `put` takes as in [`scan`]. `channels` are the
/// thread's, `rows` those that it walks; `finish` takes a channel's sums over them.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all by name, and inlined")]
pub(super) fn convolution(
    p: &Parameters<'_>,
    made: &Made,
    back: &Back,
    tile: Tile,
    channels: impl Iterator<Item = usize>,
    rows: impl Iterator<Item = usize> + Clone,
    put: impl Fn(usize, usize, f32),
    finish: impl Fn(usize, FilterGradient),
) {
    let ds = |bar: usize| {
        let (g, left): ([f32; 4], [f32; 4]) = (back.g.load(bar * N_HEADS), made.left.load(bar * N_HEADS));
        (g[0] * left[0] + g[1] * left[1]) + (g[2] * left[2] + g[3] * left[3])
    };
    for channel in channels {
        let mut walk = Walk { channel, filter: Filter::of(p, channel), gradient: FilterGradient::default() };
        for row in rows.clone() {
            let (first, last) = (row * tile.window, tile.last(row));
            if channel < INNER {
                let head = channel / HEAD_WIDTH;
                let (dy, skip) = (made.y.get(row * INNER + channel), p.get(offset::D, head));
                walk.over(made, first, last, &put, |bar| {
                    (weight(made, bar, head) + if bar == last { skip } else { 0.0 }) * dy
                });
            } else if channel < INNER + STATE {
                let c = made.c.get(row * STATE + channel - INNER);
                walk.over(made, first, last, &put, |bar| ds(bar) * c);
            } else {
                let n = channel - INNER - STATE;
                let mut dc = 0.0;
                walk.over(made, first, last, &put, |bar| {
                    dc += ds(bar) * made.b.get(bar * STATE + n);
                    // C counts at the last bar alone.
                    if bar == last { dc } else { 0.0 }
                });
            }
        }
        finish(channel, walk.gradient);
    }
}

/// The gradients of a channel's taps and bias.
#[derive(Clone, Copy, Default)]
pub(super) struct FilterGradient {
    pub taps: [f32; TAPS],
    pub bias: f32,
}

/// A channel on its way over the bars of rows.
struct Walk {
    channel: usize,
    filter: Filter,
    gradient: FilterGradient,
}

impl Walk {
    /// Over a row's bars, `first` to `last`; `dactivated` gives the gradient by SiLU's output, bar after bar.
    #[inline(always)]
    fn over(
        &mut self,
        made: &Made,
        first: usize,
        last: usize,
        put: &impl Fn(usize, usize, f32),
        mut dactivated: impl FnMut(usize) -> f32,
    ) {
        // Inputs up to the present bar; and what its and the three inputs before have of their gradients.
        let (mut window, mut pending) = ([0.0f32; TAPS], [0.0f32; TAPS]);
        for bar in first..=last {
            let [_, a, b, c] = window;
            window = [a, b, c, made.raw.get(bar * SCANNED + self.channel)];
            let convolved = self.filter.apply(window);
            let dconvolved = dactivated(bar) * silu_slope(convolved, sigmoid(convolved));
            self.gradient.bias += dconvolved;
            for tap in 0..TAPS {
                self.gradient.taps[tap] += dconvolved * window[tap];
                pending[tap] += dconvolved * self.filter.taps[tap];
            }
            // The input three bars back has met all of its taps.
            let [done, a, b, c] = pending;
            if bar >= first + (TAPS - 1) {
                put(bar - (TAPS - 1), self.channel, done);
            }
            pending = [a, b, c, 0.0];
        }
        let [a, b, c, _] = pending;
        put(last - 2, self.channel, a);
        put(last - 1, self.channel, b);
        put(last, self.channel, c);
    }
}
