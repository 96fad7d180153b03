//! Products of small tiles by multiply-adds: a thread makes a few rows and columns in registers.
//!
//! [`dots`], [`blends`] and [`outer_sums`] take any [`Operand`]; [`nt`], [`nn`] and [`tn`] are they with a left operand in shared memory,
//! f32 and already rounded, and weights in global memory or another such operand on the right.
//! Sums over k ascend, in [`dots`] in four parts by k mod 4; off by at most k 2^-23 sum |a b|.

use cuda_std::prelude::*;
use shared_types::Precision;

use crate::four::Four;
use crate::operand;

/// Rows that a thread makes.
pub(crate) const EACH_ROWS: usize = 4;
/// Columns that a thread makes in [`nt`] and [`dots`].
pub(crate) const NT_COLUMNS: usize = 2;
/// Columns that a thread makes in [`nn`] and [`tn`], [`blends`] and [`outer_sums`].
pub(crate) const WIDE: usize = 8;

/// A matrix that a product takes. A trait and no closures, whose calls would not all be inlined.
pub(crate) trait Operand {
    /// Columns `column..column + 4` of a row.
    fn four(&self, row: usize, column: usize) -> Four;

    /// Columns `column..column + 8` of a row.
    #[inline(always)]
    fn wide(&self, row: usize, column: usize) -> [Four; 2] {
        [self.four(row, column), self.four(row, column + 4)]
    }
}

/// A B^T over K columns of each: rows `row..row + 4` of A and the two `columns` of the product, rows of B.
#[inline(always)]
pub(crate) fn dots<const K: usize>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    columns: [usize; NT_COLUMNS],
) -> [[f32; NT_COLUMNS]; EACH_ROWS] {
    let (mut first, mut second) = ([Four::ZERO; EACH_ROWS], [Four::ZERO; EACH_ROWS]);
    let mut k = 0;
    while k < K {
        let mut left = [Four::ZERO; EACH_ROWS];
        for (i, left) in left.iter_mut().enumerate() {
            *left = a.four(row + i, k);
        }
        add_products(&mut first, &left, b.four(columns[0], k));
        add_products(&mut second, &left, b.four(columns[1], k));
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

/// A B over `depth` columns of A, a multiple of 4: rows `row..row + M`, columns `column..column + 8`.
#[inline(always)]
pub(crate) fn blends<const M: usize>(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    column: usize,
    depth: usize,
) -> [[Four; 2]; M] {
    let mut sums = [[Four::ZERO; 2]; M];
    let mut k = 0;
    while k < depth {
        let mut left = [Four::ZERO; M];
        for (i, left) in left.iter_mut().enumerate() {
            *left = a.four(row + i, k);
        }
        step::<0, M>(&mut sums, &left, b.wide(k, column));
        step::<1, M>(&mut sums, &left, b.wide(k + 1, column));
        step::<2, M>(&mut sums, &left, b.wide(k + 2, column));
        step::<3, M>(&mut sums, &left, b.wide(k + 3, column));
        k += 4;
    }
    sums
}

/// Adds lane L of each of `left` times `right`.
#[inline(always)]
fn step<const L: usize, const M: usize>(sums: &mut [[Four; 2]; M], left: &[Four; M], right: [Four; 2]) {
    for i in 0..M {
        let spread = left[i].spread::<L>();
        sums[i][0] = sums[i][0].add_product(spread, right[0]);
        sums[i][1] = sums[i][1].add_product(spread, right[1]);
    }
}

/// A^T B over `depth` rows of each: rows `row..row + 4`, columns `column..column + 8`.
#[inline(always)]
pub(crate) fn outer_sums(
    a: &impl Operand,
    row: usize,
    b: &impl Operand,
    column: usize,
    depth: usize,
) -> [[Four; 2]; EACH_ROWS] {
    let mut sums = [[Four::ZERO; 2]; EACH_ROWS];
    for k in 0..depth {
        let (left, right) = (a.four(k, row), b.wide(k, column));
        let spread = [left.spread::<0>(), left.spread::<1>(), left.spread::<2>(), left.spread::<3>()];
        for i in 0..EACH_ROWS {
            sums[i][0] = sums[i][0].add_product(spread[i], right[0]);
            sums[i][1] = sums[i][1].add_product(spread[i], right[1]);
        }
    }
    sums
}

/// sum_k a_i\[k\] W\[column + j, k\] of rows `a` of K elements and W `[n, K]`.
#[inline(always)]
pub(crate) fn nt<const K: usize>(
    a: [SharedSlice<f32>; EACH_ROWS],
    w: &GlobalSlice<u16>,
    column: usize,
    precision: Precision,
) -> [[f32; NT_COLUMNS]; EACH_ROWS] {
    dots::<K>(&Separate(a), 0, &Matrix { operands: w, precision, first: 0, width: K }, [column, column + 1])
}

/// sum_k a_i\[k\] W\[first + k, column + j\] over k < `depth`, a multiple of 4, of W `[any, N]`.
#[inline(always)]
pub(crate) fn nn<const M: usize, const N: usize>(
    a: [SharedSlice<f32>; M],
    w: &GlobalSlice<u16>,
    first: usize,
    column: usize,
    depth: usize,
    precision: Precision,
) -> [[f32; WIDE]; M] {
    let w = Matrix { operands: w, precision, first: first * N, width: N };
    let sums = blends::<M>(&Separate(a), 0, &w, column, depth);
    let mut results = [[0.0; WIDE]; M];
    for (result, [low, high]) in results.iter_mut().zip(&sums) {
        *result = joined(low.lanes(), high.lanes());
    }
    results
}

/// Rows that lie apart, f32 in shared memory.
struct Separate<const M: usize>([SharedSlice<f32>; M]);

impl<const M: usize> Operand for Separate<M> {
    #[inline(always)]
    fn four(&self, row: usize, column: usize) -> Four {
        Four::new(self.0[row].load(column))
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
    fn four(&self, row: usize, column: usize) -> Four {
        let at = self.first + row * self.width + column;
        match self.precision {
            Precision::Bf16 => Four::widened(self.operands.load(at)),
            Precision::F32 => Four::new(operand::load4(self.operands, at, self.precision)),
        }
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
}

impl Operand for Rows {
    #[inline(always)]
    fn four(&self, row: usize, column: usize) -> Four {
        Four::new(self.from.load(self.first + row * self.stride + column))
    }
}

/// Adds A^T B to a matrix `[m, n]` at the start of `to`: sum_k a\[k, i\] b\[k, j\] over `depth` rows; m a multiple of 4, n of 8.
/// `share` is the thread's of the m n / 32 pieces.
#[inline(always)]
pub(crate) fn tn(
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
        let sums = outer_sums(&a, row, &b, column, depth);
        for (i, row_sums) in sums.iter().enumerate() {
            for (j, sum) in row_sums.iter().enumerate() {
                let at = (row + i) * n + column + 4 * j;
                to.store(at, (Four::new(to.load(at)) + *sum).lanes());
            }
        }
    }
}

#[inline(always)]
fn joined([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; WIDE] {
    [a, b, c, d, e, f, g, h]
}
