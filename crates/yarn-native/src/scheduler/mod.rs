//! The scheduler, as a master sees it: register, ask for containers and give them back, finish.
//!
//! A [`Scheduler`] keeps what the protocol needs to lose nothing: the numbers of answers, a request
//! without one, the newest token. What a master wants, and how much of it is still outstanding, is
//! the caller's to keep, or a [`Ledger`](crate::ledger::Ledger)'s ([`Scheduler::exchange`]).
//!
//! ```no_run
//! # use yarn_native::{Token, rpc::{Address, Options}, scheduler::*, types::*};
//! # async fn example(rm: Vec<Address>, token: Token) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep};
//!
//! let soon = || Instant::now() + Duration::from_secs(30);
//! let mut scheduler = Scheduler::new(rm, token, Options::default())?;
//! scheduler.register(&Registration::new("localhost"), soon()).await?;
//! let mut asks = vec![Ask::anywhere(1, Resource::new(512, 1), 2)];
//! let mut containers = Vec::new();
//! while containers.len() < 2 {
//!     let asks = std::mem::take(&mut asks);
//!     let request = || Request { asks, ..Request::default() };
//!     containers.extend(scheduler.allocate(request, soon()).await?.granted);
//!     sleep(Duration::from_millis(100)).await;
//! }
//! scheduler.finish(&Finish::new(FinalStatus::Succeeded), soon()).await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod ask;
mod error;
mod exchange;
mod master;
mod placement;
mod registration;
mod session;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Backlog, Collector, Preemption, UpdateError, UpdatedContainer};
pub use ask::{Ask, Place, Request, Update, UpdateKind};
pub use error::SchedulerError;
pub use master::Scheduler;
pub use placement::{
    Constraint, Delay, PlacementAsk, Rejection, RejectionReason, Scope, TagConstraint, Whose,
};
pub use registration::{Finish, Registered, Registration, ResourceType};
