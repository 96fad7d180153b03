//! Judging what was earned.

pub mod statistics;
