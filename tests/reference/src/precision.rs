//! Products with a weight matrix, and what the kernels round on the way (section 6.4).
//!
//! Both operands of a product are rounded to bf16 once, forwards and backwards; sums stay unrounded here, where the
//! kernels have f32. With [`Precision::Exact`] nothing is rounded, as with `precision = "f32"`.

use crate::matrix::Matrix;

/// What becomes of the operands of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Left as they are.
    Exact,
    /// Rounded to bf16, to nearest, ties to even.
    Bf16,
}

/// Nearest bf16, ties to even, after rounding to f32 as the kernels hold it.
pub fn round_bf16(x: f64) -> f64 {
    let single = x as f32;
    if single.is_nan() {
        return f64::NAN;
    }
    let bits = single.to_bits();
    let ties_to_even = 0x7fff + ((bits >> 16) & 1);
    f64::from(f32::from_bits(bits.wrapping_add(ties_to_even) & 0xffff_0000))
}

impl Precision {
    /// One operand of a product.
    pub fn operand(self, x: f64) -> f64 {
        match self {
            Self::Exact => x,
            Self::Bf16 => round_bf16(x),
        }
    }

    /// All elements as operands.
    pub fn operands(self, m: &Matrix) -> Matrix {
        m.map(|x| self.operand(x))
    }

    /// y = x W^T: x `[n, in]`, W `[out, in]` -> y `[n, out]`.
    pub fn linear(self, x: &Matrix, w: &Matrix) -> Matrix {
        let (x, w) = (self.operands(x), self.operands(w));
        assert_eq!(x.n_cols, w.n_cols, "inner dimensions of x W^T");
        Matrix::from_fn(x.n_rows, w.n_rows, |i, j| x.row(i).iter().zip(w.row(j)).map(|(a, b)| a * b).sum())
    }

    /// dx = dy W: gradient of [`linear`](Self::linear) with respect to x; also the product P V of attention.
    pub fn linear_dx(self, dy: &Matrix, w: &Matrix) -> Matrix {
        let (dy, w) = (self.operands(dy), self.operands(w));
        assert_eq!(dy.n_cols, w.n_rows, "inner dimensions of dy W");
        let mut dx = Matrix::zeros(dy.n_rows, w.n_cols);
        for i in 0..dy.n_rows {
            for k in 0..dy.n_cols {
                let d = dy[(i, k)];
                for (x, w) in dx.row_mut(i).iter_mut().zip(w.row(k)) {
                    *x += d * w;
                }
            }
        }
        dx
    }

    /// dW = dy^T x: gradient of [`linear`](Self::linear) with respect to W.
    pub fn linear_dw(self, dy: &Matrix, x: &Matrix) -> Matrix {
        let (dy, x) = (self.operands(dy), self.operands(x));
        assert_eq!(dy.n_rows, x.n_rows, "inner dimensions of dy^T x");
        let mut dw = Matrix::zeros(dy.n_cols, x.n_cols);
        for i in 0..dy.n_rows {
            for k in 0..dy.n_cols {
                let d = dy[(i, k)];
                for (w, x) in dw.row_mut(k).iter_mut().zip(x.row(i)) {
                    *w += d * x;
                }
            }
        }
        dw
    }
}
