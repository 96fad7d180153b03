//! Kernels that exercise the toolchain.
