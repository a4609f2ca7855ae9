//! Errors of the ResourceManager connection, and their duration.

use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RmErrorKind {
    /// The ResourceManager does not answer.
    NoResponse,
    /// The ResourceManager rejects the token.
    TokenRejected,
    /// The ResourceManager rejects the request.
    RequestRejected,
}

/// Current error and its start. Each kind has its own duration: a ResourceManager that was down for long may
/// reject requests at first.
#[derive(Debug, Default)]
pub(super) struct ErrorSince(Option<(RmErrorKind, Instant)>);

impl ErrorSince {
    /// Records an error. Returns its duration so far.
    pub(super) fn record(&mut self, kind: RmErrorKind, now: Instant) -> Duration {
        match self.0 {
            Some((same, since)) if same == kind => now.saturating_duration_since(since),
            _ => {
                self.0 = Some((kind, now));
                Duration::ZERO
            }
        }
    }

    /// Clears the error.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_kind_has_its_own_duration() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut since = ErrorSince::default();
        assert_eq!(since.record(RmErrorKind::NoResponse, began), Duration::ZERO);
        assert_eq!(since.record(RmErrorKind::NoResponse, after(40)).as_secs(), 40);
        assert_eq!(since.record(RmErrorKind::RequestRejected, after(41)), Duration::ZERO);
        assert_eq!(since.record(RmErrorKind::RequestRejected, after(50)).as_secs(), 9);
        assert_eq!(since.record(RmErrorKind::TokenRejected, after(51)), Duration::ZERO);
        since.clear();
        assert_eq!(since.record(RmErrorKind::TokenRejected, after(60)), Duration::ZERO);
    }
}
