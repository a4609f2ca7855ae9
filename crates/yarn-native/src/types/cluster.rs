//! Node reports and cluster metrics.

use crate::proto::yarn::{NodeReportProto, NodeStateProto, YarnClusterMetricsProto};
use crate::types::named::named;
use crate::types::{Attribute, InvalidMessage, NodeId, Resource};

named! {
    /// State of a node.
    pub enum NodeState: NodeStateProto, "node state" {
        /// Just registered.
        New = NsNew "NEW",
        /// Healthy.
        Running = NsRunning "RUNNING",
        /// Reports itself as unhealthy.
        Unhealthy = NsUnhealthy "UNHEALTHY",
        /// Decommissioned.
        Decommissioned = NsDecommissioned "DECOMMISSIONED",
        /// Missed heartbeats until the timeout.
        Lost = NsLost "LOST",
        /// Restarted.
        Rebooted = NsRebooted "REBOOTED",
        /// Being decommissioned.
        Decommissioning = NsDecommissioning "DECOMMISSIONING",
        /// Shut down in an orderly way.
        Shutdown = NsShutdown "SHUTDOWN",
    }
}

impl NodeState {
    /// All states.
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

/// Report about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// Node id.
    pub id: NodeId,
    /// Web address as `host:port`.
    pub http_address: String,
    /// Rack.
    pub rack: String,
    /// Current state.
    pub state: NodeState,
    /// Total resources.
    pub capability: Resource,
    /// Resources in use.
    pub used: Resource,
    /// Number of containers on it.
    pub containers: i32,
    /// Health report; empty if healthy.
    pub health: String,
    /// Labels.
    pub labels: Vec<String>,
    /// Attributes (Hadoop 3.2).
    pub attributes: Vec<Attribute>,
}

impl NodeReport {
    pub(crate) fn of(proto: &NodeReportProto) -> Result<Self, InvalidMessage> {
        // A node that has not reported yet, or was lost, has no resources.
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

/// Number of nodes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterMetrics {
    /// All known nodes.
    pub nodes: i32,
    /// Running nodes.
    pub active: i32,
    /// Lost nodes.
    pub lost: i32,
    /// Unhealthy nodes.
    pub unhealthy: i32,
    /// Decommissioned nodes.
    pub decommissioned: i32,
    /// Restarted nodes.
    pub rebooted: i32,
    /// Nodes being decommissioned (Hadoop 3).
    pub decommissioning: i32,
    /// Nodes shut down in an orderly way (Hadoop 3).
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
    fn node_states_match_hadoop_names() {
        for state in NodeState::ALL {
            assert_eq!(state.proto().as_str_name(), format!("NS_{state}"));
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }
}
