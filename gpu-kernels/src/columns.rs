//! Sums over rows: gradients of biases and gains.
//!
//! Two stages in a fixed order. The first cuts the rows into stretches and leaves a partial sum a column and stretch; a thread takes
//! four columns of one stretch, its rows in order. [`column_sums()`] adds a column's partial sums in order. The number of
//! stretches depends on the number of rows alone, and no lane shares a sum with another, so every device adds in the same order.
//!
//! Partial sums are `[P, C]`, P = [`n_column_partials`] of the rows, C = `partial_stride` a multiple of 4. Several kernels of a
//! backward pass may fill columns of one such matrix, each given the slice that begins at its first column (a multiple of 4), and
//! one [`column_sums()`] then finishes them all.
//!
//! Error of a sum of n rows: at most (n / P + P) 2^-24 sum |x|, to first order.

use core::ops::Range;

use cuda_std::prelude::*;
use shared_types::Precision;

use crate::operand;
use crate::sweep::{self, VECTOR};

const N_THREADS: u32 = 128;
/// Stretches at most: the second stage adds as many numbers one after the other.
const N_PARTIALS_MAX: usize = 256;
/// Rows of a stretch at least.
const STRETCH_MIN: usize = 8;
/// Rows whose loads a thread of the first stage has in flight. They take 32 registers, which the compiler grants only to a kernel of
/// which no more than 8 blocks need to fit on a multiprocessor.
const AHEAD: usize = 8;
/// Partial sums whose loads a thread of the second stage has in flight.
const PARTIALS_AHEAD: usize = 32;

/// Target of a column that [`column_sums()`] leaves out.
pub const NO_TARGET: u32 = u32::MAX;

/// Rows of a stretch.
pub const fn rows_a_partial(n_rows: usize) -> usize {
    let rows = n_rows.div_ceil(N_PARTIALS_MAX);
    if rows < STRETCH_MIN { STRETCH_MIN } else { rows }
}

/// Stretches, and so partial sums of a column: at most 256.
pub const fn n_column_partials(n_rows: usize) -> usize {
    n_rows.div_ceil(rows_a_partial(n_rows))
}

/// Launch of a first stage over `n_columns` columns, those of all groups together: a thread a stretch and four columns.
pub const fn column_partials_shape(n_rows: usize, n_columns: usize) -> LaunchShape {
    LaunchShape::cover(n_column_partials(n_rows) * n_columns.div_ceil(VECTOR), N_THREADS)
}

/// Launch of [`column_sums()`]: a thread a column.
pub const fn column_sums_shape(n_columns: usize) -> LaunchShape {
    LaunchShape::cover(n_columns, 64)
}

/// What a first stage sums: `n_groups` matrices of `n_rows` rows and `n_columns` columns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnShape {
    /// Rows of a matrix.
    pub n_rows: u32,
    /// Columns of a matrix, a multiple of 4.
    pub n_columns: u32,
    /// Elements from a row to the next, a multiple of 4.
    pub row_stride: u32,
    /// Matrices.
    pub n_groups: u32,
    /// Elements from a matrix to the next, a multiple of 4.
    pub group_stride: u32,
    /// Columns C of the partial sums; group g's column c is column `g n_columns + c`.
    pub partial_stride: u32,
}

impl ColumnShape {
    /// One matrix without gaps, which fills its own partial sums.
    pub const fn dense(n_rows: usize, n_columns: usize) -> Self {
        Self {
            n_rows: n_rows as u32,
            n_columns: n_columns as u32,
            row_stride: n_columns as u32,
            n_groups: 1,
            group_stride: 0,
            partial_stride: n_columns as u32,
        }
    }
}

/// A thread's share of a first stage: four columns of a stretch.
pub(crate) struct Stretch {
    /// Its rows.
    pub(crate) rows: Range<usize>,
    /// First of its columns.
    pub(crate) column: usize,
    /// Row of the partial sums.
    pub(crate) partial: usize,
}

impl Stretch {
    /// This thread's share of `n_rows` rows and `n_columns` columns, if there is one.
    #[inline(always)]
    pub(crate) fn of_thread(n_rows: usize, n_columns: usize) -> Option<Self> {
        let n_vectors = (n_columns / VECTOR) as u32;
        let (partial, vector) = (thread::index_1d() / n_vectors, thread::index_1d() % n_vectors);
        let n = rows_a_partial(n_rows);
        let start = partial as usize * n;
        (start < n_rows).then(|| Self {
            rows: start..n_rows.min(start + n),
            column: vector as usize * VECTOR,
            partial: partial as usize,
        })
    }

