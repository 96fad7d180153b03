//! The kernels, a file per subject.

pub mod copy;
