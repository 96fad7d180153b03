//! Four f32 side by side: a vector register of an x86-64, four registers elsewhere.
//!
//! The compiler joins scalars to vectors only at its highest level of optimisation and not across checked accesses; this type
//! says so. A product and a sum are rounded each on the CPU and fused on a GPU, as everywhere in the kernels.

use core::ops::{Add, Mul, Neg, Sub};

use shared_types::Precision;

#[cfg(not(target_arch = "x86_64"))]
use self::plain as unit;
#[cfg(target_arch = "x86_64")]
use self::sse as unit;

/// Four f32.
#[derive(Clone, Copy)]
pub struct Four(unit::Vector);

impl Four {
    /// Zeros.
    pub const ZERO: Self = Self(unit::ZERO);

    /// Of an array.
    #[inline(always)]
    pub fn new(lanes: [f32; 4]) -> Self {
        Self(unit::new(lanes))
    }

    /// Of four bf16.
    #[inline(always)]
    pub fn widened(bits: [u16; 4]) -> Self {
        Self(unit::widened(bits))
    }

    /// Of four f32 in halves, the lower first.
    #[inline(always)]
    pub fn joined(words: [u16; 8]) -> Self {
        Self(unit::joined(words))
    }

    /// The same value four times.
    #[inline(always)]
    pub fn splat(value: f32) -> Self {
        Self::new([value; 4])
    }

    /// As the processor's vector.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn vector(self) -> core::arch::x86_64::__m128 {
        self.0
    }

    /// Of the processor's vector.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn of_vector(vector: core::arch::x86_64::__m128) -> Self {
        Self(vector)
    }

    /// As an array.
    #[inline(always)]
    pub fn lanes(self) -> [f32; 4] {
        unit::lanes(self.0)
    }

    /// Lane `LANE` in all four.
    #[inline(always)]
    pub fn spread<const LANE: usize>(self) -> Self {
        Self(unit::spread::<LANE>(self.0))
    }

    /// self + a b.
    #[inline(always)]
    pub fn add_product(self, a: Self, b: Self) -> Self {
        Self(unit::add_product(self.0, a.0, b.0))
    }

    /// As a product takes them: in bf16 rounded to nearest, ties to even.
    #[inline(always)]
    pub fn rounded(self, precision: Precision) -> Self {
        match precision {
            Precision::Bf16 => Self(unit::rounded(self.0)),
            Precision::F32 => self,
        }
    }

    /// The greater of each two; that of `other` where one is NaN.
    #[inline(always)]
    pub fn max(self, other: Self) -> Self {
        Self(unit::max(self.0, other.0))
    }

    /// 2 to the whole number in the lowest bits.
    #[inline(always)]
    pub fn power_of_two(self) -> Self {
        Self(unit::power_of_two(self.0))
    }

    /// self, or 0 where x < `least`; so for a NaN.
    #[inline(always)]
    pub fn zero_below(self, x: Self, least: f32) -> Self {
        Self(unit::zero_below(x.0, least, self.0))
    }

    /// 1 / x.
    #[inline(always)]
    pub fn rcp(self) -> Self {
        Self(unit::rcp(self.0))
    }

    /// (l0 + l1) + (l2 + l3).
    #[inline(always)]
    pub fn sum(self) -> f32 {
        let [a, b, c, d] = self.lanes();
        (a + b) + (c + d)
    }
}

impl Add for Four {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(unit::add(self.0, other.0))
    }
}

impl Sub for Four {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(unit::sub(self.0, other.0))
    }
}

impl Mul for Four {
    type Output = Self;

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(unit::mul(self.0, other.0))
    }
}

impl Neg for Four {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(unit::neg(self.0))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod plain {
    use cuda_std::fast::{pack_bf16x2, unpack_bf16x2};

    pub type Vector = [f32; 4];
    pub const ZERO: Vector = [0.0; 4];

    #[inline(always)]
    pub fn new(lanes: [f32; 4]) -> Vector {
        lanes
    }

    #[inline(always)]
    pub fn widened(bits: [u16; 4]) -> Vector {
        bits.map(|bits| f32::from_bits((bits as u32) << 16))
    }

    #[inline(always)]
    pub fn joined([a, b, c, d, e, f, g, h]: [u16; 8]) -> Vector {
        let joined = |low: u16, high: u16| f32::from_bits(low as u32 | (high as u32) << 16);
        [joined(a, b), joined(c, d), joined(e, f), joined(g, h)]
    }

    #[inline(always)]
    pub fn lanes(vector: Vector) -> [f32; 4] {
        vector
    }

    #[inline(always)]
    pub fn spread<const LANE: usize>(vector: Vector) -> Vector {
        [vector[LANE]; 4]
    }

