//! Formats numbers and texts for users.

use std::time::{SystemTime, UNIX_EPOCH};
use ydl_core::{Span, Time};

/// Formats a number of bytes with a fitting unit.
pub(crate) fn counted_bytes(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1000.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" || size >= 100.0 {
        format!("{size:.0} {unit}")
    } else {
        format!("{size:.1} {unit}")
    }
}

/// Returns the current wall-clock time.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Time(since.unwrap_or_default().as_millis() as u64)
}

/// Returns the elapsed time in whole seconds.
pub(crate) fn span_since(then: Time) -> Span {
    seconds(now() - then)
}

/// Rounds down to whole seconds.
pub(crate) fn seconds(span: Span) -> Span {
    Span(span.0 / 1000 * 1000)
}

/// Replaces control characters by blanks, so that foreign text cannot send escape sequences to the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_formatted_with_a_fitting_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1536, "1.5 KiB"),
            (312 << 20, "312 MiB"),
            (5 << 29, "2.5 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(counted_bytes(bytes), text);
        }
    }
}
