//! Between the trunk's products, backwards.
//!
//! With r the inverse root mean square of a row x and t = gain dy, RMSNorm's gradient is dx = r t - x r^3 / H sum(t x), and that of
//! the gain, summed over rows, dy x r. A row kernel works out dx and leaves r (and the factor of x, where it is needed again) a
//! row; a plain kernel then takes the sums over rows from those, in the two stages of [`columns`](crate::columns). Reading the
//! matrices a second time, from the cache for the most part, costs less than carrying every column's sum through the row kernel:
//! that would leave a partial sum a warp instead of one a stretch.
//!
//! `min_blocks` is given where the compiler would otherwise spill, or have fewer loads in flight, to fit more blocks.

use cuda_std::prelude::*;
use shared_types::{Precision, StepScalars};

use super::forward::depth_mask;
use super::inverse_rms;
use crate::columns::Stretch;
use crate::sweep::{self, Row, VECTOR, Vector, each};
use crate::{lanes, math, operand};

/// dz = m dh of a residual block as operands, and the partial sums of its unrounded columns: the gradient of b2.
///
/// Shapes: dh `[R, H]`, scalars `[1]`, dz operand `[R, H]`, partials `[P, partial_stride]` from its first column; `hidden` is H.
/// Launch: [`column_partials_shape`](crate::columns::column_partials_shape).
#[kernel(max_threads = 128)]
pub fn residual_backward(
    dh: GlobalSlice<f32>,
    scalars: GlobalSlice<StepScalars>,
    dz: GlobalSliceMut<u16>,
    partials: GlobalSliceMut<f32>,
    hidden: u32,
    partial_stride: u32,
    block_index: u32,
    precision: Precision,
) {
    let width = hidden as usize;
    let Some(stretch) = Stretch::of_thread(sweep::n_rows(dh.len(), width), width) else { return };
    let mask = depth_mask(&scalars, block_index);
    let column = stretch.column;
    let mut sums = [0.0; VECTOR];
    stretch.for_rows(
        |row| -> Vector { dh.load(row * width + column) },
        |row, d| {
            let d = d.map(|d| mask * d);
            operand::store4(&dz, row * width + column, d, precision);
            sweep::add(&mut sums, |k| d[k]);
        },
    );
    partials.store(stretch.partial * partial_stride as usize + column, sums);
}

/// Adds the gradient that a block's RMSNorm gives its input to dh: dh += r t - h r^3 / H sum(t h), t = gain dn.
///
/// Shapes: h, dn `[R, H]`, gain `[H]`, dh `[R, H]`, read and written, inverse_rms `[R]`: r, for [`norm_gain_partials()`]. Launch:
/// [`row_shape`](lanes::row_shape).
#[kernel(cooperative, max_threads = 256)]
pub fn norm_backward(
    h: GlobalSlice<f32>,
    gain: GlobalSlice<f32>,
    dn: GlobalSlice<f32>,
    dh: GlobalSliceMut<f32>,
    inverse_rms: GlobalSliceMut<f32>,
) {
    let width = gain.len();
    let Some(row) = lanes::row_index(inverse_rms.len()) else { return };
    let (from, share) = (row * width, Row::new(width));
    let load = |at: usize| -> (Vector, Vector) {
        let (gain, dn): (Vector, Vector) = (gain.load(at), dn.load(from + at));
        (h.load(from + at), each(|k| gain[k] * dn[k]))
    };
    let (mut squares, mut inner) = ([0.0; VECTOR], [0.0; VECTOR]);
    let kept = share.load(load);
    share.sweep(&kept, load, |_, (h, t)| {
        sweep::add(&mut squares, |k| h[k] * h[k]);
        sweep::add(&mut inner, |k| t[k] * h[k]);
    });
    let r = super::inverse_rms(squares, width);
    let c = factor(r, inner, width);
    share.sweep(&kept, load, |at, (h, t)| {
        let before: Vector = dh.load(from + at);
        dh.store(from + at, each(|k| before[k] + (r * t[k] - c * h[k])));
    });
    if thread::thread_idx_x() == 0 {
        inverse_rms.set(row, r);
    }
}

/// r^3 / H sum(t x): the factor of x in RMSNorm's gradient.
#[inline(always)]
fn factor(r: f32, inner: Vector, width: usize) -> f32 {
    r * (r * r * (sweep::row_total(inner) / width as f32))
}

/// Partial sums of the gain's gradient, dn h r.
///
/// Shapes: h, dn `[R, H]`, inverse_rms `[R]` as [`norm_backward()`] leaves it, partials `[P, partial_stride]` from its first column.
/// Launch: [`column_partials_shape`](crate::columns::column_partials_shape).
#[kernel(max_threads = 128, min_blocks = 5)]
pub fn norm_gain_partials(
    h: GlobalSlice<f32>,
    dn: GlobalSlice<f32>,
    inverse_rms: GlobalSlice<f32>,
    partials: GlobalSliceMut<f32>,
    hidden: u32,
    partial_stride: u32,
) {
    let width = hidden as usize;
    let Some(stretch) = Stretch::of_thread(inverse_rms.len(), width) else { return };
    let column = stretch.column;
    let mut sums = [0.0; VECTOR];
    stretch.for_rows(
        |row| -> (Vector, Vector, f32) {
            let at = row * width + column;
            (h.load(at), dn.load(at), inverse_rms.get(row))
        },
        |_, (h, dn, r)| sweep::add(&mut sums, |k| dn[k] * (h[k] * r)),
    );
    partials.store(stretch.partial * partial_stride as usize + column, sums);
}

