//! Responses of the scheduler.

use crate::proto::yarn::{
    AllocateResponseProto, PreemptionContainerProto, PreemptionMessageProto,
    UpdateContainerErrorProto, UpdatedContainerProto,
};
use crate::scheduler::{Ask, Rejection, Update, UpdateKind};
use crate::token::Token;
use crate::types::{
    Container, ContainerId, ContainerStatus, InvalidMessage, NodeReport, NodeToken, Resource,
};

/// Response to an allocate call.
///
/// After a restart of the ResourceManager, ended containers may be reported again. A master
/// identifies them by container id.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AllocateResponse {
    /// Response id. Increments by one; a registration resets it.
    pub response_id: i32,
    /// Granted containers, to be started within some minutes.
    pub granted: Vec<Container>,
    /// Ended containers, including released ones.
    pub completed: Vec<ContainerStatus>,
    /// Containers of earlier attempts, on nodes that have registered only now (Hadoop 3).
    pub recovered: Vec<Container>,
    /// Tokens of nodes, new or renewed.
    pub node_tokens: Vec<NodeToken>,
    /// Nodes with a changed state.
    pub nodes: Vec<NodeReport>,
    /// Preemption notice.
    pub preemption: Option<Preemption>,
    /// Updated containers.
    pub updated: Vec<UpdatedContainer>,
    /// Rejected updates.
    pub update_errors: Vec<UpdateError>,
    /// Rejected scheduling requests.
    pub rejected: Vec<Rejection>,
    /// Resources that the application could still get.
    pub headroom: Option<Resource>,
    /// Number of nodes in the cluster.
    pub cluster_nodes: i32,
    /// Priority of the application, where the version reports it.
    pub priority: Option<i32>,
    /// Collector of the timeline service, if there is one.
    pub collector: Option<Collector>,
    /// Load of the nearest nodes by other applications (Hadoop 3.4).
    pub backlog: Option<Backlog>,
    /// True if the master's token was replaced. The next call uses the new one.
    pub token_replaced: bool,
}

/// Preemption notice of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preemption {
    /// Containers that will be killed in any case.
    pub strict: Vec<ContainerId>,
    /// Containers that will be killed unless the master releases equivalent resources.
    pub negotiable: Vec<ContainerId>,
    /// Resources to release instead of the negotiable containers.
    pub wanted: Vec<Ask>,
}

/// Updated container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdatedContainer {
    /// Kind of update.
    pub kind: UpdateKind,
    /// The container after the update. Its node learns of an increase or a promotion from its token
    /// ([`NmClient::update`](crate::node::NmClient::update)).
    pub container: Container,
}

/// Rejected container update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateError {
    /// Reason, as `INCORRECT_CONTAINER_VERSION_ERROR`.
    pub reason: String,
    /// The update.
    pub update: Update,
    /// Current version of the container.
    pub version: i32,
}

/// Collector of the timeline service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collector {
    /// Address.
    pub address: String,
    /// Token for it, on a secure cluster.
    pub token: Option<Token>,
}

/// Load of nodes by other applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Queued containers.
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
            // An unknown node state must not invalidate the rest of the response.
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

/// Converts all messages, or returns the first error.
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
            update: Update::of(update.ok_or(InvalidMessage("a rejected update"))?)?,
            version: proto.current_container_version(),
        })
    }
}
