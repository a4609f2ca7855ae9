//! What YARN speaks of: ids, resources, states and reports, as Rust has them.

mod application;
mod cluster;
mod ids;
mod resource;
mod token;
mod unfit;

pub use application::{ApplicationReport, ApplicationState, FinalStatus, Usage};
pub use cluster::{ClusterMetrics, NodeReport, NodeState};
pub use ids::{ApplicationId, AttemptId, BadId, ContainerId, NodeId};
pub use resource::Resource;
pub(crate) use unfit::Unfit;
