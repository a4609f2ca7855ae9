//! Clock of the master: starts at wall-clock time and is monotonic from then on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ydl_core::Time;

/// Monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    base_ms: u64,
}

impl Clock {
    /// Starts a clock at wall-clock time, but not before `not_before`: time must not go back relative to the
    /// recovered journal.
    pub(super) fn starting(not_before: Time) -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), base_ms: (wall.as_millis() as u64).max(not_before.0) }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Time {
        Time(self.base_ms + self.began.elapsed().as_millis() as u64)
    }

    /// Returns the instant at which this clock shows `time`, or one in the past.
    pub(super) fn instant(&self, time: Time) -> tokio::time::Instant {
        let ahead = time.0.saturating_sub(self.base_ms);
        tokio::time::Instant::from_std(self.began + Duration::from_millis(ahead))
    }
}
