//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, section 3.3) and the draws made from it (section 6.1).

use std::f64::consts::TAU;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const N_ROUNDS: usize = 10;

/// First stream of the initial values: tensor i of the layout draws from this plus i.
pub const PARAMETER_STREAM: u32 = 1000;

/// The four random words of a counter under a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for round in 0..N_ROUNDS {
        if round > 0 {
            k = [k[0].wrapping_add(KEY_STEPS[0]), k[1].wrapping_add(KEY_STEPS[1])];
        }
        let product = |i: usize| u64::from(MULTIPLIERS[i]) * u64::from(c[2 * i]);
        let (p0, p1) = (product(0), product(1));
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
    }
    c
}

/// Words of element `element` of stream `stream` at step `rng_step`.
pub fn words(seed: u64, stream: u32, rng_step: u32, element: u32) -> [u32; 4] {
    philox4x32_10([element, stream, rng_step, 0], [seed as u32, (seed >> 32) as u32])
}

/// A word as a uniform in [0, 1): (x >> 8) 2^-24, exact in f32.
pub fn word_to_uniform(word: u32) -> f64 {
    f64::from(word >> 8) * 2f64.powi(-24)
}

/// Uniform in [0, 1): word 0.
pub fn uniform(seed: u64, stream: u32, rng_step: u32, element: u32) -> f64 {
    word_to_uniform(words(seed, stream, rng_step, element)[0])
}

/// Standard normal by Box and Muller (1958): sqrt(-2 ln u1) cos(2 pi u2), u1 = 1 - uniform of word 0, u2 of word 1.
pub fn normal(seed: u64, stream: u32, rng_step: u32, element: u32) -> f64 {
    let [w0, w1, ..] = words(seed, stream, rng_step, element);
    (-2.0 * (1.0 - word_to_uniform(w0)).ln()).sqrt() * (TAU * word_to_uniform(w1)).cos()
}
