//! Cluster information: nodes, queues, labels, attributes and resource types.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::client::Client;
use crate::proto::yarn::application_client_protocol as method;
use crate::proto::yarn::{
    GetAllResourceTypeInfoRequestProto, GetAttributesToNodesRequestProto,
    GetClusterMetricsRequestProto, GetClusterNodeAttributesRequestProto,
    GetClusterNodeLabelsRequestProto, GetClusterNodesRequestProto, GetLabelsToNodesRequestProto,
    GetNodesToAttributesRequestProto, GetNodesToLabelsRequestProto, GetQueueInfoRequestProto,
    GetQueueUserAclsInfoRequestProto,
};
use crate::rpc::RpcError;
use crate::types::{
    Attribute, AttributeName, ClusterMetrics, InvalidMessage, NodeId, NodeLabel, NodeReport,
    NodeState, Queue, QueuePermissions, ResourceTypeInfo,
};

/// Level of detail of a queue report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDetail {
    /// Includes the queue's applications.
    pub applications: bool,
    /// Includes all descendant queues.
    pub children: bool,
}

impl Client {
    /// Returns the nodes in any of these states, or all nodes if none is given.
    pub async fn nodes(
        &self,
        states: &[NodeState],
        deadline: Instant,
    ) -> Result<Vec<NodeReport>, RpcError> {
        // The ResourceManager treats an empty list as running nodes only.
        let states = match states {
            [] => &NodeState::ALL,
            some => some,
        };
        let request = GetClusterNodesRequestProto {
            node_states: states.iter().map(|state| state.proto().into()).collect(),
        };
        let call = &method::GET_CLUSTER_NODES;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let reports = answer.node_reports.iter().map(NodeReport::of);
        self.decode(call.name, reports.collect())
    }

    /// Returns the number of nodes by state.
    pub async fn cluster_metrics(&self, deadline: Instant) -> Result<ClusterMetrics, RpcError> {
        let call = &method::GET_CLUSTER_METRICS;
        let request = GetClusterMetricsRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let metrics = answer.cluster_metrics.as_ref().map(ClusterMetrics::of);
        self.decode(call.name, metrics.ok_or(InvalidMessage("the metrics")))
    }

    /// Returns a queue. For an unknown queue some servers return an error, others nothing.
    pub async fn queue(
        &self,
        name: &str,
        detail: QueueDetail,
        deadline: Instant,
    ) -> Result<Option<Queue>, RpcError> {
        let request = GetQueueInfoRequestProto {
            queue_name: Some(name.to_owned()),
            include_applications: Some(detail.applications),
            include_child_queues: Some(detail.children),
            recursive: Some(detail.children),
            sub_cluster_id: None,
        };
        let call = &method::GET_QUEUE_INFO;
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let queue = answer.queue_info.as_ref().filter(|queue| {
            // An empty message stands for an unknown queue.
            queue.queue_name.is_some()
        });
        self.decode(call.name, queue.map(Queue::of).transpose())
    }

    /// Returns the root queue with all its descendants.
    pub async fn queues(&self, deadline: Instant) -> Result<Queue, RpcError> {
        let detail = QueueDetail { children: true, ..QueueDetail::default() };
        let root = self.queue("root", detail, deadline).await?;
        self.decode(method::GET_QUEUE_INFO.name, root.ok_or(InvalidMessage("the root queue")))
    }

    /// Returns the caller's permissions in each queue.
    pub async fn queue_permissions(
        &self,
        deadline: Instant,
    ) -> Result<Vec<QueuePermissions>, RpcError> {
        let call = &method::GET_QUEUE_USER_ACLS;
        let request = GetQueueUserAclsInfoRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let queues = answer.queue_user_acls.iter().map(QueuePermissions::of);
        self.decode(call.name, queues.collect())
    }

