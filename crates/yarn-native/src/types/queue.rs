//! Queues, and what may be done with them.

use std::collections::BTreeMap;

use crate::proto::yarn::{
    QueueAclProto, QueueInfoProto, QueueStateProto, QueueStatisticsProto, QueueUserAclInfoProto,
};
use crate::types::named::named;
use crate::types::{ApplicationReport, InvalidMessage};

named! {
    /// Whether a queue takes applications.
    pub enum QueueState: QueueStateProto, "state of queues" {
        /// It takes none, and runs none.
        Stopped = QStopped "STOPPED",
        /// It takes applications.
        Running = QRunning "RUNNING",
        /// It takes none, and finishes those it has.
        Draining = QDraining "DRAINING",
    }
}

named! {
    /// What somebody may do in a queue.
    pub enum QueuePermission: QueueAclProto, "permission in queues" {
        /// Submit applications to it.
        Submit = QaclSubmitApplications "SUBMIT_APPLICATIONS",
        /// End and move any application in it.
        Administer = QaclAdministerQueue "ADMINISTER_QUEUE",
    }
}

/// What the ResourceManager tells about a queue.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Queue {
    /// Its name; before Hadoop 3.4 without those above it.
    pub name: String,
    /// Its name with those above it, as `root.research.vision` (Hadoop 3.4).
    pub path: Option<String>,
    /// Its share of the queue above it, from 0 to 1.
    pub capacity: f32,
    /// What it may grow to, from 0 to 1; -1 is without limit.
    pub capacity_max: f32,
    /// What it uses of its share; more than 1 is borrowed.
    pub used: f32,
    /// Whether it takes applications.
    pub state: QueueState,
    /// Labels its applications may ask for; `*` is all.
    pub labels: Vec<String>,
    /// The label of asks that name none.
    pub label: Option<String>,
    /// The queues below it, if they were asked for.
    pub children: Vec<Queue>,
    /// The applications in it, if they were asked for.
    pub applications: Vec<ApplicationReport>,
    /// Its numbers, where the server counts them.
    pub statistics: Option<QueueStatistics>,
    /// Its share of the nodes of each label, where the server tells; those without label are under the
    /// empty name.
    pub shares: BTreeMap<String, QueueShare>,
}

/// A queue's share of the nodes of one label, of the whole cluster and not of the queue above it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct QueueShare {
    /// What is its own, from 0 to 1.
    pub capacity: f32,
    /// What it may grow to, from 0 to 1.
    pub capacity_max: f32,
}

/// A queue in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// Applications that run.
    pub running: i64,
    /// Applications that wait.
    pub pending: i64,
    /// Users with something to do in it.
    pub users: i64,
    /// Memory that could be given out now, in MiB.
    pub available_mib: i64,
    /// Memory in use, in MiB.
    pub allocated_mib: i64,
    /// Memory asked for and not given, in MiB.
    pub pending_mib: i64,
    /// Cores that could be given out now.
    pub available_vcores: i64,
    /// Cores in use.
    pub allocated_vcores: i64,
    /// Cores asked for and not given.
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

/// What the caller may do in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePermissions {
    /// The queue.
    pub queue: String,
    /// What may be done; nothing, perhaps.
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
