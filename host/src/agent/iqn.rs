//! IQN's head on the trunk's output: its passes, its loss, and its gradients, those of its own parameters and that of h.
//!
//! Row i 8 + n of each matrix is quantile n of batch row i; [`gpu_kernels::iqn`] has the equations and the reason.

use gpu_kernels::columns::{
    ColumnShape, NO_TARGET, column_partials_operands, column_partials_shape, column_sums, column_sums_shape,
    n_column_partials,
};
use gpu_kernels::iqn::backward::{iqn_phi_gradient, iqn_product_backward, iqn_product_backward_shape};
use gpu_kernels::iqn::boundary::{refresh_iqn_iqr, refresh_iqn_iqr_shape};
use gpu_kernels::iqn::forward::{iqn_phi, iqn_phi_shape, iqn_product, iqn_product_shape};
use gpu_kernels::iqn::loss::{iqn_loss, iqn_total, iqn_total_shape};
use gpu_kernels::iqn::{N_COSINES, N_QUANTILES, QUANTILE_STRIDE, level};
use gpu_kernels::lanes::row_shape;
use half::bf16;
use shared_types::market::N_BRANCHES;
use shared_types::{LossTotals, Precision, Product, ProductForm};

use super::backward::{to_input, to_weight};
use super::layout::{Layout, N_BLOCKS};
use super::pass::linear;
use super::weight_gradient::WeightGradient;
use super::{Parameters, Pass, Weights, width};
use crate::device::{Buffer, Device, Matmul, Output, Part};
use crate::error::DeviceError;
use crate::market::Step;

const _: () = assert!(N_COSINES == width::COSINES);

/// Buffers and products of the head over batches of B rows.
pub struct Iqn {
    /// phi of each level, \[8, H\]; as the next three of the latest pass, which in a step is the online net's on s.
    pub phi: Buffer<f32>,
    /// h * phi, operand \[8 B, H\].
    pub product: Buffer<u16>,
    /// The hidden layer before SiLU, \[8 B, M\].
    pub pre: Buffer<f32>,
    /// And after it, operand \[8 B, M\].
    pub hidden: Buffer<u16>,
    /// Quantiles of the online net on s, \[8 B, 16\], 13 of them actions'.
    pub quantiles: Buffer<f32>,
    /// Of the target net on s', \[8 B, 16\].
    pub next_quantiles: Buffer<f32>,
    /// Loss of each row, \[B\].
    pub row_losses: Buffer<f32>,
    /// Gradient of L by the quantiles, operand \[8 B, 16\].
    pub d_quantiles: Buffer<u16>,
    /// By the hidden layer before SiLU, operand \[8 B, M\].
    pub d_pre: Buffer<u16>,
    /// By h * phi, \[8 B, H\].
    pub d_product: Buffer<f32>,
    /// Gradient of the objective by h through this head, \[B, H\].
    pub d_h: Buffer<f32>,
    /// cos(pi i tau_n), operand \[8, 64\].
    cosines: Buffer<u16>,
    phi_partials: Buffer<f32>,
    bias_partials: Buffer<f32>,
    bias_targets: Buffer<u32>,
    products: Products,
    tensors: Tensors,
    n_rows: usize,
    hidden_width: usize,
    branch_hidden: usize,
    lambda: f32,
    lanes: u32,
    precision: Precision,
}

/// The head's matrix products.
struct Products {
    hidden: Matmul,
    out: Matmul,
    out_to_input: Matmul,
    hidden_to_input: Matmul,
    out_weight: WeightGradient,
    hidden_weight: WeightGradient,
}

/// Where phi's layer lies in the flat parameters.
struct Tensors {
    weight: std::ops::Range<usize>,
    bias: std::ops::Range<usize>,
}

/// What of a batch the loss takes, each \[B\].
pub struct Transitions<'a> {
    /// Actions taken.
    pub actions: &'a Buffer<[u8; N_BRANCHES]>,
    /// Greedy actions on s' of the online net.
    pub next_actions: &'a Buffer<[u8; N_BRANCHES]>,
    /// r.
    pub rewards: &'a Buffer<f32>,
    /// done.
    pub dones: &'a Buffer<u8>,
    /// n.
    pub discount_powers: &'a Buffer<f32>,
}

