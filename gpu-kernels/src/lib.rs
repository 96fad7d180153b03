//! The kernels, a file per subject.

pub mod copy;
pub mod counters;
pub mod four;
pub mod gather;
pub mod is_weights;
pub mod lanes;
pub mod market;
pub mod math;
pub mod matmul;
pub mod operand;
pub mod philox;
pub mod reduce;
pub mod scan;
pub mod seg_tree;
pub mod temporal;
