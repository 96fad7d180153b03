//! The market: features of bars, environments that trade on them, and the way of their experience into replay.
//!
//! | file | kernels | when |
//! |---|---|---|
//! | [`terms`] | `bar_terms` | once a series |
//! | [`indicators`] | `recursive_indicators` | once a series |
//! | [`features`] | `raw_features` | once a series |
//! | [`scaling`] | `feature_sums`, `feature_scales`, `scale_features` | once a fold |
//! | [`bars`] | `market_bars` | once a fold |
//! | [`environment`] | `environment_reset`, `environment_step`, `observe` | collection, every bar |
//! | [`insertion`] | `insert_transitions` | collection, every bar |
//! | [`collector`] | `collector_advance`; `collector_partials`, `regime_update`, `kelly_cap_update` | every bar; every epoch |
//! | [`evaluation`] | `evaluation_step`, `baseline_path` | evaluation |
//!
//! [`trading`] and [`account`] hold the arithmetic of orders, fills, positions and rewards, without any memory.

pub mod account;
pub mod bars;
pub mod collector;
pub mod environment;
pub mod evaluation;
pub mod features;
pub mod indicators;
pub mod insertion;
mod real;
pub mod scaling;
pub mod terms;
pub mod trading;
