//! The backward pass. Every gradient of a bias, a gain and FiLM comes from the kernels, through one matrix of partial sums and one
//! last stage; those of matrices are products on the host.

use std::ops::Range;

use gpu_kernels::columns::{
    ColumnShape, NO_TARGET, column_partials_operands, column_partials_shape, column_sums, column_sums_shape,
    n_column_partials,
};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::backward::{
    entry_backward, entry_partials, norm_backward, norm_gain_partials, residual_backward,
};
use gpu_kernels::trunk::film::{film_backward, film_backward_shape};
use host::device::{Buffer, Part};
use onegraph_tests::Failed;
use onegraph_tests::lab::Lab;
use reference::activation::silu_slope;
use reference::config::BRANCH_NAMES;
use reference::layout::Tensors;
use reference::matrix::Matrix;

use super::super::super::support::{encoded, matrix, narrow, of_reference, poisoned_operands, wide};
use super::{Forward, HEADS, Network};

/// Columns of a head's outputs: a multiple of 16.
fn padded(n: usize) -> usize {
    n.div_ceil(16) * 16
}

pub struct Backward<'a> {
    net: &'a Network,
    f: &'a Forward,
    lab: &'a Lab<'a>,
    lanes: u32,
    gradients: Tensors,
    partials: Buffer<f32>,
    /// Where each column of the partial sums goes in the flat gradient.
    targets: Vec<u32>,
    /// First free column.
    next: usize,
}

impl<'a> Backward<'a> {
    pub fn new(net: &'a Network, f: &'a Forward, lab: &'a Lab<'a>, lanes: u32) -> Result<Self, Failed> {
        let s = &net.sizes;
        let outputs: usize = net.dheads().iter().map(|d| padded(d.n_cols)).sum();
        // Of each block b2, b1 and the gain; of the entry b, gain, g and s; of the heads both layers' biases.
        let n_columns = 10 * s.hidden + 5 * s.branch_hidden + outputs;
        let partials = lab.poisoned(n_column_partials(net.n_rows()) * n_columns)?;
        let gradients = Tensors::zeros(&net.parameters.layout);
        Ok(Self { net, f, lab, lanes, gradients, partials, targets: vec![NO_TARGET; n_columns], next: 0 })
    }

    /// The gradients, and that of u.
    pub fn run(mut self) -> Result<(Tensors, Matrix), Failed> {
        let d_in = self.heads()?;
        let dh = self.selection(&d_in)?;
        for block in [1, 0] {
            self.block(block, &dh)?;
        }
        let du = self.entry(&dh)?;
        let (targets, out) = (self.lab.upload(&self.targets)?, self.lab.poisoned(self.gradients.flat.len())?);
        let launch = column_sums::launch(self.partials.view(), targets.view(), out.view_mut());
        self.lab.run(column_sums_shape(self.targets.len()), launch)?;
        let sums = out.read()?;
        for &target in self.targets.iter().filter(|target| **target != NO_TARGET) {
            self.gradients.flat[target as usize] = f64::from(sums[target as usize]);
        }
        Ok((self.gradients, du))
    }

    /// Takes the next columns for the tensors, one after another.
    fn columns(&mut self, names: &[&str]) -> usize {
        let first = self.next;
        for name in names {
            let range = self.gradients.layout.tensor(name).range();
            self.take(range);
        }
        first
    }

    fn take(&mut self, elements: Range<usize>) {
        for element in elements {
            self.targets[self.next] = element as u32;
            self.next += 1;
        }
    }

