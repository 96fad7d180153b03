//! Products of small tiles by multiply-adds: a thread makes a few rows and columns in registers.
//!
//! Left operands are f32 in shared memory, already rounded; right ones are weights in global memory or f32 in shared memory.
//! Sums over k ascend, in [`nt`] in four parts by k mod 4; off by at most k 2^-23 sum |a b|.

use cuda_std::prelude::*;
use shared_types::Precision;

use crate::four::Four;
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
    let (mut first, mut second) = ([Four::ZERO; EACH_ROWS], [Four::ZERO; EACH_ROWS]);
    let mut k = 0;
    while k < K {
        let mut left = [Four::ZERO; EACH_ROWS];
        for i in 0..EACH_ROWS {
            left[i] = Four::new(a[i].load(k));
        }
        add_products(&mut first, &left, weights(&w[0], k, precision));
        add_products(&mut second, &left, weights(&w[1], k, precision));
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
    let mut sums = [[Four::ZERO; 2]; M];
    let mut k = 0;
    while k < depth {
        let mut left = [Four::ZERO; M];
        for i in 0..M {
            left[i] = Four::new(a[i].load(k));
        }
        let at = (first + k) * N + column;
        step::<0, M>(&mut sums, &left, [weights(w, at, precision), weights(w, at + 4, precision)]);
        step::<1, M>(&mut sums, &left, [weights(w, at + N, precision), weights(w, at + N + 4, precision)]);
        step::<2, M>(&mut sums, &left, [weights(w, at + 2 * N, precision), weights(w, at + 2 * N + 4, precision)]);
        step::<3, M>(&mut sums, &left, [weights(w, at + 3 * N, precision), weights(w, at + 3 * N + 4, precision)]);
        k += 4;
    }
    let mut results = [[0.0; WIDE]; M];
    for (result, [low, high]) in results.iter_mut().zip(&sums) {
        *result = joined(low.lanes(), high.lanes());
    }
    results
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

/// Weights `at..at + 4`.
#[inline(always)]
fn weights(w: &GlobalSlice<u16>, at: usize, precision: Precision) -> Four {
    match precision {
        Precision::Bf16 => Four::widened(w.load(at)),
        Precision::F32 => Four::new(operand::load4(w, at, precision)),
    }
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
        let mut sums = [[Four::ZERO; 2]; EACH_ROWS];
        let (mut of_a, mut of_b) = (a.first + row, b.first + column);
        for _ in 0..depth {
            let left = Four::new(a.from.load(of_a));
            let right = [Four::new(b.from.load(of_b)), Four::new(b.from.load(of_b + 4))];
            let spread = [left.spread::<0>(), left.spread::<1>(), left.spread::<2>(), left.spread::<3>()];
            for i in 0..EACH_ROWS {
                sums[i][0] = sums[i][0].add_product(spread[i], right[0]);
                sums[i][1] = sums[i][1].add_product(spread[i], right[1]);
            }
            of_a += a.stride;
            of_b += b.stride;
        }
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
