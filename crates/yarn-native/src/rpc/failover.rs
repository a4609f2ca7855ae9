//! Which server to call, what to do when it fails, and how long to wait before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::rpc::connection::{Broken, Failure};
use crate::rpc::{Exception, ExceptionKind, Safety};

/// Java waits at most this long when a server thinks it has seen a ticket before.
const REPLAY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Whatever is configured, nobody is called without a pause for ever, nor not at all any more.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// What a failed try leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The next server, or the same one if there is no other.
    Elsewhere,
    /// The same server, over a new connection.
    AtOnce,
    /// The same server, a little later.
    Later,
    /// The same server, after a random while, being one of many that came at the same moment.
    Scattered,
    /// It is not tried again.
    GiveUp,
}

/// Decides by what is safe: what the server has not done, or may do twice, is tried again.
pub(crate) fn judge(failure: &Failure, safety: Safety) -> Verdict {
    match failure {
        Failure::Exception(exception) => judge_exception(exception),
        Failure::NotSent(Broken::Fatal(exception)) => judge_exception(exception),
        Failure::NotSent(Broken::Security(error))
        | Failure::Unanswered(Broken::Security(error)) => {
            // Nothing was carried out in either case that this can be said of: it is said in the
            // handshake.
            if error.is_replay() { Verdict::Scattered } else { Verdict::GiveUp }
        }
        // What does not speak the protocol will not have learnt it the next time.
        Failure::NotSent(Broken::Protocol(_)) | Failure::Unanswered(Broken::Protocol(_)) => {
            Verdict::GiveUp
        }
        // It was our own doing that the connection was closed just then.
        Failure::NotSent(Broken::Idle) => Verdict::AtOnce,
        Failure::NotSent(Broken::Io(_) | Broken::Closed { .. } | Broken::Silent) => {
            Verdict::Elsewhere
        }
        Failure::Unanswered(_) => match safety {
            Safety::Idempotent => Verdict::Elsewhere,
            Safety::Once => Verdict::GiveUp,
        },
    }
}

fn judge_exception(exception: &Exception) -> Verdict {
    match exception.kind() {
        ExceptionKind::Standby => Verdict::Elsewhere,
        ExceptionKind::Retriable | ExceptionKind::Busy => Verdict::Later,
        _ => Verdict::GiveUp,
    }
}

/// Which of several servers was active last. Shared by all calls of a channel.
pub(crate) struct Active {
    index: AtomicUsize,
    servers: usize,
}

