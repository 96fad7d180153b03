//! Selectivity over the rows of a pass: P(trade), its loss and its gradient.

use gpu_kernels::columns::{
    ColumnShape, column_partials_scaled, column_partials_shape, column_sums, column_sums_shape, n_column_partials,
};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::selectivity::{SelectParams, selectivity_loss, selectivity_loss_shape, trade_probability};

use super::layout::N_BLOCKS;
use super::value_heads::last_layer;
use super::{Parameters, Pass};
use crate::config::Config;
use crate::device::{Buffer, Device, Part};
use crate::error::DeviceError;
use crate::market::Step;
use crate::replay::Ring;
use crate::step::Batch;

/// P(trade) of the rows of a pass.
pub struct TradeProbability {
    /// w h + b, \[R\].
    pub logits: Buffer<f32>,
    /// P(trade), \[R\].
    pub p_trade: Buffer<f32>,
}

impl TradeProbability {
    /// Buffers for `n_rows` rows.
    pub fn new(device: &Device, n_rows: usize) -> Result<Self, DeviceError> {
        Ok(Self { logits: device.alloc_zeroed(n_rows)?, p_trade: device.alloc_zeroed(n_rows)? })
    }

    /// The launch behind `pass`.
    pub fn launch(&self, device: &Device, pass: &Pass, parameters: &Parameters) -> Step {
        let layer = parameters.online.flat.slice(last_layer(&parameters.layout, "select"));
        let (h, logits, p_trade) = (&pass.h[N_BLOCKS], self.logits.view_mut(), self.p_trade.view_mut());
        let launch = trade_probability::launch(h.view(), layer.view(), logits, p_trade);
        (row_shape(self.logits.len(), device.row_lanes()), launch)
    }
}

/// Buffers of the learner.
pub struct Selectivity {
    /// P(trade) on s.
    pub probability: TradeProbability,
    /// Gradient of the loss by the logits, \[R\].
    pub d_logits: Buffer<f32>,
    /// \[1\], share of rows whose P(trade) reaches the threshold.
    pub rate: Buffer<f32>,
    partials: Buffer<f32>,
    targets: Buffer<u32>,
    shape: ColumnShape,
    params: SelectParams,
    device: Device,
}

impl Selectivity {
    /// Buffers for `n_rows` rows.
    pub fn new(device: &Device, config: &Config, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (h, rules) = (parameters.sizes.hidden, config.market_rules());
        // Of the weight's own slice of the gradient, so that what writes other parts may run beside it.
        let targets: Vec<u32> = (0..h as u32).collect();
        Ok(Self {
            probability: TradeProbability::new(device, n_rows)?,
            d_logits: device.alloc_zeroed(n_rows)?,
            rate: device.alloc_zeroed(1)?,
            partials: device.alloc_zeroed(n_column_partials(n_rows) * h)?,
            targets: device.upload(&targets)?,
            shape: ColumnShape::dense(n_rows, h),
            params: SelectParams {
                // The last column of a state.
                goal_column: parameters.sizes.state_dim() as u32 - 1,
                reward_scale: rules.reward_scale as f32,
                her_weight: rules.her_weight as f32,
                threshold: config.select.threshold as f32,
            },
            device: device.clone(),
        })
    }

    /// The launches behind `pass` on the batch's s, with `q` of all actions. `loss` \[1\].
    pub fn launches(
        &self,
        pass: &Pass,
        q: &Buffer<f32>,
        batch: &Batch,
        ring: &Ring,
        parameters: &Parameters,
        loss: Part<'_, f32>,
    ) -> Vec<Step> {
        let (device, probability, gradient) = (&self.device, &self.probability, &parameters.gradient);
        let [weight, bias] = ["weight", "bias"].map(|part| parameters.layout.range(&format!("select.{part}")));
        let (weight, bias) = (gradient.slice(weight), gradient.slice(bias));
        let cross_entropy = selectivity_loss::launch(
            probability.logits.view(),
            probability.p_trade.view(),
            q.view(),
            batch.actions.view(),
            batch.rewards.view(),
            batch.states.view(),
            ring.achieved.view(),
            batch.indices.view(),
            self.d_logits.view_mut(),
            loss.view_mut(),
            self.rate.view_mut(),
            bias.view_mut(),
            self.params,
        );
        // A row's goal, and what its slot of the ring achieved.
        let a_number_a_row = size_of::<f32>() * batch.indices.len();
        let cross_entropy = cross_entropy.moves("states", a_number_a_row).moves("achieved", a_number_a_row);
        let h = pass.h[N_BLOCKS].view();
        let partials = column_partials_scaled::launch(h, self.d_logits.view(), self.partials.view_mut(), self.shape);
        let sums = column_sums::launch(self.partials.view(), self.targets.view(), weight.view_mut());
        let (n_rows, n_columns) = (self.shape.n_rows as usize, self.shape.n_columns as usize);
        vec![
            probability.launch(device, pass, parameters),
            (selectivity_loss_shape(device.row_lanes()), cross_entropy),
            (column_partials_shape(n_rows, n_columns), partials),
            (column_sums_shape(n_columns), sums),
        ]
    }
}