    #[inline(always)]
    pub fn add(a: Vector, b: Vector) -> Vector {
        core::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    pub fn sub(a: Vector, b: Vector) -> Vector {
        core::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    pub fn mul(a: Vector, b: Vector) -> Vector {
        core::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    pub fn neg(vector: Vector) -> Vector {
        vector.map(|lane| -lane)
    }

    #[inline(always)]
    pub fn max(a: Vector, b: Vector) -> Vector {
        core::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    /// 2 to the whole number in the lowest bits.
    #[inline(always)]
    pub fn power_of_two(shifted: Vector) -> Vector {
        shifted.map(|shifted| f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits())))
    }

    /// 0 where x < `least`, else the value; so for a NaN.
    #[inline(always)]
    pub fn zero_below(x: Vector, least: f32, value: Vector) -> Vector {
        core::array::from_fn(|lane| if x[lane] < least { 0.0 } else { value[lane] })
    }

    #[inline(always)]
    pub fn rcp(vector: Vector) -> Vector {
        vector.map(|lane| 1.0 / lane)
    }

    #[inline(always)]
    pub fn rounded([a, b, c, d]: Vector) -> Vector {
        let ((a, b), (c, d)) = (unpack_bf16x2(pack_bf16x2(a, b)), unpack_bf16x2(pack_bf16x2(c, d)));
        [a, b, c, d]
    }

    #[inline(always)]
    pub fn add_product(sum: Vector, a: Vector, b: Vector) -> Vector {
        core::array::from_fn(|lane| sum[lane] + a[lane] * b[lane])
    }
}

#[cfg(target_arch = "x86_64")]
mod sse {
    use core::arch::x86_64::{
        __m128, _mm_add_epi32, _mm_add_ps, _mm_and_ps, _mm_and_si128, _mm_andnot_ps, _mm_castps_si128,
        _mm_castsi128_ps, _mm_cmplt_ps, _mm_cmpunord_ps, _mm_cvtsi64_si128, _mm_div_ps, _mm_max_ps, _mm_mul_ps,
        _mm_or_ps, _mm_set1_epi32, _mm_set1_ps, _mm_setzero_si128, _mm_shuffle_ps, _mm_slli_epi32, _mm_srli_epi32,
        _mm_sub_ps, _mm_unpacklo_epi16, _mm_xor_ps,
    };

    pub type Vector = __m128;
    // SAFETY: 16 bytes, any of which make a vector.
    pub const ZERO: Vector = unsafe { core::mem::transmute([0.0f32; 4]) };

    #[inline(always)]
    pub fn new(lanes: [f32; 4]) -> Vector {
        // SAFETY: the same 16 bytes. `bytemuck`'s cast is a call unless everything is optimised.
        unsafe { core::mem::transmute(lanes) }
    }

    #[inline(always)]
    pub fn widened(bits: [u16; 4]) -> Vector {
        // SAFETY: every x86-64 has SSE2; four bf16 are 8 bytes.
        unsafe {
            let bits = _mm_cvtsi64_si128(core::mem::transmute::<[u16; 4], i64>(bits));
            _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits))
        }
    }

    #[inline(always)]
    pub fn joined(words: [u16; 8]) -> Vector {
        // SAFETY: the same 16 bytes, the lower half of an f32 first.
        unsafe { core::mem::transmute(words) }
    }

    #[inline(always)]
    pub fn lanes(vector: Vector) -> [f32; 4] {
        // SAFETY: as above.
        unsafe { core::mem::transmute(vector) }
    }

    #[inline(always)]
    pub fn spread<const LANE: usize>(vector: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe {
            match LANE {
                0 => _mm_shuffle_ps::<0b00_00_00_00>(vector, vector),
                1 => _mm_shuffle_ps::<0b01_01_01_01>(vector, vector),
                2 => _mm_shuffle_ps::<0b10_10_10_10>(vector, vector),
                _ => _mm_shuffle_ps::<0b11_11_11_11>(vector, vector),
            }
        }
    }

    #[inline(always)]
    pub fn add(a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_add_ps(a, b) }
    }

