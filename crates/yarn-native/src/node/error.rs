//! Errors of calls to a node, classified by what a master can do about them.

use crate::node::{ContainerError, ContainerErrorKind};
use crate::rpc::RpcError;
use crate::types::NodeId;

/// Error of a call to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The master has no token for this node. The scheduler sends one with the first container on
    /// it.
    #[error("no token for node `{node}`")]
    NoToken {
        /// Node.
        node: NodeId,
    },
    /// Authentication failed: the node rejects the token, or its identity cannot be verified. A
    /// newer token may help.
    #[error("authentication with node `{node}` failed: {source}")]
    Untrusted {
        /// Node.
        node: NodeId,
        /// Cause.
        source: Box<RpcError>,
    },
    /// The node could not be reached, or was not ready. The call had no effect.
    #[error("cannot reach node `{node}`: {source}")]
    Unreachable {
        /// Node.
        node: NodeId,
        /// Cause.
        source: Box<RpcError>,
    },
    /// No response. The call may have had an effect;
    /// [`NmClient::status`](crate::node::NmClient::status) tells.
    #[error("no response from node `{node}`, the call may have been executed: {source}")]
    NoResponse {
        /// Node.
        node: NodeId,
        /// Cause.
        source: Box<RpcError>,
    },
    /// The node's version does not support the call.
    #[error("node `{node}` does not support the call: {source}")]
    Unsupported {
        /// Node.
        node: NodeId,
        /// Cause.
        source: Box<RpcError>,
    },
    /// The node rejected the call, which had no effect.
    #[error("node `{node}` rejected the call: {error}")]
    Rejected {
        /// Node.
        node: NodeId,
        /// Cause.
        error: ContainerError,
    },
}

impl NodeError {
    pub(crate) fn new(node: &NodeId, error: RpcError) -> Self {
        let node = node.clone();
        let source = Box::new(error);
        match *source {
            RpcError::Security { .. } => Self::Untrusted { node, source },
            RpcError::Unreachable { .. }
            | RpcError::NoActiveServer { .. }
            | RpcError::RequestTooLarge { .. }
            | RpcError::DeadlinePassed { sent: false, .. } => Self::Unreachable { node, source },
            RpcError::DeadlinePassed { .. }
            | RpcError::Unanswered { .. }
            | RpcError::Protocol { .. } => Self::NoResponse { node, source },
            RpcError::Unsupported { .. } => Self::Unsupported { node, source },
            RpcError::Denied { exception, .. } | RpcError::Rejected { exception, .. } => {
                Self::Rejected { node, error: ContainerError::new(exception) }
            }
        }
    }

    /// Returns the node.
    pub fn node(&self) -> &NodeId {
        match self {
            Self::NoToken { node }
            | Self::Untrusted { node, .. }
            | Self::Unreachable { node, .. }
            | Self::NoResponse { node, .. }
            | Self::Unsupported { node, .. }
            | Self::Rejected { node, .. } => node,
        }
    }

    /// Returns true if the connection broke after the request was sent.
    pub(crate) fn is_connection_lost(&self) -> bool {
        let Self::NoResponse { source, .. } = self else {
            return false;
        };
        matches!(**source, RpcError::Unanswered { .. })
    }

    /// Returns true if the same call may succeed a little later.
    pub(crate) fn is_not_ready(&self) -> bool {
        matches!(
            self,
            Self::Rejected { error: ContainerError { kind: ContainerErrorKind::NotReady, .. }, .. }
        )
    }
}
