//! Tiles of bf16 in shared memory and what the tensor cores take of them.
//!
//! All 32 lanes of a warp make each call together. A stored row is a whole number of 16 bytes and an odd multiple of them, so that
//! the eight rows that one `ldmatrix` reads lie in different banks.

use cuda_std::fast::pack_bf16x2;
use cuda_std::misc::hidden;
use cuda_std::prelude::*;
use cuda_std::{matrix, mma};

use crate::tile::{Taker, Team};

/// Elements in 16 bytes.
const UNIT: usize = 8;

/// Where a thread's lane stands in its warp's fragments.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub warp: usize,
    pub lane: usize,
}

impl Lane {
    /// The calling thread's. Each stage asks anew: else the addresses of all stages would be kept in registers from tile to tile.
    #[inline(always)]
    pub fn new() -> Self {
        let thread = hidden(thread::thread_idx_x()) as usize;
        Self { warp: thread / 32, lane: thread % 32 }
    }

    /// Row of elements 0 and 1 of an accumulator; elements 2 and 3 are of the row 8 below.
    #[inline(always)]
    pub fn row(self) -> usize {
        self.lane / 4
    }

    /// Column of elements 0 and 2 of an accumulator; elements 1 and 3 are of the next.
    #[inline(always)]
    pub fn column(self) -> usize {
        2 * (self.lane % 4)
    }
}

/// Writes `$body` out for each number, as a constant: what a loop's variable indexes would lie in local memory.
macro_rules! each {
    ($name:ident in [$($number:literal)*] $body:block) => {
        $({
            const $name: usize = $number;
            $body
        })*
    };
}
pub(crate) use each;

/// A matrix of bf16 in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    words: SharedSlice<u16>,
    /// The same memory, two elements each.
    pairs: SharedSlice<u32>,
    stride: usize,
}

impl Stored {
    /// Distance of the rows of a matrix of `n_columns`.
    pub const fn stride(n_columns: usize) -> usize {
        let units = n_columns.div_ceil(UNIT);
        UNIT * (units + 1 - units % 2)
    }

    /// Bytes of a matrix.
    pub const fn bytes(n_rows: usize, n_columns: usize) -> u32 {
        (2 * n_rows * Self::stride(n_columns)) as u32
    }

    #[inline(always)]
    pub fn take(taker: &mut Taker, n_rows: usize, n_columns: usize) -> Self {
        let stride = Self::stride(n_columns);
        let (words, pairs) = taker.take_twice(n_rows * stride);
        Self { words, pairs, stride }
    }

    /// Zeros everywhere, padding included.
    #[inline(always)]
    pub fn clear(&self, team: Team) {
        team.each(self.pairs.len()).for_each(|pair| self.pairs.set(pair, 0));
    }

    /// Copies weights of `width` columns, by all threads of the block; zeros up to `n_rows` and `n_columns`. Both numbers of columns
    /// are multiples of 4.
    #[inline(always)]
    pub fn copy(&self, from: &GlobalSlice<u16>, n_rows: usize, width: usize, n_columns: usize, team: Team) {
        for piece in team.each(n_rows * n_columns / 4) {
            let (row, column) = (piece * 4 / n_columns, piece * 4 % n_columns);
            let inside = column < width && row * width < from.len();
            let words: [u16; 4] = if inside { from.load(row * width + column) } else { [0; 4] };
            self.words.store(row * self.stride + column, words);
        }
    }

    /// Stores elements (row, column) and (row, column + 1); `column` is even.
    #[inline(always)]
    pub fn set2(&self, row: usize, column: usize, low: f32, high: f32) {
        self.pairs.set((row * self.stride + column) / 2, pack_bf16x2(low, high));
    }

    #[inline(always)]
    pub fn set(&self, row: usize, column: usize, value: f32) {
        self.words.set(row * self.stride + column, pack_bf16x2(value, 0.0) as u16);
    }

    /// Stores an element that is rounded already.
    #[inline(always)]
    pub fn set_word(&self, row: usize, column: usize, word: u16) {
        self.words.set(row * self.stride + column, word);
    }

    /// Stores A, 16 x 16, as rows 0 to 15 from column `first` on.
    #[inline(always)]
    pub fn put(&self, at: Lane, first: usize, a: [u32; 4]) {
        let pair = |row: usize, column: usize| (row * self.stride + first + at.column() + column) / 2;
        self.pairs.set(pair(at.row(), 0), a[0]);
        self.pairs.set(pair(at.row() + 8, 0), a[1]);
        self.pairs.set(pair(at.row(), 8), a[2]);
        self.pairs.set(pair(at.row() + 8, 8), a[3]);
    }