impl Products {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, sizes, precision) = (&parameters.layout, parameters.sizes, parameters.precision);
        let (h, m, stride) = (sizes.hidden, sizes.branch_hidden, QUANTILE_STRIDE as u32);
        let at = |name: &str| layout.tensor(&format!("iqn.{name}")).offset;
        let (hidden, out) = (at("hidden.weight"), at("out.weight"));
        let product = |form, product| Matmul::new(device, form, precision, vec![product]);
        let gradient = |product| WeightGradient::new(device, precision, vec![product]);
        let quantiles = linear(n_rows, [width::ACTIONS, m], out, at("out.bias"));
        let from_quantiles = to_input(n_rows, [width::ACTIONS, m], out);
        let to_out = to_weight(n_rows, [width::ACTIONS, m], out);
        Ok(Self {
            hidden: product(ProductForm::Nt, linear(n_rows, [m, h], hidden, at("hidden.bias")))?,
            out: product(ProductForm::Nt, Product { c_stride: stride, ..quantiles })?,
            out_to_input: product(ProductForm::Nn, Product { a_stride: stride, ..from_quantiles })?,
            hidden_to_input: product(ProductForm::Nn, to_input(n_rows, [m, h], hidden))?,
            out_weight: gradient(Product { a_stride: stride, ..to_out })?,
            hidden_weight: gradient(to_weight(n_rows, [m, h], hidden))?,
        })
    }
}

/// The embedding of the levels as operands, \[8, 64\].
fn cosines(precision: Precision) -> Vec<u16> {
    let of_level =
        |n: usize| (0..N_COSINES).map(move |i| (std::f64::consts::PI * i as f64 * f64::from(level(n))).cos());
    let words = |cosine: f64| match precision {
        Precision::Bf16 => vec![bf16::from_f32(cosine as f32).to_bits()],
        Precision::F32 => vec![(cosine as f32).to_bits() as u16, ((cosine as f32).to_bits() >> 16) as u16],
    };
    (0..N_QUANTILES).flat_map(of_level).flat_map(words).collect()
}

/// Where the sums of the columns of `d_pre`, then of `d_quantiles` belong in the flat gradient.
fn bias_targets(layout: &Layout) -> Vec<u32> {
    let place = |name: &str| layout.range(name).map(|element| element as u32);
    let unused = QUANTILE_STRIDE - width::ACTIONS;
    let biases = place("iqn.hidden.bias").chain(place("iqn.out.bias"));
    biases.chain(std::iter::repeat_n(NO_TARGET, unused)).collect()
}

