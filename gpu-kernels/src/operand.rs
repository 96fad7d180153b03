//! Operands of matrix products, four at a time: bf16 or f32 in a buffer of `u16`, as [`Precision`] says.

use cuda_std::fast::{pack_bf16x2, unpack_bf16x2};
use cuda_std::prelude::*;
use shared_types::Precision;

/// Stores operands `at..at + 4`; `at` is a multiple of 4.
#[inline(always)]
pub fn store4(to: &GlobalSliceMut<u16>, at: usize, values: [f32; 4], precision: Precision) {
    match precision {
        Precision::Bf16 => to.store(at, rounded4(values)),
        Precision::F32 => {
            let [a, b, c, d] = values.map(f32::to_bits);
            to.store(2 * at, [a, a >> 16, b, b >> 16, c, c >> 16, d, d >> 16].map(|word| word as u16));
        }
    }
}

/// Stores operand `at`.
#[inline(always)]
pub fn store(to: &GlobalSliceMut<u16>, at: usize, value: f32, precision: Precision) {
    match precision {
        Precision::Bf16 => to.set(at, pack_bf16x2(value, 0.0) as u16),
        Precision::F32 => {
            to.set(2 * at, value.to_bits() as u16);
            to.set(2 * at + 1, (value.to_bits() >> 16) as u16);
        }
    }
}

/// Loads operands `at..at + 4`; `at` is a multiple of 4.
#[inline(always)]
pub fn load4(from: &GlobalSlice<u16>, at: usize, precision: Precision) -> [f32; 4] {
    match precision {
        Precision::Bf16 => from.load::<4>(at).map(widened),
        Precision::F32 => {
            let [a, b, c, d, e, f, g, h] = from.load::<8>(2 * at);
            [joined(a, b), joined(c, d), joined(e, f), joined(g, h)]
        }
    }
}

/// Loads operand `at`.
#[inline(always)]
pub fn load(from: &GlobalSlice<u16>, at: usize, precision: Precision) -> f32 {
    match precision {
        Precision::Bf16 => widened(from.get(at)),
        Precision::F32 => joined(from.get(2 * at), from.get(2 * at + 1)),
    }
}

/// The value as a product takes it.
#[inline(always)]
pub fn rounded(value: f32, precision: Precision) -> f32 {
    match precision {
        Precision::Bf16 => unpack_bf16x2(pack_bf16x2(value, 0.0)).0,
        Precision::F32 => value,
    }
}

#[inline(always)]
fn rounded4([a, b, c, d]: [f32; 4]) -> [u16; 4] {
    let (low, high) = (pack_bf16x2(a, b), pack_bf16x2(c, d));
    [low as u16, (low >> 16) as u16, high as u16, (high >> 16) as u16]
}

#[inline(always)]
fn widened(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

#[inline(always)]
fn joined(low: u16, high: u16) -> f32 {
    f32::from_bits(low as u32 | (high as u32) << 16)
}
