//! Nodes, and the cluster they make.

use std::fmt;

use crate::proto::yarn::{NodeReportProto, NodeStateProto, YarnClusterMetricsProto};
use crate::types::{NodeId, Resource, Unfit};

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeState {
    /// Just registered.
    New,
    /// Well.
    Running,
    /// It says itself that it is not well.
    Unhealthy,
    /// Taken out of service.
    Decommissioned,
    /// Not heard of for too long.
    Lost,
    /// Started again.
    Rebooted,
    /// Being taken out of service.
    Decommissioning,
    /// It said goodbye.
    Shutdown,
}

impl NodeState {
    pub(crate) const ALL: [(Self, NodeStateProto, &'static str); 8] = [
        (Self::New, NodeStateProto::NsNew, "NEW"),
        (Self::Running, NodeStateProto::NsRunning, "RUNNING"),
        (Self::Unhealthy, NodeStateProto::NsUnhealthy, "UNHEALTHY"),
        (
            Self::Decommissioned,
            NodeStateProto::NsDecommissioned,
            "DECOMMISSIONED",
        ),
        (Self::Lost, NodeStateProto::NsLost, "LOST"),
        (Self::Rebooted, NodeStateProto::NsRebooted, "REBOOTED"),
        (
            Self::Decommissioning,
            NodeStateProto::NsDecommissioning,
            "DECOMMISSIONING",
        ),
        (Self::Shutdown, NodeStateProto::NsShutdown, "SHUTDOWN"),
    ];

    pub(crate) fn proto(self) -> NodeStateProto {
        Self::ALL[self as usize].1
    }

    fn of(number: Option<i32>) -> Result<Self, Unfit> {
        let known = |&(state, proto, _): &(Self, NodeStateProto, _)| {
            (number == Some(proto.into())).then_some(state)
        };
        Self::ALL
            .iter()
            .find_map(known)
            .ok_or(Unfit("a node's state"))
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].2)
    }
}

/// What the ResourceManager tells about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its id.
    pub id: NodeId,
    /// Where its web pages are, as `host:port`.
    pub http_address: String,
    /// Its rack.
    pub rack: String,
    /// How it is.
    pub state: NodeState,
    /// What it has.
    pub capability: Resource,
    /// What is in use.
    pub used: Resource,
    /// Containers on it.
    pub containers: i32,
    /// What is wrong with it, if something is.
    pub health: String,
    /// Its labels.
    pub labels: Vec<String>,
}

impl NodeReport {
    pub(crate) fn of(proto: &NodeReportProto) -> Result<Self, Unfit> {
        // A node that has not told yet, or was lost, has no resources.
        let resource = |proto: &Option<_>| Resource::of(proto.as_ref()).unwrap_or_default();
        Ok(Self {
            id: NodeId::of(proto.node_id.as_ref())?,
            http_address: proto.http_address().to_owned(),
            rack: proto.rack_name().to_owned(),
            state: NodeState::of(proto.node_state)?,
            capability: resource(&proto.capability),
            used: resource(&proto.used),
            containers: proto.num_containers(),
            health: proto.health_report().to_owned(),
            labels: proto.node_labels.clone(),
        })
    }
}

/// How many nodes a cluster has, by how they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterMetrics {
    /// All that are known.
    pub nodes: i32,
    /// Running.
    pub active: i32,
    /// Not heard of for too long.
    pub lost: i32,
    /// Not well.
    pub unhealthy: i32,
    /// Taken out of service.
    pub decommissioned: i32,
    /// Started again.
    pub rebooted: i32,
    /// Being taken out of service (Hadoop 3).
    pub decommissioning: i32,
    /// Gone with a goodbye (Hadoop 3).
    pub shutdown: i32,
}

impl ClusterMetrics {
    pub(crate) fn of(proto: &YarnClusterMetricsProto) -> Self {
        Self {
            nodes: proto.num_node_managers(),
            active: proto.num_active_nms(),
            lost: proto.num_lost_nms(),
            unhealthy: proto.num_unhealthy_nms(),
            decommissioned: proto.num_decommissioned_nms(),
            rebooted: proto.num_rebooted_nms(),
            decommissioning: proto.num_decommissioning_nms(),
            shutdown: proto.num_shutdown_nms(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_stand_where_their_numbers_say() {
        for (i, (state, proto, name)) in NodeState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, i);
            assert_eq!(NodeState::of(Some(proto.into())), Ok(state));
            assert_eq!(proto.as_str_name(), format!("NS_{name}"));
        }
    }
}