    #[inline(always)]
    fn address(&self, row: usize, column: usize) -> *const u16 {
        self.words.as_ptr().wrapping_add(row * self.stride + column)
    }

    /// A, 16 x 16: row i is stored row `row(i)`, from column `k` on.
    #[inline(always)]
    pub fn a(&self, at: Lane, row: impl Fn(usize) -> usize, k: usize) -> [u32; 4] {
        let address = self.address(row(at.lane % 16), k + at.lane / 16 * UNIT);
        // SAFETY: 16 aligned bytes of a stored row; the whole warp calls, as this module demands.
        unsafe { matrix::load_x4(address) }
    }

    /// A^T, 16 x 16: column i of it is stored row `row(i)`, its rows are the columns from `first` on.
    #[inline(always)]
    pub fn a_across(&self, at: Lane, row: impl Fn(usize) -> usize, first: usize) -> [u32; 4] {
        let k = at.lane % 8 + at.lane / 16 * 8;
        let address = self.address(row(k), first + at.lane / 8 % 2 * UNIT);
        // SAFETY: as above.
        unsafe { matrix::load_x4_trans(address) }
    }

    /// B, 16 x 16 as two of 16 x 8: column j is stored row `first + j`, from column `k` on.
    #[inline(always)]
    pub fn b(&self, at: Lane, first: usize, k: usize) -> [[u32; 2]; 2] {
        let address = self.address(first + at.lane % 8 + at.lane / 16 * 8, k + at.lane / 8 % 2 * UNIT);
        // SAFETY: as above.
        halves(unsafe { matrix::load_x4(address) })
    }

    /// B, 16 x 16 as two of 16 x 8: row i is stored row `row(i)`, from column `first` on.
    #[inline(always)]
    pub fn b_across(&self, at: Lane, row: impl Fn(usize) -> usize, first: usize) -> [[u32; 2]; 2] {
        let address = self.address(row(at.lane % 16), first + at.lane / 16 * UNIT);
        // SAFETY: as above.
        halves(unsafe { matrix::load_x4_trans(address) })
    }

    /// B, 16 x 8: row i is stored row `row(i)`, from column `first` on.
    #[inline(always)]
    pub fn b_across_single(&self, at: Lane, row: impl Fn(usize) -> usize, first: usize) -> [u32; 2] {
        // Lanes from 16 on give addresses that are not used.
        let address = self.address(row(at.lane % 16), first);
        // SAFETY: as above.
        unsafe { matrix::load_x2_trans(address) }
    }

    /// B, 16 x 8: column j is stored row `first + j`, from column `k` on.
    #[inline(always)]
    pub fn b_single(&self, at: Lane, first: usize, k: usize) -> [u32; 2] {
        let address = self.address(first + at.lane % 8, k + at.lane / 8 % 2 * UNIT);
        // SAFETY: as above.
        unsafe { matrix::load_x2(address) }
    }
}

/// sum + A B.
#[inline(always)]
pub(crate) fn multiply(a: [u32; 4], b: [u32; 2], sum: &mut [f32; 4]) {
    // SAFETY: the whole warp calls, as this module demands.
    *sum = unsafe { mma::m16n8k16_bf16(a, b, *sum) };
}

/// B, 16 x 8, of weights `[n, width]` in global memory: column j is row `first + j`, from column `k` on; zeros outside.
#[inline(always)]
pub(crate) fn weights(w: &GlobalSlice<u16>, at: Lane, first: usize, k: usize, width: usize) -> [u32; 2] {
    let pair = |column: usize| {
        let index = (first + at.row()) * width + column;
        if column < width && index < w.len() { w.get(index) as u32 | (w.get(index + 1) as u32) << 16 } else { 0 }
    };
    [pair(k + at.column()), pair(k + at.column() + 8)]
}

/// Two accumulators side by side, 16 x 16, as A.
#[inline(always)]
pub(crate) fn a_of([low, high]: &[[f32; 4]; 2]) -> [u32; 4] {
    [
        pack_bf16x2(low[0], low[1]),
        pack_bf16x2(low[2], low[3]),
        pack_bf16x2(high[0], high[1]),
        pack_bf16x2(high[2], high[3]),
    ]
}

/// The transpose of A as B, two of 16 x 8: row j of A is column j of B.
#[inline(always)]
pub(crate) fn b_of([a, b, c, d]: [u32; 4]) -> [[u32; 2]; 2] {
    [[a, c], [b, d]]
}

#[inline(always)]
fn halves([a, b, c, d]: [u32; 4]) -> [[u32; 2]; 2] {
    [[a, b], [c, d]]
}