/// Gradient of pre_in through FiLM, SiLU and RMSNorm, as operands: with x = RMSNorm(pre_in), t = gain_in SiLU'(x) dh0 (1 + g) and
/// dpre = r t - pre_in c, c = r^3 / H sum(t pre_in).
///
/// Shapes: pre_in, dh0 `[R, H]`, gain_in `[H]`, film `[2H]`, dpre operand `[R, H]`, row_terms `[R, 2]`: r and c, for
/// [`entry_partials()`]. Launch: [`row_shape`](lanes::row_shape).
#[kernel(cooperative, max_threads = 256, min_blocks = 2)]
pub fn entry_backward(
    pre_in: GlobalSlice<f32>,
    gain_in: GlobalSlice<f32>,
    film: GlobalSlice<f32>,
    dh0: GlobalSlice<f32>,
    dpre: GlobalSliceMut<u16>,
    row_terms: GlobalSliceMut<f32>,
    precision: Precision,
) {
    let width = gain_in.len();
    let Some(row) = lanes::row_index(row_terms.len() / 2) else { return };
    let (from, share) = (row * width, Row::new(width));
    let load = |at: usize| -> (Vector, Vector) { (pre_in.load(from + at), dh0.load(from + at)) };
    let kept = share.load(load);
    let mut squares = [0.0; VECTOR];
    share.sweep(&kept, load, |_, (x, _)| sweep::add(&mut squares, |k| x[k] * x[k]));
    let r = inverse_rms(squares, width);
    let through = |at: usize, (x, d): (Vector, Vector)| -> (Vector, Vector) {
        let (gain, g): (Vector, Vector) = (gain_in.load(at), film.load(at));
        (x, each(|k| gain[k] * (math::silu_slope(x[k] * r * gain[k]) * (d[k] * (1.0 + g[k])))))
    };
    let mut inner = [0.0; VECTOR];
    let kept = share.sweep(&kept, load, |at, values| {
        let (x, t) = through(at, values);
        sweep::add(&mut inner, |k| t[k] * x[k]);
        (x, t)
    });
    let c = factor(r, inner, width);
    share.sweep(
        &kept,
        |at| through(at, load(at)),
        |at, (x, t)| {
            operand::store4(&dpre, from + at, each(|k| r * t[k] - c * x[k]), precision);
        },
    );
    if thread::thread_idx_x() == 0 {
        row_terms.store(2 * row, [r, c]);
    }
}

/// Partial sums of what the trunk's entry adds up over rows, from unrounded values: columns `[b | gain_in | g | s]`, H each.
///
/// db = dpre; dgain_in = SiLU'(x) dh0 (1 + g) pre_in r; dg = dh0 SiLU(x); ds = dh0, x = RMSNorm(pre_in). Shapes as of
/// [`entry_backward()`], partials `[P, partial_stride]` from the column of b. Launch:
/// [`column_partials_shape`](crate::columns::column_partials_shape) of H columns.
#[kernel(max_threads = 128, min_blocks = 4)]
pub fn entry_partials(
    pre_in: GlobalSlice<f32>,
    gain_in: GlobalSlice<f32>,
    film: GlobalSlice<f32>,
    dh0: GlobalSlice<f32>,
    row_terms: GlobalSlice<f32>,
    partials: GlobalSliceMut<f32>,
    partial_stride: u32,
) {
    let width = gain_in.len();
    let Some(stretch) = Stretch::of_thread(row_terms.len() / 2, width) else { return };
    let column = stretch.column;
    let (gain, g): (Vector, Vector) = (gain_in.load(column), film.load(column));
    let mut sums = [[0.0; VECTOR]; 4];
    stretch.for_rows(
        |row| -> (Vector, Vector, [f32; 2]) {
            let at = row * width + column;
            (pre_in.load(at), dh0.load(at), row_terms.load(2 * row))
        },
        |_, (pre, d, [r, c])| {
            let x = each(|k| pre[k] * r * gain[k]);
            let dx = each(|k| math::silu_slope(x[k]) * (d[k] * (1.0 + g[k])));
            sweep::add(&mut sums[0], |k| r * (gain[k] * dx[k]) - c * pre[k]);
            sweep::add(&mut sums[1], |k| dx[k] * (pre[k] * r));
            sweep::add(&mut sums[2], |k| d[k] * math::silu(x[k]));
            sweep::add(&mut sums[3], |k| d[k]);
        },
    );
    for (part, sums) in sums.into_iter().enumerate() {
        partials.store(stretch.partial * partial_stride as usize + part * width + column, sums);
    }
}
