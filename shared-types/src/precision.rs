//! How the operands of matrix products are kept.

/// What a product with a weight matrix takes: operands rounded once to bf16, or left as they are. Sums are f32 in both.
///
/// A buffer of operands is `[n]` of `u16` with [`Bf16`](Self::Bf16) and `[2 n]`, little-endian f32, with [`F32`](Self::F32).
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Rounded to the nearest bf16, ties to even.
    #[default]
    Bf16 = 0,
    /// Unrounded, for parity with another implementation.
    F32 = 1,
}

impl Precision {
    /// `u16` words of one operand.
    #[inline]
    pub const fn words(self) -> usize {
        match self {
            Self::Bf16 => 1,
            Self::F32 => 2,
        }
    }
}
