//! Horovod's store: where its processes find each other before they speak Gloo among themselves, and the driver's side
//! of elastic jobs.
//!
//! HTTP, as Horovod's own server speaks it: one request per connection, an answer, the end. Nothing on it is signed,
//! because Horovod's client signs nothing; what is signed is what a driver tells a worker of an elastic job.
//!
//! * [`world`]: who takes part, and the numbers each one is known by;
//! * `http`: requests out of bytes, within limits, and answers;
//! * `scopes`: what is stored;
//! * `pickle`: the few objects of Python's that workers send, read without running anything;
//! * [`notification`]: what a driver tells a worker, and what it hears from it; `telling`: to whom that happens just now;
//! * `news`: what the store is told by whoever has it;
//! * [`store`]: the protocol itself, in one world after another;
//! * [`driver`]: when the next world begins.
//!
//! What may not be here: who decides who is in it.

pub mod driver;
mod http;
mod limits;
pub mod notification;
mod outbox;
mod pickle;
mod scopes;
pub mod store;
pub mod world;

pub use driver::GlooDriver;
pub use http::{BODY_MAX, HEAD_MAX};
pub use limits::{GlooLimits, WorldEvent};
pub use notification::{HostChange, NotificationEndpoint};
pub use store::GlooStore;
pub use world::{GlooMember, ProcessSlot, RankInfo, World};
