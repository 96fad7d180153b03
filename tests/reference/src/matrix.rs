//! A dense row-major matrix of `f64` with the few operations that the equations need, written as plain loops.

use std::ops::{Index, IndexMut, Range};

/// Row-major matrix; a batch of vectors has one vector a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub n_rows: usize,
    /// Number of columns.
    pub n_cols: usize,
    /// Elements, row after row.
    pub values: Vec<f64>,
}

impl Matrix {
    /// All zeros.
    pub fn zeros(n_rows: usize, n_cols: usize) -> Self {
        Self { n_rows, n_cols, values: vec![0.0; n_rows * n_cols] }
    }

    /// From elements in row-major order; panics when their number is not `n_rows * n_cols`.
    pub fn from_values(n_rows: usize, n_cols: usize, values: Vec<f64>) -> Self {
        assert_eq!(values.len(), n_rows * n_cols, "a {n_rows} x {n_cols} matrix");
        Self { n_rows, n_cols, values }
    }

    /// Element (i, j) is `f(i, j)`.
    pub fn from_fn(n_rows: usize, n_cols: usize, mut f: impl FnMut(usize, usize) -> f64) -> Self {
        let mut values = Vec::with_capacity(n_rows * n_cols);
        for i in 0..n_rows {
            for j in 0..n_cols {
                values.push(f(i, j));
            }
        }
        Self { n_rows, n_cols, values }
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.n_cols..(i + 1) * self.n_cols]
    }

    /// Row `i`, writable.
    pub fn row_mut(&mut self, i: usize) -> &mut [f64] {
        &mut self.values[i * self.n_cols..(i + 1) * self.n_cols]
    }

    /// Element by element.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { values: self.values.iter().map(|&x| f(x)).collect(), ..*self }
    }

    /// Element by element with another matrix of the same shape.
    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        self.assert_same_shape(other);
        let values = self.values.iter().zip(&other.values).map(|(&x, &y)| f(x, y)).collect();
        Self { values, ..*self }
    }

    /// Adds another matrix of the same shape.
    pub fn add(&mut self, other: &Self) {
        self.assert_same_shape(other);
        for (x, y) in self.values.iter_mut().zip(&other.values) {
            *x += y;
        }
    }

    /// Adds `bias` to each row.
    pub fn add_to_rows(&mut self, bias: &[f64]) {
        assert_eq!(bias.len(), self.n_cols, "one bias a column");
        for i in 0..self.n_rows {
            for (x, b) in self.row_mut(i).iter_mut().zip(bias) {
                *x += b;
            }
        }
    }

    /// Sum over rows: the gradient of what [`add_to_rows`](Self::add_to_rows) added.
    pub fn sum_of_rows(&self) -> Vec<f64> {
        (0..self.n_cols).map(|j| (0..self.n_rows).map(|i| self[(i, j)]).sum()).collect()
    }

    /// Rows become columns.
    pub fn transposed(&self) -> Self {
        Self::from_fn(self.n_cols, self.n_rows, |i, j| self[(j, i)])
    }

    /// The columns of `range`.
    pub fn columns(&self, range: Range<usize>) -> Self {
        Self::from_fn(self.n_rows, range.len(), |i, j| self[(i, range.start + j)])
    }

    /// The rows of `range`.
    pub fn rows(&self, range: Range<usize>) -> Self {
        Self::from_fn(range.len(), self.n_cols, |i, j| self[(range.start + i, j)])
    }

    /// Adds `block` to the columns from `first`.
    pub fn add_to_columns(&mut self, first: usize, block: &Self) {
        assert_eq!(self.n_rows, block.n_rows, "same rows");
        for i in 0..block.n_rows {
            for j in 0..block.n_cols {
                self[(i, first + j)] += block[(i, j)];
            }
        }
    }

    fn assert_same_shape(&self, other: &Self) {
        assert_eq!((self.n_rows, self.n_cols), (other.n_rows, other.n_cols), "same shape");
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        debug_assert!(j < self.n_cols);
        &self.values[i * self.n_cols + j]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        debug_assert!(j < self.n_cols);
        &mut self.values[i * self.n_cols + j]
    }
}

/// Inner product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "same length");
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Euclidean norm.
pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Mean of the elements; 0 for none.
pub fn mean(a: &[f64]) -> f64 {
    if a.is_empty() { 0.0 } else { a.iter().sum::<f64>() / a.len() as f64 }
}

/// Population variance; 0 for no elements.
pub fn variance(a: &[f64]) -> f64 {
    let centre = mean(a);
    mean(&a.iter().map(|x| (x - centre).powi(2)).collect::<Vec<_>>())
}
