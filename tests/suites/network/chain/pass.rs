//! A pass of the kernels, products in f64 between them.

mod back;

use gpu_kernels::branches::{branch_select, branch_select_backward};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::film::{film_vector, film_vector_shape};
use gpu_kernels::trunk::forward::{residual_norm, residual_out, residual_out_shape, trunk_entry};
use host::device::Buffer;
use onegraph_tests::Failed;
use onegraph_tests::lab::Lab;
use reference::activation::silu;
use reference::config::{BRANCH_NAMES, BRANCH_SIZES, Sizes};
use reference::layout::Tensors;
use reference::matrix::Matrix;
use shared_types::{Precision, StepScalars};

use self::back::Backward;
use super::super::support::{decoded, encoded, matrix, narrow, of_reference, poisoned_operands};

/// Names of the heads, V first.
pub const HEADS: [&str; 5] = ["value", BRANCH_NAMES[0], BRANCH_NAMES[1], BRANCH_NAMES[2], BRANCH_NAMES[3]];

/// Parameters and inputs.
pub struct Network {
    pub sizes: Sizes,
    pub precision: Precision,
    pub parameters: Tensors,
    pub bus: Vec<f32>,
    pub depth: [f32; 2],
    /// Of the trunk's matrices.
    pub scales: Vec<f64>,
    pub u: Vec<f32>,
    pub dlogits: [Vec<f32>; 4],
    /// What else reaches the gradient of h.
    pub extra: Vec<f32>,
}

/// What a pass gives.
pub struct Pass {
    pub logits: Vec<Matrix>,
    pub gradients: Tensors,
    pub du: Matrix,
}

/// What the forward pass leaves on the device and on the host for the backward one.
pub struct Forward {
    pub pre_in: Buffer<f32>,
    pub film: Buffer<f32>,
    pub inputs: Buffer<f32>,
    /// Stream before each block, and the last.
    pub h: Vec<Buffer<f32>>,
    /// Operands and pre-activations of each block.
    pub normed: Vec<Matrix>,
    pub pre1: Vec<Matrix>,
    pub hidden: Vec<Matrix>,
    pub gates: Buffer<f32>,
    /// Operands of the heads.
    pub branch_in: Vec<Matrix>,
    pub head_pre: Vec<Matrix>,
    pub head_hidden: Vec<Matrix>,
}

impl Network {
    pub fn n_rows(&self) -> usize {
        self.u.len() / self.sizes.input().width
    }

    /// A trunk matrix as products take it, unrounded.
    pub fn scaled(&self, name: &str, index: usize) -> Matrix {
        self.parameters.matrix(name).map(|w| w * self.scales[index])
    }

    /// A parameter on the device.
    pub fn upload(&self, lab: &Lab, name: &str) -> Result<Buffer<f32>, Failed> {
        Ok(lab.upload(&narrow(self.parameters.slice(name)))?)
    }

    /// x W^T + b, in f32.
    fn linear(&self, x: &Matrix, w: &Matrix, bias: Option<&str>) -> Matrix {
        let mut y = of_reference(self.precision).linear(x, w);
        if let Some(bias) = bias {
            y.add_to_rows(self.parameters.slice(bias));
        }
        y.map(|y| f64::from(y as f32))
    }

    /// Operands as a matrix.
    pub fn operands(&self, words: &[u16], n_cols: usize) -> Matrix {
        matrix(&decoded(words, self.precision), n_cols)
    }

    /// Values as operands, rounded from f32.
    pub fn rounded(&self, values: &Matrix) -> Matrix {
        self.operands(&encoded(&narrow(&values.values), self.precision), values.n_cols)
    }

    pub fn scalars(&self, lab: &Lab) -> Result<Buffer<StepScalars>, Failed> {
        Ok(lab.upload(&[StepScalars { depth_mask: self.depth, ..StepScalars::default() }])?)
    }

