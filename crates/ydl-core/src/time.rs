//! Time in the core: an argument in milliseconds that never runs backwards.

use alloc::{format, string::String};
use core::{
    fmt,
    ops::{Add, Sub},
};
use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the epoch, provided by the caller.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A duration in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Span {
    /// Returns a span of `n` seconds.
    pub const fn seconds(n: u64) -> Span {
        Span(n * 1_000)
    }

    /// Returns a span of `n` minutes.
    pub const fn minutes(n: u64) -> Span {
        Span(n * 60_000)
    }

    /// Returns a span of `n` hours.
    pub const fn hours(n: u64) -> Span {
        Span(n * 3_600_000)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

/// Formats the two largest units: `1h 5m`, `12s`, `340ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let mut rest = self.0;
        let mut text = String::new();
        for (at, (size, unit)) in units.iter().enumerate() {
            let n = rest / size;
            rest %= size;
            // Milliseconds are omitted next to larger units.
            if n == 0 || (at == 4 && !text.is_empty()) {
                continue;
            }
            if !text.is_empty() {
                text.push(' ');
                text.push_str(&format!("{n}{unit}"));
                break;
            }
            text = format!("{n}{unit}");
        }
        f.pad(if text.is_empty() { "0s" } else { &text })
    }
}
