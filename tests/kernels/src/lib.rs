//! Kernels that exercise the toolchain.

pub mod small;
pub mod warp;
