//! Tests of the reference: against papers, against other ways to compute the same, against central differences.

mod chain;
mod chain_learning;
mod gradients;
mod learners;
mod network_parts;
mod numbers;
mod rounding;
mod steps;
mod support;
mod update;
mod value_learning;
