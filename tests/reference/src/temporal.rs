//! The temporal block: one Mamba2 block (Dao and Gu 2024, arXiv:2405.21060, section 7) over the bars of the window.
//!
//! With e_t = W_e x_t + b_e and [z | x | B | C | dt_raw] = W_in e_t, a causal convolution and SiLU over (x, B, C):
//!   dt = softplus(dt_raw + dt_bias), a_t = exp(-exp(A_log) dt), S_t = a_t S_{t-1} + dt x_t B_t^T, y_t = S_t C_t + D x_t,
//! per head; B and C are shared by the heads. Output: W_out RMSNorm(y SiLU(z)) of the last bar (norm after the gate, as in
//! the paper's `norm_before_gate = False`). No residual.

use crate::activation::{sigmoid, silu, silu_slope, softplus};
use crate::config::Sizes;
use crate::layout::Tensors;
use crate::matrix::{Matrix, dot};
use crate::norm::{rms_norm, rms_norm_backward};
use crate::precision::Precision;

/// What the forward pass leaves for the backward one. B = rows, T = bars; bar t of row i is row i T + t.
#[derive(Clone, Debug)]
pub struct TemporalPass {
    bars: Matrix,
    embedded: Matrix,
    projected: Matrix,
    conv: Matrix,
    activated: Matrix,
    steps: Vec<ScanStep>,
    /// y of the last bar `[B, 128]`, D x included.
    pub scanned: Matrix,
    gated: Matrix,
    normed: Matrix,
    /// Output `[B, 64]`.
    pub output: Matrix,
}

/// One bar of one head.
#[derive(Clone, Debug)]
struct ScanStep {
    dt: f64,
    decay: f64,
    /// State before the bar `[head width, state]`.
    before: Matrix,
}

/// Where the parts of in_proj's output begin; z begins at 0.
struct Columns {
    conv: usize,
    dt: usize,
}

fn columns(s: &Sizes) -> Columns {
    Columns { conv: s.scan_inner(), dt: s.scan_inner() + s.conv_channels() }
}

/// Runs the block. `bars` `[B T, F]`, oldest bar of a row first.
pub fn forward(s: &Sizes, precision: Precision, p: &Tensors, bars: &Matrix) -> TemporalPass {
    let (n_batch, last) = (bars.n_rows / s.window, s.window - 1);
    let mut embedded = precision.linear(bars, &p.matrix("temporal.embed.weight"));
    embedded.add_to_rows(p.slice("temporal.embed.bias"));
    let projected = precision.linear(&embedded, &p.matrix("temporal.in_proj.weight"));
    let conv = convolved(s, p, &projected);
    let activated = conv.map(silu);
    let mut steps = Vec::with_capacity(n_batch * s.scan_heads * s.window);
    let mut scanned = Matrix::zeros(n_batch, s.scan_inner());
    let (a_log, dt_bias, skip) = (p.slice("temporal.a_log"), p.slice("temporal.dt_bias"), p.slice("temporal.d"));
    for i in 0..n_batch {
        for head in 0..s.scan_heads {
            let mut state = Matrix::zeros(s.scan_head_width, s.scan_state);
            for bar in i * s.window..(i + 1) * s.window {
                let dt = softplus(projected[(bar, columns(s).dt + head)] + dt_bias[head]);
                let decay = (-a_log[head].exp() * dt).exp();
                steps.push(ScanStep { dt, decay, before: state.clone() });
                let (x, b, _) = scan_inputs(s, &activated, bar, head);
                state = Matrix::from_fn(x.len(), b.len(), |q, n| decay * state[(q, n)] + dt * x[q] * b[n]);
            }
            let (x, _, c) = scan_inputs(s, &activated, i * s.window + last, head);
            for q in 0..x.len() {
                scanned[(i, head * s.scan_head_width + q)] = dot(state.row(q), c) + skip[head] * x[q];
            }
        }
    }
    let gated =
        Matrix::from_fn(n_batch, s.scan_inner(), |i, j| scanned[(i, j)] * silu(projected[(i * s.window + last, j)]));
    let normed = rms_norm(&gated, p.slice("temporal.norm.gain"));
    let output = precision.linear(&normed, &p.matrix("temporal.out_proj.weight"));
    TemporalPass { bars: bars.clone(), embedded, projected, conv, activated, steps, scanned, gated, normed, output }
}

/// conv_t[c] = bias[c] + sum_j w[c, j] in_{t-3+j}`[c]`, zeros before the window: the last tap lies on the present bar.
fn convolved(s: &Sizes, p: &Tensors, projected: &Matrix) -> Matrix {
    let (w, bias) = (p.matrix("temporal.conv.weight"), p.slice("temporal.conv.bias"));
    Matrix::from_fn(projected.n_rows, s.conv_channels(), |bar, c| {
        bias[c] + taps(s, bar).map(|(tap, from)| w[(c, tap)] * projected[(from, columns(s).conv + c)]).sum::<f64>()
    })
}

/// The taps that fall inside the window of row `bar`, each with the row it reads.
fn taps(s: &Sizes, bar: usize) -> impl Iterator<Item = (usize, usize)> {
    let (n_taps, first) = (s.conv_taps, bar - bar % s.window);
    (0..n_taps).filter_map(move |tap| {
        let back = n_taps - 1 - tap;
        (bar >= first + back).then(|| (tap, bar - back))
    })
}

/// x of a head, B and C of a bar.
fn scan_inputs<'a>(s: &Sizes, activated: &'a Matrix, bar: usize, head: usize) -> (&'a [f64], &'a [f64], &'a [f64]) {
    let row = activated.row(bar);
    let (x, bc) = row.split_at(s.scan_inner());
    let (b, c) = bc.split_at(s.scan_state);
    (&x[head * s.scan_head_width..(head + 1) * s.scan_head_width], b, c)
}

