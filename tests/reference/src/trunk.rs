//! The trunk: h = SiLU(RMSNorm(W_in u + b)), FiLM by the internal state vector, residual blocks.
//!
//! FiLM (Perez et al. 2018): h (1 + g) + s with [g; s] = W_isv tanh(isv[0..12]). A block (He et al. 2016, pre-norm):
//! h + m_l (W2 SiLU(W1 RMSNorm(h) + b1) + b2), m_l being 0 or 1 in training passes and the keep probability elsewhere
//! (Huang et al. 2016, section 3).

use crate::activation::{silu, silu_slope};
use crate::config::{N_FILM_INPUTS, Sizes};
use crate::layout::Tensors;
use crate::matrix::{Matrix, dot};
use crate::norm::{rms_norm, rms_norm_backward};
use crate::precision::Precision;

/// What modulates a pass through the trunk and is constant in its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct TrunkContext {
    /// tanh of the transformed internal state vector, or `None` with FiLM off.
    pub film: Option<[f64; N_FILM_INPUTS]>,
    /// Factor on each trunk matrix, in the order of [`trunk_matrices`](crate::layout::trunk_matrices): 1 / max(1, sigma / sigma_max).
    pub scales: Vec<f64>,
    /// m_l of each block.
    pub depth: Vec<f64>,
}

/// Keep probability of block l of L (l = 1..): 1 - (l / L)(1 - last) (Huang et al. 2016, equation 4).
pub fn keep_probabilities(n_blocks: usize, last: f64) -> Vec<f64> {
    (1..=n_blocks).map(|l| 1.0 - l as f64 / n_blocks as f64 * (1.0 - last)).collect()
}

/// Masks from one uniform a block: 1 when the uniform lies under the keep probability.
pub fn depth_masks(uniforms: &[f64], keep: &[f64]) -> Vec<f64> {
    uniforms.iter().zip(keep).map(|(xi, keep)| if xi < keep { 1.0 } else { 0.0 }).collect()
}

/// The 12 inputs of FiLM: tanh of the entry, of ln(1 + entry) for the first two.
pub fn film_inputs(isv: &[f64]) -> [f64; N_FILM_INPUTS] {
    std::array::from_fn(|i| if i < 2 { isv[i].ln_1p().tanh() } else { isv[i].tanh() })
}

#[derive(Clone, Debug)]
struct BlockPass {
    input: Matrix,
    normed: Matrix,
    pre: Matrix,
    hidden: Matrix,
}

/// What the forward pass leaves for the backward one.
#[derive(Clone, Debug)]
pub struct TrunkPass {
    u: Matrix,
    pre: Matrix,
    normed: Matrix,
    /// SiLU(RMSNorm(W_in u + b)) `[B, H]`, before FiLM.
    pub entry: Matrix,
    gain: Vec<f64>,
    blocks: Vec<BlockPass>,
    /// h `[B, H]`.
    pub output: Matrix,
}

fn scaled(p: &Tensors, name: &str, scale: f64) -> Matrix {
    p.matrix(name).map(|w| w * scale)
}

/// Runs the trunk on u `[B, 200]`.
pub fn forward(s: &Sizes, precision: Precision, p: &Tensors, u: &Matrix, context: &TrunkContext) -> TrunkPass {
    let mut pre = precision.linear(u, &scaled(p, "trunk.in.weight", context.scales[0]));
    pre.add_to_rows(p.slice("trunk.in.bias"));
    let normed = rms_norm(&pre, p.slice("trunk.in.gain"));
    let entry = normed.map(silu);
    let (gain, shift) = film(s, p, context);
    let mut h = Matrix::from_fn(entry.n_rows, s.hidden, |i, j| entry[(i, j)] * (1.0 + gain[j]) + shift[j]);
    let mut blocks = Vec::with_capacity(s.blocks);
    for l in 0..s.blocks {
        let normed = rms_norm(&h, p.slice(&format!("trunk.block{l}.gain")));
        let mut pre = precision.linear(&normed, &scaled(p, &format!("trunk.block{l}.w1"), context.scales[1 + 2 * l]));
        pre.add_to_rows(p.slice(&format!("trunk.block{l}.b1")));
        let hidden = pre.map(silu);
        let mut added = precision.linear(&hidden, &scaled(p, &format!("trunk.block{l}.w2"), context.scales[2 + 2 * l]));
        added.add_to_rows(p.slice(&format!("trunk.block{l}.b2")));
        let output = h.zip(&added, |h, x| h + context.depth[l] * x);
        blocks.push(BlockPass { input: h, normed, pre, hidden });
        h = output;
    }
    TrunkPass { u: u.clone(), pre, normed, entry, gain, blocks, output: h }
}

