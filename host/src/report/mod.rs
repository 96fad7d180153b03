//! A run's report: one HTML file that needs nothing else, on a screen (light or dark) and on paper.
//!
//! | file | holds |
//! |---|---|
//! | [`run`] | what a run's folder holds, read and checked |
//! | [`metrics`] | an epoch's line of `metrics.jsonl` |
//! | `page` | the page: sections in their order |
//! | `result`, `pictures`, `training`, `graph`, `settings` | the sections |
//! | `chart`, `axis` | pictures in SVG, and their ticks |
//! | `text` | numbers and text as the page writes them |

mod axis;
mod chart;
mod graph;
pub mod metrics;
mod page;
mod pictures;
mod result;
pub mod run;
mod settings;
mod text;
mod training;

pub use page::html;
