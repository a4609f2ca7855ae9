//! The scheduler, as seen by a master: register, ask for containers, release them, finish.
//!
//! An [`AmRmClient`] keeps the state of the protocol: response ids, a request without a response,
//! the newest token. The wants of a master, and how much of them is outstanding, are kept by the
//! caller or by a [`Ledger`](crate::ledger::Ledger) ([`AmRmClient::exchange`]).
//!
//! ```no_run
//! # use yarn_native::{Token, rpc::{Address, Options}, scheduler::*, types::*};
//! # async fn example(rm: Vec<Address>, token: Token) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep};
//!
//! let soon = || Instant::now() + Duration::from_secs(30);
//! let mut scheduler = AmRmClient::new(rm, token, Options::default())?;
//! scheduler.register(&Registration::new("localhost"), soon()).await?;
//! let mut asks = vec![Ask::anywhere(1, Resource::new(512, 1), 2)];
//! let mut containers = Vec::new();
//! while containers.len() < 2 {
//!     let asks = std::mem::take(&mut asks);
//!     let request = || AllocateRequest { asks, ..AllocateRequest::default() };
//!     containers.extend(scheduler.allocate(request, soon()).await?.granted);
//!     sleep(Duration::from_millis(100)).await;
//! }
//! scheduler.finish(&Finish::new(FinalStatus::Succeeded), soon()).await?;
//! # Ok(())
//! # }
//! ```

mod am_rm_client;
mod ask;
mod error;
mod exchange;
mod placement;
mod registration;
mod response;
mod session;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use am_rm_client::AmRmClient;
pub use ask::{AllocateRequest, Ask, Locality, Update, UpdateKind};
pub use error::SchedulerError;
pub use placement::{
    Constraint, Delay, PlacementScope, Rejection, RejectionReason, SchedulingRequest,
    TagConstraint, TagNamespace,
};
pub use registration::{Finish, RegisterResponse, Registration};
pub use response::{
    AllocateResponse, Backlog, Collector, Preemption, UpdateError, UpdatedContainer,
};
