//! Containers, their states and their tokens.

use std::collections::BTreeMap;

use crate::proto::yarn::{
    ContainerProto, ContainerStateProto, ContainerStatusProto, ContainerSubStateProto,
    ExecutionTypeProto, NmTokenProto, StringStringMapProto,
};
use crate::token::Token;
use crate::types::named::named;
use crate::types::{ContainerId, ExitStatus, InvalidMessage, NodeId, Resource};

named! {
    /// Execution type of a container.
    #[derive(Default)]
    pub enum ExecutionType: ExecutionTypeProto, "execution type" {
        /// Keeps its resources from start to end.
        #[default]
        Guaranteed = Guaranteed "GUARANTEED",
        /// Runs on unused resources, may be queued on its node, and can be preempted by it.
        Opportunistic = Opportunistic "OPPORTUNISTIC",
    }
}

named! {
    /// State of a container.
    pub enum ContainerState: ContainerStateProto, "container state" {
        /// Not started.
        New = CNew "NEW",
        /// Starting or running.
        Running = CRunning "RUNNING",
        /// Ended.
        Complete = CComplete "COMPLETE",
    }
}

named! {
    /// Detailed state of a container (Hadoop 3).
    pub enum ContainerSubState: ContainerSubStateProto, "container sub-state" {
        /// Localising files, or queued on its node.
        Scheduled = CssScheduled "SCHEDULED",
        /// The process runs.
        Running = CssRunning "RUNNING",
        /// The process is paused.
        Paused = CssPaused "PAUSED",
        /// Ended, and being cleaned up.
        Completing = CssCompleting "COMPLETING",
        /// Cleaned up.
        Done = CssDone "DONE",
    }
}

/// Container granted to a master: the right to start a process on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Container id.
    pub id: ContainerId,
    /// Node it was granted on.
    pub node: NodeId,
    /// Web address of the node as `host:port`.
    pub http_address: String,
    /// Resource limits: the ask, rounded up.
    pub resource: Resource,
    /// Priority of the ask it was granted for.
    pub priority: i32,
    /// Allocation request id of the ask; -1 if the ask had none, 0 on Hadoop 2.
    pub request_id: i64,
    /// Execution type.
    pub execution: ExecutionType,
    /// Version, incremented by each update; an update names the version it changes.
    pub version: i32,
    /// Allocation tags of the request (Hadoop 3).
    pub tags: Vec<String>,
    /// Token that authorises the start. It expires, usually ten minutes after the grant. It is
    /// empty for a recovered container that a restarted ResourceManager knows only from its node.
    pub token: Token,
}

impl Container {
    /// Reads a container of an earlier attempt. It has been started already, so its token may be
    /// missing.
    pub(crate) fn recovered(mut proto: ContainerProto) -> Result<Self, InvalidMessage> {
        proto.container_token.get_or_insert_default();
        Self::of(proto)
    }

    pub(crate) fn of(proto: ContainerProto) -> Result<Self, InvalidMessage> {
        Ok(Self {
            id: ContainerId::of(proto.id.as_ref())?,
            node: NodeId::of(proto.node_id.as_ref())?,
            resource: Resource::of(proto.resource.as_ref())?,
            priority: proto.priority.as_ref().map_or(0, |p| p.priority()),
            request_id: proto.allocation_request_id(),
            execution: execution(proto.execution_type),
            version: proto.version(),
            http_address: proto.node_http_address.unwrap_or_default(),
            tags: proto.allocation_tags,
            token: Token::of(proto.container_token.ok_or(InvalidMessage("a container's token"))?),
        })
    }
}

/// Status of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// Container id.
    pub id: ContainerId,
    /// Current state.
    pub state: ContainerState,
    /// Detailed state, where the version reports it.
    pub sub_state: Option<ContainerSubState>,
    /// Exit status.
    pub exit: ExitStatus,
    /// Diagnostics about its end, one or more lines.
    pub diagnostics: String,
    /// Resource limits, where the version reports them.
    pub resource: Option<Resource>,
    /// Execution type.
    pub execution: ExecutionType,
    /// Attributes that the node reports, such as `HOST`, `IP` and `PORTS` (Hadoop 3).
    pub attributes: BTreeMap<String, String>,
}

