//! Master of a job: the event loop around the core.
//!
//! * `event_loop`: the loop. `inbox`: requests. `journal`: durable input. `outbox`: effects. `recovered`:
//!   state and replay.
//! * `agents`, `watchers`, `kv_service`, `agent_requests`, `links`, `metrics`: state of its clients. `api`:
//!   HTTP API. `kv`: key-value store.
//! * `progress`: how far the job is. `page`: its page behind YARN's web proxy.
//! * `clock`: time. `history`, `result`: files it leaves.
//! * `lifecycle`: what masters on this machine (`local`) and in a container of a cluster (`yarn`) share.
//!   `publisher`: files in HDFS.

mod agent_requests;
mod agents;
mod api;
mod clock;
pub mod event_loop;
mod history;
pub mod inbox;
pub mod journal;
pub mod kv;
mod kv_service;
mod lifecycle;
mod links;
mod local;
mod metrics;
mod mlflow;
mod outbox;
mod page;
mod progress;
mod publisher;
pub mod recovered;
mod result;
mod watchers;
mod yarn;

pub use api::serve;
pub(crate) use local::run;
pub(crate) use yarn::run as run_in_container;
