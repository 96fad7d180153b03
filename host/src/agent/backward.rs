//! The backward pass: from the gradient of the heads' outputs to those of the trunk's and branches' parameters, and of the
//! temporal block's and the attention's outputs.

mod columns;

use std::sync::Arc;

use columns::Columns;

use gpu_kernels::branches::branch_select_backward;
use gpu_kernels::columns::{
    ColumnShape, column_partials_operands, column_partials_shape, column_sums, column_sums_shape,
};
use gpu_kernels::heads::HeadColumns;
use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::backward::{
    entry_backward, entry_partials, norm_backward, norm_gain_partials, residual_backward,
};
use gpu_kernels::trunk::film::{film_backward, film_backward_shape};
use shared_types::{Precision, Product, ProductForm, StepScalars};

use super::layout::{HEAD_NAMES, Layout, N_BLOCKS};
use super::weight_gradient::WeightGradient;
use super::{AttentionBackward, Learners, Parameters, Pass, Sizes, TemporalBackward, width};
use crate::device::{Buffer, Device, Matmul, Output};
use crate::error::DeviceError;
use crate::market::Step;

/// Gates of a row.
const N_GATES: usize = 4 * width::GROUPS;

/// Buffers and products of a backward pass over the rows of a [`Pass`].
pub struct Backward {
    /// Gradient by the heads' outputs, operand \[R, head stride\]; written by the loss.
    pub d_heads: Buffer<u16>,
    /// By the hidden layers before SiLU, operand \[5, R, M\].
    pub d_head_pre: Buffer<u16>,
    /// By each of the branches' inputs, \[5, R, H\].
    pub d_branch_in: Buffer<f32>,
    /// By the gates' logits, operand \[R, 32\].
    pub d_gate_logits: Buffer<u16>,
    /// By the stream h, \[R, H\], from the last block's end to FiLM's.
    pub d_h: Buffer<f32>,
    /// By W2 s + b2 of each block, operand \[R, H\].
    pub d_added: [Buffer<u16>; N_BLOCKS],
    /// By W1 n + b1 of each block, operand \[R, H\].
    pub d_pre: [Buffer<u16>; N_BLOCKS],
    /// By a block's normed input, \[R, H\].
    pub d_normed: Buffer<f32>,
    /// By W_in u + b, operand \[R, H\].
    pub d_pre_in: Buffer<u16>,
    /// Of the temporal block, unless off.
    pub temporal: Option<TemporalBackward>,
    /// Of the attention, unless off.
    pub attention: Option<AttentionBackward>,
    inverse_rms: Buffer<f32>,
    row_terms: Buffer<f32>,
    columns: Columns,
    inputs: InputProducts,
    weights: WeightProducts,
    none: Buffer<f32>,
    n_rows: usize,
    lanes: u32,
    sizes: Sizes,
    precision: Precision,
    selection_on: bool,
    layout: Arc<Layout>,
}

/// dx = dy W.
struct InputProducts {
    out: Matmul,
    hidden: Matmul,
    gates: Matmul,
    second: [Matmul; N_BLOCKS],
    first: [Matmul; N_BLOCKS],
}

/// dW = dy^T x.
struct WeightProducts {
    out: WeightGradient,
    hidden: WeightGradient,
    gates: WeightGradient,
    second: [WeightGradient; N_BLOCKS],
    first: [WeightGradient; N_BLOCKS],
    entry: WeightGradient,
}

/// Rows of dy `[rows, outputs]` and of a weight `[outputs, inputs]`: dx `[rows, inputs]`.
pub(super) fn to_input(n_rows: usize, [n_outputs, n_inputs]: [usize; 2], weight: usize) -> Product {
    Product {
        m: n_rows as u32,
        n: n_inputs as u32,
        k: n_outputs as u32,
        a_stride: n_outputs as u32,
        b: weight as u32,
        b_stride: n_inputs as u32,
        c_stride: n_inputs as u32,
        d_stride: n_inputs as u32,
        ..Product::default()
    }
}

/// [`to_input`] through W_in, of the `n_columns` columns of u from `column` on.
pub(super) fn to_block(n_rows: usize, layout: &Layout, column: usize, n_columns: usize) -> Product {
    let entry = layout.tensor("trunk.in.weight");
    Product {
        n: n_columns as u32,
        c_stride: n_columns as u32,
        d_stride: n_columns as u32,
        ..to_input(n_rows, [entry.shape[0], entry.shape[1]], entry.offset + column)
    }
}

