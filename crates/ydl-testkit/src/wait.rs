//! Polling with a timeout.

use std::time::{Duration, Instant};

/// Polls `condition` until it returns a value.
///
/// # Panics
/// Panics after `timeout`, with the name of the awaited event and the text of `context`.
pub fn wait_until<T>(
    event: &str,
    timeout: Duration,
    interval: Duration,
    context: impl Fn() -> String,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {event}; {}", context());
        std::thread::park_timeout(interval);
    }
}
