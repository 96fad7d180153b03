//! The two attentions, after TLOB (Berti and Kasneci 2025, arXiv:2502.15757): over bars, then over channels.
//!
//! X = x W_e^T + b_e + positions `[T, 64]`; X = RMSNorm(X + MHA(X)) over bars; Y = X^T `[64, T]`; Y = RMSNorm(Y + MHA(Y)); output
//! is the mean of Y over bars. MHA (Vaswani et al. 2017, section 3.2.2) has 4 heads, scale 1/sqrt(head width), no biases and
//! no mask.
//! Differs from the paper on purpose: RMSNorm, no MLP, one pair of blocks.

use crate::activation::{softmax, softmax_backward};
use crate::config::Sizes;
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::norm::{rms_norm, rms_norm_backward};
use crate::precision::Precision;

/// The four matrices of one attention.
struct Weights {
    wq: Matrix,
    wk: Matrix,
    wv: Matrix,
    wo: Matrix,
}

impl Weights {
    fn of(p: &Tensors, block: &str) -> Self {
        let matrix = |name: &str| p.matrix(&format!("attention.{block}.{name}"));
        Self { wq: matrix("wq"), wk: matrix("wk"), wv: matrix("wv"), wo: matrix("wo") }
    }
}

/// One attention over the tokens of one row of the batch.
#[derive(Clone, Debug)]
struct BlockPass {
    x: Matrix,
    q: Matrix,
    k: Matrix,
    v: Matrix,
    weights: Vec<Matrix>,
    mixed: Matrix,
    residual: Matrix,
    output: Matrix,
}

/// What the forward pass leaves for the backward one.
#[derive(Clone, Debug)]
pub struct AttentionPass {
    bars: Matrix,
    blocks: Vec<(BlockPass, BlockPass)>,
    /// Output `[B, 64]`.
    pub output: Matrix,
}

/// Sinusoidal position (Vaswani et al. 2017, section 3.5): sin(t / 10000^(2i/d)) at column 2i, the cosine at 2i + 1.
pub fn position(bar: usize, column: usize, width: usize) -> f64 {
    let angle = bar as f64 / 10_000f64.powf((column - column % 2) as f64 / width as f64);
    if column.is_multiple_of(2) { angle.sin() } else { angle.cos() }
}

/// Runs both attentions. `bars` `[B T, F]`, oldest bar of a row first.
pub fn forward(s: &Sizes, precision: Precision, p: &Tensors, bars: &Matrix) -> AttentionPass {
    let n_batch = bars.n_rows / s.window;
    let mut embedded = precision.linear(bars, &p.matrix("attention.embed.weight"));
    embedded.add_to_rows(p.slice("attention.embed.bias"));
    let (over_bars, over_channels) = (Weights::of(p, "bars"), Weights::of(p, "channels"));
    let mut blocks = Vec::with_capacity(n_batch);
    let mut output = Matrix::zeros(n_batch, s.attention);
    for i in 0..n_batch {
        let mut x = embedded.rows(i * s.window..(i + 1) * s.window);
        for bar in 0..s.window {
            for column in 0..s.attention {
                x[(bar, column)] += position(bar, column, s.attention);
            }
        }
        let first = block_forward(precision, &over_bars, p.slice("attention.bars.gain"), s.attention_heads, x);
        let y = first.output.transposed();
        let second = block_forward(precision, &over_channels, p.slice("attention.channels.gain"), s.attention_heads, y);
        for channel in 0..s.attention {
            output[(i, channel)] = second.output.row(channel).iter().sum::<f64>() / s.window as f64;
        }
        blocks.push((first, second));
    }
    AttentionPass { bars: bars.clone(), blocks, output }
}

/// RMSNorm(X + MHA(X)) over the rows of X `[tokens, width]`.
fn block_forward(precision: Precision, w: &Weights, gain: &[f64], n_heads: usize, x: Matrix) -> BlockPass {
    let (q, k, v) = (precision.linear(&x, &w.wq), precision.linear(&x, &w.wk), precision.linear(&x, &w.wv));
    let width = x.n_cols / n_heads;
    let mut mixed = Matrix::zeros(x.n_rows, x.n_cols);
    let mut weights = Vec::with_capacity(n_heads);
    for head in 0..n_heads {
        let part = head * width..(head + 1) * width;
        let mut scores = precision.linear(&q.columns(part.clone()), &k.columns(part.clone()));
        for token in 0..scores.n_rows {
            let scaled: Vec<f64> = scores.row(token).iter().map(|x| x / (width as f64).sqrt()).collect();
            scores.row_mut(token).copy_from_slice(&softmax(&scaled));
        }
        mixed.add_to_columns(part.start, &precision.linear_dx(&scores, &v.columns(part)));
        weights.push(scores);
    }
    let mut residual = precision.linear(&mixed, &w.wo);
    residual.add(&x);
    let output = rms_norm(&residual, gain);
    BlockPass { x, q, k, v, weights, mixed, residual, output }
}

