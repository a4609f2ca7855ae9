//! Queues and queue permissions.

use std::collections::BTreeMap;

use crate::proto::yarn::{
    QueueAclProto, QueueInfoProto, QueueStateProto, QueueStatisticsProto, QueueUserAclInfoProto,
};
use crate::types::named::named;
use crate::types::{ApplicationReport, InvalidMessage};

named! {
    /// State of a queue.
    pub enum QueueState: QueueStateProto, "queue state" {
        /// Accepts and runs no applications.
        Stopped = QStopped "STOPPED",
        /// Accepts applications.
        Running = QRunning "RUNNING",
        /// Accepts no applications, and finishes those it has.
        Draining = QDraining "DRAINING",
    }
}

named! {
    /// Permission of a user on a queue.
    pub enum QueuePermission: QueueAclProto, "queue permission" {
        /// Submit applications to it.
        Submit = QaclSubmitApplications "SUBMIT_APPLICATIONS",
        /// Kill and move any application in it.
        Administer = QaclAdministerQueue "ADMINISTER_QUEUE",
    }
}

/// Queue information.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Queue {
    /// Name; without its parents before Hadoop 3.4.
    pub name: String,
    /// Full path, such as `root.research.vision` (Hadoop 3.4).
    pub path: Option<String>,
    /// Share of the parent queue, from 0 to 1.
    pub capacity: f32,
    /// Maximum share of the parent queue, from 0 to 1; -1 is unlimited.
    pub capacity_max: f32,
    /// Used fraction of its own share; above 1 it has borrowed from other queues.
    pub used: f32,
    /// Current state.
    pub state: QueueState,
    /// Labels that its applications may ask for; `*` allows all.
    pub labels: Vec<String>,
    /// Default label of asks without one.
    pub label: Option<String>,
    /// Child queues, if requested.
    pub children: Vec<Queue>,
    /// Applications in it, if requested.
    pub applications: Vec<ApplicationReport>,
    /// Statistics, if the server counts them.
    pub statistics: Option<QueueStatistics>,
    /// Share of the nodes of each label, if the server reports it. The empty name stands for nodes
    /// without a label.
    pub shares: BTreeMap<String, QueueShare>,
}

/// Share of a queue in the nodes of one label, relative to the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct QueueShare {
    /// Guaranteed share, from 0 to 1.
    pub capacity: f32,
    /// Maximum share, from 0 to 1.
    pub capacity_max: f32,
}

/// Statistics of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// Running applications.
    pub running: i64,
    /// Pending applications.
    pub pending: i64,
    /// Users with applications in it.
    pub users: i64,
    /// Memory available now, in MiB.
    pub available_mib: i64,
    /// Memory in use, in MiB.
    pub allocated_mib: i64,
    /// Memory asked for and not granted, in MiB.
    pub pending_mib: i64,
    /// Cores available now.
    pub available_vcores: i64,
    /// Cores in use.
    pub allocated_vcores: i64,
    /// Cores asked for and not granted.
    pub pending_vcores: i64,
    /// Containers in use.
    pub containers: i64,
}

impl Queue {
    pub(crate) fn of(proto: &QueueInfoProto) -> Result<Self, InvalidMessage> {
        let some = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        let children = proto.child_queues.iter().map(Self::of);
        let applications = proto.applications.iter().map(ApplicationReport::of);
        Ok(Self {
            name: some(proto.queue_name.as_ref()).ok_or(InvalidMessage("a queue's name"))?,
            path: some(proto.queue_path.as_ref()),
            capacity: proto.capacity(),
            capacity_max: proto.maximum_capacity(),
            used: proto.current_capacity(),
            state: QueueState::of(proto.state.unwrap_or(-1))?,
            labels: proto.accessible_node_labels.clone(),
            label: some(proto.default_node_label_expression.as_ref()),
            children: children.collect::<Result<_, _>>()?,
            applications: applications.collect::<Result<_, _>>()?,
            statistics: proto.queue_statistics.as_ref().map(QueueStatistics::of),
            shares: proto
                .queue_configurations_map
                .iter()
                .filter_map(|entry| {
                    let of = entry.queue_configurations.as_ref()?;
                    let share = QueueShare {
                        capacity: of.absolute_capacity(),
                        capacity_max: of.absolute_max_capacity(),
                    };
                    Some((entry.partition_name.clone(), share))
                })
                .collect(),
        })
    }
}

impl QueueStatistics {
    fn of(proto: &QueueStatisticsProto) -> Self {
        Self {
            running: proto.num_apps_running(),
            pending: proto.num_apps_pending(),
            users: proto.num_active_users(),
            available_mib: proto.available_memory_mb(),
            allocated_mib: proto.allocated_memory_mb(),
            pending_mib: proto.pending_memory_mb(),
            available_vcores: proto.available_v_cores(),
            allocated_vcores: proto.allocated_v_cores(),
            pending_vcores: proto.pending_v_cores(),
            containers: proto.allocated_containers(),
        }
    }
}

/// Permissions of the caller on a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePermissions {
    /// Queue.
    pub queue: String,
    /// Granted permissions; may be empty.
    pub permissions: Vec<QueuePermission>,
}

impl QueuePermissions {
    pub(crate) fn of(proto: &QueueUserAclInfoProto) -> Result<Self, InvalidMessage> {
        let permissions = proto.user_acls.iter().map(|&n| QueuePermission::of(n));
        Ok(Self {
            queue: proto.queue_name().to_owned(),
            permissions: permissions.collect::<Result<_, _>>()?,
        })
    }
}
