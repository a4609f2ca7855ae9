//! Random numbers for balancing and ids. Not for secrets.

/// Sequence of random numbers (splitmix64), which a seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    /// Seeds from the system. Without random bytes it starts at a constant: only the distribution suffers.
    pub(crate) fn from_system() -> Random {
        let mut seed = [0; 8];
        match getrandom::fill(&mut seed) {
            Ok(()) => Random::seeded(u64::from_ne_bytes(seed)),
            Err(_) => Random::seeded(0x5851_f42d_4c95_7f2d),
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_the_end_and_reach_all_values() {
        let mut random = Random::seeded(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
    }
}
