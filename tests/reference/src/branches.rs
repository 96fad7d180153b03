//! Branches (Tavakoli, Pardo, Kormushev 2018), dueling (Wang et al. 2016, equation 9), with per-branch variable selection.
//!
//! gate_b = softmax(W_g,b h) over groups; h_b = h * groups * gate_b, group by group; V from h, A_b from h_b, each with one hidden
//! SiLU layer; logits_{b,a} = V_b + A_{b,a} - mean_a A_{b,a}, atom by atom.

use crate::activation::{silu, silu_slope, softmax, softmax_backward};
use crate::config::{BRANCH_NAMES, BRANCH_SIZES, N_BRANCHES, Sizes};
use crate::layout::Tensors;
use crate::matrix::Matrix;
use crate::precision::Precision;

/// A hidden SiLU layer and a linear one, under a name: `branch.{name}.hidden`, `branch.{name}.out`.
#[derive(Clone, Debug)]
struct HeadPass {
    input: Matrix,
    pre: Matrix,
    hidden: Matrix,
    output: Matrix,
}

fn head_forward(precision: Precision, p: &Tensors, name: &str, input: &Matrix) -> HeadPass {
    let mut pre = precision.linear(input, &p.matrix(&format!("branch.{name}.hidden.weight")));
    pre.add_to_rows(p.slice(&format!("branch.{name}.hidden.bias")));
    let hidden = pre.map(silu);
    let mut output = precision.linear(&hidden, &p.matrix(&format!("branch.{name}.out.weight")));
    output.add_to_rows(p.slice(&format!("branch.{name}.out.bias")));
    HeadPass { input: input.clone(), pre, hidden, output }
}

/// Gradient of the head's input.
fn head_backward(
    precision: Precision,
    p: &Tensors,
    name: &str,
    pass: &HeadPass,
    doutput: &Matrix,
    grads: &mut Tensors,
) -> Matrix {
    let tensor = |part: &str| format!("branch.{name}.{part}");
    grads.add(&tensor("out.bias"), &doutput.sum_of_rows());
    grads.add(&tensor("out.weight"), &precision.linear_dw(doutput, &pass.hidden).values);
    let dhidden = precision.linear_dx(doutput, &p.matrix(&tensor("out.weight")));
    let dpre = dhidden.zip(&pass.pre, |d, x| d * silu_slope(x));
    grads.add(&tensor("hidden.bias"), &dpre.sum_of_rows());
    grads.add(&tensor("hidden.weight"), &precision.linear_dw(&dpre, &pass.input).values);
    precision.linear_dx(&dpre, &p.matrix(&tensor("hidden.weight")))
}

/// What the forward pass leaves for the backward one.
#[derive(Clone, Debug)]
pub struct BranchesPass {
    h: Matrix,
    /// Gates of each branch `[B, groups]`; empty with variable selection off.
    pub gates: Vec<Matrix>,
    value: HeadPass,
    advantages: Vec<HeadPass>,
    /// Logits of each branch `[B, n_b K]`, atom k of action a at a K + k.
    pub logits: Vec<Matrix>,
}

/// Runs the branches on h `[B, H]`.
pub fn forward(s: &Sizes, precision: Precision, p: &Tensors, h: &Matrix, selection: bool) -> BranchesPass {
    let value = head_forward(precision, p, "value", h);
    let mut gates = Vec::new();
    let mut advantages = Vec::new();
    let mut logits = Vec::new();
    for (b, name) in BRANCH_NAMES.into_iter().enumerate() {
        let mut selected = h.clone();
        if selection {
            let gate = gate(precision, p, name, h);
            selected = Matrix::from_fn(h.n_rows, s.hidden, |i, j| h[(i, j)] * group_factor(s, &gate, i, j));
            gates.push(gate);
        }
        let advantage = head_forward(precision, p, name, &selected);
        logits.push(dueling(s, b, &value.output, &advantage.output));
        advantages.push(advantage);
    }
    BranchesPass { h: h.clone(), gates, value, advantages, logits }
}

