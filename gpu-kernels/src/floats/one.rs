//! One f32.

use cuda_std::fast;
use cuda_std::prelude::*;
use shared_types::Precision;

use super::Floats;
use crate::operand;

impl Floats for f32 {
    const N: usize = 1;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn each(self, first: usize, _: usize, take: &mut impl FnMut(usize, f32)) {
        take(first, self);
    }

    #[inline(always)]
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }

    #[inline(always)]
    fn exp(self) -> Self {
        fast::exp(self)
    }

    #[inline(always)]
    fn rcp(self) -> Self {
        fast::rcp(self)
    }

    #[inline(always)]
    fn rounded(self, precision: Precision) -> Self {
        operand::rounded(self, precision)
    }

    #[inline(always)]
    fn load_fours(from: &GlobalSlice<f32>, at: usize) -> [Self; 4] {
        from.load(at)
    }

    #[inline(always)]
    fn load(from: &SharedSlice<f32>, at: usize) -> Self {
        from.get(at)
    }

    #[inline(always)]
    fn load_global(from: &GlobalSlice<f32>, at: usize) -> Self {
        from.get(at)
    }

    #[inline(always)]
    fn store(self, to: &SharedSlice<f32>, at: usize) {
        to.set(at, self);
    }
}
