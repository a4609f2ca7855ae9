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
//! * [`notice`]: what a driver tells a worker, and what it hears from it; `telling`: to whom that happens just now;
//! * `news`: what the store is told by whoever has it;
//! * [`store`]: the protocol itself, in one world after another;
//! * [`driver`]: when the next world begins.
//!
//! What may not be here: who decides who is in it.

pub mod driver;
mod http;
mod news;
pub mod notice;
mod pickle;
mod scopes;
pub mod store;
mod telling;
pub mod world;

pub use driver::Driver;
pub use http::{BODY_MAX, HEAD_MAX};
pub use news::{Limits, News};
pub use notice::{Change, Worker};
pub use store::Store;
pub use world::{Member, Place, Slot, World};
