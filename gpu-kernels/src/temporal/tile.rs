//! What the passes make of a tile, in shared memory.

use cuda_std::prelude::*;

use super::{INNER, N_HEADS, SCANNED, STATE};
use crate::tile::{BARS, ROWS, Taker};

/// What the forward pass makes of a tile, in f32.
pub(super) struct Made {
    /// x, B, C before the convolution, and dt before its bias, `[bars, 164]`.
    pub raw: SharedSlice<f32>,
    /// z of the last bars `[rows, 128]`.
    pub z: SharedSlice<f32>,
    /// B after convolution and SiLU `[bars, 16]`.
    pub b: SharedSlice<f32>,
    /// C of the last bars, likewise `[rows, 16]`.
    pub c: SharedSlice<f32>,
    /// dt `[bars, 4]`.
    pub dt: SharedSlice<f32>,
    /// L dt `[bars, 4]`: what is left of a bar at the last one.
    pub left: SharedSlice<f32>,
    /// B_t . C_T `[bars]`.
    pub score: SharedSlice<f32>,
    /// y of the last bars `[rows, 128]`.
    pub y: SharedSlice<f32>,
    /// y SiLU(z) `[rows, 128]`.
    pub gated: SharedSlice<f32>,
    /// 1 / the root mean square of `gated` `[rows]`.
    pub scale: SharedSlice<f32>,
}

impl Made {
    /// Bytes of shared memory, from the first on.
    pub const BYTES: u32 = 4 * (BARS * (SCANNED + STATE + 2 * N_HEADS + 1) + ROWS * (3 * INNER + STATE + 1)) as u32;

    #[inline(always)]
    pub fn new() -> Self {
        let mut taker = Taker::from(0);
        Self {
            raw: taker.take(BARS * SCANNED),
            z: taker.take(ROWS * INNER),
            b: taker.take(BARS * STATE),
            c: taker.take(ROWS * STATE),
            dt: taker.take(BARS * N_HEADS),
            left: taker.take(BARS * N_HEADS),
            score: taker.take(BARS),
            y: taker.take(ROWS * INNER),
            gated: taker.take(ROWS * INNER),
            scale: taker.take(ROWS),
        }
    }
}

/// What the backward pass makes of a tile besides, in f32.
pub(super) struct Back {
    /// x after convolution and SiLU `[bars, 128]`.
    pub x: SharedSlice<f32>,
    /// g `[bars, 4]`.
    pub g: SharedSlice<f32>,
    /// Gradient by dt before its bias `[bars, 4]`.
    pub ddt: SharedSlice<f32>,
    /// A bar's share of the gradient by A_log `[bars, 4]`.
    pub da_log: SharedSlice<f32>,
    /// sum_k gain_k dnormed_k gated_k `[rows]`.
    pub inner: SharedSlice<f32>,
}

impl Back {
    /// End of [`Made`]'s and these bytes of shared memory.
    pub const END: u32 = Made::BYTES + 4 * (BARS * (INNER + 3 * N_HEADS) + ROWS) as u32;

    #[inline(always)]
    pub fn new() -> Self {
        let mut taker = Taker::from(Made::BYTES);
        Self {
            x: taker.take(BARS * INNER),
            g: taker.take(BARS * N_HEADS),
            ddt: taker.take(BARS * N_HEADS),
            da_log: taker.take(BARS * N_HEADS),
            inner: taker.take(ROWS),
        }
    }
}
