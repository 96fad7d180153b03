//! The training step in float64, written from the design's equations and the papers they name, never from a kernel: what kernels
//! and the whole step are tested against. Plain loops, one file a subject; gradients by hand.
//!
//! | file | section | what |
//! |---|---|---|
//! | [`config`], [`layout`], [`init`] | 6.4 | sizes, switches; the parameters, their order and their start |
//! | [`philox`] | 6.1 | random numbers |
//! | [`replay`] | 6.2, 6.6, 6.9 | priorities, importance weights, relabelling, modulation |
//! | [`schedule`], [`isv`] | 5, 6.3 | counters, tau, beta; moving averages, health |
//! | [`network`]: [`temporal`], [`attention`], [`denoise`], [`trunk`], [`spectral`], [`branches`] | 6.4 | passes and backward passes |
//! | [`atoms`], [`c51`], [`double_dqn`] | 6.5 | atoms, distributions, projection, losses, targets |
//! | [`cql`], [`iqn`], [`iql`], [`selectivity`], [`risk`] | 6.6 | the other learners |
//! | [`objective`] | 6 | J and its gradient |
//! | [`pruning`], [`vaccine`], [`adam`] | 6.7 | gradient and update |
//! | [`causal`] | 6.8 | causal sensitivity |
//! | [`boundary`] | 7 | epoch-boundary kernels |
//! | [`step`] | 6 | all of it in order |
//! | [`chain`] | - | a five-state problem with its exact solutions |
//!
//! Rows of a batch are rows of a [`matrix::Matrix`]; [`precision::Precision`] says what a product rounds.

pub mod activation;
pub mod adam;
pub mod atoms;
pub mod attention;
pub mod boundary;
pub mod branches;
pub mod c51;
pub mod causal;
pub mod chain;
pub mod config;
pub mod cql;
pub mod denoise;
pub mod double_dqn;
pub mod init;
pub mod iql;
pub mod iqn;
pub mod isv;
pub mod layout;
pub mod matrix;
pub mod network;
pub mod norm;
pub mod objective;
pub mod philox;
pub mod precision;
pub mod pruning;
pub mod replay;
pub mod risk;
pub mod schedule;
pub mod selectivity;
pub mod spectral;
pub mod step;
pub mod temporal;
pub mod trunk;
pub mod vaccine;
