//! onegraph's host side, in three floors: `cust` and its raw calls, then [`device`], whose every call returns a
//! `Result`, then what is built on it.

pub mod cli;
pub mod data;
pub mod device;
pub mod error;
pub mod eval;
mod files;
pub mod graph;
pub mod images;
pub mod market;
mod panics;
pub mod replay;
pub mod step;
mod text;
