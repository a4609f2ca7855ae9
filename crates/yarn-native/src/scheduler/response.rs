//! What the scheduler says in one beat.

use crate::proto::yarn::{
    AllocateResponseProto, PreemptionContainerProto, PreemptionMessageProto,
    UpdateContainerErrorProto, UpdatedContainerProto,
};
use crate::scheduler::{Ask, Rejection, Update, UpdateKind};
use crate::token::Token;
use crate::types::{
    Container, ContainerId, ContainerStatus, InvalidMessage, NodeReport, NodeToken, Resource,
};

/// What the scheduler says in one beat.
///
/// After the ResourceManager has been restarted, ends of containers may be told again: a master
/// goes by the container's id.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AllocateResponse {
    /// The answer's number; each is one more than the one before, and a registration begins anew.
    pub response_id: i32,
    /// Containers that are the master's now, to be started within some minutes.
    pub granted: Vec<Container>,
    /// Containers that have ended, also those that were released.
    pub completed: Vec<ContainerStatus>,
    /// Containers of earlier attempts whose nodes have come back only now (Hadoop 3).
    pub recovered: Vec<Container>,
    /// Tokens of nodes that are new, or have changed.
    pub node_tokens: Vec<NodeToken>,
    /// Nodes whose state has changed.
    pub nodes: Vec<NodeReport>,
    /// What the scheduler is going to take back.
    pub preemption: Option<Preemption>,
    /// Containers that have been changed.
    pub updated: Vec<UpdatedContainer>,
    /// Changes that were refused.
    pub update_errors: Vec<UpdateError>,
    /// Requests with constraints that were given up.
    pub rejected: Vec<Rejection>,
    /// What the application could still get now.
    pub headroom: Option<Resource>,
    /// How many nodes the cluster has.
    pub cluster_nodes: i32,
    /// The application's priority, where the version tells.
    pub priority: Option<i32>,
    /// The timeline service's collector, where there is one.
    pub collector: Option<Collector>,
    /// Containers of others that wait and cores in use, of the nearest nodes (Hadoop 3.4).
    pub backlog: Option<Backlog>,
    /// Whether the master's token was replaced. The next call already uses the new one.
    pub token_replaced: bool,
}

/// What the scheduler is going to take back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preemption {
    /// Containers that will be killed, whatever the master does.
    pub strict: Vec<ContainerId>,
    /// Containers that will be killed unless the master gives back as much in another way.
    pub negotiable: Vec<ContainerId>,
    /// How much that is.
    pub wanted: Vec<Ask>,
}

/// A container that has been changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdatedContainer {
    /// How.
    pub kind: UpdateKind,
    /// As it is now. Its node learns of an increase or promotion from its token
    /// ([`NmClient::update`](crate::node::NmClient::update)).
    pub container: Container,
}

/// A change that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateError {
    /// Why, as `INCORRECT_CONTAINER_VERSION_ERROR`.
    pub reason: String,
    /// What was wanted.
    pub update: Update,
    /// The version the container has.
    pub version: i32,
}

/// The timeline service's collector.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collector {
    /// Where it listens.
    pub address: String,
    /// What it wants to be shown, on a secure cluster.
    pub token: Option<Token>,
}

/// What the scheduler has to do otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Containers that wait.
    pub pending: i32,
    /// Cores in use.
    pub active_cores: i32,
}

impl AllocateResponse {
    pub(crate) fn of(proto: AllocateResponseProto) -> Result<Self, InvalidMessage> {
        Ok(Self {
            response_id: proto.response_id() & i32::MAX,
            granted: all(proto.allocated_containers, Container::of)?,
            completed: all(proto.completed_container_statuses, ContainerStatus::of)?,
            recovered: all(proto.containers_from_previous_attempts, Container::recovered)?,
            node_tokens: all(proto.nm_tokens, NodeToken::of)?,
            // A state that a later version has invented is no reason to lose the containers above.
            nodes: proto.updated_nodes.iter().flat_map(NodeReport::of).collect(),
            preemption: proto.preempt.as_ref().map(Preemption::of).transpose()?,
            updated: all(proto.updated_containers, UpdatedContainer::of)?,
            update_errors: all(proto.update_errors, UpdateError::of)?,
            rejected: all(proto.rejected_scheduling_requests, Rejection::of)?,
            headroom: proto.limit.as_ref().map(|r| Resource::of(Some(r))).transpose()?,
            cluster_nodes: proto.num_cluster_nodes.unwrap_or(0),
            priority: proto.application_priority.as_ref().map(|p| p.priority()),
            collector: proto.collector_info.map(|info| Collector {
                address: info.collector_addr.unwrap_or_default(),
                token: info.collector_token.map(Token::of),
            }),
            backlog: proto.enhanced_headroom.as_ref().map(|room| Backlog {
                pending: room.total_pending_count(),
                active_cores: room.total_active_cores(),
            }),
            token_replaced: false,
        })
    }
}

/// All of them, or the first that makes no sense.
pub(crate) fn all<P, T>(
    protos: Vec<P>,
    of: impl Fn(P) -> Result<T, InvalidMessage>,
) -> Result<Vec<T>, InvalidMessage> {
    protos.into_iter().map(of).collect()
}

impl Preemption {
    fn of(proto: &PreemptionMessageProto) -> Result<Self, InvalidMessage> {
        let ids = |containers: &[PreemptionContainerProto]| {
            let ids = containers.iter().map(|one| ContainerId::of(one.id.as_ref()));
            ids.collect::<Result<_, _>>()
        };
        let mut preemption = Self::default();
        if let Some(strict) = &proto.strict_contract {
            preemption.strict = ids(&strict.container)?;
        }
        if let Some(contract) = &proto.contract {
            preemption.negotiable = ids(&contract.container)?;
            let wanted = contract.resource.iter().flat_map(|wanted| &wanted.resource);
            preemption.wanted = wanted.map(Ask::of).collect::<Result<_, _>>()?;
        }
        Ok(preemption)
    }
}

impl UpdatedContainer {
    fn of(proto: UpdatedContainerProto) -> Result<Self, InvalidMessage> {
        Ok(Self {
            kind: UpdateKind::of(proto.update_type)?,
            container: Container::of(proto.container)?,
        })
    }
}

impl UpdateError {
    fn of(proto: UpdateContainerErrorProto) -> Result<Self, InvalidMessage> {
        let update = proto.update_request.as_ref();
        Ok(Self {
            reason: proto.reason().to_owned(),
            update: Update::of(update.ok_or(InvalidMessage("a refused update"))?)?,
            version: proto.current_container_version(),
        })
    }
}