    /// Forwards and backwards.
    pub fn run(&self, lab: &Lab, lanes: u32) -> Result<Pass, Failed> {
        let forward = self.forward(lab, lanes)?;
        let logits = self.logits(&forward);
        let (gradients, du) = Backward::new(self, &forward, lab, lanes)?.run()?;
        Ok(Pass { logits, gradients, du })
    }

    fn forward(&self, lab: &Lab, lanes: u32) -> Result<Forward, Failed> {
        let (s, precision, n_rows) = (&self.sizes, self.precision, self.n_rows());
        let (width, n) = (s.hidden, n_rows * s.hidden);
        let rows = row_shape(n_rows, lanes);
        let u = self.rounded(&matrix(&self.u, s.input().width));
        let pre_in = self.linear(&u, &self.scaled("trunk.in.weight", 0), Some("trunk.in.bias"));
        let pre_in = lab.upload(&narrow(&pre_in.values))?;
        let (film, inputs) = (lab.poisoned(2 * width)?, lab.poisoned(12)?);
        let (weight, bus) = (self.upload(lab, "film.weight")?, lab.upload(&self.bus)?);
        let launch = film_vector::launch(weight.view(), bus.view(), film.view_mut(), inputs.view_mut(), 1);
        lab.run(film_vector_shape(width), launch)?;

        let (gain, next_gain) = (self.upload(lab, "trunk.in.gain")?, self.upload(lab, "trunk.block0.gain")?);
        let (h0, n0) = (lab.poisoned(n)?, poisoned_operands(lab, n, precision)?);
        let launch = trunk_entry::launch(
            pre_in.view(),
            gain.view(),
            film.view(),
            next_gain.view(),
            h0.view_mut(),
            n0.view_mut(),
            precision,
        );
        lab.run(rows, launch)?;

        let scalars = self.scalars(lab)?;
        let (mut h, mut normed) = (vec![h0], vec![self.operands(&n0.read()?, width)]);
        let (mut pre1, mut hidden) = (vec![], vec![]);
        let branch_in = poisoned_operands(lab, 5 * n, precision)?;
        let slot0 = branch_in.slice(0..n * precision.words());
        for block in 0..2 {
            let name = |part: &str| format!("trunk.block{block}.{part}");
            pre1.push(self.linear(&normed[block], &self.scaled(&name("w1"), 1 + 2 * block), Some(&name("b1"))));
            hidden.push(self.rounded(&pre1[block].map(silu)));
            let z = self.linear(&hidden[block], &self.scaled(&name("w2"), 2 + 2 * block), Some(&name("b2")));
            let (z, next) = (lab.upload(&narrow(&z.values))?, lab.poisoned(n)?);
            if block == 0 {
                let (gain, n1) = (self.upload(lab, "trunk.block1.gain")?, poisoned_operands(lab, n, precision)?);
                let launch = residual_norm::launch(
                    h[0].view(),
                    z.view(),
                    scalars.view(),
                    gain.view(),
                    next.view_mut(),
                    n1.view_mut(),
                    0,
                    precision,
                );
                lab.run(rows, launch)?;
                normed.push(self.operands(&n1.read()?, width));
            } else {
                let launch = residual_out::launch(
                    h[1].view(),
                    z.view(),
                    scalars.view(),
                    next.view_mut(),
                    slot0.view_mut(),
                    1,
                    precision,
                );
                lab.run(residual_out_shape(n_rows, width), launch)?;
            }
            h.push(next);
        }

        let last = self.operands(&slot0.read()?, width);
        let logits = self.linear(&last, &self.gate_weights(), None);
        let (logits, gates) = (lab.upload(&narrow(&logits.values))?, lab.poisoned(n_rows * 32)?);
        let launch =
            branch_select::launch(h[2].view(), logits.view(), gates.view_mut(), branch_in.view_mut(), 1, precision);
        lab.run(rows, launch)?;
        let all = self.operands(&branch_in.read()?, width);
        let branch_in: Vec<Matrix> = (0..5).map(|head| all.rows(head * n_rows..(head + 1) * n_rows)).collect();
        let (mut head_pre, mut head_hidden) = (vec![], vec![]);
        for (head, x) in HEADS.iter().zip(&branch_in) {
            let w = self.parameters.matrix(&format!("branch.{head}.hidden.weight"));
            head_pre.push(self.linear(x, &w, Some(&format!("branch.{head}.hidden.bias"))));
            head_hidden.push(self.rounded(&head_pre[head_pre.len() - 1].map(silu)));
        }
        Ok(Forward { pre_in, film, inputs, h, normed, pre1, hidden, gates, branch_in, head_pre, head_hidden })
    }

