//! Nodes, and the cluster they make.

use crate::proto::yarn::{NodeReportProto, NodeStateProto, YarnClusterMetricsProto};
use crate::types::named::named;
use crate::types::{Attribute, InvalidMessage, NodeId, Resource};

named! {
    /// How a node is.
    pub enum NodeState: NodeStateProto, "state of nodes" {
        /// Just registered.
        New = NsNew "NEW",
        /// Well.
        Running = NsRunning "RUNNING",
        /// It says itself that it is not well.
        Unhealthy = NsUnhealthy "UNHEALTHY",
        /// Taken out of service.
        Decommissioned = NsDecommissioned "DECOMMISSIONED",
        /// Not heard of for too long.
        Lost = NsLost "LOST",
        /// Started again.
        Rebooted = NsRebooted "REBOOTED",
        /// Being taken out of service.
        Decommissioning = NsDecommissioning "DECOMMISSIONING",
        /// It said goodbye.
        Shutdown = NsShutdown "SHUTDOWN",
    }
}

impl NodeState {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::New,
        Self::Running,
        Self::Unhealthy,
        Self::Decommissioned,
        Self::Lost,
        Self::Rebooted,
        Self::Decommissioning,
        Self::Shutdown,
    ];
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
    /// Its attributes (Hadoop 3.2).
    pub attributes: Vec<Attribute>,
}

impl NodeReport {
    pub(crate) fn of(proto: &NodeReportProto) -> Result<Self, InvalidMessage> {
        // A node that has not told yet, or was lost, has no resources.
        let resource = |proto: &Option<_>| Resource::of(proto.as_ref()).unwrap_or_default();
        Ok(Self {
            id: NodeId::of(proto.node_id.as_ref())?,
            http_address: proto.http_address().to_owned(),
            rack: proto.rack_name().to_owned(),
            state: NodeState::of(proto.node_state.unwrap_or(-1))?,
            capability: resource(&proto.capability),
            used: resource(&proto.used),
            containers: proto.num_containers(),
            health: proto.health_report().to_owned(),
            labels: proto.node_labels.clone(),
            attributes: proto.node_attributes.iter().map(Attribute::of).collect(),
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
    fn states_have_the_names_people_know() {
        for state in NodeState::ALL {
            assert_eq!(state.proto().as_str_name(), format!("NS_{state}"));
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }
}
