//! Errors of a NodeManager about a single container, while others of the same call may succeed.

use std::fmt;

use crate::proto::yarn::{ContainerExceptionMapProto, SerializedExceptionProto};
use crate::rpc::{Exception, ExceptionKind};
use crate::types::{ContainerId, InvalidMessage};

/// Maximum depth of nested causes that is searched.
const CAUSES_MAX: usize = 8;

/// Error of a NodeManager about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerError {
    /// Class of the error, by what a master can do.
    pub kind: ContainerErrorKind,
    /// Exception of the NodeManager.
    pub exception: Exception,
}

/// Class of a container error, by what a master can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContainerErrorKind {
    /// The container has been started before, and may have ended since.
    AlreadyStarted,
    /// The container's token has expired by the node's clock: the container is lost. If that
    /// happens soon after the grant, the clocks of the node and the ResourceManager differ.
    Expired,
    /// The container was granted by a ResourceManager that has been restarted since: it is lost.
    Outdated,
    /// The NodeManager is shutting down.
    ShuttingDown,
    /// The NodeManager is not ready yet. Retry a little later.
    NotReady,
    /// The NodeManager does not know the container, or no longer.
    NotFound,
    /// The tokens do not authorise this container, node or application.
    PermissionDenied,
    /// The launch context names an auxiliary service that the node lacks.
    NoSuchService,
    /// Other error; see the exception.
    Other,
}

impl ContainerError {
    /// Reads the error and the container that it is about.
    pub(crate) fn of(
        proto: &ContainerExceptionMapProto,
    ) -> Result<(ContainerId, Self), InvalidMessage> {
        let id = ContainerId::of(proto.container_id.as_ref())?;
        let exception = proto.exception.as_ref().map(exception_of);
        let exception = exception.unwrap_or_else(|| Exception::new("", "", None));
        Ok((id, Self::new(exception)))
    }

    pub(crate) fn new(exception: Exception) -> Self {
        let kind = kind_of(&exception);
        Self { kind, exception }
    }

    /// Returns the error for a container that is missing in the response.
    pub(crate) fn missing() -> Self {
        let message = "the node's response does not mention the container";
        Self::new(Exception::new("", message, None))
    }
}

impl fmt::Display for ContainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exception.fmt(f)
    }
}

impl std::error::Error for ContainerError {}

/// Returns the exception, or its first cause with a message if it has none itself.
fn exception_of(proto: &SerializedExceptionProto) -> Exception {
    let causes = std::iter::successors(Some(proto), |one| one.cause.as_deref());
    let with_message =
        causes.take(CAUSES_MAX).find(|one| !one.message().is_empty()).unwrap_or(proto);
    Exception::new(with_message.class_name(), with_message.message(), None)
}

fn kind_of(exception: &Exception) -> ContainerErrorKind {
    let says = |text: &str| exception.message.contains(text);
    // The classes are too general; the messages have been the same since Hadoop 2.
    if exception.kind() == ExceptionKind::NodeNotReady || says("is recovering, try later") {
        ContainerErrorKind::NotReady
    } else if says("relaunch the same container") || says("already is running on this node") {
        ContainerErrorKind::AlreadyStarted
    } else if says("This token is expired") {
        ContainerErrorKind::Expired
    } else if exception.kind() == ExceptionKind::InvalidContainer || says("by a previous RM") {
        ContainerErrorKind::Outdated
    } else if says("in the process of shutting down") {
        ContainerErrorKind::ShuttingDown
    } else if says("is not handled by this NodeManager")
        || says("was recently stopped on node manager")
        || says("no longer exists")
    {
        ContainerErrorKind::NotFound
    } else if exception.short_class() == "InvalidAuxServiceException" || says("auxService:") {
        ContainerErrorKind::NoSuchService
    } else if matches!(exception.kind(), ExceptionKind::InvalidToken | ExceptionKind::AccessControl)
        || says("Unauthorized request")
        || says("non-application container")
        || says("not authorized to perform")
    {
        ContainerErrorKind::PermissionDenied
    } else {
        ContainerErrorKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: &str, message: &str) -> ContainerErrorKind {
        ContainerError::new(Exception::new(class, message, None)).kind
    }

    #[test]
    fn container_errors_are_classified_by_the_masters_options() {
        let yarn = "org.apache.hadoop.yarn.exceptions.YarnException";
        let relaunch = "Unauthorized request to start container. \nAttempt to relaunch the same \
                        container with id container_1_0001_01_000002.";
        assert_eq!(check(yarn, relaunch), ContainerErrorKind::AlreadyStarted);
        let expired = "Unauthorized request to start container. \nThis token is expired. current \
                       time is 2 found 1";
        assert_eq!(check(yarn, expired), ContainerErrorKind::Expired);
        let forged = "Unauthorized request to start container. \nNMToken for application attempt";
        assert_eq!(check(yarn, forged), ContainerErrorKind::PermissionDenied);
        let old = "Container x rejected as it is allocated by a previous RM";
        let class = "org.apache.hadoop.yarn.exceptions.InvalidContainerException";
        assert_eq!(check(class, old), ContainerErrorKind::Outdated);
        let unknown = "Container x is not handled by this NodeManager";
        assert_eq!(check(yarn, unknown), ContainerErrorKind::NotFound);
        let class = "org.apache.hadoop.yarn.exceptions.InvalidAuxServiceException";
        let service = "The auxService:shuffle does not exist";
        assert_eq!(check(class, service), ContainerErrorKind::NoSuchService);
        assert_eq!(check(yarn, "disk on fire"), ContainerErrorKind::Other);
    }

    #[test]
    fn an_exception_without_message_uses_its_cause_up_to_a_depth_limit() {
        let mut proto = SerializedExceptionProto::default();
        for _ in 0..50 {
            proto = SerializedExceptionProto {
                cause: Some(Box::new(proto)),
                ..SerializedExceptionProto::default()
            };
        }
        assert_eq!(exception_of(&proto).message, "");
        let outer = SerializedExceptionProto {
            class_name: Some("a.Outer".into()),
            cause: Some(Box::new(SerializedExceptionProto {
                class_name: Some("a.NmClientInner".into()),
                message: Some("why".into()),
                ..SerializedExceptionProto::default()
            })),
            ..SerializedExceptionProto::default()
        };
        assert_eq!(exception_of(&outer).to_string(), "why (`NmClientInner`)");
    }
}
