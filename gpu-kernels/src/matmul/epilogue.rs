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
    /// Takes the sums of elements `column..column + 4` of row `row` of the product; `column` is a multiple of 4.
    ///
    /// Accesses are of 16 bytes where the product's width, strides and places are multiples of 4, else of 4 bytes.
    #[inline(always)]
    pub fn put4(&self, product: &Product, row: u32, column: u32, sums: [f32; 4]) {
        if row >= product.m || column >= product.n {
            return;
        }
        let at_c = self.part_offset + product.c as usize + row as usize * product.c_stride as usize + column as usize;
        let at_d = product.d as usize + row as usize * product.d_stride as usize + column as usize;
        let whole = (product.c | product.c_stride).is_multiple_of(4) && column + 4 <= product.n;
        match self.epilogue {
            Epilogue::Store => self.store(product, at_c, column, self.biased(product, column, sums), whole),
            Epilogue::Add => {
                let before = self.load(product, at_c, column, whole);
                let after = core::array::from_fn(|i| before[i] + sums[i]);
                self.store(product, at_c, column, after, whole);
            }
            Epilogue::Silu => {
                let values = self.biased(product, column, sums);
                self.store(product, at_c, column, values, whole);
                operand::store4(self.d, at_d, values.map(math::silu), self.precision);
            }
            Epilogue::SiluBackward => {
                let at = self.load(product, at_c, column, whole);
                let values = core::array::from_fn(|i| sums[i] * math::silu_slope(at[i]));
                operand::store4(self.d, at_d, values, self.precision);
            }
        }
    }

    #[inline(always)]
    fn biased(&self, product: &Product, column: u32, sums: [f32; 4]) -> [f32; 4] {
        if self.bias.is_empty() {
            return sums;
        }
        core::array::from_fn(|i| {
            let column = column + i as u32;
            sums[i] + if column < product.n { self.bias.get((product.bias + column) as usize) } else { 0.0 }
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
            return self.c.store(at, values);
        }
        sweep::unrolled::<4>(|i| {
            if column + (i as u32) < product.n {
                self.c.set(at + i, values[i]);
            }
        });
    }
}
