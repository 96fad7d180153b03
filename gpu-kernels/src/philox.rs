//! The random generator: Philox4x32-10, a function from (counter, key) to four words, without state.
//!
//! Ten rounds of (c0, c1, c2, c3) <- (hi(M1 c2) ^ c1 ^ k0, lo(M1 c2), hi(M0 c0) ^ c3 ^ k1, lo(M0 c0)), the key rising by
//! (W0, W1) after each. Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3
//! and table 2.
//!
//! Here key = (seed low, seed high) and counter = (element, stream, rng_step, 0); stream numbers are
//! [`shared_types::stream`]. One call an element: a uniform is word 0, a normal words 0 and 1.

use core::f32::consts::TAU;

use cuda_std::prelude::*;

use crate::math;

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const N_ROUNDS: u32 = 10;

/// Launch of the kernels below for `n` elements: a thread an element.
pub const fn philox_shape(n: usize) -> LaunchShape {
    LaunchShape::cover(n, 256)
}

/// Raw blocks: `words[i]` is the output for `counter` with word 0 increased by i (wrapping) under `key`.
///
/// Shapes: words `[n]` of four words. Launch: [`philox_shape`].
#[kernel]
pub fn philox_words(counter: [u32; 4], key: [u32; 2], words: GlobalSliceMut<[u32; 4]>) {
    let index = thread::index_1d() as usize;
    if index < words.len() {
        let [element, rest @ ..] = counter;
        words.set(index, philox([element.wrapping_add(index as u32), rest[0], rest[1], rest[2]], key));
    }
}

/// Uniforms in [0, 1): element i of `stream` at `rng_step`. Shapes: values `[n]`. Launch: [`philox_shape`].
#[kernel]
pub fn philox_uniform(seed: [u32; 2], stream: u32, rng_step: u32, values: GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    if index < values.len() {
        values.set(index, uniform(seed, stream, rng_step, index as u32));
    }
}

/// Standard normals times `scale`: element i of `stream` at `rng_step`. Shapes: values `[n]`. Launch: [`philox_shape`].
#[kernel]
pub fn philox_normal(seed: [u32; 2], stream: u32, rng_step: u32, scale: f32, values: GlobalSliceMut<f32>) {
    let index = thread::index_1d() as usize;
    if index < values.len() {
        values.set(index, scale * normal(seed, stream, rng_step, index as u32));
    }
}

/// The four words for `counter` under `key`.
#[inline]
pub const fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < N_ROUNDS {
        let first = MULTIPLIER[0] as u64 * counter[0] as u64;
        let second = MULTIPLIER[1] as u64 * counter[2] as u64;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    counter
}

/// The block of one element of a stream in one step.
#[inline]
pub const fn draw(seed: [u32; 2], stream: u32, rng_step: u32, element: u32) -> [u32; 4] {
    philox([element, stream, rng_step, 0], seed)
}

/// A uniform in [0, 1), a multiple of 2^-24.
#[inline]
pub fn uniform(seed: [u32; 2], stream: u32, rng_step: u32, element: u32) -> f32 {
    unit(draw(seed, stream, rng_step, element)[0])
}

/// A standard normal.
#[inline]
pub fn normal(seed: [u32; 2], stream: u32, rng_step: u32, element: u32) -> f32 {
    let words = draw(seed, stream, rng_step, element);
    box_muller(unit(words[0]), unit(words[1]))
}

/// A word as a uniform in [0, 1): its upper 24 bits, which f32 holds exactly.
#[inline]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// The cosine branch of Box and Muller (1958): sqrt(-2 ln u1) cos(2 pi u2) with u1 = 1 - `first`, so that u1 is never 0.
#[inline]
pub fn box_muller(first: f32, second: f32) -> f32 {
    math::sqrt(-2.0 * math::ln(1.0 - first)) * cos_turns(second)
}

/// cos(2 pi `turns`) for `turns` in `[0, 1]`, within 2^-23.
///
/// The nearest quarter turn is taken off without rounding (both are multiples of 2^-24, or within a factor two of each
/// other), which leaves |x| <= pi/4; there Taylor's series to x^8 (cosine) and x^9 (sine) are 2.5e-8 and 2e-9 off at most.
#[inline]
pub fn cos_turns(turns: f32) -> f32 {
    let quarter = (4.0 * turns + 0.5) as u32;
    let x = TAU * (turns - 0.25 * quarter as f32);
    let y = x * x;
    let value = if quarter & 1 == 0 {
        1.0 + y * (-1.0 / 2.0 + y * (1.0 / 24.0 + y * (-1.0 / 720.0 + y * (1.0 / 40_320.0))))
    } else {
        -x * (1.0 + y * (-1.0 / 6.0 + y * (1.0 / 120.0 + y * (-1.0 / 5_040.0 + y * (1.0 / 362_880.0)))))
    };
    // Quarter 0: cos x. 1: -sin x. 2: -cos x. 3: sin x. 4: cos x.
    if quarter & 2 == 0 { value } else { -value }
}