    /// Calls `work` with each row and what `load` gives for it, in order.
    #[inline(always)]
    pub(crate) fn for_rows<T: Copy>(&self, load: impl Fn(usize) -> T, work: impl FnMut(usize, T)) {
        sweep::ahead::<AHEAD, T>(self.rows.start, self.rows.end, 1, load, work);
    }
}

/// First stage of the column sums of f32 matrices.
///
/// Shapes: source as `shape` says, partials `[P, C]`. Launch: [`column_partials_shape`] of all groups' columns.
#[kernel(max_threads = 128, min_blocks = 8)]
pub fn column_partials_f32(source: GlobalSlice<f32>, partials: GlobalSliceMut<f32>, shape: ColumnShape) {
    sum_stretch(&partials, &shape, |at| source.load(at));
}

/// First stage of the column sums of matrices of operands.
///
/// Of bf16 operands it sums what the product takes, rounded: beside the unrounded sum the error is at most 2^-8 sum |x|, half the
/// distance of two bf16 around 1. Shapes and launch as [`column_partials_f32()`].
#[kernel(max_threads = 128, min_blocks = 8)]
pub fn column_partials_operands(
    source: GlobalSlice<u16>,
    partials: GlobalSliceMut<f32>,
    shape: ColumnShape,
    precision: Precision,
) {
    sum_stretch(&partials, &shape, |at| operand::load4(&source, at, precision));
}

/// First stage of the sums over rows of factors\[r\] source\[r, c\] of one f32 matrix: the weight gradient of a layer with one output.
///
/// Shapes: source as `shape` says, factors `[R]`, partials `[P, C]`. Launch: [`column_partials_shape`].
#[kernel(max_threads = 128, min_blocks = 8)]
pub fn column_partials_scaled(
    source: GlobalSlice<f32>,
    factors: GlobalSlice<f32>,
    partials: GlobalSliceMut<f32>,
    shape: ColumnShape,
) {
    let Some(stretch) = Stretch::of_thread(shape.n_rows as usize, shape.n_columns as usize) else { return };
    let load = |row: usize| (factors.get(row), source.load(row * shape.row_stride as usize + stretch.column));
    let mut sums = [0.0; VECTOR];
    stretch.for_rows(load, |_, (factor, values): (f32, [f32; VECTOR])| {
        sweep::add(&mut sums, |k| factor * values[k]);
    });
    partials.store(stretch.partial * shape.partial_stride as usize + stretch.column, sums);
}

#[inline(always)]
fn sum_stretch(partials: &GlobalSliceMut<f32>, shape: &ColumnShape, load: impl Fn(usize) -> [f32; VECTOR]) {
    let n_columns = shape.n_columns * shape.n_groups;
    let Some(stretch) = Stretch::of_thread(shape.n_rows as usize, n_columns as usize) else { return };
    let (group, column) = (stretch.column as u32 / shape.n_columns, stretch.column as u32 % shape.n_columns);
    let first = group as usize * shape.group_stride as usize + column as usize;
    let row_stride = shape.row_stride as usize;
    let mut sums = [0.0; VECTOR];
    stretch.for_rows(|row| load(first + row * row_stride), |_, values| sweep::add(&mut sums, |k| values[k]));
    partials.store(stretch.partial * shape.partial_stride as usize + stretch.column, sums);
}

/// Second stage: `out[targets[c]]` = the sum of column c; a column whose target is [`NO_TARGET`] is not read.
///
/// Shapes: partials `[P, C]`, targets `[C]` (no target twice), out `[any]`, for instance the flat gradient. No rows (P = 0) give 0.
/// Launch: [`column_sums_shape`].
#[kernel(max_threads = 64, min_blocks = 16)]
pub fn column_sums(partials: GlobalSlice<f32>, targets: GlobalSlice<u32>, out: GlobalSliceMut<f32>) {
    let (column, n_columns) = (thread::index_1d() as usize, targets.len());
    if column >= n_columns {
        return;
    }
    let target = targets.get(column);
    if target != NO_TARGET {
        out.set(target as usize, sum_of_partials(&partials, column, n_columns));
    }
}

/// Sum of column `column` of partial sums whose rows lie `stride` apart.
#[inline(always)]
pub(crate) fn sum_of_partials(partials: &GlobalSlice<f32>, column: usize, stride: usize) -> f32 {
    let (mut at, mut sum) = (column, 0.0);
    while at + (PARTIALS_AHEAD - 1) * stride < partials.len() {
        let loaded: [f32; PARTIALS_AHEAD] = core::array::from_fn(|i| partials.get(at + i * stride));
        for value in &loaded {
            sum += value;
        }
        at += PARTIALS_AHEAD * stride;
    }
    while at < partials.len() {
        sum += partials.get(at);
        at += stride;
    }
    sum
}
