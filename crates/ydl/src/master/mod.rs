//! The master: the shell around the core.
//!
//! * `shell`: the loop. * `inbox`: what comes in. * `diary`, `journal`: what is written down first. * `outbox`: what
//!   follows from it. * `past`: how a new master becomes the old one.
//! * `agents`, `watchers`, `store`, `relay`, `links`, `metrics`: those it answers. * `api`: the doors they come through. * `kv`: the store itself.
//! * `clock`: time. * `facts`, `result`: what it leaves behind.
//! * `local`: a master of a job on this machine, from its directory to its end. * `yarn`: the same in a container of
//!   a cluster. * `ashore`: what it leaves in HDFS.

mod agents;
mod api;
mod ashore;
mod clock;
pub mod diary;
mod facts;
pub mod inbox;
pub mod journal;
pub mod kv;
pub mod links;
mod local;
mod metrics;
mod mlflow;
mod outbox;
pub mod past;
mod relay;
mod result;
pub mod shell;
pub mod store;
mod watchers;
mod yarn;

pub use api::serve;
pub use local::run;
pub use yarn::run as run_in_container;
