//! Why a NodeManager does not do what is asked for one container, while it does for others.

use std::fmt;

use crate::proto::yarn::{ContainerExceptionMapProto, SerializedExceptionProto};
use crate::rpc::{Exception, ExceptionKind};
use crate::types::{ContainerId, InvalidMessage};

/// How many causes of an exception are looked at; each is within the one before.
const CAUSES_MAX: usize = 8;

/// A NodeManager's refusal for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerError {
    /// What a master can do.
    pub kind: ContainerErrorKind,
    /// What the NodeManager said.
    pub exception: Exception,
}

/// What a refusal means to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContainerErrorKind {
    /// The container has been started before, and may have ended since.
    AlreadyStarted,
    /// The container's token is too old by the node's clock: the container is lost. Where that
    /// happens soon after the grant, the clocks of node and ResourceManager differ.
    Expired,
    /// The container was given by a ResourceManager that has since been restarted: it is lost.
    Outdated,
    /// The NodeManager is ending, and starts nothing.
    ShuttingDown,
    /// The NodeManager is not ready yet: the same call works a little later.
    NotReady,
    /// The NodeManager does not know the container, or no more.
    NotFound,
    /// The tokens do not fit the container, the node or the application.
    PermissionDenied,
    /// The launch context names an auxiliary service that the node lacks.
    NoSuchService,
    /// Something else; see the exception.
    Other,
}

impl ContainerError {
    /// The container a refusal is about, and the refusal.
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

    /// For a container that the NodeManager's answer leaves out.
    pub(crate) fn missing() -> Self {
        let message = "the node's answer does not mention the container";
        Self::new(Exception::new("", message, None))
    }
}

impl fmt::Display for ContainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exception.fmt(f)
    }
}

impl std::error::Error for ContainerError {}

/// The exception, or the first of its causes that says something where it says nothing itself.
fn exception_of(proto: &SerializedExceptionProto) -> Exception {
    let causes = std::iter::successors(Some(proto), |one| one.cause.as_deref());
    let telling = causes.take(CAUSES_MAX).find(|one| !one.message().is_empty()).unwrap_or(proto);
    Exception::new(telling.class_name(), telling.message(), None)
}

fn kind_of(exception: &Exception) -> ContainerErrorKind {
    let says = |text: &str| exception.message.contains(text);
    // The classes say little; the words have been the same since Hadoop 2.
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
    fn refusals_are_told_apart_by_what_a_master_can_do() {
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
    fn a_silent_exception_speaks_through_its_cause_however_deep_it_says_it_is() {
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
