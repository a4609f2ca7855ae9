//! What is wrong between a master and its ResourceManager, and since when.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It does not answer.
    Silent,
    /// It answers, and does not take the token.
    Untrusted,
    /// It refuses what it is asked.
    Refused,
}

/// The trouble there is. Each kind has its own time: a ResourceManager that was away for long and comes back may refuse
/// at first as well.
#[derive(Debug, Default)]
pub(super) struct Since(Option<(Trouble, Instant)>);

impl Since {
    /// There is trouble; for how long by now.
    pub(super) fn has(&mut self, trouble: Trouble, now: Instant) -> Duration {
        match self.0 {
            Some((same, since)) if same == trouble => now.saturating_duration_since(since),
            _ => {
                self.0 = Some((trouble, now));
                Duration::ZERO
            }
        }
    }

    /// There is none any more.
    pub(super) fn over(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_its_own_time() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut since = Since::default();
        assert_eq!(since.has(Trouble::Silent, began), Duration::ZERO);
        assert_eq!(since.has(Trouble::Silent, after(40)).as_secs(), 40);
        assert_eq!(since.has(Trouble::Refused, after(41)), Duration::ZERO);
        assert_eq!(since.has(Trouble::Refused, after(50)).as_secs(), 9);
        assert_eq!(since.has(Trouble::Untrusted, after(51)), Duration::ZERO);
        since.over();
        assert_eq!(since.has(Trouble::Untrusted, after(60)), Duration::ZERO);
    }
}
