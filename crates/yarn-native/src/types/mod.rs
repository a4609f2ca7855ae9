//! YARN's data types: ids, resources, states and reports.

mod application;
mod attempt;
mod cluster;
mod container;
mod exit;
mod ids;
mod invalid_message;
mod label;
mod launch;
mod local_resource;
pub(crate) mod named;
mod queue;
mod resource;
pub(crate) mod timestamp;
mod token;

pub use application::{
    ApplicationReport, ApplicationState, FinalStatus, Lifetime, LogState, Usage,
};
pub use attempt::{AttemptReport, AttemptState, ContainerReport, Signal};
pub use cluster::{ClusterMetrics, NodeReport, NodeState};
pub use container::{
    Container, ContainerState, ContainerStatus, ContainerSubState, ExecutionType, NodeToken,
};
pub use exit::ExitStatus;
pub use ids::{ApplicationId, AttemptId, BadId, ContainerId, NodeId};
pub(crate) use invalid_message::InvalidMessage;
pub use label::{Attribute, AttributeName, BadAttribute, NodeLabel, ResourceTypeInfo};
pub use launch::{Access, LaunchContext, Retry, RetryOn};
pub use local_resource::{BadLocation, LocalResource, LocalResourceKind, Location, Visibility};
pub use named::BadName;
pub use queue::{
    Queue, QueuePermission, QueuePermissions, QueueShare, QueueState, QueueStatistics,
};
pub use resource::Resource;
