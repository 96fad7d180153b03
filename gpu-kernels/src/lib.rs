//! The kernels, a file per subject.

pub mod atoms;
pub mod boundary;
pub mod c51;
pub mod copy;
pub mod counters;
pub mod explore;
pub mod gather;
pub mod heads;
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
pub mod transitions;
