//! Products of small matrices by a whole warp (`mma.sync`): D = A B + C, accumulated in f32.
//!
//! Each lane holds a fragment of each matrix. With g = lane / 4 and t = lane mod 4, an element i of a fragment is
//! (row, column):
//!
//! | shape | A (row-major) | B (column-major) | C and D |
//! |---|---|---|---|
//! | m16n8k16, 16-bit | i in 0..8: (g + 8 (i / 2 mod 2), 2 t + i mod 2 + 8 (i / 4)) | i in 0..4: (2 t + i mod 2 + 8 (i / 2), g) | i in 0..4: (g + 8 (i / 2), 2 t + i mod 2) |
//! | m16n8k8, tf32 | i in 0..4: (g + 8 (i mod 2), t + 4 (i / 2)) | i in 0..2: (t + 4 i, g) | the same |
//!
//! Two 16-bit elements share a register, the even one in the low half. (Source: PTX ISA, matrix fragments for
//! `mma.m16n8k16` and `mma.m16n8k8`.) The functions [`a16`], [`b16`], [`a_tf32`], [`b_tf32`] and [`c`] give these places.
//!
//! On the CPU target the last lane to arrive computes the product, summing over k in ascending order in f32. The GPU adds
//! in an order and with a rounding of its own: for k products of magnitude p the two differ by at most about k p 2^-23.

use crate::target::target;

/// Place of element `i` of a lane's fragment of the 16-bit A, (row, column).
pub const fn a16(lane: u32, i: u32) -> (u32, u32) {
    (lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4))
}

/// Place of element `i` of a lane's fragment of the 16-bit B, (row, column).
pub const fn b16(lane: u32, i: u32) -> (u32, u32) {
    (2 * (lane % 4) + i % 2 + 8 * (i / 2), lane / 4)
}

/// Place of element `i` of a lane's fragment of the tf32 A, (row, column).
pub const fn a_tf32(lane: u32, i: u32) -> (u32, u32) {
    (lane / 4 + 8 * (i % 2), lane % 4 + 4 * (i / 2))
}

/// Place of element `i` of a lane's fragment of the tf32 B, (row, column).
pub const fn b_tf32(lane: u32, i: u32) -> (u32, u32) {
    (lane % 4 + 4 * i, lane / 4)
}

/// Place of element `i` of a lane's fragment of C and D, (row, column).
pub const fn c(lane: u32, i: u32) -> (u32, u32) {
    (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2)
}

#[cfg(target_os = "cuda")]
macro_rules! instruction {
    ($name:literal, $a:ident, $b:ident, $c:ident) => {{
        let [mut d0, mut d1, mut d2, mut d3] = $c;
        // SAFETY: the caller promises that the whole warp is here; works on registers alone.
        unsafe {
            core::arch::asm!(
                concat!($name, " {{{d0}, {d1}, {d2}, {d3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{d0}, {d1}, {d2}, {d3}}};"),
                d0 = inout(reg32) d0,
                d1 = inout(reg32) d1,
                d2 = inout(reg32) d2,
                d3 = inout(reg32) d3,
                a0 = in(reg32) $a[0],
                a1 = in(reg32) $a[1],
                a2 = in(reg32) $a[2],
                a3 = in(reg32) $a[3],
                b0 = in(reg32) $b[0],
                b1 = in(reg32) $b[1],
                options(nomem, nostack, preserves_flags)
            );
        }
        [d0, d1, d2, d3]
    }};
}

macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $instruction:literal, $compute:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// All 32 lanes of the warp make the same call.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub unsafe fn $name(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
            target!(gpu { instruction!($instruction, a, b, c) } cpu {
                crate::cpu::warp_collective(stringify!($name), crate::warp::FULL_MASK, (a, b, c), emulation::$compute)
            })
        }
    };
}

product!(
    /// 16x16 by 16x8 of bf16.
    m16n8k16_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", bf16
);
product!(
    /// 16x16 by 16x8 of f16.
    m16n8k16_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", f16
);
product!(
    /// 16x8 by 8x8 of tf32: f32 bits of which the low 13 are not looked at ([`crate::fast::round_tf32`] rounds).
    m16n8k8_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", tf32
);

#[cfg(not(target_os = "cuda"))]
mod emulation {
    use super::{a_tf32, a16, b_tf32, b16, c};

    type Fragments = ([u32; 4], [u32; 2], [f32; 4]);

