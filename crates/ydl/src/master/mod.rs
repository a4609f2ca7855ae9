//! The master: the shell around the core.
//!
//! * `shell`: the loop. * `agents`, `watchers`, `store`: those it answers. * `api`: the doors they come through.
//! * `inbox`: what comes in. * `journal`: what is written down first. * `kv`: the store itself. * `clock`: time.
//! * `result`: what it leaves behind. * `local`: a master of a job on this machine, from its directory to its end.

mod agents;
mod api;
mod clock;
pub mod inbox;
pub mod journal;
pub mod kv;
mod local;
mod result;
pub mod shell;
pub mod store;
mod watchers;

pub use local::{run, serve};
