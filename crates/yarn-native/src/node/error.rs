//! How a call to a node can fail, cut by what a master can do.

use crate::node::{ContainerError, ContainerErrorKind};
use crate::rpc::RpcError;
use crate::types::NodeId;

/// Why a node did nothing, or perhaps something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Nobody has given the master a token for this node. The scheduler does, with the first
    /// container there.
    #[error("there is no token for node `{node}`")]
    NoToken {
        /// The node.
        node: NodeId,
    },
    /// The node does not take the token, or cannot be trusted. A newer token may help.
    #[error("node `{node}` and the master do not trust each other: {source}")]
    Untrusted {
        /// The node.
        node: NodeId,
        /// Why.
        source: Box<RpcError>,
    },
    /// The node could not be reached, or was not ready. It did nothing.
    #[error("node `{node}` did nothing: {source}")]
    Unreachable {
        /// The node.
        node: NodeId,
        /// Why.
        source: Box<RpcError>,
    },
    /// The node may have done what was asked, or not: its state tells
    /// ([`NmClient::status`](crate::node::NmClient::status)).
    #[error("node `{node}` may or may not have done it: {source}")]
    NoResponse {
        /// The node.
        node: NodeId,
        /// Why.
        source: Box<RpcError>,
    },
    /// The node is too old, or too new, for the call.
    #[error("node `{node}` cannot do this: {source}")]
    Unsupported {
        /// The node.
        node: NodeId,
        /// What it said.
        source: Box<RpcError>,
    },
    /// The node refused. It did nothing.
    #[error("node `{node}` refused: {error}")]
    Rejected {
        /// The node.
        node: NodeId,
        /// Why.
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

    /// The node.
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

    /// Whether the connection broke after the request had left.
    pub(crate) fn is_cut_off(&self) -> bool {
        let Self::NoResponse { source, .. } = self else {
            return false;
        };
        matches!(**source, RpcError::Unanswered { .. })
    }

    /// Whether the same call is worth trying a little later.
    pub(crate) fn is_not_ready(&self) -> bool {
        matches!(
            self,
            Self::Rejected { error: ContainerError { kind: ContainerErrorKind::NotReady, .. }, .. }
        )
    }
}
