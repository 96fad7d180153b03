//! Tiles of rows on which a block works together, its threads, and its shared memory: what the temporal block and the attention
//! have in common.

use cuda_std::misc::hidden;
use cuda_std::prelude::*;

/// Bars of a tile at most, and so the longest window.
pub(crate) const BARS: usize = 64;
/// Rows of a tile at most: those of the shortest window, 4 bars.
pub(crate) const ROWS: usize = BARS / 4;
/// Added to the mean square of RMSNorm.
pub(crate) const RMS_EPSILON: f32 = 1e-5;

/// Blocks for the tiles of `n_rows` rows of `window` bars, at most `most`.
pub(crate) const fn n_tile_blocks(n_rows: usize, window: usize, most: usize) -> usize {
    assert!(window >= 4 && window <= BARS && window.is_multiple_of(4), "a window is 4 to 64 bars, a multiple of 4");
    let n_tiles = n_rows.div_ceil(BARS / window);
    if n_tiles == 0 {
        1
    } else if n_tiles > most {
        most
    } else {
        n_tiles
    }
}

/// Blocks that leave gradients of their own, in blocks of `n_threads`.
pub(crate) const fn n_gradient_parts(n_rows: usize, window: usize, n_threads: u32) -> usize {
    // One block a multiprocessor of an H200. On the CPU few, since each block's gradients are added once more.
    n_tile_blocks(n_rows, window, if n_threads == 1 { 8 } else { 132 })
}

/// Adds the blocks' gradients in order: gradient_i = sum_p parts\[p, i\], a thread an element.
#[inline(always)]
pub(crate) fn add_parts(parts: &GlobalSlice<f32>, gradient: &GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    if index >= gradient.len() {
        return;
    }
    let mut sum = 0.0;
    let mut at = index;
    while at < parts.len() {
        sum += parts.get(at);
        at += gradient.len();
    }
    gradient.set(index, sum);
}

/// The threads of the block: 1 on the CPU, where a block is one coroutine and its barriers cost nothing.
#[derive(Clone, Copy)]
pub(crate) struct Team {
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
pub(crate) struct Tile {
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
pub(crate) fn tiles(n_rows: usize, window: usize) -> impl Iterator<Item = Tile> {
    let most = BARS / window;
    (thread::block_idx_x() as usize * most..n_rows)
        .step_by(thread::grid_dim_x() as usize * most)
        .map(move |first_row| Tile { first_row, n_rows: most.min(n_rows - first_row), window })
}

/// Takes arrays out of the block's dynamic shared memory, one behind the other, each at a multiple of 16 bytes.
pub(crate) struct Taker {
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