/// Gradients of one block.
struct BlockGradients {
    dx: Matrix,
    dgain: Vec<f64>,
    dw: Weights,
}

fn block_backward(
    precision: Precision,
    w: &Weights,
    gain: &[f64],
    pass: &BlockPass,
    doutput: &Matrix,
) -> BlockGradients {
    let (dresidual, dgain) = rms_norm_backward(&pass.residual, gain, doutput);
    let dwo = precision.linear_dw(&dresidual, &pass.mixed);
    let dmixed = precision.linear_dx(&dresidual, &w.wo);
    let (n, width) = (pass.x.n_rows, pass.x.n_cols / pass.weights.len());
    let empty = || Matrix::zeros(n, pass.x.n_cols);
    let (mut dq, mut dk, mut dv) = (empty(), empty(), empty());
    for (head, weights) in pass.weights.iter().enumerate() {
        let part = head * width..(head + 1) * width;
        let dmixed = dmixed.columns(part.clone());
        let dweights = precision.linear(&dmixed, &pass.v.columns(part.clone()));
        dv.add_to_columns(part.start, &precision.linear_dw(weights, &dmixed));
        let mut dscores = Matrix::zeros(n, n);
        for token in 0..n {
            dscores.row_mut(token).copy_from_slice(&softmax_backward(weights.row(token), dweights.row(token)));
        }
        let scaled = |m: Matrix| m.map(|x| x / (width as f64).sqrt());
        dq.add_to_columns(part.start, &scaled(precision.linear_dx(&dscores, &pass.k.columns(part.clone()))));
        dk.add_to_columns(part.start, &scaled(precision.linear_dw(&dscores, &pass.q.columns(part))));
    }
    let mut dx = dresidual;
    for (d, w) in [(&dq, &w.wq), (&dk, &w.wk), (&dv, &w.wv)] {
        dx.add(&precision.linear_dx(d, w));
    }
    let into = |d: &Matrix| precision.linear_dw(d, &pass.x);
    BlockGradients { dx, dgain, dw: Weights { wq: into(&dq), wk: into(&dk), wv: into(&dv), wo: dwo } }
}

/// Adds the gradients of the attention's parameters to `grads`, given the gradient `[B, 64]` of its output.
pub fn backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    pass: &AttentionPass,
    doutput: &Matrix,
    grads: &mut Tensors,
) {
    let (over_bars, over_channels) = (Weights::of(p, "bars"), Weights::of(p, "channels"));
    let mut dembedded = Matrix::zeros(pass.bars.n_rows, s.attention);
    for (i, (first, second)) in pass.blocks.iter().enumerate() {
        let dy = Matrix::from_fn(s.attention, s.window, |channel, _| doutput[(i, channel)] / s.window as f64);
        let channels = block_backward(precision, &over_channels, p.slice("attention.channels.gain"), second, &dy);
        add_block(grads, "channels", &channels);
        let dx = channels.dx.transposed();
        let bars = block_backward(precision, &over_bars, p.slice("attention.bars.gain"), first, &dx);
        add_block(grads, "bars", &bars);
        for bar in 0..s.window {
            dembedded.row_mut(i * s.window + bar).copy_from_slice(bars.dx.row(bar));
        }
    }
    grads.add("attention.embed.weight", &precision.linear_dw(&dembedded, &pass.bars).values);
    grads.add("attention.embed.bias", &dembedded.sum_of_rows());
}

fn add_block(grads: &mut Tensors, block: &str, from: &BlockGradients) {
    for (name, dw) in [("wq", &from.dw.wq), ("wk", &from.dw.wk), ("wv", &from.dw.wv), ("wo", &from.dw.wo)] {
        grads.add(&format!("attention.{block}.{name}"), &dw.values);
    }
    grads.add(&format!("attention.{block}.gain"), &from.dgain);
}
