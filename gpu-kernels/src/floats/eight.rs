//! Eight f32: a vector register of AVX2.
//!
//! What is made of them is compiled for AVX2 by being inlined into [`with_avx2`], which alone makes them reachable.

use core::arch::x86_64::{
    __m128, __m128i, __m256, _CMP_LT_OS, _CMP_UNORD_Q, _mm256_add_epi32, _mm256_add_ps, _mm256_and_ps,
    _mm256_and_si256, _mm256_andnot_ps, _mm256_broadcast_ps, _mm256_castps_si256, _mm256_castps128_ps256,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_div_ps,
    _mm256_extractf128_ps, _mm256_insertf128_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_shuffle_ps, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_sub_ps, _mm256_unpackhi_ps,
    _mm256_unpacklo_ps, _mm256_xor_ps,
};
use core::ops::{Add, Mul, Neg, Sub};

use cuda_std::prelude::*;
use cuda_std::view::{Panel, PanelMut};
use shared_types::Precision;

use super::{Elements, Floats, Vector, bounded_exp};
use crate::four::Four;

/// Eight f32. Made and used inside of [`with_avx2`] alone.
#[derive(Clone, Copy)]
pub(crate) struct Eight(__m256);

/// A vector at any address. `_mm256_loadu_ps` and its like are calls where assertions are on.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Whether the processor has AVX2.
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Runs `work` compiled for AVX2, as far as it is inlined.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn with_avx2(work: impl FnOnce()) {
    work();
}

impl Eight {
    #[inline(always)]
    fn joined(low: Four, high: Four) -> Self {
        // SAFETY: AVX, by the type's contract.
        unsafe { Self(_mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low.vector()), high.vector())) }
    }

    #[inline(always)]
    fn halves(self) -> [Four; 2] {
        // SAFETY: AVX, by the type's contract.
        let (low, high): (__m128, __m128) =
            unsafe { (_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0)) };
        [Four::of_vector(low), Four::of_vector(high)]
    }
}

impl Add for Eight {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }
}

impl Sub for Eight {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }
}

impl Mul for Eight {
    type Output = Self;

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }
}

impl Neg for Eight {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_xor_ps(self.0, _mm256_set1_ps(-0.0)) })
    }
}

impl Floats for Eight {
    const N: usize = 8;
    // SAFETY: 32 bytes, any of which make a vector.
    const ZERO: Self = Self(unsafe { core::mem::transmute::<[f32; 8], __m256>([0.0; 8]) });

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    fn each(self, first: usize, step: usize, take: &mut impl FnMut(usize, f32)) {
        let [low, high] = self.halves();
        low.each(first, step, take);
        high.each(first + 4 * step, step, take);
    }

    #[inline(always)]
    fn add_product(self, a: Self, b: Self) -> Self {
        self + a * b
    }

    #[inline(always)]
    fn exp(self) -> Self {
        bounded_exp(self)
    }

    #[inline(always)]
    fn rcp(self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_div_ps(_mm256_set1_ps(1.0), self.0) })
    }

    /// As that of [`Four`].
    #[inline(always)]
    fn rounded(self, precision: Precision) -> Self {
        if precision == Precision::F32 {
            return self;
        }
        // SAFETY: AVX2, by the type's contract.
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let carried = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let number =
                _mm256_castsi256_ps(_mm256_and_si256(carried, _mm256_set1_epi32(0xffff_0000_u32.cast_signed())));
            let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0);
            Self(_mm256_or_ps(_mm256_and_ps(is_nan, self.0), _mm256_andnot_ps(is_nan, number)))
        }
    }

    #[inline(always)]
    fn load_fours(from: &GlobalSlice<f32>, at: usize) -> [Self; 4] {
        transposed([two_rows(from, at), two_rows(from, at + 4), two_rows(from, at + 8), two_rows(from, at + 12)])
    }

    #[inline(always)]
    fn load(from: &SharedSlice<f32>, at: usize) -> Self {
        Self::joined(Four::new(from.load(at)), Four::new(from.load(at + 4)))
    }

    #[inline(always)]
    fn load_global(from: &GlobalSlice<f32>, at: usize) -> Self {
        Self::joined(Four::new(from.load(at)), Four::new(from.load(at + 4)))
    }

    #[inline(always)]
    fn store(self, to: &SharedSlice<f32>, at: usize) {
        let [low, high] = self.halves();
        to.store(at, low.lanes());
        to.store(at + 4, high.lanes());
    }
}

