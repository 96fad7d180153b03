//! Scaling of features by the training part: (x - mean) / std, within +-5.
//!
//! A standard deviation under 1e-8 gives 0; sines and cosines stay as they are. Means and deviations are summed over chunks
//! of bars and then over chunks, both in order, so two runs give the same bits.

use cuda_std::prelude::*;
use shared_types::FeatureScale;
use shared_types::market::{N_FEATURES, feature};

use super::real;

/// Bound of scaled features.
pub const BOUND: f32 = 5.0;
/// Deviation under which a feature counts as constant.
pub const LEAST_STD: f64 = 1e-8;
/// Bars of a partial sum.
const CHUNK: usize = 256;

/// Partial sums that `n_bars` need: elements of the buffer `sums`.
pub const fn n_feature_sums(n_bars: usize) -> usize {
    n_bars.div_ceil(CHUNK) * N_FEATURES
}

/// Launch of [`feature_sums()`]: a thread a chunk and feature.
pub const fn feature_sums_shape(n_bars: usize) -> LaunchShape {
    LaunchShape::cover(n_feature_sums(n_bars), 128)
}

/// Launch of [`feature_scales()`]: a thread a feature.
pub const fn feature_scales_shape() -> LaunchShape {
    LaunchShape::linear(1, N_FEATURES as u32)
}

/// Launch of [`scale_features()`]: a thread an element.
pub const fn scale_features_shape(n_bars: usize) -> LaunchShape {
    LaunchShape::cover(n_bars * N_FEATURES, 256)
}

/// Partial sums over the training part: of x for `moment` 1, of (x - mean)^2 for `moment` 2.
///
/// Shapes: raw \[n, F\]; the part's bars are `first_bar` .. `first_bar + n_bars`; scales \[F\]; sums \[chunks, F\].
/// Launch: [`feature_sums_shape`].
#[kernel]
pub fn feature_sums(
    raw: GlobalSlice<f64>,
    scales: GlobalSlice<FeatureScale>,
    sums: GlobalSliceMut<f64>,
    first_bar: u32,
    n_bars: u32,
    moment: u32,
) {
    let index = thread::index_1d() as usize;
    let (chunk, feature) = (index / N_FEATURES, index % N_FEATURES);
    let (start, end) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(n_bars as usize));
    if start >= end {
        return;
    }
    let mean = if moment == 1 { 0.0 } else { scales.get(feature).mean };
    let mut sum = 0.0;
    for bar in start..end {
        let off = raw.get((first_bar as usize + bar) * N_FEATURES + feature) - mean;
        sum += if moment == 1 { off } else { off * off };
    }
    sums.set(index, sum);
}

/// Means (`moment` 1), then deviations (`moment` 2), from the partial sums.
///
/// Shapes: sums \[chunks, F\], scales \[F\]. Launch: [`feature_scales_shape`].
#[kernel]
pub fn feature_scales(sums: GlobalSlice<f64>, scales: GlobalSliceMut<FeatureScale>, n_bars: u32, moment: u32) {
    let feature = thread::index_1d() as usize;
    if feature >= N_FEATURES {
        return;
    }
    let mut sum = 0.0;
    for chunk in 0..(n_bars as usize).div_ceil(CHUNK) {
        sum += sums.get(chunk * N_FEATURES + feature);
    }
    let mean = sum / n_bars as f64;
    let scale = if moment == 1 {
        FeatureScale { mean, std: 0.0 }
    } else {
        FeatureScale { mean: scales.get(feature).mean, std: real::sqrt(mean) }
    };
    scales.set(feature, scale);
}

/// Scaled features of every bar of the series.
///
/// Shapes: raw and features \[n, F\], scales \[F\]. Launch: [`scale_features_shape`].
#[kernel]
pub fn scale_features(raw: GlobalSlice<f64>, scales: GlobalSlice<FeatureScale>, features: GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    if index < features.len() {
        let feature = index % N_FEATURES;
        features.set(index, scaled(raw.get(index), feature, &scales.get(feature)));
    }
}

/// A raw value of feature `index`, scaled.
#[inline]
pub fn scaled(raw: f64, index: usize, scale: &FeatureScale) -> f32 {
    if feature::is_phase(index) {
        raw as f32
    } else if scale.std < LEAST_STD {
        0.0
    } else {
        real::clip(((raw - scale.mean) / scale.std) as f32, BOUND)
    }
}
