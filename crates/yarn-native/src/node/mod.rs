//! NodeManagers, as seen by a master: start, inspect, change and stop containers.
//!
//! A master receives node tokens from the scheduler
//! ([`AllocateResponse`](crate::scheduler::AllocateResponse),
//! [`RegisterResponse`](crate::scheduler::RegisterResponse)) and passes them to [`NmClient`]. Nodes
//! are then addressed by id.

mod container_error;
mod containers;
mod error;
mod nm_client;
mod pool;
mod start;

#[cfg(test)]
mod tests;

pub use container_error::{ContainerError, ContainerErrorKind};
pub use containers::{Localisation, LocalisationState, PerContainer};
pub use error::NodeError;
pub use nm_client::{NmClient, NmClientOptions};
pub use start::{Start, StartOutcome};
