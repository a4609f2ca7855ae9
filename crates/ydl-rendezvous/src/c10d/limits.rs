//! How much a store may take.

/// How much of a master's memory a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct C10dLimits {
    /// What is stored, keys and what holds them included.
    pub stored_bytes: usize,
    /// What is waited for, and what is watched.
    pub awaited_bytes: usize,
    /// One answer: a list of keys can be long, and a value can be asked for many times at once.
    pub answer_bytes: usize,
}

impl Default for C10dLimits {
    fn default() -> C10dLimits {
        C10dLimits { stored_bytes: 256 << 20, awaited_bytes: 64 << 20, answer_bytes: 32 << 20 }
    }
}
