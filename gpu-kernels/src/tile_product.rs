//! Products of small tiles by multiply-adds: a thread makes a few rows and columns in registers.
//!
//! Each takes any [`Operand`]s, of which it makes panels, checked once; [`tn`] adds to a matrix in global memory.
//! Sums over k ascend, in [`dots`] and [`four_dots`] in four parts by k mod 4; off by at most k 2^-23 sum |a b|.

use core::ops::Range;

use cuda_std::prelude::*;
use cuda_std::view::Panel;
use shared_types::Precision;

use crate::floats::{Elements, Vector};
use crate::four::Four;

/// Rows that a thread makes.
pub(crate) const EACH_ROWS: usize = 4;
/// Columns that a thread makes in [`dots`].
pub(crate) const NT_COLUMNS: usize = 2;
/// Columns that a thread makes in [`four_dots`].
pub(crate) const FOUR_COLUMNS: usize = 4;

/// Columns that a thread makes in [`blends`] and [`outer_sums`]: two vectors.
#[inline(always)]
pub(crate) const fn wide<V: Vector>() -> usize {
    2 * V::N
}

/// A matrix that a product takes. A trait and no closures, whose calls would not all be inlined.
pub(crate) trait Operand {
    /// Some of its rows and columns.
    fn panel(&self, rows: Range<usize>, columns: Range<usize>) -> impl Elements;
}

/// A B^T over K columns of each: rows `row..row + 4` of A, columns `column..column + 4` of the product, rows of B.
#[inline(always)]
pub(crate) fn four_dots<V: Vector, const K: usize>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    column: usize,
) -> [Four; EACH_ROWS] {
    let a = a.panel(row..row + EACH_ROWS, 0..K);
    let b = b.panel(column..column + FOUR_COLUMNS, 0..K);
    // SAFETY: four rows and K columns of each, of views that are there.
    unsafe { V::four_dots::<K>(&a, &b) }
}

/// A B^T over K columns of each: rows `row..row + 4` of A and the two `columns` of the product, rows of B.
#[inline(always)]
pub(crate) fn dots<const K: usize>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    columns: [usize; NT_COLUMNS],
) -> [[f32; NT_COLUMNS]; EACH_ROWS] {
    let a = a.panel(row..row + EACH_ROWS, 0..K);
    let b = columns.map(|column| b.panel(column..column + 1, 0..K));
    let (mut first, mut second) = ([Four::ZERO; EACH_ROWS], [Four::ZERO; EACH_ROWS]);
    let mut k = 0;
    while k < K {
        let mut left = [Four::ZERO; EACH_ROWS];
        for (i, left) in left.iter_mut().enumerate() {
            // SAFETY: four rows, and four of K columns.
            *left = unsafe { a.take(i, k) };
        }
        // SAFETY: the one row of each, and four of K columns.
        let [right, next]: [Four; NT_COLUMNS] = unsafe { [b[0].take(0, k), b[1].take(0, k)] };
        add_products(&mut first, &left, right);
        add_products(&mut second, &left, next);
        k += 4;
    }
    let mut results = [[0.0; NT_COLUMNS]; EACH_ROWS];
    for (i, result) in results.iter_mut().enumerate() {
        *result = [first[i].sum(), second[i].sum()];
    }
    results
}

#[inline(always)]
fn add_products(sums: &mut [Four; EACH_ROWS], left: &[Four; EACH_ROWS], right: Four) {
    for (sum, left) in sums.iter_mut().zip(left) {
        *sum = sum.add_product(*left, right);
    }
}

/// A B over `depth` columns of A, a multiple of 4: rows `row..row + M`, two vectors of columns from `column` on.
#[inline(always)]
pub(crate) fn blends<V: Vector, const M: usize>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    column: usize,
    depth: usize,
) -> [[V; 2]; M] {
    let (a, b) = (a.panel(row..row + M, 0..depth), b.panel(0..depth, column..column + wide::<V>()));
    let mut sums = [[V::ZERO; 2]; M];
    let mut k = 0;
    while k < depth {
        let mut left = [V::ZERO; M];
        for (i, left) in left.iter_mut().enumerate() {
            // SAFETY: M rows, and four of `depth` columns, a multiple of 4.
            *left = V::of_four(unsafe { a.take(i, k) });
        }
        // SAFETY: four of `depth` rows, and all columns.
        unsafe {
            step::<V, 0, M>(&mut sums, &left, &b, k);
            step::<V, 1, M>(&mut sums, &left, &b, k + 1);
            step::<V, 2, M>(&mut sums, &left, &b, k + 2);
            step::<V, 3, M>(&mut sums, &left, &b, k + 3);
        }
        k += 4;
    }
    sums
}

/// Adds lane L of each of `left` times row `k` of `b`.
///
/// # Safety
/// The row is the panel's, which has two vectors of columns.
#[inline(always)]
unsafe fn step<V: Vector, const L: usize, const M: usize>(
    sums: &mut [[V; 2]; M],
    left: &[V; M],
    b: &impl Elements,
    k: usize,
) {
    // SAFETY: the caller's promise.
    let (low, high): (V, V) = unsafe { (b.take(k, 0), b.take(k, V::N)) };
    for i in 0..M {
        let spread = left[i].spread::<L>();
        sums[i][0] = sums[i][0].add_product(spread, low);
        sums[i][1] = sums[i][1].add_product(spread, high);
    }
}