impl Vector for Eight {
    #[inline(always)]
    fn of_four(four: Four) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_broadcast_ps(&four.vector()) })
    }

    #[inline(always)]
    fn spread<const LANE: usize>(self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe {
            match LANE {
                0 => _mm256_shuffle_ps::<0b00_00_00_00>(self.0, self.0),
                1 => _mm256_shuffle_ps::<0b01_01_01_01>(self.0, self.0),
                2 => _mm256_shuffle_ps::<0b10_10_10_10>(self.0, self.0),
                _ => _mm256_shuffle_ps::<0b11_11_11_11>(self.0, self.0),
            }
        })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        // SAFETY: AVX2, by the type's contract.
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(self.0));
            let of_one = _mm256_castps_si256(_mm256_set1_ps(1.0));
            Self(_mm256_castsi256_ps(_mm256_add_epi32(exponent, of_one)))
        }
    }

    #[inline(always)]
    fn zero_below(self, x: Self, least: f32) -> Self {
        // SAFETY: AVX, by the type's contract.
        Self(unsafe { _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OS>(x.0, _mm256_set1_ps(least)), self.0) })
    }

    #[inline(always)]
    fn each_four(self, first: usize, put: &impl Fn(usize, Four)) {
        let [low, high] = self.halves();
        put(first, low);
        put(first + 4, high);
    }

    #[inline(always)]
    fn add_to(self, to: &GlobalSliceMut<f32>, at: usize) {
        let [low, high] = self.halves();
        low.add_to(to, at);
        high.add_to(to, at + 4);
    }

    #[inline(always)]
    unsafe fn of_panel(panel: &Panel<f32>, row: usize, column: usize) -> Self {
        // SAFETY: eight elements of the panel, by the caller's promise; AVX, by the type's contract.
        Self(unsafe { (*panel.at(row, column).cast::<Unaligned<__m256>>()).0 })
    }

    #[inline(always)]
    unsafe fn of_operands(panel: &Panel<u16>, row: usize, column: usize, precision: Precision) -> Self {
        match precision {
            // SAFETY: eight words of the panel, by the caller's promise; AVX2, by the type's contract.
            Precision::Bf16 => unsafe {
                let words = (*panel.at(row, column).cast::<Unaligned<__m128i>>()).0;
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words))))
            },
            // SAFETY: sixteen words of the panel, by the caller's promise, which are eight f32, the lower half first; AVX, by
            // the type's contract.
            Precision::F32 => Self(unsafe { (*panel.at(row, 2 * column).cast::<Unaligned<__m256>>()).0 }),
        }
    }

    #[inline(always)]
    unsafe fn to_panel(self, panel: &PanelMut<f32>, row: usize, column: usize) {
        // SAFETY: eight elements of the panel, by the caller's promise; AVX, by the type's contract.
        unsafe { *panel.at(row, column).cast::<Unaligned<__m256>>() = Unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn four_dots<const K: usize>(a: &impl Elements, b: &impl Elements) -> [Four; 4] {
        // Rows 0 and 1 in the halves of one vector, 2 and 3 in those of the other: the parts of a sum are as those of `Four`.
        let (mut first, mut second) = ([Self::ZERO; 4], [Self::ZERO; 4]);
        let mut k = 0;
        while k < K {
            // SAFETY: the caller's promise.
            let [r0, r1, r2, r3]: [Four; 4] = unsafe { [a.take(0, k), a.take(1, k), a.take(2, k), a.take(3, k)] };
            let (left_first, left_second) = (Self::joined(r0, r1), Self::joined(r2, r3));
            for column in 0..4 {
                // SAFETY: the caller's promise.
                let right = Self::of_four(unsafe { b.take(column, k) });
                first[column] = first[column].add_product(left_first, right);
                second[column] = second[column].add_product(left_second, right);
            }
            k += 4;
        }
        let ([r0, r1], [r2, r3]) = (sums(first).halves(), sums(second).halves());
        [r0, r1, r2, r3]
    }
}

/// The four at `at` and that four rows of four behind.
#[inline(always)]
fn two_rows(from: &GlobalSlice<f32>, at: usize) -> Eight {
    Eight::joined(Four::new(from.load(at)), Four::new(from.load(at + 16)))
}

/// For each half, the [`Four::sum`] of each of four vectors.
#[inline(always)]
fn sums(vectors: [Eight; 4]) -> Eight {
    let [a, b, c, d] = transposed(vectors);
    (a + b) + (c + d)
}

/// Of each half, lane i of each of four vectors in vector i.
#[inline(always)]
fn transposed([s, t, u, v]: [Eight; 4]) -> [Eight; 4] {
    // SAFETY: AVX, by the type's contract.
    unsafe {
        // Of each half (s0, t0, s1, t1), (s2, t2, s3, t3), and so u and v.
        let (st_low, st_high) = (_mm256_unpacklo_ps(s.0, t.0), _mm256_unpackhi_ps(s.0, t.0));
        let (uv_low, uv_high) = (_mm256_unpacklo_ps(u.0, v.0), _mm256_unpackhi_ps(u.0, v.0));
        [
            Eight(_mm256_shuffle_ps::<0b01_00_01_00>(st_low, uv_low)),
            Eight(_mm256_shuffle_ps::<0b11_10_11_10>(st_low, uv_low)),
            Eight(_mm256_shuffle_ps::<0b01_00_01_00>(st_high, uv_high)),
            Eight(_mm256_shuffle_ps::<0b11_10_11_10>(st_high, uv_high)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a function makes of eight numbers as two vectors of four, and as one of eight.
    fn same_bits(x: [f32; 8], fours: impl Fn(Four) -> Four, eights: impl Fn(Eight) -> Eight) {
        let [a, b, c, d, e, f, g, h] = x;
        let (low, high) = (fours(Four::new([a, b, c, d])).lanes(), fours(Four::new([e, f, g, h])).lanes());
        eights(Eight::joined(Four::new([a, b, c, d]), Four::new([e, f, g, h]))).each(0, 1, &mut |lane, got: f32| {
            let want = if lane < 4 { low[lane] } else { high[lane - 4] };
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:?}: {got} {want}");
        });
    }

    #[test]
    fn eight_are_as_two_times_four() {
        if !has_avx2() {
            return;
        }
        // SAFETY: just asked.
        unsafe { with_avx2(compare) };
    }

    fn compare() {
        for bits in (0..u32::MAX - 8 * 997).step_by(8 * 997) {
            let x = core::array::from_fn(|lane| f32::from_bits(bits + 997 * lane as u32));
            same_bits(x, |x| x.exp(), |x| x.exp());
            same_bits(x, |x| x.exp_nonpositive(), |x| x.exp_nonpositive());
            same_bits(x, |x| x.rcp(), |x| x.rcp());
            same_bits(x, |x| x.rounded(Precision::Bf16), |x| x.rounded(Precision::Bf16));
            same_bits(x, |x| x.spread::<2>().max(x), |x| x.spread::<2>().max(x));
            same_bits(x, |x| x.add_product(x, x) - x, |x| x.add_product(x, x) - x);
        }
    }
}
