//! Kernels that exercise the toolchain, one for each feature of `cuda_std`. What they must compute is in
//! `tests/device_api`, as plain loops.

pub mod atomics;
pub mod copies;
pub mod indices;
pub mod math;
pub mod output;
pub mod shared;
pub mod small;
pub mod tensor;
pub mod warp;