fn gate(precision: Precision, p: &Tensors, name: &str, h: &Matrix) -> Matrix {
    let mut gate = precision.linear(h, &p.matrix(&format!("branch.gate.{name}.weight")));
    for i in 0..gate.n_rows {
        let row = softmax(gate.row(i));
        gate.row_mut(i).copy_from_slice(&row);
    }
    gate
}

/// groups * gate of the group that column j of h lies in: group g is h[g H / groups .. (g + 1) H / groups].
fn group_factor(s: &Sizes, gate: &Matrix, i: usize, j: usize) -> f64 {
    s.groups as f64 * gate[(i, j * s.groups / s.hidden)]
}

/// V_b + A_{b,a} - mean_a A_{b,a}. Shapes: value `[B, 4K]`, V_b at bK + k; advantage `[B, n_b K]`.
fn dueling(s: &Sizes, b: usize, value: &Matrix, advantage: &Matrix) -> Matrix {
    let (k, n) = (s.atoms, BRANCH_SIZES[b]);
    Matrix::from_fn(value.n_rows, n * k, |i, j| {
        let atom = j % k;
        let mean = (0..n).map(|a| advantage[(i, a * k + atom)]).sum::<f64>() / n as f64;
        value[(i, b * k + atom)] + advantage[(i, j)] - mean
    })
}

/// Adds the gradients of the branches' parameters to `grads`, given those of the logits; returns the gradient of h.
pub fn backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    pass: &BranchesPass,
    dlogits: &[Matrix],
    grads: &mut Tensors,
) -> Matrix {
    let (k, n_batch) = (s.atoms, pass.h.n_rows);
    let mut dvalue = Matrix::zeros(n_batch, N_BRANCHES * k);
    let mut dh = Matrix::zeros(n_batch, s.hidden);
    for (b, name) in BRANCH_NAMES.into_iter().enumerate() {
        let (d, n) = (&dlogits[b], BRANCH_SIZES[b]);
        let over_actions = |i: usize, atom: usize| (0..n).map(|a| d[(i, a * k + atom)]).sum::<f64>();
        for i in 0..n_batch {
            for atom in 0..k {
                dvalue[(i, b * k + atom)] += over_actions(i, atom);
            }
        }
        let dadvantage = Matrix::from_fn(n_batch, n * k, |i, j| d[(i, j)] - over_actions(i, j % k) / n as f64);
        let dselected = head_backward(precision, p, name, &pass.advantages[b], &dadvantage, grads);
        if pass.gates.is_empty() {
            dh.add(&dselected);
        } else {
            dh.add(&selection_backward(s, precision, p, (name, &pass.gates[b]), &pass.h, &dselected, grads));
        }
    }
    dh.add(&head_backward(precision, p, "value", &pass.value, &dvalue, grads));
    dh
}

/// Gradient of h through h_b: directly, and through the gate.
fn selection_backward(
    s: &Sizes,
    precision: Precision,
    p: &Tensors,
    (name, gate): (&str, &Matrix),
    h: &Matrix,
    dselected: &Matrix,
    grads: &mut Tensors,
) -> Matrix {
    let mut dscores = Matrix::zeros(h.n_rows, s.groups);
    for i in 0..h.n_rows {
        let mut dgate = vec![0.0; s.groups];
        for j in 0..s.hidden {
            dgate[j * s.groups / s.hidden] += s.groups as f64 * dselected[(i, j)] * h[(i, j)];
        }
        dscores.row_mut(i).copy_from_slice(&softmax_backward(gate.row(i), &dgate));
    }
    let weight = format!("branch.gate.{name}.weight");
    grads.add(&weight, &precision.linear_dw(&dscores, h).values);
    let mut dh = precision.linear_dx(&dscores, &p.matrix(&weight));
    for i in 0..h.n_rows {
        for j in 0..s.hidden {
            dh[(i, j)] += dselected[(i, j)] * group_factor(s, gate, i, j);
        }
    }
    dh
}
