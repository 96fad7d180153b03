//! The kernels, a file per subject.

pub mod adamw;
pub mod copy;
pub mod counters;
pub mod gate;
pub mod gather;
pub mod is_weights;
pub mod isv;
pub mod lanes;
pub mod market;
mod math;
pub mod non_finite;
pub mod norm;
pub mod operand;
pub mod philox;
pub mod publish;
pub mod reduce;
pub mod scan;
pub mod seg_tree;
pub mod spectral;
