//! Pseudo-random numbers from a seed. Our own generator, so that seeds keep their meaning.
#![allow(dead_code)]

#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Adjacent seeds must not give similar sequences.
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03);
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns true once in `n` calls on average.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns random bytes, fewer than `end`.
    pub fn bytes(&mut self, end: usize) -> Vec<u8> {
        let length = self.below(end);
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Returns damaged bytes: bits flipped, pieces removed, repeated or overwritten, the end cut
    /// off.
    pub fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + self.below(4) {
            if bytes.is_empty() {
                return self.bytes(16);
            }
            let at = self.below(bytes.len());
            let length = 1 + self.below(8.min(bytes.len() - at));
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => {
                    bytes[at] = *self.pick(&[0, 1, 0x7f, 0x80, 0x84, 0x88, 0x8f, 0xff, 0x71, 0x75])
                }
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..at + length)),
                4 => {
                    let piece = bytes[at..at + length].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                5 => {
                    for byte in &mut bytes[at..at + length] {
                        *byte = 0xff;
                    }
                }
                _ => {
                    let other = self.bytes(8);
                    bytes.splice(at..at, other);
                }
            }
        }
        bytes
    }
}
