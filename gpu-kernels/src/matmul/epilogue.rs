//! What becomes of a finished sum.

use cuda_std::prelude::*;
use shared_types::{Epilogue, Precision, Product};

use crate::{math, operand, sweep};

/// The buffers that results go to, and what is done.
pub(super) struct Results<'a> {
    pub bias: &'a GlobalSlice<'a, f32>,
    pub c: &'a GlobalSliceMut<'a, f32>,
    pub d: &'a GlobalSliceMut<'a, u16>,
    pub epilogue: Epilogue,
    pub precision: Precision,
    /// First element of this part's sums in C.
    pub part_offset: usize,
}

impl Results<'_> {
    /// Takes the sums of elements `column..column + 4` of `N` rows of the product, from `row` on; `column` is a multiple of 4.
    /// Of C all rows are read before the first is written, so that the reads are under way together.
    ///
    /// Accesses are of 16 bytes where the product's width, strides and places are multiples of 4, else of 4 bytes.
    #[inline(always)]
    pub fn put_rows<const N: usize>(&self, product: &Product, row: u32, column: u32, sums: [[f32; 4]; N]) {
        if column >= product.n {
            return;
        }
        let inside = |i: usize| row + (i as u32) < product.m;
        let at =
            |first: u32, stride: u32, i: usize| first as usize + (row as usize + i) * stride as usize + column as usize;
        let at_c = |i: usize| self.part_offset + at(product.c, product.c_stride, i);
        let at_d = |i: usize| at(product.d, product.d_stride, i);
        let whole = (product.c | product.c_stride).is_multiple_of(4) && column + 4 <= product.n;
        let before = || -> [[f32; 4]; N] {
            core::array::from_fn(|i| if inside(i) { self.load(product, at_c(i), column, whole) } else { [0.0; 4] })
        };
        match self.epilogue {
            Epilogue::Store => {
                let bias = self.bias(product, column);
                sweep::unrolled::<N>(|i| {
                    if inside(i) {
                        self.store(product, at_c(i), column, plus(sums[i], bias), whole);
                    }
                });
            }
            Epilogue::Add => {
                let before = before();
                sweep::unrolled::<N>(|i| {
                    if inside(i) {
                        self.store(product, at_c(i), column, plus(before[i], sums[i]), whole);
                    }
                });
            }
            Epilogue::Silu => {
                let bias = self.bias(product, column);
                sweep::unrolled::<N>(|i| {
                    if inside(i) {
                        let values = plus(sums[i], bias);
                        self.store(product, at_c(i), column, values, whole);
                        operand::store4(self.d, at_d(i), values.map(math::silu), self.precision);
                    }
                });
            }
            Epilogue::SiluBackward => {
                let before = before();
                sweep::unrolled::<N>(|i| {
                    if inside(i) {
                        let values = core::array::from_fn(|j| sums[i][j] * math::silu_slope(before[i][j]));
                        operand::store4(self.d, at_d(i), values, self.precision);
                    }
                });
            }
        }
    }

    /// The bias of four columns; 0 if there is none.
    #[inline(always)]
    fn bias(&self, product: &Product, column: u32) -> [f32; 4] {
        core::array::from_fn(|i| {
            let column = column + i as u32;
            let is = !self.bias.is_empty() && column < product.n;
            if is { self.bias.get((product.bias + column) as usize) } else { 0.0 }
        })
    }

    #[inline(always)]
    fn load(&self, product: &Product, at: usize, column: u32, whole: bool) -> [f32; 4] {
        if whole {
            return self.c.load(at);
        }
        core::array::from_fn(|i| if column + (i as u32) < product.n { self.c.get(at + i) } else { 0.0 })
    }

    #[inline(always)]
    fn store(&self, product: &Product, at: usize, column: u32, values: [f32; 4], whole: bool) {
        if whole {
            apart();
            self.c.store(at, values);
            return apart();
        }
        sweep::unrolled::<4>(|i| {
            if column + (i as u32) < product.n {
                self.c.set(at + i, values[i]);
            }
        });
    }
}

#[inline(always)]
fn plus(left: [f32; 4], right: [f32; 4]) -> [f32; 4] {
    core::array::from_fn(|i| left[i] + right[i])
}

/// Keeps what stands on either side from being made once with the like of another branch: of the stores of one word there, and
/// the 16 bytes here, LLVM takes the words that both write out of both, and leaves three stores here.
#[inline(always)]
fn apart() {
    #[cfg(target_os = "cuda")]
    // SAFETY: no instruction.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags))
    }
}
