//! NodeManagers, as a master sees them: start containers, look after them, stop them.
//!
//! A master learns tokens from the scheduler ([`Answer`](crate::scheduler::Answer) and
//! [`Registered`](crate::scheduler::Registered) carry them) and hands them to [`Nodes`]; after that
//! a node is called by its id.

mod containers;
mod error;
mod nodes;
mod pool;
mod refusal;
mod start;

#[cfg(test)]
mod tests;

pub use containers::{Each, Localisation, LocalisationState};
pub use error::NodeError;
pub use nodes::{NodeOptions, Nodes};
pub use refusal::{Refusal, RefusalKind};
pub use start::{Start, Started};