    /// Returns the node labels of the cluster.
    pub async fn labels(&self, deadline: Instant) -> Result<Vec<NodeLabel>, RpcError> {
        let call = &method::GET_CLUSTER_NODE_LABELS;
        let request = GetClusterNodeLabelsRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        Ok(answer.node_labels.iter().map(NodeLabel::of).collect())
    }

    /// Returns the labels of each labelled node. Port 0 stands for all NodeManagers of a host.
    pub async fn labels_by_node(
        &self,
        deadline: Instant,
    ) -> Result<BTreeMap<NodeId, Vec<String>>, RpcError> {
        let call = &method::GET_NODE_TO_LABELS;
        let request = GetNodesToLabelsRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let entries = answer.node_to_labels.iter().map(|entry| {
            let node = NodeId::of(entry.node_id.as_ref())?;
            Ok((node, entry.node_labels.clone()))
        });
        self.decode(call.name, entries.collect())
    }

    /// Returns the nodes of each of these labels, or of all labels if none is given. Port 0 stands
    /// for all NodeManagers of a host.
    pub async fn nodes_by_label(
        &self,
        labels: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Vec<NodeId>>, RpcError> {
        let call = &method::GET_LABELS_TO_NODES;
        let request = GetLabelsToNodesRequestProto { node_labels: labels.to_vec() };
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let entries = answer.labels_to_nodes.iter().map(|entry| {
            let nodes = entry.node_id.iter().map(|id| NodeId::of(Some(id)));
            let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
            Ok((entry.node_labels().to_owned(), nodes))
        });
        self.decode(call.name, entries.collect())
    }

    /// Returns the node attributes of the cluster (Hadoop 3.2).
    pub async fn attributes(&self, deadline: Instant) -> Result<Vec<AttributeName>, RpcError> {
        let call = &method::GET_CLUSTER_NODE_ATTRIBUTES;
        let request = GetClusterNodeAttributesRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let names = answer.node_attributes.iter();
        let names = names.map(|entry| AttributeName::of(&entry.attribute_key));
        Ok(names.collect())
    }

    /// Returns the attributes of each of these hosts, or of all hosts if none is given (Hadoop
    /// 3.2).
    pub async fn attributes_by_host(
        &self,
        hosts: &[String],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Vec<Attribute>>, RpcError> {
        let call = &method::GET_NODES_TO_ATTRIBUTES;
        let request = GetNodesToAttributesRequestProto { hostnames: hosts.to_vec() };
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let entries = answer.nodes_to_attributes.iter().map(|entry| {
            let attributes = entry.node_attributes.iter().map(Attribute::of);
            (entry.node().to_owned(), attributes.collect())
        });
        Ok(entries.collect())
    }

    /// Returns the hosts with each of these attributes and the attribute's value there, for all
    /// attributes if none is given (Hadoop 3.2).
    pub async fn hosts_by_attribute(
        &self,
        attributes: &[AttributeName],
        deadline: Instant,
    ) -> Result<BTreeMap<AttributeName, BTreeMap<String, String>>, RpcError> {
        let call = &method::GET_ATTRIBUTES_TO_NODES;
        let request = GetAttributesToNodesRequestProto {
            node_attributes: attributes.iter().map(AttributeName::proto).collect(),
        };
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let entries = answer.attributes_to_nodes.iter().map(|entry| {
            let hosts = entry.node_value_map.iter();
            let hosts = hosts.map(|at| (at.hostname.clone(), at.attribute_value.clone()));
            (AttributeName::of(&entry.node_attribute), hosts.collect())
        });
        Ok(entries.collect())
    }

    /// Returns the resource types of the cluster. The ResourceManager silently ignores unknown
    /// types in requests.
    pub async fn resource_kinds(
        &self,
        deadline: Instant,
    ) -> Result<Vec<ResourceTypeInfo>, RpcError> {
        let call = &method::GET_RESOURCE_TYPE_INFO;
        let request = GetAllResourceTypeInfoRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let kinds = answer.resource_type_info.iter().map(ResourceTypeInfo::of);
        Ok(kinds.collect())
    }
}