/// A^T B over `depth` rows of each: rows `row..row + 4`, two vectors of columns from `column` on.
#[inline(always)]
pub(crate) fn outer_sums<V: Vector>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    column: usize,
    depth: usize,
) -> [[V; 2]; EACH_ROWS] {
    let (a, b) = (a.panel(0..depth, row..row + EACH_ROWS), b.panel(0..depth, column..column + wide::<V>()));
    let mut sums = [[V::ZERO; 2]; EACH_ROWS];
    for k in 0..depth {
        // SAFETY: one of `depth` rows of each, and all columns: four, and two vectors.
        let (left, low, high): (V, V, V) = unsafe { (V::of_four(a.take(k, 0)), b.take(k, 0), b.take(k, V::N)) };
        let spread = [left.spread::<0>(), left.spread::<1>(), left.spread::<2>(), left.spread::<3>()];
        for i in 0..EACH_ROWS {
            sums[i][0] = sums[i][0].add_product(spread[i], low);
            sums[i][1] = sums[i][1].add_product(spread[i], high);
        }
    }
    sums
}

/// M rows that lie apart, f32 in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Separate<const M: usize> {
    pub from: SharedSlice<f32>,
    /// Where they begin.
    pub first: [usize; M],
}

impl<const M: usize> Operand for Separate<M> {
    /// Of all M rows.
    #[inline(always)]
    fn panel(&self, _: Range<usize>, columns: Range<usize>) -> impl Elements {
        SeparatePanel(
            self.first.map(|first| self.from.panel::<4>(first + columns.start, 0, 1, columns.end - columns.start)),
        )
    }
}

struct SeparatePanel<const M: usize>([Panel<f32>; M]);

impl<const M: usize> Elements for SeparatePanel<M> {
    #[inline(always)]
    unsafe fn take<V: Vector>(&self, row: usize, column: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::of_panel(&self.0[row], 0, column) }
    }
}

/// A matrix of weights `[any, width]` from operand `first` on.
pub(crate) struct Matrix<'a> {
    pub operands: &'a GlobalSlice<'a, u16>,
    pub precision: Precision,
    pub first: usize,
    pub width: usize,
}

impl Operand for Matrix<'_> {
    #[inline(always)]
    fn panel(&self, rows: Range<usize>, columns: Range<usize>) -> impl Elements {
        let words = self.precision.words();
        let first = words * (self.first + rows.start * self.width + columns.start);
        let (n_rows, n_words) = (rows.end - rows.start, words * (columns.end - columns.start));
        OperandPanel {
            words: self.operands.panel::<4>(first, words * self.width, n_rows, n_words),
            precision: self.precision,
        }
    }
}

struct OperandPanel {
    words: Panel<u16>,
    precision: Precision,
}

impl Elements for OperandPanel {
    #[inline(always)]
    unsafe fn take<V: Vector>(&self, row: usize, column: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::of_operands(&self.words, row, column, self.precision) }
    }
}

/// A matrix in shared memory: row k begins at `first` + k `stride`.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub from: SharedSlice<f32>,
    pub first: usize,
    pub stride: usize,
}

impl Rows {
    #[inline(always)]
    pub fn new(from: SharedSlice<f32>, stride: usize) -> Self {
        Self { from, first: 0, stride }
    }

    /// Columns `column..column + 4` of a row.
    #[inline(always)]
    pub fn four(&self, row: usize, column: usize) -> Four {
        Four::new(self.from.load(self.first + row * self.stride + column))
    }
}

impl Operand for Rows {
    #[inline(always)]
    fn panel(&self, rows: Range<usize>, columns: Range<usize>) -> impl Elements {
        let first = self.first + rows.start * self.stride + columns.start;
        self.from.panel::<4>(first, self.stride, rows.end - rows.start, columns.end - columns.start)
    }
}

impl Elements for Panel<f32> {
    #[inline(always)]
    unsafe fn take<V: Vector>(&self, row: usize, column: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::of_panel(self, row, column) }
    }
}

/// Adds A^T B to a matrix `[m, n]` at the start of `to`: sum_k a\[k, i\] b\[k, j\] over `depth` rows; m a multiple of 4, n of
/// [`wide`]. `share` is the thread's of the pieces of four rows and so many columns.
#[inline(always)]
pub(crate) fn tn<V: Vector>(
    a: Rows,
    b: Rows,
    depth: usize,
    n: usize,
    to: &GlobalSliceMut<f32>,
    share: impl Iterator<Item = usize>,
) {
    let across = n / wide::<V>();
    for piece in share {
        let (row, column) = (piece / across * EACH_ROWS, piece % across * wide::<V>());
        let sums = outer_sums::<V>(&a, row, &b, column, depth);
        for (i, row_sums) in sums.iter().enumerate() {
            for (j, sum) in row_sums.iter().enumerate() {
                sum.add_to(to, (row + i) * n + column + V::N * j);
            }
        }
    }
}
