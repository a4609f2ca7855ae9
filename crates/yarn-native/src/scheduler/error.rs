//! How talk with the scheduler can fail, cut by what a master can do.

use crate::rpc::{Exception, ExceptionKind, RpcError};
use crate::security::SecurityError;

/// Why a master got no answer, or one that says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// The ResourceManager does not know the master, having been restarted: the master registers
    /// again, and then says again all that it wants, has given back and avoids. Its containers run
    /// on. What was said in the failed call is forgotten.
    #[error("the master is not registered, or was before the ResourceManager was restarted")]
    NotRegistered,
    /// The master is registered already. If the answer to its registration was lost, it goes on
    /// and does without what that said: containers of earlier attempts, and their nodes' tokens.
    #[error("the master is registered already: {exception}")]
    AlreadyRegistered {
        /// What the ResourceManager said.
        exception: Exception,
    },
    /// The attempt is over, whatever its master thinks: it should end, and need not finish.
    #[error("the attempt is over: {reason}")]
    AttemptEnded {
        /// Why, as far as it is known.
        reason: String,
    },
    /// The request was refused, and nothing of it was done. Its master goes on without it.
    #[error("the ResourceManager refused the request, and did nothing of it: {exception}")]
    Rejected {
        /// What the ResourceManager said.
        exception: Exception,
    },
    /// The request has placement constraints, and this cluster does not take them. Nothing of the
    /// request was done.
    #[error("the cluster takes no placement constraints: {exception}")]
    ConstraintsUnsupported {
        /// What the ResourceManager said.
        exception: Exception,
    },
    /// The ResourceManager has heard something from this master that the master does not know it
    /// has said: two processes act as one master. It should end.
    #[error("another process speaks for this master: {exception}")]
    ConcurrentMaster {
        /// What the ResourceManager said.
        exception: Exception,
    },
    /// The request is longer than servers accept. Nothing of it was sent.
    #[error("the request is {bytes} bytes long, and servers accept {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The ResourceManager has noted the end, and had not acted on it when the time was over.
    #[error("the ResourceManager did not complete the master's end in time")]
    FinishTimeout,
    /// No answer came. The request may have been carried out or not; it is kept, and the next call
    /// sends it again in a way that does no harm.
    #[error(transparent)]
    NoResponse(RpcError),
}

impl SchedulerError {
    /// What a person can do about it.
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
            RpcError::Security { source, .. } if is_over(&source) => {
                Self::AttemptEnded { reason: source.to_string() }
            }
            RpcError::RequestTooLarge { bytes, bytes_max, .. } => {
                Self::TooLong { bytes, bytes_max }
            }
            RpcError::Denied { exception, .. }
            | RpcError::Unsupported { exception, .. }
            | RpcError::Rejected { exception, .. } => refusal(exception),
            unanswered => Self::NoResponse(unanswered),
        }
    }
}

/// An attempt's token is forgotten with the attempt.
fn is_over(error: &SecurityError) -> bool {
    let SecurityError::Refused { message, .. } = error else {
        return false;
    };
    message.contains("not found in AMRMTokenSecretManager")
}

fn refusal(exception: Exception) -> SchedulerError {
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
        // An attempt that has ended is not in the cache that registrations are looked up in.
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

    fn said(class: &str, message: &str) -> SchedulerError {
        let class = format!("org.apache.hadoop.yarn.exceptions.{class}");
        SchedulerError::from(RpcError::Rejected {
            method: "allocate",
            address: "rm:8030".into(),
            exception: Exception::new(&class, message, None),
        })
    }

    #[test]
    fn exceptions_are_told_apart_by_what_a_master_can_do() {
        use SchedulerError as E;
        let not_registered =
            said("ApplicationMasterNotRegisteredException", "AM should re-register.");
        assert_eq!(not_registered, E::NotRegistered);
        let gone = said("ApplicationAttemptNotFoundException", "doesn't exist");
        assert!(matches!(gone, E::AttemptEnded { .. }), "{gone:?}");
        let invalid = "InvalidApplicationMasterRequestException";
        let twice = said(invalid, "Application Master is already registered : x");
        assert!(matches!(twice, E::AlreadyRegistered { .. }), "{twice:?}");
        let gone = said(invalid, "Application doesn't exist in cache x");
        assert!(matches!(gone, E::AttemptEnded { .. }), "{gone:?}");
        let other = said(invalid, "Invalid responseId in AllocateRequest");
        assert!(matches!(other, E::ConcurrentMaster { .. }), "{other:?}");
        let refused = said("InvalidResourceRequestException", "too large");
        assert!(matches!(refused, E::Rejected { .. }), "{refused:?}");
        let words = "the configured disabled cannot handle placement constraints. Rejecting";
        let unable = said("YarnException", words);
        assert!(matches!(unable, E::ConstraintsUnsupported { .. }), "{unable:?}");
        assert!(unable.hint().is_some());
    }

    #[test]
    fn a_forgotten_token_is_the_end_and_another_trouble_with_tokens_is_not() {
        let refused = |message: &str| {
            SchedulerError::from(RpcError::Security {
                address: "rm:8030".into(),
                source: SecurityError::Refused {
                    class: "InvalidToken".into(),
                    message: message.into(),
                },
            })
        };
        let over = refused("appattempt_1_0001_000001 not found in AMRMTokenSecretManager.");
        assert!(matches!(over, SchedulerError::AttemptEnded { .. }));
        assert!(matches!(refused("Invalid AMRMToken"), SchedulerError::NoResponse(_)));
    }
}
