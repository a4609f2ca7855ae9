//! The cluster: nodes and queues, labels and attributes, and what is counted.

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

/// How much to tell about a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDetail {
    /// Its applications, too.
    pub applications: bool,
    /// And the queues below it, and those below them.
    pub children: bool,
}

impl Client {
    /// The nodes in any of these states; with none, all that are known.
    pub async fn nodes(
        &self,
        states: &[NodeState],
        deadline: Instant,
    ) -> Result<Vec<NodeReport>, RpcError> {
        // The ResourceManager takes an empty list for the running ones.
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

    /// How many nodes there are, by how they are.
    pub async fn cluster_metrics(&self, deadline: Instant) -> Result<ClusterMetrics, RpcError> {
        let call = &method::GET_CLUSTER_METRICS;
        let request = GetClusterMetricsRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let metrics = answer.cluster_metrics.as_ref().map(ClusterMetrics::of);
        self.decode(call.name, metrics.ok_or(InvalidMessage("the metrics")))
    }

    /// A queue. One that does not exist is refused by some servers, and by others told as nothing.
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
            // What stands for nothing has no name either.
            queue.queue_name.is_some()
        });
        self.decode(call.name, queue.map(Queue::of).transpose())
    }

    /// All queues, each with those below it, from the root.
    pub async fn queues(&self, deadline: Instant) -> Result<Queue, RpcError> {
        let detail = QueueDetail { children: true, ..QueueDetail::default() };
        let root = self.queue("root", detail, deadline).await?;
        self.decode(method::GET_QUEUE_INFO.name, root.ok_or(InvalidMessage("the root queue")))
    }

    /// What the caller may do in each queue.
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

    /// The labels of the cluster.
    pub async fn labels(&self, deadline: Instant) -> Result<Vec<NodeLabel>, RpcError> {
        let call = &method::GET_CLUSTER_NODE_LABELS;
        let request = GetClusterNodeLabelsRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        Ok(answer.node_labels.iter().map(NodeLabel::of).collect())
    }

    /// The labels of each node that has some. The port 0 stands for all NodeManagers of a host.
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

    /// The nodes of each of these labels; of all of them, if none is named. The port 0 stands for all
    /// NodeManagers of a host.
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

    /// The attributes that nodes of the cluster have (Hadoop 3.2).
    pub async fn attributes(&self, deadline: Instant) -> Result<Vec<AttributeName>, RpcError> {
        let call = &method::GET_CLUSTER_NODE_ATTRIBUTES;
        let request = GetClusterNodeAttributesRequestProto {};
        let answer = self.call_idempotent(call, &request, deadline).await?;
        let names = answer.node_attributes.iter();
        let names = names.map(|entry| AttributeName::of(&entry.attribute_key));
        Ok(names.collect())
    }

    /// The attributes of each of these hosts; of all of them, if none is named (Hadoop 3.2).
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

    /// The hosts with each of these attributes, and its value there; of all of them, if none is
    /// named (Hadoop 3.2).
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

    /// The kinds of resources that the cluster counts. An ask for another kind is not refused: the
    /// ResourceManager forgets it silently.
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
