//! What a launch of matrix products multiplies.

use bytemuck::{Pod, Zeroable};

use crate::assert_layout;

/// One product C = A B of a launch: extents, and where each matrix begins in its buffer, in elements.
///
/// Operands begin at multiples of 8 elements and so do their rows (16 bytes of bf16).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Product {
    /// Rows of C.
    pub m: u32,
    /// Columns of C.
    pub n: u32,
    /// Length of the sums.
    pub k: u32,
    /// First element of A.
    pub a: u32,
    /// Distance of A's stored rows.
    pub a_stride: u32,
    /// First element of B.
    pub b: u32,
    /// Distance of B's stored rows.
    pub b_stride: u32,
    /// First element of C.
    pub c: u32,
    /// Distance of C's rows.
    pub c_stride: u32,
    /// First element of the operand result D.
    pub d: u32,
    /// Distance of D's rows.
    pub d_stride: u32,
    /// First element of the bias, of n.
    pub bias: u32,
}

assert_layout!(Product, size 48, align 4,
    m: u32 = 0, n: u32 = 4, k: u32 = 8, a: u32 = 12, a_stride: u32 = 16, b: u32 = 20, b_stride: u32 = 24, c: u32 = 28,
    c_stride: u32 = 32, d: u32 = 36, d_stride: u32 = 40, bias: u32 = 44);

/// How A and B lie in memory.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductForm {
    /// A `[m, k]`, B `[n, k]`: y = x W^T.
    Nt = 0,
    /// A `[m, k]`, B `[k, n]`: dx = dy W.
    Nn = 1,
    /// A `[k, m]`, B `[k, n]`: dW = dy^T x.
    Tn = 2,
}

/// What becomes of A B.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// C = A B + bias (if there is one).
    Store = 0,
    /// C += A B.
    Add = 1,
    /// C = A B + bias, D = SiLU(C).
    Silu = 2,
    /// D = A B SiLU'(C); C is read.
    SiluBackward = 3,
}
