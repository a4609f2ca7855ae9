//! Horovod's store, where its processes find each other for Gloo, and the driver of elastic jobs.
//!
//! HTTP as in Horovod's server: one request per connection. Requests are not signed, because Horovod's client does not
//! sign them. Notifications of the driver to workers of an elastic job are signed.
//!
//! * [`world`]: the processes of a world and their ranks.
//! * `http`: parses requests, within limits, and writes responses.
//! * `scopes`: stores values.
//! * `pickle`: parses the Python objects that workers send, without executing them.
//! * [`notification`]: messages between the driver and a worker; `outbox`: notifications in progress.
//! * `limits`: memory limits, and events that the driver passes to the store.
//! * [`store`]: the protocol, in one world after another.
//! * [`driver`]: decides when the next world starts.
//!
//! The members of a world are decided elsewhere.

pub mod driver;
mod http;
mod limits;
mod notification;
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
