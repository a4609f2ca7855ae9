//! Memory limits.

/// Memory limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct C10dLimits {
    /// Stored keys and values, including overhead.
    pub stored_bytes: usize,
    /// Keys of waits, and keys of watches.
    pub wait_bytes: usize,
    /// A single response. A list of keys can be long, and a request can name a key many times.
    pub response_bytes: usize,
}

impl Default for C10dLimits {
    fn default() -> C10dLimits {
        C10dLimits { stored_bytes: 256 << 20, wait_bytes: 64 << 20, response_bytes: 32 << 20 }
    }
}
