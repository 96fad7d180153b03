//! The attention over bars of a row by a warp. The forward pass stays in registers: queries, keys and weights leave a product as the
//! next one takes them, and values are made as V^T.

use super::forward::scale;
use super::parameters::Block;
use super::tensor_row::{Operands, Wide, inverse_rms, operands, over_column, over_row, put, softmax, softmax_backward};
use super::tensor_weights::TensorWeights;
use super::{N_HEADS, WIDTH};
use crate::fragments::{Lane, Stored, a_of, b_of, each, multiply};
use crate::lanes;

/// Columns of a head.
const HEAD: usize = WIDTH / N_HEADS;
const OVER_WIDTH: f32 = 1.0 / WIDTH as f32;

/// 16 columns of X W^T, those of W's stored rows from `first` on.
#[inline(always)]
fn project(x: &Operands, w: &Stored, first: usize, at: Lane) -> [[f32; 4]; 2] {
    let mut sums = [[0.0f32; 4]; 2];
    each!(S in [0 1 2 3] {
        let [low, high] = w.b(at, first, 16 * S);
        multiply(x[S], low, &mut sums[0]);
        multiply(x[S], high, &mut sums[1]);
    });
    sums
}

/// The transpose of what [`project`] makes.
#[inline(always)]
fn project_across(x: &Operands, w: &Stored, first: usize, at: Lane) -> [[f32; 4]; 2] {
    let mut sums = [[0.0f32; 4]; 2];
    each!(S in [0 1 2 3] {
        let a = w.a(at, |i| first + i, 16 * S);
        let [low, high] = b_of(x[S]);
        multiply(a, low, &mut sums[0]);
        multiply(a, high, &mut sums[1]);
    });
    sums
}

/// A B of one step.
#[inline(always)]
fn product(a: [u32; 4], [low, high]: [[u32; 2]; 2]) -> [[f32; 4]; 2] {
    let mut sums = [[0.0f32; 4]; 2];
    multiply(a, low, &mut sums[0]);
    multiply(a, high, &mut sums[1]);
    sums
}

/// Of the softmax's exponent, base 2.
#[inline(always)]
fn factor() -> f32 {
    scale(WIDTH) * core::f32::consts::LOG2_E
}

/// X + MHA(X) in place of X, whose operands are `from`; rows from T on mean nothing. `put_mixed` gets each head's P V as an operand.
#[inline(always)]
pub(super) fn attend(w: &TensorWeights<'_>, from: &Operands, x: &mut Wide, put_mixed: impl Fn(usize, [u32; 4])) {
    for head in 0..N_HEADS {
        let (at, first) = (Lane::new(), HEAD * head);
        let q = a_of(&project(from, &w.bars, first, at));
        let k = a_of(&project(from, &w.bars, WIDTH + first, at));
        let v = a_of(&project_across(from, &w.bars, 2 * WIDTH + first, at));
        let mut scores = product(q, b_of(k));
        softmax(&mut scores, factor(), w.window, at);
        let mixed = a_of(&product(a_of(&scores), b_of(v)));
        put_mixed(head, mixed);
        each!(J in [0 1 2 3] {
            let [low, high] = w.bars.b(at, 3 * WIDTH + 16 * J, first);
            multiply(mixed, low, &mut x[2 * J]);
            multiply(mixed, high, &mut x[2 * J + 1]);
        });
    }
}

/// RMSNorm of every bar; zeros from bar T on.
#[inline(always)]
pub(super) fn norm(w: &TensorWeights<'_>, x: &Wide) -> Wide {
    let (at, scales) = (Lane::new(), scales(x));
    let mut normed = Wide::default();
    each!(J in [0 1 2 3 4 5 6 7] {
        let gain: [f32; 2] = w.flat.load(Block::bars().gain() + 8 * J + at.column());
        each!(H in [0 1] {
            let inside = at.row() + 8 * H < w.window;
            normed[J][2 * H] = if inside { x[J][2 * H] * scales[H] * gain[0] } else { 0.0 };
            normed[J][2 * H + 1] = if inside { x[J][2 * H + 1] * scales[H] * gain[1] } else { 0.0 };
        });
    });
    normed
}

/// 1 / the root mean square of the two bars of a lane.
#[inline(always)]
fn scales(x: &Wide) -> [f32; 2] {
    let mut squares = [0.0f32; 2];
    for x in x {
        squares[0] += x[0] * x[0] + x[1] * x[1];
        squares[1] += x[2] * x[2] + x[3] * x[3];
    }
    squares.map(|squares| inverse_rms(over_row(squares), OVER_WIDTH))
}

