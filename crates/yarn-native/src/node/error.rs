//! How a call to a node can fail, cut by what a master can do.

use crate::node::{Refusal, RefusalKind};
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
    Unreached {
        /// The node.
        node: NodeId,
        /// Why.
        source: Box<RpcError>,
    },
    /// The node may have done what was asked, or not: its state tells
    /// ([`Nodes::status`](crate::node::Nodes::status)).
    #[error("node `{node}` may or may not have done it: {source}")]
    Unanswered {
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
    #[error("node `{node}` refused: {refusal}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Why.
        refusal: Refusal,
    },
}

impl NodeError {
    pub(crate) fn new(node: &NodeId, error: RpcError) -> Self {
        let node = node.clone();
        let source = Box::new(error);
        match *source {
            RpcError::Security { .. } => Self::Untrusted { node, source },
            RpcError::Unreachable { .. }
            | RpcError::NoneActive { .. }
            | RpcError::TooLong { .. }
            | RpcError::DeadlinePassed { sent: false, .. } => Self::Unreached { node, source },
            RpcError::DeadlinePassed { .. }
            | RpcError::Unanswered { .. }
            | RpcError::Protocol { .. } => Self::Unanswered { node, source },
            RpcError::Unsupported { .. } => Self::Unsupported { node, source },
            RpcError::Denied { exception, .. } | RpcError::Rejected { exception, .. } => {
                Self::Refused { node, refusal: Refusal::new(exception) }
            }
        }
    }

    /// The node.
    pub fn node(&self) -> &NodeId {
        match self {
            Self::NoToken { node }
            | Self::Untrusted { node, .. }
            | Self::Unreached { node, .. }
            | Self::Unanswered { node, .. }
            | Self::Unsupported { node, .. }
            | Self::Refused { node, .. } => node,
        }
    }

    /// Whether the connection broke after the request had left.
    pub(crate) fn is_cut_off(&self) -> bool {
        let Self::Unanswered { source, .. } = self else {
            return false;
        };
        matches!(**source, RpcError::Unanswered { .. })
    }

    /// Whether the same call is worth trying a little later.
    pub(crate) fn is_not_ready(&self) -> bool {
        matches!(self, Self::Refused { refusal: Refusal { kind: RefusalKind::NotReady, .. }, .. })
    }
}
