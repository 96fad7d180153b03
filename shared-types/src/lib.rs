//! Layouts that host and device share: plain `repr(C)` data whose offsets are asserted while compiling.
//!
//! | type | bytes | written by | read by |
//! |---|---|---|---|
//! | [`Readback`] | 64 | `adam_update`, `post_aux`, `maintenance`, every stage its own flag | host, after each step |
//! | [`Counters`] | 32 | `increment_step_counters`; a gated learner takes its own 1 back | every child graph |
//! | [`Control`] | 64 | host (inputs), last kernel of the step (stamps) | `increment_step_counters`; host |
//! | [`Isv`] | 256 | `adam_update`, epoch-boundary kernels, collector | every child graph; host |
//! | [`StepScalars`] | 32 | `increment_step_counters`, `tau_update` (`health_at_epoch`) | every child graph |
//! | [`Schedule`] | 36 | host, once, by value | `increment_step_counters` |
//! | [`MarketBar`] | 32 | `market_bars`, once a fold | environments |
//! | [`EnvParams`] | 80 | host, once a fold | environments |
//! | [`EnvState`] | 80 | `environment_step`, `evaluation_step` | the same; `collector_partials`; host |
//! | [`BarRecord`] | 32 | `evaluation_step`, `baseline_path` | host |
//! | [`PendingStep`] | 32 | `environment_step` | `insert_transitions` |
//! | [`Collector`] | 16 | `collector_advance` | collection |
//! | [`CollectorSums`] | 16 | `collector_partials` | `regime_update`, `kelly_cap_update` |
//! | [`Product`] | 48 | host, once | matrix products |
//! | [`FeatureScale`] | 16 | `feature_scales`, once a fold | `scale_features`; host |
//! | [`LossTotals`] | 64 | the loss's kernels | `gate_step`, `isv_update`, `publish` |
//! | [`LearnerRange`] | 16 | host, once | `gradient_norm`, `gate_step` |
//! | [`GradientNorm`] | 8 | `gradient_norm` | `gate_step` |
//! | [`GateParams`] | 16 | host, once, by value | `gate_step` |
//! | [`SnapshotProducts`] | 16 | `snapshot_products` | `gate_step` |
//! | [`VaccineScalars`] | 16 | `gate_step` | `adamw`, `isv_update` |
//! | [`PruneParams`] | 24 | host, once, by value | `prune_*` |
//! | [`PruneTensor`] | 16 | host, once; `prune_threshold` | `prune_*` |
//! | [`UpdateScalars`] | 32 | `gate_step` | `adamw`, `isv_update`, `publish` |
//! | [`SpectralMatrix`] | 16 | host, once | `spectral` |
//! | [`PopArt`] | 24 | `settle_heads` | `iql_loss` |
//! | [`IqlTotals`] | 40 | `iql_loss` | `iql_hidden_gradient`, `settle_heads`, `modulated_td_bf16` |
#![no_std]

mod control;
pub mod due;
mod heads;
pub mod isv;
pub mod learner;
mod loss;
pub mod market;
pub mod nan_flags;
mod precision;
mod product;
mod readback;
pub mod stream;
mod update;

pub use control::{Control, Counters, N_DEPTH_BLOCKS, Schedule, StepScalars};
pub use heads::{IqlTotals, PopArt};
pub use isv::Isv;
pub use loss::LossTotals;
pub use market::{BarRecord, Collector, CollectorSums, EnvParams, EnvState, FeatureScale, MarketBar, PendingStep};
pub use precision::Precision;
pub use product::{Epilogue, Product, ProductForm};
pub use readback::Readback;
pub use update::{
    GateParams, GradientNorm, LearnerRange, PruneParams, PruneTensor, SKIP_WINDOW, SKIP_WORDS, SnapshotProducts,
    SpectralMatrix, UpdateScalars, VaccineScalars,
};

/// Asserts the size of a type, the offset of each of its fields, and that they fill it without padding.
macro_rules! assert_layout {
    ($type:ty, size $size:literal, align $align:literal, $($field:ident: $field_type:ty = $offset:literal),+ $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size && align_of::<$type>() == $align);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)+
            assert!(0 $(+ size_of::<$field_type>())+ == $size, "the fields leave padding");
        };
        #[cfg(test)]
        impl crate::layout_tests::Layout for $type {
            const NAME: &'static str = stringify!($type);
            const SIZE: usize = $size;
            const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($field), $offset, size_of::<$field_type>())),+];
        }
    };
}
use assert_layout;

#[cfg(test)]
mod layout_tests;
