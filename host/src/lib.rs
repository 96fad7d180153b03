//! onegraph's host side, in three floors: `cust` and its raw calls, then [`device`], whose every call returns a
//! `Result`, then what is built on it.

pub mod agent;
pub mod audit;
pub mod bench;
pub mod cli;
pub mod config;
pub mod data;
pub mod device;
pub mod error;
pub mod eval;
mod files;
pub mod graph;
pub mod images;
pub mod interrupt;
pub mod market;
pub mod metrics;
mod panics;
pub mod progress;
mod ranges;
pub mod replay;
pub mod report;
pub mod run;
pub mod step;
mod text;
pub mod train;
