//! A series of bars on the device, and the unscaled features of every bar.

use gpu_kernels::market::features::raw_features;
use gpu_kernels::market::indicators::{N_RECURSIVE, recursive_indicators, recursive_indicators_shape};
use gpu_kernels::market::terms::{bar_shape, bar_terms};
use shared_types::market::N_FEATURES;

use super::Step;
use crate::data::Bars;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;

/// Columns of bars, f64: a return's fifth digit is the eleventh of a price. Measured columns are empty where the file has
/// none. Written once, by [`Series::upload`]; the rest by [`Series::features`].
pub struct Series {
    /// Length of a bar.
    pub interval_ns: i64,
    /// Start of each bar, since 1970-01-01 UTC.
    pub time_ns: Buffer<i64>,
    /// First price.
    pub open: Buffer<f64>,
    /// Highest price.
    pub high: Buffer<f64>,
    /// Lowest price.
    pub low: Buffer<f64>,
    /// Last price.
    pub close: Buffer<f64>,
    /// Volume.
    pub volume: Buffer<f64>,
    /// Number of trades.
    pub trades: Buffer<f64>,
    /// Volume bought less volume sold.
    pub signed_volume: Buffer<f64>,
    /// Spread / mid.
    pub spread: Buffer<f64>,
    /// (microprice - mid) / mid.
    pub microprice: Buffer<f64>,
    /// One-bar log returns.
    pub log_return: Buffer<f64>,
    /// Unscaled features, \[n, F\].
    pub raw: Buffer<f64>,
    flow: Buffer<f64>,
    spread_term: Buffer<f64>,
    indicators: Buffer<f64>,
}

impl Series {
    /// Copies bars to the device.
    pub fn upload(device: &Device, bars: &Bars) -> Result<Self, DeviceError> {
        let n = bars.len();
        let measured = |column: &Option<Vec<f64>>| device.upload(column.as_deref().unwrap_or_default());
        Ok(Self {
            interval_ns: bars.interval_ns,
            time_ns: device.upload(&bars.time_ns)?,
            open: device.upload(&bars.open)?,
            high: device.upload(&bars.high)?,
            low: device.upload(&bars.low)?,
            close: device.upload(&bars.close)?,
            volume: device.upload(&bars.volume)?,
            trades: measured(&bars.trades)?,
            signed_volume: measured(&bars.signed_volume)?,
            spread: measured(&bars.spread)?,
            microprice: measured(&bars.microprice_offset)?,
            log_return: device.alloc(n)?,
            raw: device.alloc(n * N_FEATURES)?,
            flow: device.alloc(n)?,
            spread_term: device.alloc(n)?,
            indicators: device.alloc(N_RECURSIVE * n)?,
        })
    }

    /// Number of bars.
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// Whether there is no bar.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The launches that fill `log_return` and `raw`.
    pub fn features(&self) -> Vec<Step> {
        let n = self.len();
        let terms = bar_terms::launch(
            self.high.view(),
            self.low.view(),
            self.close.view(),
            self.volume.view(),
            self.signed_volume.view(),
            self.spread.view(),
            self.log_return.view_mut(),
            self.flow.view_mut(),
            self.spread_term.view_mut(),
        );
        let (high, low, close) = (self.high.view(), self.low.view(), self.close.view());
        let indicators = recursive_indicators::launch(high, low, close, self.indicators.view_mut());
        let raw = raw_features::launch(
            self.time_ns.view(),
            self.high.view(),
            self.low.view(),
            self.close.view(),
            self.volume.view(),
            self.trades.view(),
            self.spread.view(),
            self.microprice.view(),
            self.log_return.view(),
            self.flow.view(),
            self.spread_term.view(),
            self.indicators.view(),
            self.interval_ns,
            self.raw.view_mut(),
        );
        vec![(bar_shape(n), terms), (recursive_indicators_shape(), indicators), (bar_shape(n), raw)]
    }
}
