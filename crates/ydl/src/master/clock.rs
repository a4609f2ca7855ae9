//! The master's clock: it starts at the wall's time and then only ticks, however the wall jumps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ydl_core::Time;

/// A clock that never jumps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    base_ms: u64,
}

impl Clock {
    /// A clock that shows the wall's time now, but nothing before `not_before`: a new master must not be younger
    /// than the journal it goes on from.
    pub fn starting(not_before: Time) -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), base_ms: (wall.as_millis() as u64).max(not_before.0) }
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time(self.base_ms + self.began.elapsed().as_millis() as u64)
    }

    /// The moment at which this clock shows `time`, at once if that has passed.
    pub fn instant(&self, time: Time) -> tokio::time::Instant {
        let ahead = time.0.saturating_sub(self.base_ms);
        tokio::time::Instant::from_std(self.began + Duration::from_millis(ahead))
    }
}
