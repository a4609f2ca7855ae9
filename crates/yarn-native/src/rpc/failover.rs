//! Failover and retry: server selection, retry decisions and delays.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::rpc::connection::{CallError, ConnectionError};
use crate::rpc::{Exception, ExceptionKind, Safety};

/// Maximum delay after a rejected replay of a ticket, as in Java.
const REPLAY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Bounds of the configured backoff.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

/// Reaction to a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAction {
    /// Try the next server, or the same one if it is the only one.
    NextServer,
    /// Retry the same server on a new connection.
    Reconnect,
    /// Retry the same server after a delay.
    SameServer,
    /// Retry the same server after a random delay, because many clients connected at once.
    RandomDelay,
    /// Do not retry.
    Fail,
}

/// Decides whether to retry. Retries only calls that were not executed or are idempotent.
pub(crate) fn retry_action(failure: &CallError, safety: Safety) -> RetryAction {
    match failure {
        CallError::Exception(exception) => exception_retry_action(exception),
        CallError::NotSent(ConnectionError::Fatal(exception)) => exception_retry_action(exception),
        CallError::NotSent(ConnectionError::Security(error))
        | CallError::Unanswered(ConnectionError::Security(error)) => {
            // Raised only during the handshake, so the call was not executed.
            if error.is_replay() { RetryAction::RandomDelay } else { RetryAction::Fail }
        }
        // A protocol violation will recur.
        CallError::NotSent(ConnectionError::Protocol(_))
        | CallError::Unanswered(ConnectionError::Protocol(_)) => RetryAction::Fail,
        // The client itself closed the idle connection.
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

/// The server that was active last. Shared by all calls of a channel.
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

    /// Switches away from a failed server, unless a concurrent call has already done so.
    pub(crate) fn advance_from(&self, failed: usize) {
        let next = (failed + 1) % self.servers;
        // Losing the race means that a concurrent call has switched.
        let _ = self.index.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Delays between the attempts of one call.
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
        // The first delays are short, so that brief network problems are bridged quickly.
        let next = (max / 10).max(BACKOFF_MIN);
        Self { max, next, servers: servers.max(1), switches: 0, reopened: false }
    }

    /// Returns the delay before the next attempt; `random` is from 0 to 1.
    pub(crate) fn delay(&mut self, action: RetryAction, random: f64) -> Duration {
        match action {
            RetryAction::NextServer => {
                self.switches += 1;
                // The remaining servers are tried without a delay; after a full round the delay
                // grows.
                if !self.switches.is_multiple_of(self.servers) {
                    Duration::ZERO
                } else {
                    self.next_delay(random)
                }
            }
            // Only the first reconnect is immediate.
            RetryAction::Reconnect if !std::mem::replace(&mut self.reopened, true) => {
                Duration::ZERO
            }
            RetryAction::Reconnect | RetryAction::SameServer => self.next_delay(random),
            RetryAction::RandomDelay => REPLAY_DELAY_MAX.mul_f64(random).max(BACKOFF_MIN),
            RetryAction::Fail => Duration::ZERO,
        }
    }

    fn next_delay(&mut self, random: f64) -> Duration {
        let delay = self.next.mul_f64(0.5 + random / 2.0);
        self.next = (self.next * 2).min(self.max);
        delay
    }
}

/// Returns a random number from 0 to 1, or 0.5 if no randomness is available.
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
    fn only_safe_calls_are_retried() {
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
    fn failed_handshake_is_final_unless_it_was_a_replay() {
        let refused = |message: &str| {
            let (class, message) = ("x".to_owned(), message.to_owned());
            CallError::NotSent(ConnectionError::Security(SecurityError::Rejected {
                class,
                message,
            }))
        };
        assert_eq!(retry_action(&refused("no"), Safety::Idempotent), RetryAction::Fail);
        let replay = refused("GSS initiate failed [Request is a replay (34)]");
        assert_eq!(retry_action(&replay, Safety::Once), RetryAction::RandomDelay);
    }

    #[test]
    fn every_server_is_tried_before_the_first_delay() {
        let mut backoff = RetryBackoff::new(Duration::from_secs(1), 3);
        let delays: Vec<u128> =
            (0..9).map(|_| backoff.delay(RetryAction::NextServer, 1.0).as_millis()).collect();
        assert_eq!(delays, [0, 0, 100, 0, 0, 200, 0, 0, 400]);
        assert_eq!(backoff.delay(RetryAction::SameServer, 0.0).as_millis(), 400);
        assert_eq!(backoff.delay(RetryAction::SameServer, 1.0).as_millis(), 1000);
        assert_eq!(backoff.delay(RetryAction::SameServer, 1.0).as_millis(), 1000);
        assert_eq!(backoff.delay(RetryAction::RandomDelay, 0.5).as_millis(), 2500);
        assert_eq!(backoff.delay(RetryAction::Reconnect, 1.0).as_millis(), 0);
        assert_eq!(backoff.delay(RetryAction::Reconnect, 1.0).as_millis(), 1000);
    }

    #[test]
    fn delays_are_bounded_for_any_configuration() {
        for max in [Duration::ZERO, Duration::MAX] {
            let mut backoff = RetryBackoff::new(max, 1);
            for _ in 0..100 {
                for action in
                    [RetryAction::NextServer, RetryAction::SameServer, RetryAction::RandomDelay]
                {
                    let delay = backoff.delay(action, 0.0);
                    assert!(delay > Duration::ZERO && delay <= BACKOFF_MAX, "{delay:?}");
                }
            }
        }
    }

    #[test]
    fn concurrent_failures_switch_servers_once() {
        let active = ActiveServer::new(2);
        active.advance_from(0);
        active.advance_from(0);
        active.advance_from(0);
        assert_eq!(active.index(), 1);
        active.advance_from(1);
        assert_eq!(active.index(), 0);
    }
}