/// Adds the gradients of the block's parameters to `grads`, given the gradient `[B, 64]` of its output.
pub fn backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    pass: &TemporalPass,
    doutput: &Matrix,
    grads: &mut Tensors,
) {
    let (n_batch, last) = (doutput.n_rows, s.window - 1);
    let w_out = p.matrix("temporal.out_proj.weight");
    grads.add("temporal.out_proj.weight", &precision.linear_dw(doutput, &pass.normed).values);
    let dnormed = precision.linear_dx(doutput, &w_out);
    let (dgated, dgain) = rms_norm_backward(&pass.gated, p.slice("temporal.norm.gain"), &dnormed);
    grads.add("temporal.norm.gain", &dgain);

    let mut dprojected = Matrix::zeros(pass.projected.n_rows, pass.projected.n_cols);
    let mut dactivated = Matrix::zeros(pass.activated.n_rows, pass.activated.n_cols);
    for i in 0..n_batch {
        let bar = i * s.window + last;
        let dscanned: Vec<f64> = (0..s.scan_inner()).map(|j| dgated[(i, j)] * silu(pass.projected[(bar, j)])).collect();
        for j in 0..s.scan_inner() {
            dprojected[(bar, j)] += dgated[(i, j)] * pass.scanned[(i, j)] * silu_slope(pass.projected[(bar, j)]);
        }
        for head in 0..s.scan_heads {
            let dy = &dscanned[head * s.scan_head_width..(head + 1) * s.scan_head_width];
            scan_backward(s, p, pass, (i, head), dy, &mut dactivated, &mut dprojected, grads);
        }
    }
    conv_backward(s, p, pass, &dactivated, &mut dprojected, grads);
    grads.add("temporal.in_proj.weight", &precision.linear_dw(&dprojected, &pass.embedded).values);
    let dembedded = precision.linear_dx(&dprojected, &p.matrix("temporal.in_proj.weight"));
    grads.add("temporal.embed.weight", &precision.linear_dw(&dembedded, &pass.bars).values);
    grads.add("temporal.embed.bias", &dembedded.sum_of_rows());
}

/// One head of one row, from the last bar to the first. `dy` is the gradient of the last bar's y.
#[expect(clippy::too_many_arguments, reason = "two results and the pass they come from, all by name")]
fn scan_backward(
    s: &Sizes,
    p: &Tensors,
    pass: &TemporalPass,
    (i, head): (usize, usize),
    dy: &[f64],
    dactivated: &mut Matrix,
    dprojected: &mut Matrix,
    grads: &mut Tensors,
) {
    let (x_first, b_first) = (head * s.scan_head_width, s.scan_inner());
    let c_first = b_first + s.scan_state;
    let (rate, skip) = (p.slice("temporal.a_log")[head].exp(), p.slice("temporal.d")[head]);
    let step_at = |t: usize| &pass.steps[(i * s.scan_heads + head) * s.window + t];

    let last_bar = (i + 1) * s.window - 1;
    let (x, b, c) = scan_inputs(s, &pass.activated, last_bar, head);
    let step = step_at(s.window - 1);
    let after = |q: usize, n: usize| step.decay * step.before[(q, n)] + step.dt * x[q] * b[n];
    for q in 0..dy.len() {
        grads.slice_mut("temporal.d")[head] += dy[q] * x[q];
        dactivated[(last_bar, x_first + q)] += dy[q] * skip;
        for n in 0..c.len() {
            dactivated[(last_bar, c_first + n)] += dy[q] * after(q, n);
        }
    }

    let mut dstate = Matrix::from_fn(dy.len(), c.len(), |q, n| dy[q] * c[n]);
    for t in (0..s.window).rev() {
        let (bar, step) = (i * s.window + t, step_at(t));
        let (x, b, _) = scan_inputs(s, &pass.activated, bar, head);
        let (mut ddecay, mut ddt) = (0.0, 0.0);
        for q in 0..x.len() {
            for n in 0..b.len() {
                let d = dstate[(q, n)];
                ddecay += d * step.before[(q, n)];
                ddt += d * x[q] * b[n];
                dactivated[(bar, x_first + q)] += d * step.dt * b[n];
                dactivated[(bar, b_first + n)] += d * step.dt * x[q];
            }
        }
        ddt += ddecay * step.decay * -rate;
        grads.slice_mut("temporal.a_log")[head] += ddecay * step.decay * -rate * step.dt;
        let column = columns(s).dt + head;
        let draw = ddt * sigmoid(pass.projected[(bar, column)] + p.slice("temporal.dt_bias")[head]);
        grads.slice_mut("temporal.dt_bias")[head] += draw;
        dprojected[(bar, column)] += draw;
        dstate = dstate.map(|d| d * step.decay);
    }
}

fn conv_backward(
    s: &Sizes,
    p: &Tensors,
    pass: &TemporalPass,
    dactivated: &Matrix,
    dprojected: &mut Matrix,
    grads: &mut Tensors,
) {
    let w = p.matrix("temporal.conv.weight");
    let dconv = dactivated.zip(&pass.conv, |d, x| d * silu_slope(x));
    let mut dw = Matrix::zeros(w.n_rows, w.n_cols);
    for bar in 0..dconv.n_rows {
        for (tap, from) in taps(s, bar) {
            for c in 0..dconv.n_cols {
                dw[(c, tap)] += dconv[(bar, c)] * pass.projected[(from, columns(s).conv + c)];
                dprojected[(from, columns(s).conv + c)] += dconv[(bar, c)] * w[(c, tap)];
            }
        }
    }
    grads.add("temporal.conv.weight", &dw.values);
    grads.add("temporal.conv.bias", &dconv.sum_of_rows());
}