    /// W_g of all branches `[32, H]`.
    pub fn gate_weights(&self) -> Matrix {
        let weights = BRANCH_NAMES.map(|name| self.parameters.matrix(&format!("branch.gate.{name}.weight")).values);
        Matrix::from_values(32, self.sizes.hidden, weights.concat())
    }

    /// V_b + A_{b,a} - mean_a A_{b,a}.
    fn logits(&self, forward: &Forward) -> Vec<Matrix> {
        let k = self.sizes.atoms;
        let outputs: Vec<Matrix> = HEADS
            .iter()
            .zip(&forward.head_hidden)
            .map(|(head, x)| {
                let w = self.parameters.matrix(&format!("branch.{head}.out.weight"));
                self.linear(x, &w, Some(&format!("branch.{head}.out.bias")))
            })
            .collect();
        BRANCH_SIZES
            .into_iter()
            .enumerate()
            .map(|(b, n)| {
                let (value, advantage) = (&outputs[0], &outputs[1 + b]);
                Matrix::from_fn(self.n_rows(), n * k, |i, j| {
                    let mean = (0..n).map(|a| advantage[(i, a * k + j % k)]).sum::<f64>() / n as f64;
                    value[(i, b * k + j % k)] + advantage[(i, j)] - mean
                })
            })
            .collect()
    }

    /// Gradients of the heads' outputs: of V the sum over actions, of A_b what is left of the mean.
    pub fn dheads(&self) -> Vec<Matrix> {
        let k = self.sizes.atoms;
        let d: Vec<Matrix> = self.dlogits.iter().zip(BRANCH_SIZES).map(|(d, n)| matrix(d, n * k)).collect();
        let total =
            |b: usize, i: usize, atom: usize| (0..BRANCH_SIZES[b]).map(|a| d[b][(i, a * k + atom)]).sum::<f64>();
        let value = Matrix::from_fn(self.n_rows(), 4 * k, |i, j| total(j / k, i, j % k));
        let advantages = BRANCH_SIZES
            .into_iter()
            .enumerate()
            .map(|(b, n)| Matrix::from_fn(self.n_rows(), n * k, |i, j| d[b][(i, j)] - total(b, i, j % k) / n as f64));
        std::iter::once(value).chain(advantages).collect()
    }

    /// Launches the selection's backward pass: (dh, operands of dgate_logits).
    pub fn select_backward(
        &self,
        f: &Forward,
        d_in: &[f32],
        lab: &Lab,
        lanes: u32,
    ) -> Result<(Buffer<f32>, Matrix), Failed> {
        let n_rows = self.n_rows();
        let (d_in, extra) = (lab.upload(d_in)?, lab.upload(&self.extra)?);
        let (dh, dlogits) = (lab.poisoned(self.extra.len())?, poisoned_operands(lab, n_rows * 32, self.precision)?);
        let launch = branch_select_backward::launch(
            f.h[2].view(),
            f.gates.view(),
            d_in.view(),
            extra.view(),
            dh.view_mut(),
            dlogits.view_mut(),
            1,
            self.precision,
        );
        lab.run(row_shape(n_rows, lanes), launch)?;
        Ok((dh, self.operands(&dlogits.read()?, 32)))
    }
}
