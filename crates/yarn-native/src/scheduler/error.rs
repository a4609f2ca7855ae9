//! Errors of the scheduler client, classified by what a master can do about them.

use crate::rpc::{Exception, ExceptionKind, RpcError};
use crate::security::SecurityError;

/// Error of a call to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// The ResourceManager does not know the master, usually after a restart. The master registers
    /// again and then sends all asks, releases and exclusions again. Its containers keep running.
    /// The content of the failed call is dropped.
    #[error("the master is not registered; the ResourceManager may have been restarted")]
    NotRegistered,
    /// The master is already registered. If the response to its registration was lost, it can
    /// continue without its content: containers of earlier attempts and their node tokens.
    #[error("the master is already registered: {exception}")]
    AlreadyRegistered {
        /// Exception of the ResourceManager.
        exception: Exception,
    },
    /// The attempt has ended. The master should exit and need not finish.
    #[error("the attempt has ended: {reason}")]
    AttemptEnded {
        /// Reason, as far as known.
        reason: String,
    },
    /// The request was rejected as a whole. The master can continue without it.
    #[error("the ResourceManager rejected the request: {exception}")]
    Rejected {
        /// Exception of the ResourceManager.
        exception: Exception,
    },
    /// The request has placement constraints, which this cluster does not accept. It was rejected
    /// as a whole.
    #[error("the cluster does not accept placement constraints: {exception}")]
    ConstraintsUnsupported {
        /// Exception of the ResourceManager.
        exception: Exception,
    },
    /// The ResourceManager has processed a request that this client did not send: two processes act
    /// as the same master. This one should exit.
    #[error("another process acts as this master: {exception}")]
    ConcurrentMaster {
        /// Exception of the ResourceManager.
        exception: Exception,
    },
    /// The request exceeds the length that servers accept. It was not sent.
    #[error("request too long: {bytes} bytes, and servers accept {bytes_max}")]
    TooLong {
        /// Length of the request.
        bytes: usize,
        /// Maximum length.
        bytes_max: usize,
    },
    /// The ResourceManager had not completed the finish call before the deadline.
    #[error("timed out before the ResourceManager completed the finish call")]
    FinishTimeout,
    /// No response. The request may have been applied or not; it is kept, and the next call safely
    /// sends it again.
    #[error(transparent)]
    NoResponse(RpcError),
}

impl SchedulerError {
    /// Returns advice for the user, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoResponse(error) => error.hint(),
            Self::ConstraintsUnsupported { .. } => Some(
                "set `yarn.resourcemanager.placement-constraints.handler` to `scheduler` or \
                 `placement-processor` on the cluster",
            ),
            _ => None,
        }
    }
}

impl From<RpcError> for SchedulerError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Security { source, .. } if is_attempt_ended(&source) => {
                Self::AttemptEnded { reason: source.to_string() }
            }
            RpcError::RequestTooLarge { bytes, bytes_max, .. } => {
                Self::TooLong { bytes, bytes_max }
            }
            RpcError::Denied { exception, .. }
            | RpcError::Unsupported { exception, .. }
            | RpcError::Rejected { exception, .. } => classify(exception),
            other => Self::NoResponse(other),
        }
    }
}

/// Detects that the attempt's token is gone, which means that the attempt has ended.
fn is_attempt_ended(error: &SecurityError) -> bool {
    let SecurityError::Rejected { message, .. } = error else {
        return false;
    };
    message.contains("not found in AMRMTokenSecretManager")
}

fn classify(exception: Exception) -> SchedulerError {
    let says = |text: &str| exception.message.contains(text);
    match exception.kind() {
        ExceptionKind::MasterNotRegistered => SchedulerError::NotRegistered,
        ExceptionKind::AttemptNotFound | ExceptionKind::ApplicationNotFound => {
            SchedulerError::AttemptEnded { reason: exception.to_string() }
        }
        ExceptionKind::InvalidToken if says("not found in AMRMTokenSecretManager") => {
            SchedulerError::AttemptEnded { reason: exception.to_string() }
        }
        ExceptionKind::InvalidMasterRequest if says("already registered") => {
            SchedulerError::AlreadyRegistered { exception }
        }
        // An ended attempt is missing from the cache used for registrations.
        ExceptionKind::InvalidMasterRequest if says("doesn't exist in cache") => {
            SchedulerError::AttemptEnded { reason: exception.to_string() }
        }
        ExceptionKind::InvalidMasterRequest => SchedulerError::ConcurrentMaster { exception },
        _ if says("cannot handle placement constraints") => {
            SchedulerError::ConstraintsUnsupported { exception }
        }
        _ => SchedulerError::Rejected { exception },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected_with(class: &str, message: &str) -> SchedulerError {
        let class = format!("org.apache.hadoop.yarn.exceptions.{class}");
        SchedulerError::from(RpcError::Rejected {
            method: "allocate",
            address: "rm:8030".into(),
            exception: Exception::new(&class, message, None),
        })
    }

    #[test]
    fn exceptions_are_classified_by_the_masters_options() {
        use SchedulerError as E;
        let not_registered =
            rejected_with("ApplicationMasterNotRegisteredException", "AM should re-register.");
        assert_eq!(not_registered, E::NotRegistered);
        let gone = rejected_with("ApplicationAttemptNotFoundException", "doesn't exist");
        assert!(matches!(gone, E::AttemptEnded { .. }), "{gone:?}");
        let invalid = "InvalidApplicationMasterRequestException";
        let twice = rejected_with(invalid, "Application Master is already registered : x");
        assert!(matches!(twice, E::AlreadyRegistered { .. }), "{twice:?}");
        let gone = rejected_with(invalid, "Application doesn't exist in cache x");
        assert!(matches!(gone, E::AttemptEnded { .. }), "{gone:?}");
        let other = rejected_with(invalid, "Invalid responseId in AllocateRequest");
        assert!(matches!(other, E::ConcurrentMaster { .. }), "{other:?}");
        let rejected = rejected_with("InvalidResourceRequestException", "too large");
        assert!(matches!(rejected, E::Rejected { .. }), "{rejected:?}");
        let words = "the configured disabled cannot handle placement constraints. Rejecting";
        let unable = rejected_with("YarnException", words);
        assert!(matches!(unable, E::ConstraintsUnsupported { .. }), "{unable:?}");
        assert!(unable.hint().is_some());
    }

    #[test]
    fn only_an_unknown_token_means_the_attempt_has_ended() {
        let rejected = |message: &str| {
            SchedulerError::from(RpcError::Security {
                address: "rm:8030".into(),
                source: SecurityError::Rejected {
                    class: "InvalidToken".into(),
                    message: message.into(),
                },
            })
        };
        let ended = rejected("appattempt_1_0001_000001 not found in AMRMTokenSecretManager.");
        assert!(matches!(ended, SchedulerError::AttemptEnded { .. }));
        assert!(matches!(rejected("Invalid AMRMToken"), SchedulerError::NoResponse(_)));
    }
}
