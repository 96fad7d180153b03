//! Shuffled orders from a seed, for the checker.

/// SplitMix64 (Steele, Lea, Flood 2014): a full-period generator whose every seed is good, for shuffles alone.
pub(super) struct Shuffler(u64);

impl Shuffler {
    /// Depends on both words.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed);
        Self(first.next() ^ stream.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform under `n`, to one part in 2^32.
    fn under(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// Permutes `items` (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.under(last as u32 + 1) as usize;
            items.swap(last, other);
        }
    }
}
