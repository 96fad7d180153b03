//! What becomes of a finished sum.

use cuda_std::prelude::*;
use shared_types::{Epilogue, Precision, Product};

use crate::{math, operand};

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
    /// Takes the sum of element (row, column) of the product.
    #[inline(always)]
    pub fn put(&self, product: &Product, row: u32, column: u32, sum: f32) {
        if row >= product.m || column >= product.n {
            return;
        }
        let at_c = self.part_offset + product.c as usize + row as usize * product.c_stride as usize + column as usize;
        let at_d = product.d as usize + row as usize * product.d_stride as usize + column as usize;
        let biased = || {
            let bias = if self.bias.is_empty() { 0.0 } else { self.bias.get((product.bias + column) as usize) };
            sum + bias
        };
        match self.epilogue {
            Epilogue::Store => self.c.set(at_c, biased()),
            Epilogue::Add => self.c.set(at_c, self.c.get(at_c) + sum),
            Epilogue::Silu => {
                let value = biased();
                self.c.set(at_c, value);
                operand::store(self.d, at_d, math::silu(value), self.precision);
            }
            Epilogue::SiluBackward => {
                let value = sum * math::silu_slope(self.c.get(at_c));
                operand::store(self.d, at_d, value, self.precision);
            }
        }
    }
}