    #[inline(always)]
    pub fn sub(a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_sub_ps(a, b) }
    }

    #[inline(always)]
    pub fn mul(a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_mul_ps(a, b) }
    }

    #[inline(always)]
    pub fn neg(vector: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_xor_ps(vector, _mm_set1_ps(-0.0)) }
    }

    #[inline(always)]
    pub fn max(a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_max_ps(a, b) }
    }

    /// 2 to the whole number in the lowest bits.
    #[inline(always)]
    pub fn power_of_two(shifted: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE2.
        unsafe {
            let exponent = _mm_slli_epi32::<23>(_mm_castps_si128(shifted));
            _mm_castsi128_ps(_mm_add_epi32(exponent, _mm_castps_si128(_mm_set1_ps(1.0))))
        }
    }

    /// 0 where x < `least`, else the value; so for a NaN.
    #[inline(always)]
    pub fn zero_below(x: Vector, least: f32, value: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_andnot_ps(_mm_cmplt_ps(x, _mm_set1_ps(least)), value) }
    }

    #[inline(always)]
    pub fn rcp(vector: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_div_ps(_mm_set1_ps(1.0), vector) }
    }

    /// Half of a bf16's step, less one where it is even, carries into the bits that stay. A NaN is left as it is, since the carry
    /// could make a number of it.
    #[inline(always)]
    pub fn rounded(vector: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE2.
        unsafe {
            let bits = _mm_castps_si128(vector);
            let odd = _mm_and_si128(_mm_srli_epi32::<16>(bits), _mm_set1_epi32(1));
            let carried = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
            let number = _mm_castsi128_ps(_mm_and_si128(carried, _mm_set1_epi32(0xffff_0000_u32 as i32)));
            let is_nan = _mm_cmpunord_ps(vector, vector);
            _mm_or_ps(_mm_and_ps(is_nan, vector), _mm_andnot_ps(is_nan, number))
        }
    }

    #[inline(always)]
    pub fn add_product(sum: Vector, a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_add_ps(sum, _mm_mul_ps(a, b)) }
    }
}

#[cfg(test)]
mod tests {
    use shared_types::Precision;

    use super::Four;
    use crate::floats::Vector;
    use crate::{math, operand};

    #[test]
    fn lanes_keep_their_places() {
        let (a, b) = (Four::new([1.0, 2.0, 3.0, 4.0]), Four::new([10.0, 20.0, 30.0, 40.0]));
        assert_eq!((a + b).lanes(), [11.0, 22.0, 33.0, 44.0]);
        assert_eq!(Four::ZERO.add_product(a, b).lanes(), [10.0, 40.0, 90.0, 160.0]);
        assert_eq!((b - a).lanes(), [9.0, 18.0, 27.0, 36.0]);
        assert_eq!((a * b).lanes(), [10.0, 40.0, 90.0, 160.0]);
        assert_eq!(Four::splat(3.0).lanes(), [3.0; 4]);
        assert_eq!(a.sum(), 10.0);
        assert_eq!(Four::new([1.0, -2.0, 0.5, 4.0]).rcp().lanes(), [1.0, -0.5, 2.0, 0.25]);
        assert_eq!(a.spread::<0>().lanes(), [1.0; 4]);
        assert_eq!(a.spread::<1>().lanes(), [2.0; 4]);
        assert_eq!(a.spread::<2>().lanes(), [3.0; 4]);
        assert_eq!(a.spread::<3>().lanes(), [4.0; 4]);
        // 1, -2, 2^-126, and the largest finite bf16.
        let wide = Four::widened([0x3f80, 0xc000, 0x0080, 0x7f7f]).lanes();
        assert_eq!(wide, [1.0, -2.0, f32::MIN_POSITIVE, f32::from_bits(0x7f7f_0000)]);
    }

    #[test]
    fn exponentials_are_those_of_single_ones() {
        let at_the_ends = [0.0, -0.0, -87.0, -87.1, f32::MIN, f32::NEG_INFINITY, f32::NAN, -f32::MIN_POSITIVE];
        for x in (0..100_000).map(|i| -1e-3 * i as f32).chain(at_the_ends) {
            let [got, ..] = Four::splat(x).exp_nonpositive().lanes();
            let want = math::exp_nonpositive(x);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x}: {got} {want}");
        }
    }

    #[test]
    fn the_greater_one_lets_a_nan_behind_it_through() {
        let (left, right) = (Four::new([1.0, 2.0, f32::NAN, 4.0]), Four::new([3.0, 1.0, 5.0, f32::NAN]));
        let [a, b, c, d] = left.max(right).lanes();
        assert!((a, b, c) == (3.0, 2.0, 5.0) && d.is_nan());
    }

    #[test]
    fn operands_round_as_single_ones_do() {
        // Every 997th f32, infinities and NaN among them.
        for bits in (0..=u32::MAX).step_by(997).chain([0x7f80_0000, 0xff80_0000, 0x7f80_0001, u32::MAX]) {
            let x = f32::from_bits(bits);
            let [got, ..] = Four::splat(x).rounded(Precision::Bf16).lanes();
            let want = operand::rounded(x, Precision::Bf16);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}: {got} {want}");
            assert_eq!(Four::splat(x).rounded(Precision::F32).lanes()[0].to_bits(), bits);
        }
    }
}