    /// The product of matrices that `element` reads from the lanes' fragments: `k` and, for A and B, each lane's elements
    /// with their places.
    fn multiply(
        lanes: &[Option<Fragments>; 32],
        k: usize,
        a_elements: impl Fn(u32, &Fragments) -> Vec<((u32, u32), f32)>,
        b_elements: impl Fn(u32, &Fragments) -> Vec<((u32, u32), f32)>,
    ) -> [[f32; 4]; 32] {
        let (mut a, mut b) = ([[0f32; 16]; 16], [[0f32; 8]; 16]);
        for (lane, fragments) in lanes.iter().enumerate() {
            // A lane that has returned leaves zeros; the GPU's result would be undefined.
            let Some(fragments) = fragments else { continue };
            for ((row, column), value) in a_elements(lane as u32, fragments) {
                a[row as usize][column as usize] = value;
            }
            for ((row, column), value) in b_elements(lane as u32, fragments) {
                b[row as usize][column as usize] = value;
            }
        }
        crate::warp::each_lane(|lane| {
            core::array::from_fn(|i| {
                let (row, column) = c(lane as u32, i as u32);
                let start = lanes[lane].map_or(0.0, |(_, _, accumulator)| accumulator[i]);
                (0..k).fold(start, |sum, k| sum + a[row as usize][k] * b[k][column as usize])
            })
        })
    }

    fn halves(words: &[u32], to_f32: fn(u16) -> f32) -> impl Iterator<Item = (u32, f32)> {
        let elements = words.iter().flat_map(move |&word| [to_f32(word as u16), to_f32((word >> 16) as u16)]);
        (0..).zip(elements.collect::<Vec<_>>())
    }

    fn sixteen_bits(lanes: &[Option<Fragments>; 32], to_f32: fn(u16) -> f32) -> [[f32; 4]; 32] {
        multiply(
            lanes,
            16,
            |lane, (a, _, _)| halves(a, to_f32).map(|(i, value)| (a16(lane, i), value)).collect(),
            |lane, (_, b, _)| halves(b, to_f32).map(|(i, value)| (b16(lane, i), value)).collect(),
        )
    }

    pub fn bf16(lanes: &[Option<Fragments>; 32]) -> [[f32; 4]; 32] {
        sixteen_bits(lanes, |bits| half::bf16::from_bits(bits).to_f32())
    }

    pub fn f16(lanes: &[Option<Fragments>; 32]) -> [[f32; 4]; 32] {
        sixteen_bits(lanes, |bits| half::f16::from_bits(bits).to_f32())
    }

    pub fn tf32(lanes: &[Option<Fragments>; 32]) -> [[f32; 4]; 32] {
        let value = |bits: u32| f32::from_bits(bits & 0xffff_e000);
        multiply(
            lanes,
            8,
            |lane, (a, _, _)| (0..).zip(a).map(|(i, &bits)| (a_tf32(lane, i), value(bits))).collect(),
            |lane, (_, b, _)| (0..).zip(b).map(|(i, &bits)| (b_tf32(lane, i), value(bits))).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place of each matrix belongs to exactly one element of one lane.
    #[test]
    fn fragments_tile_their_matrices() {
        type Place = fn(u32, u32) -> (u32, u32);
        for (name, place, n, rows, columns) in [
            ("a16", a16 as Place, 8, 16, 16),
            ("b16", b16, 4, 16, 8),
            ("a_tf32", a_tf32, 4, 16, 8),
            ("b_tf32", b_tf32, 2, 8, 8),
            ("c", c, 4, 16, 8),
        ] {
            let mut places: Vec<_> = (0..32).flat_map(|lane| (0..n).map(move |i| place(lane, i))).collect();
            places.sort_unstable();
            let all: Vec<_> = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).collect();
            assert_eq!(places, all, "{name}");
        }
    }

    /// A = identity leaves B; the accumulator is added. Values are small integers, exact in bf16.
    #[test]
    fn the_identity_leaves_the_other_matrix() {
        let pack = |low: f32, high: f32| crate::fast::pack_bf16x2(low, high);
        let a = |(row, column)| if row == column { 1.0 } else { 0.0 };
        let b = |(row, column): (u32, u32)| (row * 8 + column) as f32;
        let mut lanes = [None; 32];
        for (lane, slot) in (0..).zip(&mut lanes) {
            let a_words = core::array::from_fn(|w| pack(a(a16(lane, 2 * w as u32)), a(a16(lane, 2 * w as u32 + 1))));
            let b_words = core::array::from_fn(|w| pack(b(b16(lane, 2 * w as u32)), b(b16(lane, 2 * w as u32 + 1))));
            *slot = Some((a_words, b_words, [1000.0; 4]));
        }
        for (lane, fragment) in (0..).zip(emulation::bf16(&lanes)) {
            for (i, value) in (0..).zip(fragment) {
                assert_eq!(value, 1000.0 + b(c(lane, i)));
            }
        }
    }
}