impl ContainerStatus {
    pub(crate) fn of(proto: ContainerStatusProto) -> Result<Self, InvalidMessage> {
        let state = proto.state.ok_or(InvalidMessage("a container's state"))?;
        let attribute = |entry: StringStringMapProto| {
            let (key, value) = (entry.key.unwrap_or_default(), entry.value);
            (key, value.unwrap_or_default())
        };
        Ok(Self {
            id: ContainerId::of(proto.container_id.as_ref())?,
            state: ContainerState::of(state)?,
            // An unknown sub-state must not invalidate the rest of the status.
            sub_state: proto.container_sub_state.and_then(|n| ContainerSubState::of(n).ok()),
            exit: proto.exit_status().into(),
            diagnostics: proto.diagnostics().to_owned(),
            resource: proto.capability.as_ref().and_then(|r| Resource::of(Some(r)).ok()),
            execution: execution(proto.execution_type),
            attributes: proto.container_attributes.into_iter().map(attribute).collect(),
        })
    }
}

/// Maps an unknown execution type to opportunistic: it is at least not guaranteed.
fn execution(number: Option<i32>) -> ExecutionType {
    number.map_or(ExecutionType::Guaranteed, |number| {
        ExecutionType::of(number).unwrap_or(ExecutionType::Opportunistic)
    })
}

/// Token that authenticates a master to a NodeManager. The ResourceManager issues one per node, and
/// again when its key has been rolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeToken {
    /// Node.
    pub node: NodeId,
    /// Token for that node.
    pub token: Token,
}

impl NodeToken {
    pub(crate) fn of(proto: NmTokenProto) -> Result<Self, InvalidMessage> {
        Ok(Self {
            node: NodeId::of(proto.node_id.as_ref())?,
            token: Token::of(proto.token.ok_or(InvalidMessage("a node's token"))?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::common::TokenProto;
    use crate::proto::yarn::NodeIdProto;

    impl NodeId {
        pub(crate) fn proto(&self) -> NodeIdProto {
            NodeIdProto { host: Some(self.host.clone()), port: Some(self.port.into()) }
        }
    }

    pub(crate) fn container() -> ContainerProto {
        let id: ContainerId = "container_1_0001_01_000002".parse().expect("an id");
        ContainerProto {
            id: Some(id.proto()),
            node_id: Some(NodeIdProto { host: Some("n".into()), port: Some(1) }),
            resource: Some(Resource::new(64, 1).proto()),
            container_token: Some(TokenProto::default()),
            ..ContainerProto::default()
        }
    }

    #[test]
    fn only_a_recovered_container_may_lack_its_token() {
        let proto = ContainerProto { container_token: None, ..container() };
        assert!(Container::of(proto.clone()).is_err());
        let recovered = Container::recovered(proto).expect("a container");
        assert_eq!(recovered.id.to_string(), "container_1_0001_01_000002");
    }

    #[test]
    fn fields_missing_in_old_versions_have_defaults() {
        let read = Container::of(container()).expect("a container");
        assert_eq!(
            (read.request_id, read.version, read.execution),
            (-1, 0, ExecutionType::Guaranteed)
        );
        let strange = ContainerProto { execution_type: Some(77), ..container() };
        let strange = Container::of(strange).expect("a container");
        assert_eq!(strange.execution, ExecutionType::Opportunistic);
    }

    #[test]
    fn container_without_token_or_node_is_rejected() {
        let without_token = ContainerProto { container_token: None, ..container() };
        assert!(Container::of(without_token).is_err());
        let without_node = ContainerProto { node_id: None, ..container() };
        assert!(Container::of(without_node).is_err());
        assert!(ContainerStatus::of(ContainerStatusProto::default()).is_err());
    }

    #[test]
    fn execution_types_round_trip() {
        for text in ["GUARANTEED", "OPPORTUNISTIC"] {
            assert_eq!(text.parse::<ExecutionType>().map(|e| e.to_string()).as_deref(), Ok(text));
        }
        let bad = "SOMETIMES".parse::<ExecutionType>().expect_err("no name");
        assert_eq!(
            bad.to_string(),
            "unknown execution type `SOMETIMES`: expected one of GUARANTEED, OPPORTUNISTIC"
        );
    }
}