impl Iqn {
    /// Buffers for `n_rows` rows; `lambda` is lambda_iqn.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize, lambda: f32) -> Result<Self, DeviceError> {
        let (layout, sizes, precision) = (&parameters.layout, parameters.sizes, parameters.precision);
        let (h, m, n) = (sizes.hidden, sizes.branch_hidden, N_QUANTILES * n_rows);
        let floats = |width: usize| device.alloc_zeroed::<f32>(n * width);
        let operands = |width: usize| device.alloc_zeroed::<u16>(n * width * precision.words());
        Ok(Self {
            phi: device.alloc_zeroed(N_QUANTILES * h)?,
            product: operands(h)?,
            pre: floats(m)?,
            hidden: operands(m)?,
            quantiles: floats(QUANTILE_STRIDE)?,
            next_quantiles: floats(QUANTILE_STRIDE)?,
            row_losses: device.alloc_zeroed(n_rows)?,
            d_quantiles: operands(QUANTILE_STRIDE)?,
            d_pre: operands(m)?,
            d_product: floats(h)?,
            d_h: device.alloc_zeroed(n_rows * h)?,
            cosines: device.upload(&cosines(precision))?,
            phi_partials: device.alloc_zeroed(n_column_partials(n_rows) * N_QUANTILES * h)?,
            bias_partials: device.alloc_zeroed(n_column_partials(n) * (m + QUANTILE_STRIDE))?,
            bias_targets: device.upload(&bias_targets(layout))?,
            products: Products::new(device, parameters, n)?,
            tensors: Tensors { weight: layout.range("iqn.phi.weight"), bias: layout.range("iqn.phi.bias") },
            n_rows,
            hidden_width: h,
            branch_hidden: m,
            lambda,
            lanes: device.row_lanes(),
            precision,
        })
    }

    /// The launches that make [`quantiles`](Self::quantiles) of the online pass on s.
    pub fn forward(&self, pass: &Pass, weights: &Weights) -> Vec<Step> {
        self.quantiles_of(pass, weights, &self.quantiles)
    }

    /// The launches that make [`next_quantiles`](Self::next_quantiles) of the target pass on s'.
    pub fn forward_next(&self, pass: &Pass, weights: &Weights) -> Vec<Step> {
        self.quantiles_of(pass, weights, &self.next_quantiles)
    }

    fn quantiles_of(&self, pass: &Pass, weights: &Weights, into: &Buffer<f32>) -> Vec<Step> {
        let (flat, shadow, words) = (&weights.flat, || weights.shadow.all(), self.precision.words());
        let std::ops::Range { start, end } = self.tensors.weight;
        let phi = iqn_phi::launch(
            self.cosines.view(),
            weights.shadow.slice(start * words..end * words).view(),
            flat.slice(self.tensors.bias.clone()).view(),
            self.phi.view_mut(),
            self.precision,
        );
        let h = pass.h[N_BLOCKS].view();
        let product = iqn_product::launch(h, self.phi.view(), self.product.view_mut(), self.precision);
        let silu = Output::Silu { c: self.pre.all(), d: self.hidden.all(), bias: flat.all() };
        let store = Output::Store(into.all(), Some(flat.all()));
        vec![
            (iqn_phi_shape(self.hidden_width), phi),
            (iqn_product_shape(self.n_rows, self.hidden_width), product),
            self.products.hidden.launch(self.product.all(), shadow(), silu),
            self.products.out.launch(self.hidden.all(), shadow(), store),
        ]
    }

    /// The launches behind both forward passes: the loss with its gradient by the quantiles, L into `head_loss` \[1\], and its part of
    /// the objective added to `totals`.
    pub fn loss(
        &self,
        of: &Transitions<'_>,
        bus: &Buffer<f32>,
        head_loss: Part<'_, f32>,
        totals: &Buffer<LossTotals>,
    ) -> [Step; 2] {
        let loss = iqn_loss::launch(
            self.quantiles.view(),
            self.next_quantiles.view(),
            of.actions.view(),
            of.next_actions.view(),
            of.rewards.view(),
            of.dones.view(),
            of.discount_powers.view(),
            bus.view(),
            self.row_losses.view_mut(),
            self.d_quantiles.view_mut(),
            self.precision,
        );
        let (losses, totals) = (self.row_losses.view(), totals.view_mut());
        let total = iqn_total::launch(losses, bus.view(), self.lambda, head_loss.view_mut(), totals);
        [(row_shape(self.n_rows, self.lanes), loss), (iqn_total_shape(self.lanes), total)]
    }

    /// The launches behind the loss: gradients of the head's parameters, and [`d_h`](Self::d_h). `pass` is the online one on s.
    pub fn backward(&self, pass: &Pass, parameters: &Parameters, bus: &Buffer<f32>) -> Vec<Step> {
        let (products, gradient, m) = (&self.products, &parameters.gradient, self.branch_hidden);
        let shadow = || parameters.online.shadow.all();
        let through_silu = Output::SiluBackward { c: self.pre.all(), d: self.d_pre.all() };
        let mut steps = vec![products.out_to_input.launch(self.d_quantiles.all(), shadow(), through_silu)];
        steps.extend(products.out_weight.launch(self.d_quantiles.all(), self.hidden.all(), None, gradient));
        steps.extend(products.hidden_weight.launch(self.d_pre.all(), self.product.all(), None, gradient));
        steps.push(self.column_partials(&self.d_pre, 0, m));
        steps.push(self.column_partials(&self.d_quantiles, m, QUANTILE_STRIDE));
        let sums = column_sums::launch(self.bias_partials.view(), self.bias_targets.view(), gradient.view_mut());
        let sums = sums.moves("out", size_of::<f32>() * (m + width::ACTIONS));
        steps.push((column_sums_shape(m + QUANTILE_STRIDE), sums));
        let d_product = Output::Store(self.d_product.all(), None);
        steps.push(products.hidden_to_input.launch(self.d_pre.all(), shadow(), d_product));
        let through_product = iqn_product_backward::launch(
            self.d_product.view(),
            pass.h[N_BLOCKS].view(),
            self.phi.view(),
            bus.view(),
            self.lambda,
            self.d_h.view_mut(),
            self.phi_partials.view_mut(),
        );
        let of_phi = iqn_phi_gradient::launch(
            self.phi_partials.view(),
            self.phi.view(),
            self.cosines.view(),
            gradient.slice(self.tensors.weight.clone()).view_mut(),
            gradient.slice(self.tensors.bias.clone()).view_mut(),
            self.precision,
        );
        steps.push((iqn_product_backward_shape(self.n_rows, self.hidden_width), through_product));
        steps.push((row_shape(self.hidden_width, self.lanes), of_phi));
        steps
    }

    /// Partial sums of the columns of operands, from column `into` of all on.
    fn column_partials(&self, source: &Buffer<u16>, into: usize, n_columns: usize) -> Step {
        let n_rows = N_QUANTILES * self.n_rows;
        let partial_stride = (self.branch_hidden + QUANTILE_STRIDE) as u32;
        let shape = ColumnShape { partial_stride, ..ColumnShape::dense(n_rows, n_columns) };
        let partials = self.bias_partials.slice(into..self.bias_partials.len()).view_mut();
        let launch = column_partials_operands::launch(source.view(), partials, shape, self.precision);
        let launch = launch.moves("partials", size_of::<f32>() * n_column_partials(n_rows) * n_columns);
        (column_partials_shape(n_rows, n_columns), launch)
    }

    /// At an epoch's boundary: the quantiles' interquartile range over the last batch, at the actions that `q` \[B, 13\] of the same
    /// states ranks highest, into the bus.
    pub fn refresh_iqr(&self, q: &Buffer<f32>, bus: &Buffer<f32>) -> Step {
        let launch = refresh_iqn_iqr::launch(self.quantiles.view(), q.view(), bus.view_mut());
        (refresh_iqn_iqr_shape(self.lanes), launch)
    }
}
