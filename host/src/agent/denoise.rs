//! The denoise learner over a batch.

use gpu_kernels::columns::{
    ColumnShape, column_partials_operands, column_partials_shape, column_sums, column_sums_shape, n_column_partials,
};
use gpu_kernels::denoise::{DECODER, DECODER_BIAS, DenoiseParams, ENCODER_BIAS, N_COLUMNS, denoise_rows};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::reduce::{reduce_shape, reduce_sum};
use shared_types::market::N_FEATURES;
use shared_types::{Counters, Precision, Product};

use super::backward::to_weight;
use super::layout::{Group, Layout};
use super::weight_gradient::WeightGradient;
use super::{Parameters, width};
use crate::config::Config;
use crate::device::{Buffer, Device, Part};
use crate::error::DeviceError;
use crate::market::Step;

/// Buffers and products of the learner.
pub struct Denoise {
    /// Noisy features and their code, operand \[R, 56\].
    pub inputs: Buffer<u16>,
    /// Gradients by the encoder's and the decoder's outputs before SiLU, operand \[R, 56\].
    pub gradients: Buffer<u16>,
    /// Each row's share of the loss, \[R\].
    pub row_losses: Buffer<f32>,
    partials: Buffer<f32>,
    targets: Buffer<u32>,
    weights: WeightGradient,
    params: DenoiseParams,
    n_rows: usize,
    lanes: u32,
    precision: Precision,
}

impl Denoise {
    /// Buffers for `n_rows` rows.
    ///
    /// # Panics
    /// If the layout does not have the learner's tensors where the kernels take them to be.
    pub fn new(device: &Device, config: &Config, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, precision) = (&parameters.layout, parameters.precision);
        let first = layout.group(Group::Denoise).start;
        let at = |name: &str| layout.tensor(&format!("denoise.{name}")).offset - first;
        let found = [at("encoder.weight"), at("encoder.bias"), at("decoder.weight"), at("decoder.bias")];
        assert_eq!(found, [0, ENCODER_BIAS, DECODER, DECODER_BIAS], "the denoise learner's tensors");
        let product = |shape: [usize; 2], [a, b]: [u32; 2], weight: usize| {
            let (a_stride, b_stride) = (N_COLUMNS as u32, N_COLUMNS as u32);
            Product { a, a_stride, b, b_stride, ..to_weight(n_rows, shape, weight) }
        };
        let list = vec![
            product([width::BOTTLENECK, N_FEATURES], [0, 0], 0),
            product([N_FEATURES, width::BOTTLENECK], [width::BOTTLENECK as u32, N_FEATURES as u32], DECODER),
        ];
        let biases = ["denoise.encoder.bias", "denoise.decoder.bias"].into_iter().flat_map(|name| layout.range(name));
        let operands = || device.alloc_zeroed(n_rows * N_COLUMNS * precision.words());
        Ok(Self {
            inputs: operands()?,
            gradients: operands()?,
            row_losses: device.alloc_zeroed(n_rows)?,
            partials: device.alloc_zeroed(n_column_partials(n_rows) * N_COLUMNS)?,
            targets: device.upload(&biases.map(|element| (element - first) as u32).collect::<Vec<_>>())?,
            weights: WeightGradient::new(device, precision, list)?,
            params: DenoiseParams {
                seed: [config.seed as u32, (config.seed >> 32) as u32],
                window: config.window,
                noise: config.denoise.noise as f32,
            },
            n_rows,
            lanes: device.row_lanes(),
            precision,
        })
    }

    /// The launches over states `rows` `[R, stride]`. `loss` \[1\].
    pub fn launches(
        &self,
        rows: &Buffer<f32>,
        counters: &Buffer<Counters>,
        parameters: &Parameters,
        loss: Part<'_, f32>,
    ) -> Vec<Step> {
        // The learner's own, so that what writes other parts may run beside it.
        let gradient = || parameters.gradient.slice(parameters.layout.group(Group::Denoise));
        let learner = denoise_rows::launch(
            rows.view(),
            encoder(&parameters.online.flat, &parameters.layout).view(),
            counters.view(),
            self.inputs.view_mut(),
            self.gradients.view_mut(),
            self.row_losses.view_mut(),
            self.params,
            self.precision,
        );
        let total = reduce_sum::launch(self.row_losses.view(), loss.view_mut());
        let partials = column_partials_operands::launch(
            self.gradients.view(),
            self.partials.view_mut(),
            ColumnShape::dense(self.n_rows, N_COLUMNS),
            self.precision,
        );
        let sums = column_sums::launch(self.partials.view(), self.targets.view(), gradient().view_mut());
        // The last bar's features alone.
        let learner = learner.moves("rows", size_of::<f32>() * self.n_rows * N_FEATURES);
        let sums = sums.moves("out", size_of::<f32>() * N_COLUMNS);
        let mut steps = vec![
            (row_shape(self.n_rows, self.lanes), learner),
            (reduce_shape(), total),
            (column_partials_shape(self.n_rows, N_COLUMNS), partials),
            (column_sums_shape(N_COLUMNS), sums),
        ];
        steps.extend(self.weights.launch_into(self.gradients.all(), self.inputs.all(), None, gradient()));
        steps
    }
}

/// The learner's parameters among the online network's, `flat`: the encoder first.
pub fn encoder<'a>(flat: &'a Buffer<f32>, layout: &Layout) -> Part<'a, f32> {
    flat.slice(layout.group(Group::Denoise))
}
