//! What YARN speaks of: ids, resources, states and reports, as Rust has them.

mod application;
mod attempt;
mod cluster;
mod container;
mod exit;
mod ids;
mod label;
mod launch;
mod local_resource;
pub(crate) mod moment;
pub(crate) mod named;
mod queue;
mod resource;
mod token;
mod unfit;

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
pub use label::{Attribute, AttributeName, BadAttribute, NodeLabel, ResourceKind};
pub use launch::{Access, LaunchContext, Retry, RetryAfter};
pub use local_resource::{BadLocation, LocalResource, LocalResourceKind, Location, Visibility};
pub use named::BadName;
pub use queue::{
    Queue, QueuePermission, QueuePermissions, QueueShare, QueueState, QueueStatistics,
};
pub use resource::Resource;
pub(crate) use unfit::Unfit;
