//! What the launches and the scratch memory of a table of matrices need to be.

use shared_types::SpectralMatrix;

use super::{MAX_WIDTH, SLAB, VECTOR};

/// Largest sizes in a table of matrices, which fix the launches and the scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpectralSizes {
    /// Networks that have them: the online one, and the target unless there is none.
    pub n_networks: usize,
    /// Matrices of one network.
    pub n_matrices: usize,
    /// Most rows.
    pub rows: usize,
    /// Most columns.
    pub cols: usize,
    /// Most elements.
    pub elements: usize,
    /// Elements of all u of one network.
    pub u_len: usize,
}

impl SpectralSizes {
    /// The sizes of `table`, which `n_networks`, 1 or 2, have each.
    ///
    /// # Panics
    /// If a matrix has more than [`MAX_WIDTH`] rows or columns, or columns that are no multiple of 4.
    pub const fn of(table: &[SpectralMatrix], n_networks: usize) -> Self {
        let mut sizes = Self { n_networks, n_matrices: table.len(), rows: 1, cols: 1, elements: 1, u_len: 0 };
        let mut k = 0;
        while k < table.len() {
            let (rows, cols) = (table[k].n_rows as usize, table[k].n_cols as usize);
            assert!(rows <= MAX_WIDTH && cols <= MAX_WIDTH && cols.is_multiple_of(VECTOR), "a matrix that fits");
            sizes.rows = max(sizes.rows, rows);
            sizes.cols = max(sizes.cols, cols);
            sizes.elements = max(sizes.elements, rows * cols);
            sizes.u_len += rows;
            k += 1;
        }
        sizes
    }

    /// Matrices of all networks.
    pub const fn n_scales(&self) -> usize {
        self.n_networks * self.n_matrices
    }

    /// Elements of all u of all networks.
    pub const fn all_u_len(&self) -> usize {
        self.n_networks * self.u_len
    }

    /// Elements of the scratch memory for W^T u: for each matrix of two networks, `cols` for each slab of 32 rows.
    pub const fn partials_len(&self) -> usize {
        2 * self.n_matrices * self.rows.div_ceil(SLAB) * self.cols
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
