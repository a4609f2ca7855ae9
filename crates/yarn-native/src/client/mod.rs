//! A client of the ResourceManager: applications and the cluster they run on.

mod submit;

pub use submit::Submission;

use tokio::time::Instant;

use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    GetApplicationsRequestProto, GetClusterMetricsRequestProto, GetClusterNodesRequestProto,
    GetNewApplicationRequestProto,
};
use crate::rpc::{Address, Channel, Options, Protocol, RpcError, Safety};
use crate::security::Identity;
use crate::types::{
    ApplicationId, ApplicationReport, ApplicationState, ClusterMetrics, NodeReport, NodeState,
    Resource, Unfit,
};

/// Speaks to the ResourceManager, or to whichever of several is active. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

/// An application that has an id, and nothing else yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApplication {
    /// The id to submit with.
    pub id: ApplicationId,
    /// The largest container the scheduler gives.
    pub capability_max: Resource,
}

/// Which applications to list; empty lists do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationFilter {
    /// In one of these states.
    pub states: Vec<ApplicationState>,
    /// Of one of these types.
    pub kinds: Vec<String>,
    /// Of one of these users.
    pub users: Vec<String>,
    /// In one of these queues.
    pub queues: Vec<String>,
    /// With one of these tags.
    pub tags: Vec<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

impl Client {
    /// A client of the ResourceManager at any of `addresses`.
    pub fn new(
        addresses: Vec<Address>,
        identity: Identity,
        options: Options,
    ) -> Result<Self, RpcError> {
        let channel = Channel::new(Protocol::APPLICATION_CLIENT, addresses, identity, options)?;
        Ok(Self::on(channel))
    }

    /// A client on a channel that speaks [`Protocol::APPLICATION_CLIENT`].
    pub fn on(channel: Channel) -> Self {
        Self { channel }
    }

    /// A new id. One that is not used does no harm.
    pub async fn new_application(&self, deadline: Instant) -> Result<NewApplication, RpcError> {
        let request = GetNewApplicationRequestProto {};
        let (call, safety) = (&method::GET_NEW_APPLICATION, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        let new = || {
            Ok(NewApplication {
                id: ApplicationId::of(answer.application_id.as_ref())?,
                capability_max: Resource::of(answer.maximum_capability.as_ref())?,
            })
        };
        self.read(call.name, new())
    }

    /// The applications that the filter lets through.
    pub async fn applications(
        &self,
        filter: &ApplicationFilter,
        deadline: Instant,
    ) -> Result<Vec<ApplicationReport>, RpcError> {
        let request = GetApplicationsRequestProto {
            application_types: filter.kinds.clone(),
            application_states: filter
                .states
                .iter()
                .map(|state| state.proto().into())
                .collect(),
            users: filter.users.clone(),
            queues: filter.queues.clone(),
            application_tags: filter.tags.clone(),
            limit: filter.limit.map(i64::from),
            ..GetApplicationsRequestProto::default()
        };
        let (call, safety) = (&method::GET_APPLICATIONS, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        self.read(
            call.name,
            answer
                .applications
                .iter()
                .map(ApplicationReport::of)
                .collect(),
        )
    }

    /// The nodes in any of these states; with none, all that are known.
    pub async fn nodes(
        &self,
        states: &[NodeState],
        deadline: Instant,
    ) -> Result<Vec<NodeReport>, RpcError> {
        let node_states = if states.is_empty() {
            // The ResourceManager takes an empty list for the running ones.
            NodeState::ALL
                .iter()
                .map(|&(_, proto, _)| proto.into())
                .collect()
        } else {
            states.iter().map(|state| state.proto().into()).collect()
        };
        let request = GetClusterNodesRequestProto { node_states };
        let (call, safety) = (&method::GET_CLUSTER_NODES, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        self.read(
            call.name,
            answer.node_reports.iter().map(NodeReport::of).collect(),
        )
    }

    /// How many nodes there are, by how they are.
    pub async fn cluster_metrics(&self, deadline: Instant) -> Result<ClusterMetrics, RpcError> {
        let request = GetClusterMetricsRequestProto {};
        let (call, safety) = (&method::GET_CLUSTER_METRICS, Safety::Idempotent);
        let answer = self.channel.call(call, &request, deadline, safety).await?;
        let metrics = answer.cluster_metrics.as_ref().map(ClusterMetrics::of);
        self.read(call.name, metrics.ok_or(Unfit("the metrics")))
    }

    /// An answer that makes no sense is the server's fault.
    fn read<T>(&self, method: &str, answer: Result<T, Unfit>) -> Result<T, RpcError> {
        answer.map_err(|unfit| self.channel.unfit(method, &unfit.to_string()))
    }
}
