//! Which server to call, what to do when it fails, and how long to wait before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::rpc::connection::{CallError, ConnectionError};
use crate::rpc::{Exception, ExceptionKind, Safety};

/// Java waits at most this long when a server thinks it has seen a ticket before.
const REPLAY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Whatever is configured, nobody is called without a pause for ever, nor not at all any more.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

/// What a failed try leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAction {
    /// The next server, or the same one if there is no other.
    NextServer,
    /// The same server, over a new connection.
    Reconnect,
    /// The same server, a little later.
    SameServer,
    /// The same server, after a random while, being one of many that came at the same moment.
    RandomDelay,
    /// It is not tried again.
    Fail,
}

/// Decides by what is safe: what the server has not done, or may do twice, is tried again.
pub(crate) fn retry_action(failure: &CallError, safety: Safety) -> RetryAction {
    match failure {
        CallError::Exception(exception) => exception_retry_action(exception),
        CallError::NotSent(ConnectionError::Fatal(exception)) => exception_retry_action(exception),
        CallError::NotSent(ConnectionError::Security(error))
        | CallError::Unanswered(ConnectionError::Security(error)) => {
            // Nothing was carried out in either case that this can be said of: it is said in the
            // handshake.
            if error.is_replay() { RetryAction::RandomDelay } else { RetryAction::Fail }
        }
        // What does not speak the protocol will not have learnt it the next time.
        CallError::NotSent(ConnectionError::Protocol(_))
        | CallError::Unanswered(ConnectionError::Protocol(_)) => RetryAction::Fail,
        // It was our own doing that the connection was closed just then.
        CallError::NotSent(ConnectionError::Idle) => RetryAction::Reconnect,
        CallError::NotSent(
            ConnectionError::Io(_) | ConnectionError::Closed { .. } | ConnectionError::ReadTimeout,
        ) => RetryAction::NextServer,
        CallError::Unanswered(_) => match safety {
            Safety::Idempotent => RetryAction::NextServer,
            Safety::Once => RetryAction::Fail,
        },
    }
}

fn exception_retry_action(exception: &Exception) -> RetryAction {
    match exception.kind() {
        ExceptionKind::Standby => RetryAction::NextServer,
        ExceptionKind::Retriable | ExceptionKind::Busy => RetryAction::SameServer,
        _ => RetryAction::Fail,
    }
}

/// Which of several servers was active last. Shared by all calls of a channel.
pub(crate) struct ActiveServer {
    index: AtomicUsize,
    servers: usize,
}