/// dy `[rows, outputs]`, x `[rows, inputs]`: dW `[outputs, inputs]` at `weight` of the flat gradient.
pub(super) fn to_weight(n_rows: usize, [n_outputs, n_inputs]: [usize; 2], weight: usize) -> Product {
    Product {
        m: n_outputs as u32,
        n: n_inputs as u32,
        k: n_rows as u32,
        a_stride: n_outputs as u32,
        b_stride: n_inputs as u32,
        d: weight as u32,
        ..Product::default()
    }
}

impl InputProducts {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, sizes) = (&parameters.layout, parameters.sizes);
        let (h, m, heads) = (sizes.hidden, sizes.branch_hidden, HeadColumns::new(sizes.atoms));
        let at = |name: &str| layout.tensor(name).offset;
        let back = |list| Matmul::new(device, ProductForm::Nn, parameters.precision, list);
        let (mut out, mut hidden) = (Vec::new(), Vec::new());
        for (head, name) in HEAD_NAMES.into_iter().enumerate() {
            let (narrow, wide) = ((head * n_rows * m) as u32, (head * n_rows * h) as u32);
            let weight = layout.tensor(&format!("branch.{name}.out.weight"));
            out.push(Product {
                a: heads.start[head],
                a_stride: heads.stride,
                c: narrow,
                d: narrow,
                ..to_input(n_rows, [weight.shape[0], m], weight.offset)
            });
            let weight = at(&format!("branch.{name}.hidden.weight"));
            hidden.push(Product { a: narrow, c: wide, ..to_input(n_rows, [m, h], weight) });
        }
        let of_block = |block: usize, layer: usize| {
            back(vec![to_input(n_rows, [h, h], at(&format!("trunk.block{block}.w{layer}")))])
        };
        Ok(Self {
            out: back(out)?,
            hidden: back(hidden)?,
            gates: back(vec![to_input(n_rows, [N_GATES, h], at("branch.gate.direction.weight"))])?,
            second: [of_block(0, 2)?, of_block(1, 2)?],
            first: [of_block(0, 1)?, of_block(1, 1)?],
        })
    }
}

impl WeightProducts {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, sizes) = (&parameters.layout, parameters.sizes);
        let (h, m, heads) = (sizes.hidden, sizes.branch_hidden, HeadColumns::new(sizes.atoms));
        let at = |name: &str| layout.tensor(name).offset;
        let gradient = |list| WeightGradient::new(device, parameters.precision, list);
        let (mut out, mut hidden) = (Vec::new(), Vec::new());
        for (head, name) in HEAD_NAMES.into_iter().enumerate() {
            let (narrow, wide) = ((head * n_rows * m) as u32, (head * n_rows * h) as u32);
            let weight = layout.tensor(&format!("branch.{name}.out.weight"));
            out.push(Product {
                a: heads.start[head],
                a_stride: heads.stride,
                b: narrow,
                ..to_weight(n_rows, [weight.shape[0], m], weight.offset)
            });
            let weight = at(&format!("branch.{name}.hidden.weight"));
            hidden.push(Product { a: narrow, b: wide, ..to_weight(n_rows, [m, h], weight) });
        }
        let of_block = |block: usize, layer: usize| {
            gradient(vec![to_weight(n_rows, [h, h], at(&format!("trunk.block{block}.w{layer}")))])
        };
        Ok(Self {
            out: gradient(out)?,
            hidden: gradient(hidden)?,
            gates: gradient(vec![to_weight(n_rows, [N_GATES, h], at("branch.gate.direction.weight"))])?,
            second: [of_block(0, 2)?, of_block(1, 2)?],
            first: [of_block(0, 1)?, of_block(1, 1)?],
            entry: gradient(vec![to_weight(n_rows, [h, width::INPUT], at("trunk.in.weight"))])?,
        })
    }
}

impl Backward {
    /// Buffers for passes over `n_rows` rows.
    pub fn new(
        device: &Device,
        parameters: &Parameters,
        n_rows: usize,
        learners: &Learners,
    ) -> Result<Self, DeviceError> {
        let sizes = parameters.sizes;
        let (h, m, precision, n_heads) = (sizes.hidden, sizes.branch_hidden, parameters.precision, HEAD_NAMES.len());
        let floats = |width: usize| device.alloc_zeroed::<f32>(n_rows * width);
        let operands = |width: usize| device.alloc_zeroed::<u16>(n_rows * width * precision.words());
        let temporal = learners.temporal.then(|| TemporalBackward::new(device, parameters, n_rows));
        let attention = learners.attention.then(|| AttentionBackward::new(device, parameters, n_rows));
        Ok(Self {
            temporal: temporal.transpose()?,
            attention: attention.transpose()?,
            d_heads: operands(HeadColumns::new(sizes.atoms).stride as usize)?,
            d_head_pre: operands(n_heads * m)?,
            d_branch_in: floats(n_heads * h)?,
            d_gate_logits: operands(N_GATES)?,
            d_h: floats(h)?,
            d_added: [operands(h)?, operands(h)?],
            d_pre: [operands(h)?, operands(h)?],
            d_normed: floats(h)?,
            d_pre_in: operands(h)?,
            inverse_rms: floats(1)?,
            row_terms: floats(2)?,
            columns: Columns::new(device, parameters, n_rows)?,
            inputs: InputProducts::new(device, parameters, n_rows)?,
            weights: WeightProducts::new(device, parameters, n_rows)?,
            none: device.alloc(0)?,
            n_rows,
            lanes: device.row_lanes(),
            sizes,
            precision,
            selection_on: learners.selection,
            layout: parameters.layout.clone(),
        })
    }

