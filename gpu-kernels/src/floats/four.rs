//! [`Four`] as the others are.

use cuda_std::prelude::*;
use cuda_std::view::{Panel, PanelMut};
use shared_types::Precision;

use super::{Elements, Floats, Vector, bounded_exp};
use crate::four::Four;

impl Floats for Four {
    const N: usize = 4;
    const ZERO: Self = Four::ZERO;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Four::splat(value)
    }

    #[inline(always)]
    fn each(self, first: usize, step: usize, take: &mut impl FnMut(usize, f32)) {
        let [a, b, c, d] = self.lanes();
        take(first, a);
        take(first + step, b);
        take(first + 2 * step, c);
        take(first + 3 * step, d);
    }

    #[inline(always)]
    fn add_product(self, a: Self, b: Self) -> Self {
        Four::add_product(self, a, b)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        bounded_exp(self)
    }

    #[inline(always)]
    fn rcp(self) -> Self {
        Four::rcp(self)
    }

    #[inline(always)]
    fn rounded(self, precision: Precision) -> Self {
        Four::rounded(self, precision)
    }

    #[inline(always)]
    fn load_fours(from: &GlobalSlice<f32>, at: usize) -> [Self; 4] {
        let rows: [[f32; 4]; 4] = core::array::from_fn(|row| from.load(at + 4 * row));
        core::array::from_fn(|i| Four::new([rows[0][i], rows[1][i], rows[2][i], rows[3][i]]))
    }

    #[inline(always)]
    fn load(from: &SharedSlice<f32>, at: usize) -> Self {
        Four::new(from.load(at))
    }

    #[inline(always)]
    fn load_global(from: &GlobalSlice<f32>, at: usize) -> Self {
        Four::new(from.load(at))
    }

    #[inline(always)]
    fn store(self, to: &SharedSlice<f32>, at: usize) {
        to.store(at, self.lanes());
    }
}

impl Vector for Four {
    #[inline(always)]
    fn of_four(four: Four) -> Self {
        four
    }

    #[inline(always)]
    fn spread<const LANE: usize>(self) -> Self {
        Four::spread::<LANE>(self)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Four::max(self, other)
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        Four::power_of_two(self)
    }

    #[inline(always)]
    fn zero_below(self, x: Self, least: f32) -> Self {
        Four::zero_below(self, x, least)
    }

    #[inline(always)]
    fn each_four(self, first: usize, put: &impl Fn(usize, Four)) {
        put(first, self);
    }

    #[inline(always)]
    fn add_to(self, to: &GlobalSliceMut<f32>, at: usize) {
        to.store(at, (Four::new(to.load(at)) + self).lanes());
    }

    #[inline(always)]
    unsafe fn of_panel(panel: &Panel<f32>, row: usize, column: usize) -> Self {
        // SAFETY: the caller's promise.
        Four::new(unsafe { panel.load(row, column) })
    }

    #[inline(always)]
    unsafe fn of_operands(panel: &Panel<u16>, row: usize, column: usize, precision: Precision) -> Self {
        match precision {
            // SAFETY: the caller's promise.
            Precision::Bf16 => Four::widened(unsafe { panel.load(row, column) }),
            // SAFETY: the caller's promise; an operand is two words.
            Precision::F32 => Four::joined(unsafe { panel.load(row, 2 * column) }),
        }
    }

    #[inline(always)]
    unsafe fn to_panel(self, panel: &PanelMut<f32>, row: usize, column: usize) {
        // SAFETY: the caller's promise.
        unsafe { panel.store(row, column, self.lanes()) };
    }

    #[inline(always)]
    unsafe fn four_dots<const K: usize>(a: &impl Elements, b: &impl Elements) -> [Four; 4] {
        // Two columns at a time, whose eight sums stay in registers.
        // SAFETY: the caller's promise.
        let [low, high] = unsafe { [two_dots::<K>(a, b, 0), two_dots::<K>(a, b, 2)] };
        let row = |i: usize| Four::new([low[i][0], low[i][1], high[i][0], high[i][1]]);
        [row(0), row(1), row(2), row(3)]
    }
}

/// Columns `column` and `column + 1` of [`Vector::four_dots`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn two_dots<const K: usize>(a: &impl Elements, b: &impl Elements, column: usize) -> [[f32; 2]; 4] {
    let (mut first, mut second) = ([Four::ZERO; 4], [Four::ZERO; 4]);
    let mut k = 0;
    while k < K {
        // SAFETY: the caller's promise.
        let left: [Four; 4] = unsafe { [a.take(0, k), a.take(1, k), a.take(2, k), a.take(3, k)] };
        // SAFETY: the caller's promise.
        let (right, next): (Four, Four) = unsafe { (b.take(column, k), b.take(column + 1, k)) };
        for i in 0..4 {
            first[i] = first[i].add_product(left[i], right);
            second[i] = second[i].add_product(left[i], next);
        }
        k += 4;
    }
    core::array::from_fn(|i| [first[i].sum(), second[i].sum()])
}
