//! How much a store may take.

/// How much of a master's memory a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What is stored, keys and what holds them included.
    pub stored_bytes: usize,
    /// What is waited for, and what is watched.
    pub awaited_bytes: usize,
    /// One answer: a list of keys can be long, and a value can be asked for many times at once.
    pub answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { stored_bytes: 256 << 20, awaited_bytes: 64 << 20, answer_bytes: 32 << 20 }
    }
}