    /// The partial sums from a column on.
    fn from(&self, column: usize) -> Part<'_, f32> {
        self.partials.slice(column..self.partials.len())
    }

    fn stride(&self) -> u32 {
        self.targets.len() as u32
    }

    /// Partial sums of operands from column `first`.
    fn sum_operands(&self, d: &[u16], first: usize, n_columns: usize, n_groups: usize) -> Result<(), Failed> {
        let n_rows = self.net.n_rows();
        let shape = ColumnShape {
            n_groups: n_groups as u32,
            group_stride: (n_rows * n_columns) as u32,
            partial_stride: self.stride(),
            ..ColumnShape::dense(n_rows, n_columns)
        };
        let (d, into) = (self.lab.upload(d)?, self.from(first));
        let launch = column_partials_operands::launch(d.view(), into.view_mut(), shape, self.net.precision);
        Ok(self.lab.run(column_partials_shape(n_rows, n_columns * n_groups), launch)?)
    }

    fn add(&mut self, name: &str, d: &Matrix, scale: f64) {
        self.gradients.add(name, &d.map(|d| d * scale).values);
    }

    /// Gradients of the heads' layers; that of each head's input, in f32, one after another.
    fn heads(&mut self) -> Result<Vec<f32>, Failed> {
        let (net, precision) = (self.net, of_reference(self.net.precision));
        let (n_rows, dheads) = (net.n_rows(), net.dheads());
        let stride: usize = dheads.iter().map(|d| padded(d.n_cols)).sum();
        let mut heads = Matrix::zeros(n_rows, stride);
        let (mut column, first) = (0, self.next);
        for (head, d) in HEADS.iter().zip(&dheads) {
            heads.add_to_columns(column, d);
            let range = self.gradients.layout.tensor(&format!("branch.{head}.out.bias")).range();
            self.take(range);
            column += padded(d.n_cols);
            self.next = first + column;
        }
        self.sum_operands(&encoded(&narrow(&heads.values), net.precision), first, stride, 1)?;

        let (mut dpre_all, mut d_in) = (vec![], vec![]);
        for (i, (head, d)) in HEADS.iter().zip(&dheads).enumerate() {
            let name = |part: &str| format!("branch.{head}.{part}");
            let d = net.rounded(d);
            self.add(&name("out.weight"), &precision.linear_dw(&d, &self.f.head_hidden[i]), 1.0);
            let dhidden = precision.linear_dx(&d, &net.parameters.matrix(&name("out.weight")));
            let dpre = narrow(&dhidden.zip(&self.f.head_pre[i], |d, x| d * silu_slope(x)).values);
            let dpre_words = encoded(&dpre, net.precision);
            let dpre = net.operands(&dpre_words, net.sizes.branch_hidden);
            self.add(&name("hidden.weight"), &precision.linear_dw(&dpre, &self.f.branch_in[i]), 1.0);
            let dx = precision.linear_dx(&dpre, &net.parameters.matrix(&name("hidden.weight")));
            d_in.extend(narrow(&dx.values));
            dpre_all.extend(dpre_words);
        }
        let names = HEADS.map(|head| format!("branch.{head}.hidden.bias"));
        let first = self.columns(&names.each_ref().map(String::as_str));
        self.sum_operands(&dpre_all, first, net.sizes.branch_hidden, 5)?;
        Ok(d_in)
    }

    /// Gradient of the last h.
    fn selection(&mut self, d_in: &[f32]) -> Result<Buffer<f32>, Failed> {
        let (net, precision) = (self.net, of_reference(self.net.precision));
        let (dh, dlogits) = net.select_backward(self.f, d_in, self.lab, self.lanes)?;
        let dw = precision.linear_dw(&dlogits, &self.f.branch_in[0]);
        for (b, name) in BRANCH_NAMES.iter().enumerate() {
            self.add(&format!("branch.gate.{name}.weight"), &dw.rows(b * 8..(b + 1) * 8), 1.0);
        }
        let mut sum = matrix(&dh.read()?, net.sizes.hidden);
        sum.add(&precision.linear_dx(&dlogits, &net.gate_weights()));
        dh.write(&narrow(&sum.values))?;
        Ok(dh)
    }

    /// From the gradient of a block's output to that of its input, in place.
    fn block(&mut self, block: usize, dh: &Buffer<f32>) -> Result<(), Failed> {
        let (net, lab, precision) = (self.net, self.lab, of_reference(self.net.precision));
        let (width, n_rows) = (net.sizes.hidden, net.n_rows());
        let name = |part: &str| format!("trunk.block{block}.{part}");
        let columns = column_partials_shape(n_rows, width);
        let dz = poisoned_operands(lab, n_rows * width, net.precision)?;
        let (scalars, first) = (net.scalars(lab)?, self.columns(&[&name("b2")]));
        let launch = residual_backward::launch(
            dh.view(),
            scalars.view(),
            dz.view_mut(),
            self.from(first).view_mut(),
            width as u32,
            self.stride(),
            block as u32,
            net.precision,
        );
        lab.run(columns, launch)?;
        let dz = net.operands(&dz.read()?, width);
        let (scale1, scale2) = (net.scales[1 + 2 * block], net.scales[2 + 2 * block]);
        self.add(&name("w2"), &precision.linear_dw(&dz, &self.f.hidden[block]), scale2);
        let ds = precision.linear_dx(&dz, &net.scaled(&name("w2"), 2 + 2 * block));
        let dpre = encoded(&narrow(&ds.zip(&self.f.pre1[block], |d, x| d * silu_slope(x)).values), net.precision);
        let first = self.columns(&[&name("b1")]);
        self.sum_operands(&dpre, first, width, 1)?;
        let dpre = net.operands(&dpre, width);
        self.add(&name("w1"), &precision.linear_dw(&dpre, &self.f.normed[block]), scale1);
        let dn = precision.linear_dx(&dpre, &net.scaled(&name("w1"), 1 + 2 * block));

        let (dn, gain) = (lab.upload(&narrow(&dn.values))?, net.upload(lab, &name("gain"))?);
        let inverse_rms = lab.poisoned(n_rows)?;
        let h = &self.f.h[block];
        let launch = norm_backward::launch(h.view(), gain.view(), dn.view(), dh.view_mut(), inverse_rms.view_mut());
        lab.run(row_shape(n_rows, self.lanes), launch)?;
        let first = self.columns(&[&name("gain")]);
        let launch = norm_gain_partials::launch(
            self.f.h[block].view(),
            dn.view(),
            inverse_rms.view(),
            self.from(first).view_mut(),
            width as u32,
            self.stride(),
        );
        Ok(lab.run(columns, launch)?)
    }

    /// Gradient of u.
    fn entry(&mut self, dh: &Buffer<f32>) -> Result<Matrix, Failed> {
        let (net, lab, precision) = (self.net, self.lab, of_reference(self.net.precision));
        let (width, n_rows) = (net.sizes.hidden, net.n_rows());
        let gain = net.upload(lab, "trunk.in.gain")?;
        let (dpre, row_terms) = (poisoned_operands(lab, n_rows * width, net.precision)?, lab.poisoned(2 * n_rows)?);
        let launch = entry_backward::launch(
            self.f.pre_in.view(),
            gain.view(),
            self.f.film.view(),
            dh.view(),
            dpre.view_mut(),
            row_terms.view_mut(),
            net.precision,
        );
        lab.run(row_shape(n_rows, self.lanes), launch)?;
        // The columns of g and s that follow have no target: FiLM's gradient is made from their partial sums.
        let first = self.columns(&["trunk.in.bias", "trunk.in.gain"]);
        let launch = entry_partials::launch(
            self.f.pre_in.view(),
            gain.view(),
            self.f.film.view(),
            dh.view(),
            row_terms.view(),
            self.from(first).view_mut(),
            self.stride(),
        );
        lab.run(column_partials_shape(n_rows, width), launch)?;
        let dweight = lab.poisoned(2 * width * 12)?;
        let sums = self.from(first + 2 * width);
        let launch = film_backward::launch(sums.view(), self.f.inputs.view(), dweight.view_mut(), self.stride());
        lab.run(film_backward_shape(width), launch)?;
        self.gradients.add("film.weight", &wide(&dweight.read()?));

        let dpre = net.operands(&dpre.read()?, width);
        let u = net.rounded(&matrix(&net.u, net.sizes.input().width));
        self.add("trunk.in.weight", &precision.linear_dw(&dpre, &u), net.scales[0]);
        Ok(precision.linear_dx(&dpre, &net.scaled("trunk.in.weight", 0)))
    }
}
