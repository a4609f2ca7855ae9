//! Reproducible random bytes for tests.

/// Pseudo-random generator (xorshift) with a fixed sequence per seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    /// Returns up to `length_max` random bytes.
    pub(crate) fn any(&mut self, length_max: usize) -> Vec<u8> {
        let length = self.below(length_max + 1);
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Returns valid bytes with a few bytes changed, cut, repeated or inserted.
    pub(crate) fn mutated(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.below(256) as u8),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    }
}