/// What the backward pass leaves of a row for the gradients of the weights, operands `[16, 64]`.
pub(super) struct BarsLeft {
    /// Gradients by queries, keys, values and by X + MHA(X).
    pub dq: Stored,
    pub dk: Stored,
    pub dv: Stored,
    pub dresidual: Stored,
    /// X, and P V of all heads.
    pub x: Stored,
    pub mixed: Stored,
    /// Gradient by X; what is made of a head lies here before.
    pub dx: Stored,
}

/// From the gradient `d` by the norm's output to that by X, of X + MHA(X) in `residual`. The caller leaves `left.x` and `left.mixed`.
/// `put_dgain` gets a column and its gain's gradient.
#[inline(always)]
pub(super) fn backward(
    w: &TensorWeights<'_>,
    left: &BarsLeft,
    x: &Operands,
    residual: &Wide,
    d: Wide,
    put_dgain: impl Fn(usize, f32),
) -> Wide {
    let mut dx = norm_backward(w, residual, d, put_dgain);
    let dresidual = operands(&dx);
    put(&left.dresidual, &dresidual, Lane::new());
    for head in 0..N_HEADS {
        let (at, first) = (Lane::new(), HEAD * head);
        let q = a_of(&project(x, &w.bars, first, at));
        let k = a_of(&project(x, &w.bars, WIDTH + first, at));
        let v = a_of(&project(x, &w.bars, 2 * WIDTH + first, at));
        let mut dmixed = [[0.0f32; 4]; 2];
        each!(S in [0 1 2 3] {
            let [low, high] = w.bars.b_across(at, |i| 3 * WIDTH + 16 * S + i, first);
            multiply(dresidual[S], low, &mut dmixed[0]);
            multiply(dresidual[S], high, &mut dmixed[1]);
        });
        let dmixed = a_of(&dmixed);
        let mut weights = product(q, b_of(k));
        let mut dscores = product(dmixed, b_of(v));
        softmax(&mut weights, factor(), w.window, at);
        softmax_backward(&weights, &mut dscores);
        let dscores = a_of(&dscores);
        // The head before has read what is overwritten.
        lanes::sync();
        left.dx.put(at, 0, a_of(&weights));
        left.dx.put(at, 16, dscores);
        left.dx.put(at, 32, dmixed);
        left.dx.put(at, 48, q);
        left.dk.put(at, first, k);
        // Products across read other lanes' elements.
        lanes::sync();
        let scaled = |sums: [[f32; 4]; 2]| a_of(&sums.map(|sum| sum.map(|d| d * scale(WIDTH))));
        let dq = scaled(product(dscores, left.dk.b_across(at, |i| i, first)));
        let dk = scaled(product(left.dx.a_across(at, |i| i, 16), left.dx.b_across(at, |i| i, 48)));
        let dv = a_of(&product(left.dx.a_across(at, |i| i, 0), left.dx.b_across(at, |i| i, 32)));
        // The keys have been read.
        lanes::sync();
        left.dq.put(at, first, dq);
        left.dk.put(at, first, dk);
        left.dv.put(at, first, dv);
        each!(J in [0 1 2 3] {
            each!(N in [0 1 2] {
                let d = [dq, dk, dv][N];
                let [low, high] = w.bars.b_across(at, |i| N * WIDTH + first + i, 16 * J);
                multiply(d, low, &mut dx[2 * J]);
                multiply(d, high, &mut dx[2 * J + 1]);
            });
        });
    }
    // The last head has been read where the gradient comes.
    lanes::sync();
    put(&left.dx, &operands(&dx), Lane::new());
    dx
}

/// The gradient by the norm's input.
#[inline(always)]
fn norm_backward(w: &TensorWeights<'_>, x: &Wide, mut d: Wide, put_dgain: impl Fn(usize, f32)) -> Wide {
    let (at, scales) = (Lane::new(), scales(x));
    let mut inner = [0.0f32; 2];
    each!(J in [0 1 2 3 4 5 6 7] {
        let column = 8 * J + at.column();
        let gain: [f32; 2] = w.flat.load(Block::bars().gain() + column);
        each!(I in [0 1] {
            let (upper, lower) = (d[J][I] * x[J][I], d[J][2 + I] * x[J][2 + I]);
            let dgain = over_column(upper * scales[0] + lower * scales[1]);
            if at.row() == 0 {
                put_dgain(column + I, dgain);
            }
            inner[0] += gain[I] * upper;
            inner[1] += gain[I] * lower;
            d[J][I] *= gain[I];
            d[J][2 + I] *= gain[I];
        });
    });
    each!(H in [0 1] {
        let scale = scales[H];
        let along = scale * scale * scale * over_row(inner[H]) * OVER_WIDTH;
        each!(J in [0 1 2 3 4 5 6 7] {
            d[J][2 * H] = d[J][2 * H] * scale - x[J][2 * H] * along;
            d[J][2 * H + 1] = d[J][2 * H + 1] * scale - x[J][2 * H + 1] * along;
        });
    });
    d
}
