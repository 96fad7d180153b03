//! IQL's value heads over the rows of a pass: losses, gradients, and what PopArt and the modulation take of them.

use std::ops::Range;

use gpu_kernels::columns::{column_sums, column_sums_shape, n_column_partials};
use gpu_kernels::iql::{
    HIDDEN, N_HEADS, N_PARTIAL_COLUMNS, iql_hidden_gradient, iql_hidden_gradient_shape, iql_loss, iql_loss_shape,
    iql_outputs,
};
use gpu_kernels::lanes::row_shape;
use shared_types::market::N_BRANCHES;
use shared_types::{IqlTotals, PopArt, Precision, Product, ProductForm};

use super::backward::to_weight;
use super::layout::{Group, Layout};
use super::pass::linear;
use super::weight_gradient::WeightGradient;
use super::{Parameters, Pass, width};
use crate::device::{Buffer, Device, Matmul, Output, Part};
use crate::error::DeviceError;
use crate::market::Step;

const _: () = assert!(HIDDEN == width::IQL_HIDDEN);
/// V_high, V_low.
const NAMES: [&str; N_HEADS] = ["iql_high", "iql_low"];

/// Buffers and products of both heads.
pub struct ValueHeads {
    /// W h + b of the hidden layers, \[2, R, 128\].
    pub pre: Buffer<f32>,
    /// Raw outputs before PopArt's rescaling, \[R, 2\].
    pub outputs: Buffer<f32>,
    /// q of the actions taken, \[R\].
    pub q_taken: Buffer<f32>,
    /// V_high, then V_low, \[2, R\].
    pub values: Buffer<f32>,
    /// Gradients of the losses by the rescaled outputs, \[R, 2\].
    pub d_outputs: Buffer<f32>,
    /// By `pre`, operand \[2, R, 128\].
    pub d_pre: Buffer<u16>,
    /// \[1\].
    pub totals: Buffer<IqlTotals>,
    partials: Buffer<f32>,
    targets: Buffer<u32>,
    hidden: Matmul,
    weights: WeightGradient,
    /// Both heads' range of the flat vectors: the gradient of nothing else is written.
    group: Range<usize>,
    last_layers: [Range<usize>; N_HEADS],
    biases: [Range<usize>; N_HEADS],
    n_rows: usize,
    lanes: u32,
    precision: Precision,
}

/// A head's last layer in the flat parameters: weights first, the bias last.
pub fn last_layer(layout: &Layout, name: &str) -> Range<usize> {
    layout.range(&format!("{name}.weight")).start..layout.range(&format!("{name}.bias")).end
}

/// Both heads' last layers.
pub fn last_layers(layout: &Layout) -> [Range<usize>; N_HEADS] {
    NAMES.map(|name| last_layer(layout, &format!("{name}.out")))
}

impl ValueHeads {
    /// Buffers for `n_rows` rows.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, precision, h) = (&parameters.layout, parameters.precision, parameters.sizes.hidden);
        let group = layout.group(Group::IqlHigh).start..layout.group(Group::IqlLow).end;
        let hidden_weight = |name: &str| layout.tensor(&format!("{name}.hidden.weight")).offset;
        let place = |head: usize| (head * n_rows * HIDDEN) as u32;
        let forward = NAMES.into_iter().enumerate().map(|(head, name)| {
            let bias = layout.tensor(&format!("{name}.hidden.bias")).offset;
            Product { c: place(head), ..linear(n_rows, [HIDDEN, h], hidden_weight(name), bias) }
        });
        let gradients = NAMES.into_iter().enumerate();
        let gradients = gradients.map(|(head, name)| Product {
            a: place(head),
            ..to_weight(n_rows, [HIDDEN, h], hidden_weight(name) - group.start)
        });
        let of_columns = ["hidden.bias", "out.weight"].into_iter().flat_map(|part| NAMES.map(|name| (name, part)));
        let targets = of_columns.flat_map(|(name, part)| layout.range(&format!("{name}.{part}")));
        Ok(Self {
            pre: device.alloc_zeroed(N_HEADS * n_rows * HIDDEN)?,
            outputs: device.alloc_zeroed(N_HEADS * n_rows)?,
            q_taken: device.alloc_zeroed(n_rows)?,
            values: device.alloc_zeroed(N_HEADS * n_rows)?,
            d_outputs: device.alloc_zeroed(N_HEADS * n_rows)?,
            d_pre: device.alloc_zeroed(N_HEADS * n_rows * HIDDEN * precision.words())?,
            totals: device.alloc_zeroed(1)?,
            partials: device.alloc_zeroed(n_column_partials(n_rows) * N_PARTIAL_COLUMNS)?,
            targets: device.upload(&targets.map(|element| (element - group.start) as u32).collect::<Vec<_>>())?,
            hidden: Matmul::new(device, ProductForm::Nt, precision, forward.collect())?,
            weights: WeightGradient::new(device, precision, gradients.collect())?,
            last_layers: last_layers(layout),
            group: group.clone(),
            biases: NAMES.map(|name| layout.range(&format!("{name}.out.bias"))),
            n_rows,
            lanes: device.row_lanes(),
            precision,
        })
    }

    /// The launches behind `pass`, whose h and whose `q` of all actions are held constant. `popart` \[1\], or \[0\] without it;
    /// `losses` \[2\].
    pub fn launches(
        &self,
        pass: &Pass,
        q: &Buffer<f32>,
        actions: &Buffer<[u8; N_BRANCHES]>,
        parameters: &Parameters,
        popart: Part<'_, PopArt>,
        losses: Part<'_, f32>,
    ) -> Vec<Step> {
        let (flat, gradient, h) = (&parameters.online.flat, &parameters.gradient, || pass.branch_in_slots(0..1));
        let of_heads = || gradient.slice(self.group.clone());
        let last = |head: usize| flat.slice(self.last_layers[head].clone()).view();
        let bias = |head: usize| gradient.slice(self.biases[head].clone()).view_mut();
        let store = Output::Store(self.pre.all(), Some(flat.all()));
        let outputs = iql_outputs::launch(
            self.pre.view(),
            last(0),
            last(1),
            q.view(),
            actions.view(),
            self.outputs.view_mut(),
            self.q_taken.view_mut(),
        );
        let loss = iql_loss::launch(
            self.outputs.view(),
            self.q_taken.view(),
            popart.view(),
            self.values.view_mut(),
            self.d_outputs.view_mut(),
            losses.view_mut(),
            self.totals.view_mut(),
            bias(0),
            bias(1),
        );
        let hidden_gradient = iql_hidden_gradient::launch(
            self.pre.view(),
            self.d_outputs.view(),
            last(0),
            last(1),
            self.totals.view(),
            self.d_pre.view_mut(),
            self.partials.view_mut(),
            self.precision,
        );
        let sums = column_sums::launch(self.partials.view(), self.targets.view(), of_heads().view_mut());
        let sums = sums.moves("out", size_of::<f32>() * N_PARTIAL_COLUMNS);
        let mut steps = vec![
            self.hidden.launch(h(), parameters.online.shadow.all(), store),
            (row_shape(self.n_rows, self.lanes), outputs),
            (iql_loss_shape(self.lanes), loss),
            (iql_hidden_gradient_shape(self.n_rows), hidden_gradient),
            (column_sums_shape(N_PARTIAL_COLUMNS), sums),
        ];
        steps.extend(self.weights.launch_into(self.d_pre.all(), h(), None, of_heads()));
        steps
    }

    /// V_high of each row.
    pub fn v_high(&self) -> Part<'_, f32> {
        self.values.slice(0..self.n_rows)
    }
}
