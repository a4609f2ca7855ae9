//! Health of one replica, as seen by the requests that it was given.

use std::time::{Duration, Instant};

/// Consecutive failures after which a replica is ejected.
const FAILURES_MAX: u32 = 5;
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Time without ejection after which earlier ones are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Good {
        failures: u32,
        since: Instant,
    },
    Ejected {
        until: Instant,
    },
    /// One request at a time finds out if the replica works again.
    Probing {
        is_busy: bool,
    },
}

/// Ejects a replica after consecutive failures, with exponential backoff, and readmits it after a successful probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    condition: Condition,
    /// Recent ejections, which determine the backoff.
    ejections: u32,
}

/// Result of a request, as far as it says something about the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Failure,
    /// The client left, or the request was at fault.
    Unknown,
}

/// Consequence of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Ejected,
    Readmitted,
}

impl Health {
    pub(crate) fn new(now: Instant) -> Health {
        Health { condition: Condition::Good { failures: 0, since: now }, ejections: 0 }
    }

    pub(crate) fn is_ejected(&self) -> bool {
        !matches!(self.condition, Condition::Good { .. })
    }

    /// Returns true if the replica may get a request now.
    pub(crate) fn accepts(&self, now: Instant) -> bool {
        match self.condition {
            Condition::Good { .. } => true,
            Condition::Ejected { until } => now >= until,
            Condition::Probing { is_busy } => !is_busy,
        }
    }

    /// Notes that the replica gets a request. Returns true if the request is a probe.
    pub(crate) fn on_picked(&mut self) -> bool {
        match self.condition {
            Condition::Good { .. } => false,
            Condition::Ejected { .. } | Condition::Probing { .. } => {
                self.condition = Condition::Probing { is_busy: true };
                true
            }
        }
    }

    /// Notes a result. `may_eject` is false if too many replicas are ejected already.
    pub(crate) fn on_ended(
        &mut self,
        now: Instant,
        is_probe: bool,
        verdict: Verdict,
        may_eject: bool,
    ) -> Change {
        match (&mut self.condition, verdict, is_probe) {
            (Condition::Good { failures, .. }, Verdict::Success, _) => *failures = 0,
            (Condition::Good { failures, since }, Verdict::Failure, _) => {
                *failures = failures.saturating_add(1);
                if *failures >= FAILURES_MAX && may_eject {
                    if now.saturating_duration_since(*since) > FORGET_AFTER {
                        self.ejections = 0;
                    }
                    self.eject(now);
                    return Change::Ejected;
                }
            }
            (Condition::Probing { .. }, Verdict::Success, true) => {
                self.condition = Condition::Good { failures: 0, since: now };
                return Change::Readmitted;
            }
            (Condition::Probing { .. }, Verdict::Failure, true) => self.eject(now),
            (Condition::Probing { is_busy }, Verdict::Unknown, true) => *is_busy = false,
            // Requests from before the ejection say nothing new.
            (Condition::Good { .. }, Verdict::Unknown, _)
            | (Condition::Probing { .. } | Condition::Ejected { .. }, ..) => {}
        }
        Change::None
    }

    fn eject(&mut self, now: Instant) {
        let backoff = BACKOFF_MIN.saturating_mul(1 << self.ejections.min(16)).min(BACKOFF_MAX);
        self.ejections = self.ejections.saturating_add(1);
        self.condition = Condition::Ejected { until: now + backoff };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ejected(start: Instant) -> Health {
        let mut health = Health::new(start);
        let changes: Vec<_> =
            (0..5).map(|_| health.on_ended(start, false, Verdict::Failure, true)).collect();
        assert_eq!(changes[4], Change::Ejected);
        assert!(changes[..4].iter().all(|change| *change == Change::None));
        health
    }

    #[test]
    fn five_consecutive_failures_eject() {
        let start = Instant::now();
        let health = ejected(start);
        assert!(!health.accepts(start) && health.is_ejected());
        let mut interrupted = Health::new(start);
        for _ in 0..4 {
            interrupted.on_ended(start, false, Verdict::Failure, true);
        }
        interrupted.on_ended(start, false, Verdict::Success, true);
        assert_eq!(interrupted.on_ended(start, false, Verdict::Failure, true), Change::None);
    }

    #[test]
    fn one_request_at_a_time_probes_after_the_backoff() {
        let start = Instant::now();
        let mut health = ejected(start);
        let later = start + BACKOFF_MIN;
        assert!(health.accepts(later));
        assert!(health.on_picked());
        assert!(!health.accepts(later));
        // An old request of the time before the ejection changes nothing.
        assert_eq!(health.on_ended(later, false, Verdict::Success, true), Change::None);
        assert!(!health.accepts(later));
        // A client that leaves lets the next one probe.
        health.on_ended(later, true, Verdict::Unknown, true);
        assert!(health.accepts(later) && health.on_picked());
        assert_eq!(health.on_ended(later, true, Verdict::Success, true), Change::Readmitted);
        assert!(!health.is_ejected());
    }

    #[test]
    fn the_backoff_doubles_up_to_a_limit_and_is_forgotten_after_a_good_time() {
        let mut now = Instant::now();
        let mut health = ejected(now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = (0..1000).find(|s| health.accepts(now + Duration::from_secs(*s))).unwrap();
            waits.push(wait);
            now += Duration::from_secs(wait);
            health.on_picked();
            health.on_ended(now, true, Verdict::Failure, true);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        now += BACKOFF_MAX;
        health.on_picked();
        health.on_ended(now, true, Verdict::Success, true);
        now += FORGET_AFTER + Duration::from_secs(1);
        for _ in 0..5 {
            health.on_ended(now, false, Verdict::Failure, true);
        }
        assert!(!health.accepts(now) && health.accepts(now + BACKOFF_MIN));
    }

    #[test]
    fn a_replica_stays_while_ejection_is_not_allowed() {
        let now = Instant::now();
        let mut health = Health::new(now);
        for _ in 0..20 {
            assert_eq!(health.on_ended(now, false, Verdict::Failure, false), Change::None);
        }
        assert!(health.accepts(now));
        assert_eq!(health.on_ended(now, false, Verdict::Failure, true), Change::Ejected);
    }
}
