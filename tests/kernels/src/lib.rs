//! Kernels that exercise the toolchain.

pub mod warp;
