//! Products of small tiles by multiply-adds: a thread makes a few rows and columns in registers.
//!
//! Left operands are f32 in shared memory, already rounded; right ones are weights in global memory or f32 in shared memory.
//! Sums over k ascend, in [`nt`] in four parts by k mod 4; off by at most k 2^-23 sum |a b|.

use cuda_std::prelude::*;
use shared_types::Precision;

use crate::operand;

/// Rows that a thread makes.
pub(super) const EACH_ROWS: usize = 4;
/// Columns that a thread makes in [`nt`].
pub(super) const NT_COLUMNS: usize = 2;
/// Columns that a thread makes in [`nn`] and [`tn`].
pub(super) const WIDE: usize = 8;

/// sum_k a_i\[k\] W\[column + j, k\] of rows `a` of K elements and W `[n, K]`.
#[inline(always)]
pub(super) fn nt<const K: usize>(
    a: [SharedSlice<f32>; EACH_ROWS],
    w: &GlobalSlice<u16>,
    column: usize,
    precision: Precision,
) -> [[f32; NT_COLUMNS]; EACH_ROWS] {
    let row_words = K * precision.words();
    let w: [_; NT_COLUMNS] =
        core::array::from_fn(|j| w.sub((column + j) * row_words..(column + j) * row_words + row_words));
    let mut sums = [[[0.0f32; 4]; NT_COLUMNS]; EACH_ROWS];
    for k in (0..K).step_by(4) {
        let left: [[f32; 4]; EACH_ROWS] = core::array::from_fn(|i| a[i].load(k));
        for j in 0..NT_COLUMNS {
            let right = operand::load4(&w[j], k, precision);
            for i in 0..EACH_ROWS {
                for l in 0..4 {
                    sums[i][j][l] += left[i][l] * right[l];
                }
            }
        }
    }
    sums.map(|row| row.map(|[a, b, c, d]| (a + b) + (c + d)))
}

/// sum_k a_i\[k\] W\[first + k, column + j\] over k < `depth`, a multiple of 4, of W `[any, N]`.
#[inline(always)]
pub(super) fn nn<const M: usize, const N: usize>(
    a: [SharedSlice<f32>; M],
    w: &GlobalSlice<u16>,
    first: usize,
    column: usize,
    depth: usize,
    precision: Precision,
) -> [[f32; WIDE]; M] {
    let mut sums = [[0.0f32; WIDE]; M];
    for k in (0..depth).step_by(4) {
        let left: [[f32; 4]; M] = core::array::from_fn(|i| a[i].load(k));
        for l in 0..4 {
            let at = (first + k + l) * N + column;
            let right = joined(operand::load4(w, at, precision), operand::load4(w, at + 4, precision));
            for i in 0..M {
                for j in 0..WIDE {
                    sums[i][j] += left[i][l] * right[j];
                }
            }
        }
    }
    sums
}

/// A left or right operand of [`tn`]: row k begins at `first` + k `stride`.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub from: SharedSlice<f32>,
    pub first: usize,
    pub stride: usize,
}

impl Rows {
    #[inline(always)]
    pub fn new(from: SharedSlice<f32>, stride: usize) -> Self {
        Self { from, first: 0, stride }
    }
}

/// Adds A^T B to a matrix `[m, n]` at the start of `to`: sum_k a\[k, i\] b\[k, j\] over `depth` rows; m a multiple of 4, n of 8.
/// `share` is the thread's of the m n / 32 pieces.
#[inline(always)]
pub(super) fn tn(
    a: Rows,
    b: Rows,
    depth: usize,
    n: usize,
    to: &GlobalSliceMut<f32>,
    share: impl Iterator<Item = usize>,
) {
    let across = n / WIDE;
    for piece in share {
        let (row, column) = (piece / across * EACH_ROWS, piece % across * WIDE);
        let mut sums = [[0.0f32; WIDE]; EACH_ROWS];
        for k in 0..depth {
            let left: [f32; EACH_ROWS] = a.from.load(a.first + k * a.stride + row);
            let at = b.first + k * b.stride + column;
            let right = joined(b.from.load(at), b.from.load(at + 4));
            for i in 0..EACH_ROWS {
                for j in 0..WIDE {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
        for (i, row_sums) in sums.iter().enumerate() {
            for half in [0, 4] {
                let at = (row + i) * n + column + half;
                let before: [f32; 4] = to.load(at);
                to.store::<4>(at, core::array::from_fn(|l| before[l] + row_sums[half + l]));
            }
        }
    }
}

#[inline(always)]
fn joined([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; WIDE] {
    [a, b, c, d, e, f, g, h]
}