    /// The launches of the backward pass behind `pass`, whose forward pass was run with `scalars` on the online weights.
    /// `factors` are those of the trunk's matrices' operands, in the order of the layout; `extra` \[R, H\], if any, is what other heads
    /// add to the gradient by the trunk's output.
    pub fn launches(
        &self,
        pass: &Pass,
        parameters: &Parameters,
        scalars: &Buffer<StepScalars>,
        factors: &Buffer<f32>,
        extra: Option<&Buffer<f32>>,
    ) -> Vec<Step> {
        let mut steps = self.branches(pass, parameters, extra);
        for block in (0..N_BLOCKS).rev() {
            steps.extend(self.block(block, pass, parameters, scalars, factors));
        }
        steps.extend(self.entry(pass, parameters, factors));
        let sums = column_sums::launch(
            self.columns.partials.view(),
            self.columns.targets.view(),
            parameters.gradient.view_mut(),
        );
        let sums = sums.moves("out", size_of::<f32>() * self.columns.n_targets);
        steps.push((column_sums_shape(self.columns.n_columns), sums));
        steps
    }

    /// Partial sums of the columns of operands.
    fn column_partials(&self, source: &Buffer<u16>, into: usize, n_columns: usize, n_groups: usize) -> Step {
        let shape = ColumnShape {
            n_groups: n_groups as u32,
            group_stride: (self.n_rows * n_columns) as u32,
            partial_stride: self.columns.n_columns as u32,
            ..ColumnShape::dense(self.n_rows, n_columns)
        };
        let partials = self.columns.from(into).view_mut();
        let launch = column_partials_operands::launch(source.view(), partials, shape, self.precision);
        let launch = launch.moves("partials", self.columns.bytes(n_groups * n_columns));
        (column_partials_shape(self.n_rows, n_groups * n_columns), launch)
    }

    fn branches(&self, pass: &Pass, parameters: &Parameters, extra: Option<&Buffer<f32>>) -> Vec<Step> {
        let (shadow, gradient) = (|| parameters.online.shadow.all(), &parameters.gradient);
        let n_heads = HEAD_NAMES.len();
        let head_stride = HeadColumns::new(self.sizes.atoms).stride as usize;
        let select = branch_select_backward::launch(
            pass.h[N_BLOCKS].view(),
            pass.gates.view(),
            self.d_branch_in.view(),
            extra.unwrap_or(&self.none).view(),
            self.d_h.view_mut(),
            self.d_gate_logits.view_mut(),
            self.selection_on.into(),
            self.precision,
        );
        let through_silu = Output::SiluBackward { c: pass.head_pre.all(), d: self.d_head_pre.all() };
        let mut steps = vec![self.column_partials(&self.d_heads, 0, head_stride, 1)];
        steps.extend(self.weights.out.launch(self.d_heads.all(), pass.head_hidden.all(), None, gradient));
        steps.push(self.inputs.out.launch(self.d_heads.all(), shadow(), through_silu));
        steps.push(self.column_partials(&self.d_head_pre, self.columns.hidden, self.sizes.branch_hidden, n_heads));
        steps.extend(self.weights.hidden.launch(self.d_head_pre.all(), pass.branch_in.all(), None, gradient));
        let d_branch_in = Output::Store(self.d_branch_in.all(), None);
        steps.push(self.inputs.hidden.launch(self.d_head_pre.all(), shadow(), d_branch_in));
        steps.push((row_shape(self.n_rows, self.lanes), select));
        let d_gates = self.d_gate_logits.all();
        steps.extend(self.weights.gates.launch(d_gates, pass.branch_in_slots(0..1), None, gradient));
        let added = Output::Add(self.d_h.all());
        steps.push(self.inputs.gates.launch(self.d_gate_logits.all(), shadow(), added));
        steps
    }