impl Active {
    pub(crate) fn new(servers: usize) -> Self {
        Self { index: AtomicUsize::new(0), servers: servers.max(1) }
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// Moves on from a server that failed, unless another call has done so already.
    pub(crate) fn leave(&self, failed: usize) {
        let next = (failed + 1) % self.servers;
        // Losing the race means that somebody else has moved it.
        let _ = self.index.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The pauses between the tries of one call.
pub(crate) struct Pauses {
    max: Duration,
    next: Duration,
    servers: usize,
    moves: usize,
    reopened: bool,
}

impl Pauses {
    pub(crate) fn new(max: Duration, servers: usize) -> Self {
        let max = max.clamp(PAUSE_MIN, PAUSE_MAX);
        // Ten tries in quick succession are as many as a slow network needs to show itself.
        let next = (max / 10).max(PAUSE_MIN);
        Self { max, next, servers: servers.max(1), moves: 0, reopened: false }
    }

    /// How long to wait; `random` is from 0 to 1.
    pub(crate) fn after(&mut self, verdict: Verdict, random: f64) -> Duration {
        match verdict {
            Verdict::Elsewhere => {
                self.moves += 1;
                // The others are tried at once; then everyone has had a chance.
                if !self.moves.is_multiple_of(self.servers) {
                    Duration::ZERO
                } else {
                    self.grow(random)
                }
            }
            // Once is bad luck; more often it is something else.
            Verdict::AtOnce if !std::mem::replace(&mut self.reopened, true) => Duration::ZERO,
            Verdict::AtOnce | Verdict::Later => self.grow(random),
            Verdict::Scattered => REPLAY_PAUSE_MAX.mul_f64(random).max(PAUSE_MIN),
            Verdict::GiveUp => Duration::ZERO,
        }
    }

    fn grow(&mut self, random: f64) -> Duration {
        let pause = self.next.mul_f64(0.5 + random / 2.0);
        self.next = (self.next * 2).min(self.max);
        pause
    }
}

/// A random number from 0 to 1; without randomness the middle, which only makes callers meet.
pub(crate) fn random() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::SecurityError;

    fn exception(class: &str) -> Failure {
        Failure::Exception(Exception::new(&format!("org.apache.hadoop.{class}"), "", None))
    }

    #[test]
    fn only_what_is_safe_is_tried_again() {
        let lost = Failure::Unanswered(Broken::Closed { amid: false });
        assert_eq!(judge(&lost, Safety::Idempotent), Verdict::Elsewhere);
        assert_eq!(judge(&lost, Safety::Once), Verdict::GiveUp);
        let refused = Failure::NotSent(Broken::Io("connection refused".into()));
        assert_eq!(judge(&refused, Safety::Once), Verdict::Elsewhere);
        let standby = exception("ipc.StandbyException");
        assert_eq!(judge(&standby, Safety::Once), Verdict::Elsewhere);
        let later = exception("ipc.RetriableException");
        assert_eq!(judge(&later, Safety::Once), Verdict::Later);
        let unknown = exception("yarn.exceptions.ApplicationNotFoundException");
        assert_eq!(judge(&unknown, Safety::Idempotent), Verdict::GiveUp);
        let garbage = Failure::Unanswered(Broken::protocol("HTTP"));
        assert_eq!(judge(&garbage, Safety::Idempotent), Verdict::GiveUp);
    }

    #[test]
    fn a_failed_handshake_is_final_unless_it_was_a_crowd() {
        let refused = |message: &str| {
            let (class, message) = ("x".to_owned(), message.to_owned());
            Failure::NotSent(Broken::Security(SecurityError::Refused { class, message }))
        };
        assert_eq!(judge(&refused("no"), Safety::Idempotent), Verdict::GiveUp);
        let crowd = refused("GSS initiate failed [Request is a replay (34)]");
        assert_eq!(judge(&crowd, Safety::Once), Verdict::Scattered);
    }

    #[test]
    fn every_server_is_tried_before_anyone_waits() {
        let mut pauses = Pauses::new(Duration::from_secs(1), 3);
        let pause: Vec<u128> =
            (0..9).map(|_| pauses.after(Verdict::Elsewhere, 1.0).as_millis()).collect();
        assert_eq!(pause, [0, 0, 100, 0, 0, 200, 0, 0, 400]);
        assert_eq!(pauses.after(Verdict::Later, 0.0).as_millis(), 400);
        assert_eq!(pauses.after(Verdict::Later, 1.0).as_millis(), 1000);
        assert_eq!(pauses.after(Verdict::Later, 1.0).as_millis(), 1000);
        assert_eq!(pauses.after(Verdict::Scattered, 0.5).as_millis(), 2500);
        assert_eq!(pauses.after(Verdict::AtOnce, 1.0).as_millis(), 0);
        assert_eq!(pauses.after(Verdict::AtOnce, 1.0).as_millis(), 1000);
    }

    #[test]
    fn nobody_is_called_without_a_pause_for_ever() {
        for max in [Duration::ZERO, Duration::MAX] {
            let mut pauses = Pauses::new(max, 1);
            for _ in 0..100 {
                for verdict in [Verdict::Elsewhere, Verdict::Later, Verdict::Scattered] {
                    let pause = pauses.after(verdict, 0.0);
                    assert!(pause > Duration::ZERO && pause <= PAUSE_MAX, "{pause:?}");
                }
            }
        }
    }

    #[test]
    fn many_calls_that_fail_together_move_on_once() {
        let active = Active::new(2);
        active.leave(0);
        active.leave(0);
        active.leave(0);
        assert_eq!(active.index(), 1);
        active.leave(1);
        assert_eq!(active.index(), 0);
    }
}
