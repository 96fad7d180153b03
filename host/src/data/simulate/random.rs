//! The simulator's random numbers: Philox4x32-10 (Salmon et al. 2011), as everywhere in this program.

/// The simulator's stream number, beyond those of the training step.
const STREAM: u32 = 14;

/// Four random words for one element of one step: key = seed, counter = (element, stream, step, 0).
fn words(seed: u64, element: u32, step: u32) -> [u32; 4] {
    philox4x32_10([element, STREAM, step, 0], [seed as u32, (seed >> 32) as u32])
}

/// Philox4x32-10.
fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        let [a, b] = [u64::from(counter[0]) * 0xD251_1F53, u64::from(counter[2]) * 0xCD9E_8D57];
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
    }
    counter
}

fn uniform_of(word: u32) -> f64 {
    f64::from(word >> 8) / f64::from(1 << 24)
}

/// Uniform in [0, 1), 24 bits.
pub(super) fn uniform(seed: u64, element: u32, step: u32) -> f64 {
    uniform_of(words(seed, element, step)[0])
}

/// Standard normal by Box and Muller's cosine branch.
pub(super) fn normal(seed: u64, element: u32, step: u32) -> f64 {
    let [a, b, ..] = words(seed, element, step);
    (-2.0 * (1.0 - uniform_of(a)).ln()).sqrt() * (std::f64::consts::TAU * uniform_of(b)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published known answers (Random123, `kat_vectors`, philox 4x32 10).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox4x32_10(pi, [0xa409_3822, 0x299f_31d0]), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
