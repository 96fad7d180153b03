//! What is fitted to a fold's training part, and the series as the network and the environments see it.

use std::ops::Range;

use gpu_kernels::market::bars::market_bars;
use gpu_kernels::market::scaling::{
    LEAST_STD, feature_scales, feature_scales_shape, feature_sums, feature_sums_shape, n_feature_sums, scale_features,
    scale_features_shape,
};
use gpu_kernels::market::terms::bar_shape;
use shared_types::market::{N_FEATURES, feature};
use shared_types::{FeatureScale, MarketBar};

use super::rules::Costs;
use super::series::Series;
use super::{Runner, Step};
use crate::device::{Buffer, Device};
use crate::error::DeviceError;

/// Bars whose features are read back at once, of which one is kept.
const BARS_READ: usize = 1 << 16;

/// Buffers that keep their addresses from fold to fold, so that captured graphs stay valid.
pub struct FoldMarket {
    /// Scaled features, \[n, F\].
    pub features: Buffer<f32>,
    /// Bars for the environments, \[n\].
    pub bars: Buffer<MarketBar>,
    scales: Buffer<FeatureScale>,
    sums: Buffer<f64>,
}

/// What was fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Mean and deviation of each feature over the training part.
    pub scales: Vec<FeatureScale>,
    /// Standard deviation of its one-bar log returns; at least 1e-8, so that rewards of a price that never moves are 0.
    pub bar_sigma: f32,
}

impl FoldMarket {
    /// Buffers for a series of `n_bars`.
    pub fn new(device: &Device, n_bars: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            features: device.alloc(n_bars * N_FEATURES)?,
            bars: device.alloc(n_bars)?,
            scales: device.alloc_zeroed(N_FEATURES)?,
            sums: device.alloc(n_feature_sums(n_bars))?,
        })
    }

    /// Fits scaling, bar sigma and the volatility table to the bars `train`, then fills `features` and `bars` for the whole
    /// series. Not for the hot path: the table is sorted on the host.
    ///
    /// # Panics
    /// If `train` is empty or passes the series' end.
    pub fn fit(
        &self,
        runner: Runner<'_>,
        series: &Series,
        train: &Range<usize>,
        costs: &Costs,
    ) -> Result<Fitted, DeviceError> {
        assert!(!train.is_empty() && train.end <= series.len(), "bars {train:?} of {} to train on", series.len());
        runner.run(self.moments(series, train))?;
        let mut table = Vec::with_capacity(train.len());
        for first in train.clone().step_by(BARS_READ) {
            let last = (first + BARS_READ).min(train.end);
            let raw = series.raw.slice(first * N_FEATURES..last * N_FEATURES).read()?;
            table.extend(raw.chunks_exact(N_FEATURES).map(|bar| bar[feature::VOLATILITY_60]));
        }
        table.sort_by(f64::total_cmp);
        self.fill(runner, series, &table, costs)
    }

    /// Fills `features` and `bars` for the whole of `series` with the scales that [`scales`](Self::scales) holds, fitting
    /// nothing: for bars that were never trained on. regime_volatility, which collection alone reads, is 0.
    pub fn apply(&self, runner: Runner<'_>, series: &Series, costs: &Costs) -> Result<Fitted, DeviceError> {
        self.fill(runner, series, &[], costs)
    }

    /// Mean and deviation of each feature, \[F\]; a checkpoint holds them.
    pub fn scales(&self) -> &Buffer<FeatureScale> {
        &self.scales
    }

    fn fill(
        &self,
        runner: Runner<'_>,
        series: &Series,
        volatility_table: &[f64],
        costs: &Costs,
    ) -> Result<Fitted, DeviceError> {
        let table = runner.device.upload(volatility_table)?;
        let scale = scale_features::launch(series.raw.view(), self.scales.view(), self.features.view_mut());
        let bars = market_bars::launch(
            series.time_ns.view(),
            series.open.view(),
            series.high.view(),
            series.low.view(),
            series.close.view(),
            series.spread.view(),
            series.log_return.view(),
            series.raw.view(),
            table.view(),
            costs.half_spread(),
            self.bars.view_mut(),
        );
        runner.run([(scale_features_shape(series.len()), scale), (bar_shape(series.len()), bars)])?;
        let scales = self.scales.read()?;
        let bar_sigma = scales[feature::RETURN_1].std.max(LEAST_STD) as f32;
        Ok(Fitted { scales, bar_sigma })
    }

    /// The launches that fit scales to `train`.
    fn moments(&self, series: &Series, train: &Range<usize>) -> Vec<Step> {
        let (first, n) = (train.start as u32, train.len() as u32);
        let mut steps = Vec::new();
        for moment in [1, 2] {
            let (raw, scales, sums) = (series.raw.view(), self.scales.view(), self.sums.view_mut());
            let sum = feature_sums::launch(raw, scales, sums, first, n, moment);
            steps.push((feature_sums_shape(train.len()), sum));
            let scale = feature_scales::launch(self.sums.view(), self.scales.view_mut(), n, moment);
            steps.push((feature_scales_shape(), scale));
        }
        steps
    }
}
