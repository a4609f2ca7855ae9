//! Containers: as the scheduler gives them out, and what becomes of them.

use std::collections::BTreeMap;

use crate::proto::yarn::{
    ContainerProto, ContainerStateProto, ContainerStatusProto, ContainerSubStateProto,
    ExecutionTypeProto, NmTokenProto, StringStringMapProto,
};
use crate::token::Token;
use crate::types::named::named;
use crate::types::{ContainerId, ExitStatus, InvalidMessage, NodeId, Resource};

named! {
    /// Whether a container's resources are its own.
    #[derive(Default)]
    pub enum ExecutionType: ExecutionTypeProto, "execution type" {
        /// They are, from its start to its end.
        #[default]
        Guaranteed = Guaranteed "GUARANTEED",
        /// It runs on what others leave, may wait on its node, and gives way.
        Opportunistic = Opportunistic "OPPORTUNISTIC",
    }
}

named! {
    /// How far a container has come.
    pub enum ContainerState: ContainerStateProto, "container's state" {
        /// It waits to be started.
        New = CNew "NEW",
        /// It is being started, or runs.
        Running = CRunning "RUNNING",
        /// It has ended.
        Complete = CComplete "COMPLETE",
    }
}

named! {
    /// The same, more precisely (Hadoop 3).
    pub enum ContainerSubState: ContainerSubStateProto, "container's sub-state" {
        /// Its files are fetched, or it waits for room.
        Scheduled = CssScheduled "SCHEDULED",
        /// Its process runs.
        Running = CssRunning "RUNNING",
        /// Its process is held.
        Paused = CssPaused "PAUSED",
        /// It has ended, and is cleaned up.
        Completing = CssCompleting "COMPLETING",
        /// Nothing is left of it.
        Done = CssDone "DONE",
    }
}

/// A container that was given to a master: a right to start something on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Where it is.
    pub node: NodeId,
    /// The node's web pages, as `host:port`.
    pub http_address: String,
    /// What it may use: what was asked for, rounded up.
    pub resource: Resource,
    /// The priority of the ask it answers.
    pub priority: i32,
    /// The allocation request id of the ask it answers. Where none was sent, -1; 0 on Hadoop 2.
    pub request_id: i64,
    /// Whether its resources are its own.
    pub execution: ExecutionType,
    /// Counts its updates; an update names the version it changes.
    pub version: i32,
    /// The tags of the request it answers (Hadoop 3).
    pub tags: Vec<String>,
    /// Shown to its NodeManager to start it. It expires, usually ten minutes after the grant. Of a kept container that
    /// a ResourceManager knows from its node alone, because it was started again meanwhile, it is empty.
    pub token: Token,
}

impl Container {
    /// A container of an earlier attempt. It was started long ago, so that nobody misses its token.
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

/// What is known of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// Its id.
    pub id: ContainerId,
    /// How far it has come.
    pub state: ContainerState,
    /// The same, more precisely, where the version tells.
    pub sub_state: Option<ContainerSubState>,
    /// How it ended.
    pub exit: ExitStatus,
    /// What was said about its end, in one or more lines.
    pub diagnostics: String,
    /// What it may use, where the version tells.
    pub resource: Option<Resource>,
    /// Whether its resources are its own.
    pub execution: ExecutionType,
    /// What its node tells about it, as `HOST`, `IP` and `PORTS` (Hadoop 3).
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
            // A new stage between the known ones is no reason to refuse the rest.
            sub_state: proto.container_sub_state.and_then(|n| ContainerSubState::of(n).ok()),
            exit: proto.exit_status().into(),
            diagnostics: proto.diagnostics().to_owned(),
            resource: proto.capability.as_ref().and_then(|r| Resource::of(Some(r)).ok()),
            execution: execution(proto.execution_type),
            attributes: proto.container_attributes.into_iter().map(attribute).collect(),
        })
    }
}

/// A kind of execution that is not known is at least not guaranteed.
fn execution(number: Option<i32>) -> ExecutionType {
    number.map_or(ExecutionType::Guaranteed, |number| {
        ExecutionType::of(number).unwrap_or(ExecutionType::Opportunistic)
    })
}

/// What a master shows to a NodeManager to be listened to. The ResourceManager gives one for each
/// node, once, and anew when its key has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeToken {
    /// The node.
    pub node: NodeId,
    /// Its token.
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
    fn a_kept_container_may_be_without_a_token_and_a_new_one_may_not() {
        let proto = ContainerProto { container_token: None, ..container() };
        assert!(Container::of(proto.clone()).is_err());
        let recovered = Container::recovered(proto).expect("a container");
        assert_eq!(recovered.id.to_string(), "container_1_0001_01_000002");
    }

    #[test]
    fn what_an_old_version_leaves_out_has_a_meaning() {
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
    fn a_container_without_its_token_or_node_is_refused() {
        let without_token = ContainerProto { container_token: None, ..container() };
        assert!(Container::of(without_token).is_err());
        let without_node = ContainerProto { node_id: None, ..container() };
        assert!(Container::of(without_node).is_err());
        assert!(ContainerStatus::of(ContainerStatusProto::default()).is_err());
    }

    #[test]
    fn names_are_read_as_they_are_printed() {
        for text in ["GUARANTEED", "OPPORTUNISTIC"] {
            assert_eq!(text.parse::<ExecutionType>().map(|e| e.to_string()).as_deref(), Ok(text));
        }
        let bad = "SOMETIMES".parse::<ExecutionType>().expect_err("no name");
        assert_eq!(
            bad.to_string(),
            "`SOMETIMES` is no execution type; it is one of GUARANTEED, OPPORTUNISTIC"
        );
    }
}
