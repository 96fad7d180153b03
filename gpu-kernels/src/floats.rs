//! Several f32 side by side, for arithmetic that is the same in each: one on a GPU, where a thread has a lane of its own;
//! [`Four`] on the CPU; [`Eight`] where it has AVX2. Every lane is rounded as one f32 alone would be, so that how many there are shows
//! in no bit.

#[cfg(target_arch = "x86_64")]
mod eight;
mod four;
mod one;

use core::ops::{Add, Mul, Neg, Sub};

use cuda_std::prelude::*;
use cuda_std::view::{Panel, PanelMut};
#[cfg(target_arch = "x86_64")]
pub(crate) use eight::{Eight, has_avx2, with_avx2};
use shared_types::Precision;

use crate::four::Four;
use crate::math;

/// Several f32 side by side. What takes or makes one is inlined, a closure too: outside of the function that is compiled for AVX2 each
/// operation on [`Eight`] is a call.
pub(crate) trait Floats:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// How many.
    const N: usize;
    /// Zeros.
    const ZERO: Self;

    /// The same value everywhere.
    fn splat(value: f32) -> Self;

    /// Calls `take` with `first` and the value of lane 0, `first` + `step` and the next.
    fn each(self, first: usize, step: usize, take: &mut impl FnMut(usize, f32));

    /// self + a b, rounded twice on the CPU.
    fn add_product(self, a: Self, b: Self) -> Self;

    /// e^x; on the CPU within 2^-22 of itself for x up to 88, beyond which it is e^88. NaN for NaN.
    fn exp(self) -> Self;

    /// 1 / x.
    fn rcp(self) -> Self;

    /// As a product takes them.
    fn rounded(self, precision: Precision) -> Self;

    /// Element i of each of the N fours that begin at `at`, a multiple of 4.
    fn load_fours(from: &GlobalSlice<f32>, at: usize) -> [Self; 4];

    /// Elements `at..at + N`; `at` is a multiple of 4 if N is.
    fn load(from: &SharedSlice<f32>, at: usize) -> Self;

    /// [`load`](Self::load) from global memory.
    fn load_global(from: &GlobalSlice<f32>, at: usize) -> Self;

    /// Stores elements `at..at + N`; `at` is a multiple of 4 if N is.
    fn store(self, to: &SharedSlice<f32>, at: usize);
}

/// What products and softmax take besides: at least four.
pub(crate) trait Vector: Floats {
    /// The same four again and again.
    fn of_four(four: Four) -> Self;

    /// Lane LANE of each four in all of its lanes.
    fn spread<const LANE: usize>(self) -> Self;

    /// The greater of each two; that of `other` where one is NaN.
    fn max(self, other: Self) -> Self;

    /// 2 to the whole number in the lowest bits.
    fn power_of_two(self) -> Self;

    /// self, or 0 where x < `least`; so for a NaN.
    fn zero_below(self, x: Self, least: f32) -> Self;

    /// e^x for x <= 0, as [`math::exp_nonpositive`]: the same arithmetic, and the same bits where products and sums are not fused.
    #[inline(always)]
    fn exp_nonpositive(self) -> Self {
        // Under -87 the power is none.
        power_of_e(self).zero_below(self, -87.0)
    }

    /// Calls `put` with `first` and the first four, `first` + 4 and the next.
    fn each_four(self, first: usize, put: &impl Fn(usize, Four));

    /// Adds to elements `at..at + N`, `at` a multiple of 4.
    fn add_to(self, to: &GlobalSliceMut<f32>, at: usize);

    /// Elements of a panel's row.
    ///
    /// # Safety
    /// `column..column + N` of the row are the panel's, and the memory of its view is still there; `column` is a multiple of 4.
    unsafe fn of_panel(panel: &Panel<f32>, row: usize, column: usize) -> Self;

    /// Elements of a row of operands, widened.
    ///
    /// # Safety
    /// As of [`of_panel`](Self::of_panel), of operands in `precision`.
    unsafe fn of_operands(panel: &Panel<u16>, row: usize, column: usize, precision: Precision) -> Self;

    /// Stores elements of a panel's row.
    ///
    /// # Safety
    /// As of [`of_panel`](Self::of_panel).
    unsafe fn to_panel(self, panel: &PanelMut<f32>, row: usize, column: usize);

    /// Rows 0 to 3 of A times rows 0 to 3 of B, over K columns of each: sums in four parts by k mod 4.
    ///
    /// # Safety
    /// A and B have those rows and columns, and the memory of their views is still there.
    unsafe fn four_dots<const K: usize>(a: &impl Elements, b: &impl Elements) -> [Four; 4];
}

/// e^x for x from -87 to 88.
#[inline(always)]
fn power_of_e<V: Vector>(x: V) -> V {
    let shifted = x * V::splat(core::f32::consts::LOG2_E) + V::splat(math::WHOLE);
    let n = shifted - V::splat(math::WHOLE);
    let r = (x - n * V::splat(math::LN_2_HIGH)) - n * V::splat(math::LN_2_LOW);
    let mut series = V::splat(math::EXP_SERIES[0]);
    for coefficient in &math::EXP_SERIES[1..] {
        series = V::splat(*coefficient) + r * series;
    }
    let series = V::splat(1.0) + (r + r * r * series);
    series * shifted.power_of_two()
}

/// [`Floats::exp`] of vectors.
#[inline(always)]
fn bounded_exp<V: Vector>(x: V) -> V {
    // A NaN comes out of both. The lesser of two is the greater of their opposites.
    let opposite = V::splat(-88.0).max(-V::splat(-87.0).max(x));
    power_of_e(-opposite)
}

/// A panel of elements that become f32.
pub(crate) trait Elements {
    /// Elements of a row.
    ///
    /// # Safety
    /// As of [`Vector::of_panel`].
    unsafe fn take<V: Vector>(&self, row: usize, column: usize) -> V;
}

/// Calls a function that is generic over a [`Vector`] with the widest that there is.
macro_rules! with_widest {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        #[cfg(target_arch = "x86_64")]
        if $crate::floats::has_avx2() {
            // SAFETY: the processor has AVX2.
            unsafe {
                $crate::floats::with_avx2(
                    #[inline(always)]
                    || $function::<$crate::floats::Eight>($($argument),*),
                )
            };
            return;
        }
        $function::<$crate::four::Four>($($argument),*)
    }};
}
pub(crate) use with_widest;

/// The lanes of the elementwise parts of a kernel whose products take V: one on a GPU, V on the CPU.
pub(crate) trait OnTarget {
    type Lanes: Floats;
}

#[cfg(target_os = "cuda")]
impl<V: Vector> OnTarget for V {
    type Lanes = f32;
}

#[cfg(not(target_os = "cuda"))]
impl<V: Vector> OnTarget for V {
    type Lanes = V;
}