    fn block(
        &self,
        block: usize,
        pass: &Pass,
        parameters: &Parameters,
        scalars: &Buffer<StepScalars>,
        factors: &Buffer<f32>,
    ) -> Vec<Step> {
        let (shadow, gradient) = (|| parameters.online.shadow.all(), &parameters.gradient);
        let (hidden, stride) = (self.sizes.hidden as u32, self.columns.n_columns as u32);
        let [b2, b1, gain_column] = self.columns.blocks[block];
        let factor = |layer: usize| Some(factors.slice(2 * block + layer..2 * block + layer + 1));
        let column_wise = column_partials_shape(self.n_rows, self.sizes.hidden);
        let residual = residual_backward::launch(
            self.d_h.view(),
            scalars.view(),
            self.d_added[block].view_mut(),
            self.columns.from(b2).view_mut(),
            hidden,
            stride,
            block as u32,
            self.precision,
        );
        let gain = parameters.online.flat.slice(self.layout.range(&format!("trunk.block{block}.gain")));
        let norm = norm_backward::launch(
            pass.h[block].view(),
            gain.view(),
            self.d_normed.view(),
            self.d_h.view_mut(),
            self.inverse_rms.view_mut(),
        );
        let gains = norm_gain_partials::launch(
            pass.h[block].view(),
            self.d_normed.view(),
            self.inverse_rms.view(),
            self.columns.from(gain_column).view_mut(),
            hidden,
            stride,
        );
        let of_partials = self.columns.bytes(self.sizes.hidden);
        let residual = residual.moves("partials", of_partials);
        let gains = gains.moves("partials", of_partials);
        // Read, and written.
        let norm = norm.moves("dh", 2 * size_of::<f32>() * self.d_h.len());
        let (d_added, d_pre) = (&self.d_added[block], &self.d_pre[block]);
        let through_silu = Output::SiluBackward { c: pass.pre[block].all(), d: d_pre.all() };
        let d_normed = Output::Store(self.d_normed.all(), None);
        let mut steps = vec![(column_wise, residual)];
        let weights = &self.weights;
        steps.extend(weights.second[block].launch(d_added.all(), pass.hidden[block].all(), factor(2), gradient));
        steps.push(self.inputs.second[block].launch(d_added.all(), shadow(), through_silu));
        steps.push(self.column_partials(d_pre, b1, self.sizes.hidden, 1));
        steps.extend(weights.first[block].launch(d_pre.all(), pass.normed[block].all(), factor(1), gradient));
        steps.push(self.inputs.first[block].launch(d_pre.all(), shadow(), d_normed));
        steps.extend([(row_shape(self.n_rows, self.lanes), norm), (column_wise, gains)]);
        steps
    }

    fn entry(&self, pass: &Pass, parameters: &Parameters, factors: &Buffer<f32>) -> Vec<Step> {
        let (flat, stride) = (&parameters.online.flat, self.columns.n_columns as u32);
        let gain = || flat.slice(self.layout.range("trunk.in.gain")).view();
        let entry = entry_backward::launch(
            pass.pre_in.view(),
            gain(),
            pass.film.view(),
            self.d_h.view(),
            self.d_pre_in.view_mut(),
            self.row_terms.view_mut(),
            self.precision,
        );
        let partials = entry_partials::launch(
            pass.pre_in.view(),
            gain(),
            pass.film.view(),
            self.d_h.view(),
            self.row_terms.view(),
            self.columns.from(self.columns.entry).view_mut(),
            stride,
        );
        let film = film_backward::launch(
            self.columns.from(self.columns.entry + 2 * self.sizes.hidden).view(),
            pass.film_inputs.view(),
            parameters.gradient.slice(self.layout.range("film.weight")).view_mut(),
            stride,
        );
        // Of bias and gain, and of FiLM's g and s.
        let (both, of_film) = (4 * self.sizes.hidden, 2 * self.sizes.hidden);
        let partials = partials.moves("partials", self.columns.bytes(both));
        let film = film.moves("partials", self.columns.bytes(of_film));
        let mut steps = vec![
            (row_shape(self.n_rows, self.lanes), entry),
            (column_partials_shape(self.n_rows, self.sizes.hidden), partials),
            (film_backward_shape(self.sizes.hidden), film),
        ];
        let factor = Some(factors.slice(0..1));
        steps.extend(self.weights.entry.launch(self.d_pre_in.all(), pass.u.all(), factor, &parameters.gradient));
        steps.extend(self.temporal.as_ref().map(|block| block.through_entry(&self.d_pre_in, parameters)));
        steps.extend(self.attention.as_ref().map(|attention| attention.through_entry(&self.d_pre_in, parameters)));
        steps
    }
}