/// g and s, all zero with FiLM off. In f32 in the kernels, so never rounded.
fn film(s: &Sizes, p: &Tensors, context: &TrunkContext) -> (Vec<f64>, Vec<f64>) {
    let Some(inputs) = &context.film else { return (vec![0.0; s.hidden], vec![0.0; s.hidden]) };
    let w = p.matrix("film.weight");
    let both: Vec<f64> = (0..w.n_rows).map(|i| dot(w.row(i), inputs)).collect();
    (both[..s.hidden].to_vec(), both[s.hidden..].to_vec())
}

/// Adds the gradients of the trunk's parameters to `grads`, given that of h `[B, H]`; returns the gradient of u `[B, 200]`.
pub fn backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    (pass, context): (&TrunkPass, &TrunkContext),
    doutput: &Matrix,
    grads: &mut Tensors,
) -> Matrix {
    let mut dh = doutput.clone();
    for l in (0..s.blocks).rev() {
        dh.add(&block_backward(precision, p, l, (&pass.blocks[l], context), &dh, grads));
    }
    if let Some(inputs) = &context.film {
        let dshift = dh.sum_of_rows();
        let dgain = dh.zip(&pass.entry, |d, x| d * x).sum_of_rows();
        let dw: Vec<f64> = dgain.iter().chain(&dshift).flat_map(|d| inputs.iter().map(move |x| d * x)).collect();
        grads.add("film.weight", &dw);
    }
    let dentry = Matrix::from_fn(dh.n_rows, s.hidden, |i, j| dh[(i, j)] * (1.0 + pass.gain[j]));
    let dnormed = dentry.zip(&pass.normed, |d, x| d * silu_slope(x));
    let (dpre, dgain) = rms_norm_backward(&pass.pre, p.slice("trunk.in.gain"), &dnormed);
    grads.add("trunk.in.gain", &dgain);
    grads.add("trunk.in.bias", &dpre.sum_of_rows());
    add_scaled(grads, "trunk.in.weight", &precision.linear_dw(&dpre, &pass.u), context.scales[0]);
    precision.linear_dx(&dpre, &scaled(p, "trunk.in.weight", context.scales[0]))
}

/// Gradient of a block's input through its residual part.
fn block_backward(
    precision: Precision,
    p: &Tensors,
    l: usize,
    (pass, context): (&BlockPass, &TrunkContext),
    doutput: &Matrix,
    grads: &mut Tensors,
) -> Matrix {
    let name = |part: &str| format!("trunk.block{l}.{part}");
    let (scale1, scale2) = (context.scales[1 + 2 * l], context.scales[2 + 2 * l]);
    let dadded = doutput.map(|d| d * context.depth[l]);
    grads.add(&name("b2"), &dadded.sum_of_rows());
    add_scaled(grads, &name("w2"), &precision.linear_dw(&dadded, &pass.hidden), scale2);
    let dhidden = precision.linear_dx(&dadded, &scaled(p, &name("w2"), scale2));
    let dpre = dhidden.zip(&pass.pre, |d, x| d * silu_slope(x));
    grads.add(&name("b1"), &dpre.sum_of_rows());
    add_scaled(grads, &name("w1"), &precision.linear_dw(&dpre, &pass.normed), scale1);
    let dnormed = precision.linear_dx(&dpre, &scaled(p, &name("w1"), scale1));
    let (dinput, dgain) = rms_norm_backward(&pass.input, p.slice(&name("gain")), &dnormed);
    grads.add(&name("gain"), &dgain);
    dinput
}

/// The factor is constant, so the master weight's gradient is the factor times the shadow's.
fn add_scaled(grads: &mut Tensors, name: &str, dshadow: &Matrix, scale: f64) {
    grads.add(name, &dshadow.map(|d| d * scale).values);
}
