//! The simulator's random numbers: those of every kernel, on a stream of their own.

use gpu_kernels::philox;
use shared_types::stream::SIMULATOR;

fn key(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// Uniform in [0, 1) for one element of one bar, a multiple of 2^-24.
pub(super) fn uniform(seed: u64, element: u32, bar: u32) -> f64 {
    f64::from(philox::uniform(key(seed), SIMULATOR, bar, element))
}

/// Standard normal for one element of one bar.
pub(super) fn normal(seed: u64, element: u32, bar: u32) -> f64 {
    f64::from(philox::normal(key(seed), SIMULATOR, bar, element))
}
