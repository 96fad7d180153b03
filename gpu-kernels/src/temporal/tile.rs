//! The rows that a block works on together, its threads, and its shared memory.

use cuda_std::misc::hidden;
use cuda_std::prelude::*;

use super::{BARS, INNER, N_HEADS, ROWS, SCANNED, STATE};

/// The threads of the block: 1 on the CPU, where a block is one coroutine and its barriers cost nothing.
#[derive(Clone, Copy)]
pub(super) struct Team {
    pub thread: usize,
    pub n_threads: usize,
}

impl Team {
    /// The calling thread's. In the kernels of the tensor cores each stage asks anew, as with their lanes.
    #[inline(always)]
    pub fn new() -> Self {
        Self { thread: hidden(thread::thread_idx_x()) as usize, n_threads: thread::block_dim_x() as usize }
    }

    /// This thread's share of 0..n.
    #[inline(always)]
    pub fn each(self, n: usize) -> impl Iterator<Item = usize> {
        (self.thread..n).step_by(self.n_threads)
    }
}

/// Consecutive rows, together at most [`BARS`] bars.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub first_row: usize,
    pub n_rows: usize,
    /// Bars T of a row, a multiple of 4.
    pub window: usize,
}

impl Tile {
    #[inline(always)]
    pub fn n_bars(&self) -> usize {
        self.n_rows * self.window
    }

    /// The row that a bar belongs to.
    #[inline(always)]
    pub fn row_of(&self, bar: usize) -> usize {
        // In 32 bits, where a GPU divides several times faster than in 64.
        (bar as u32 / self.window as u32) as usize
    }

    /// The last bar of a row of the tile.
    #[inline(always)]
    pub fn last(&self, row: usize) -> usize {
        row * self.window + self.window - 1
    }
}

/// The block's tiles of `n_rows` rows: every `grid_dim_x`th.
#[inline(always)]
pub(super) fn tiles(n_rows: usize, window: usize) -> impl Iterator<Item = Tile> {
    let most = BARS / window;
    (thread::block_idx_x() as usize * most..n_rows)
        .step_by(thread::grid_dim_x() as usize * most)
        .map(move |first_row| Tile { first_row, n_rows: most.min(n_rows - first_row), window })
}

/// Takes arrays out of the block's dynamic shared memory, one behind the other, each at a multiple of 16 bytes.
pub(super) struct Taker {
    taken_bytes: usize,
}

impl Taker {
    /// Takes from `byte` on.
    #[inline(always)]
    pub fn from(byte: u32) -> Self {
        Self { taken_bytes: byte as usize }
    }

    #[inline(always)]
    pub fn take<T: Copy>(&mut self, len: usize) -> SharedSlice<T> {
        let first = self.taken_bytes;
        self.taken_bytes += (len * size_of::<T>()).next_multiple_of(16);
        SharedSlice::dynamic(first, len)
    }

    /// The same memory as `len` elements and as pairs of them.
    #[inline(always)]
    pub fn take_twice(&mut self, len: usize) -> (SharedSlice<u16>, SharedSlice<u32>) {
        let first = self.taken_bytes;
        (self.take(len), SharedSlice::dynamic(first, len / 2))
    }
}

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