impl ActiveServer {
    pub(crate) fn new(servers: usize) -> Self {
        Self { index: AtomicUsize::new(0), servers: servers.max(1) }
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    /// Moves on from a server that failed, unless another call has done so already.
    pub(crate) fn advance_from(&self, failed: usize) {
        let next = (failed + 1) % self.servers;
        // Losing the race means that somebody else has moved it.
        let _ = self.index.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The pauses between the tries of one call.
pub(crate) struct RetryBackoff {
    max: Duration,
    next: Duration,
    servers: usize,
    switches: usize,
    reopened: bool,
}

impl RetryBackoff {
    pub(crate) fn new(max: Duration, servers: usize) -> Self {
        let max = max.clamp(BACKOFF_MIN, BACKOFF_MAX);
        // Ten tries in quick succession are as many as a slow network needs to show itself.
        let next = (max / 10).max(BACKOFF_MIN);
        Self { max, next, servers: servers.max(1), switches: 0, reopened: false }
    }

    /// How long to wait; `random` is from 0 to 1.
    pub(crate) fn after(&mut self, action: RetryAction, random: f64) -> Duration {
        match action {
            RetryAction::NextServer => {
                self.switches += 1;
                // The others are tried at once; then everyone has had a chance.
                if !self.switches.is_multiple_of(self.servers) {
                    Duration::ZERO
                } else {
                    self.grow(random)
                }
            }
            // Once is bad luck; more often it is something else.
            RetryAction::Reconnect if !std::mem::replace(&mut self.reopened, true) => {
                Duration::ZERO
            }
            RetryAction::Reconnect | RetryAction::SameServer => self.grow(random),
            RetryAction::RandomDelay => REPLAY_DELAY_MAX.mul_f64(random).max(BACKOFF_MIN),
            RetryAction::Fail => Duration::ZERO,
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

    fn exception(class: &str) -> CallError {
        CallError::Exception(Exception::new(&format!("org.apache.hadoop.{class}"), "", None))
    }

    #[test]
    fn only_what_is_safe_is_tried_again() {
        let lost = CallError::Unanswered(ConnectionError::Closed { mid_frame: false });
        assert_eq!(retry_action(&lost, Safety::Idempotent), RetryAction::NextServer);
        assert_eq!(retry_action(&lost, Safety::Once), RetryAction::Fail);
        let refused = CallError::NotSent(ConnectionError::Io("connection refused".into()));
        assert_eq!(retry_action(&refused, Safety::Once), RetryAction::NextServer);
        let standby = exception("ipc.StandbyException");
        assert_eq!(retry_action(&standby, Safety::Once), RetryAction::NextServer);
        let later = exception("ipc.RetriableException");
        assert_eq!(retry_action(&later, Safety::Once), RetryAction::SameServer);
        let unknown = exception("yarn.exceptions.ApplicationNotFoundException");
        assert_eq!(retry_action(&unknown, Safety::Idempotent), RetryAction::Fail);
        let garbage = CallError::Unanswered(ConnectionError::protocol("HTTP"));
        assert_eq!(retry_action(&garbage, Safety::Idempotent), RetryAction::Fail);
    }

    #[test]
    fn a_failed_handshake_is_final_unless_it_was_a_crowd() {
        let refused = |message: &str| {
            let (class, message) = ("x".to_owned(), message.to_owned());
            CallError::NotSent(ConnectionError::Security(SecurityError::Refused { class, message }))
        };
        assert_eq!(retry_action(&refused("no"), Safety::Idempotent), RetryAction::Fail);
        let crowd = refused("GSS initiate failed [Request is a replay (34)]");
        assert_eq!(retry_action(&crowd, Safety::Once), RetryAction::RandomDelay);
    }

    #[test]
    fn every_server_is_tried_before_anyone_waits() {
        let mut pauses = RetryBackoff::new(Duration::from_secs(1), 3);
        let pause: Vec<u128> =
            (0..9).map(|_| pauses.after(RetryAction::NextServer, 1.0).as_millis()).collect();
        assert_eq!(pause, [0, 0, 100, 0, 0, 200, 0, 0, 400]);
        assert_eq!(pauses.after(RetryAction::SameServer, 0.0).as_millis(), 400);
        assert_eq!(pauses.after(RetryAction::SameServer, 1.0).as_millis(), 1000);
        assert_eq!(pauses.after(RetryAction::SameServer, 1.0).as_millis(), 1000);
        assert_eq!(pauses.after(RetryAction::RandomDelay, 0.5).as_millis(), 2500);
        assert_eq!(pauses.after(RetryAction::Reconnect, 1.0).as_millis(), 0);
        assert_eq!(pauses.after(RetryAction::Reconnect, 1.0).as_millis(), 1000);
    }

    #[test]
    fn nobody_is_called_without_a_pause_for_ever() {
        for max in [Duration::ZERO, Duration::MAX] {
            let mut pauses = RetryBackoff::new(max, 1);
            for _ in 0..100 {
                for action in
                    [RetryAction::NextServer, RetryAction::SameServer, RetryAction::RandomDelay]
                {
                    let pause = pauses.after(action, 0.0);
                    assert!(pause > Duration::ZERO && pause <= BACKOFF_MAX, "{pause:?}");
                }
            }
        }
    }

    #[test]
    fn many_calls_that_fail_together_move_on_once() {
        let active = ActiveServer::new(2);
        active.advance_from(0);
        active.advance_from(0);
        active.advance_from(0);
        assert_eq!(active.index(), 1);
        active.advance_from(1);
        assert_eq!(active.index(), 0);
    }
}
