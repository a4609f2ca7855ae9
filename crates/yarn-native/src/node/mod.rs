//! NodeManagers, as a master sees them: start containers, look after them, stop them.
//!
//! A master learns tokens from the scheduler ([`AllocateResponse`](crate::scheduler::AllocateResponse) and
//! [`RegisterResponse`](crate::scheduler::RegisterResponse) carry them) and hands them to [`NmClient`]; after that
//! a node is called by its id.

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
