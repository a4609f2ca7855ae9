//! Commands, one file each, and their shared modules.
//!
//! * `submit`, `ls`, `status`, `logs`, `fetch`, `kill`, `scale`, `port_forward`, `pack`, `kv`, `nodes`, `queues`, `doctor`,
//!   `completions`: the commands.
//! * `gateway`: forwards HTTP requests. `tensorboard`: runs inside a task.
//! * `findings`: reports what preflight found.
//! * `submit_yarn`, `resources`, `wait_for_master`: submission.
//! * `dir_watcher` (also for `gateway`), `log_tails`, `follow`, `renderer`: follow a job.
//! * `aggregated_logs`: reads container logs aggregated by YARN.
//! * `outcome`: reports the end of a job.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod fetch;
pub(crate) mod gateway;
pub(crate) mod kill;
pub(crate) mod kv;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod master_access;
pub(crate) mod nodes;
pub(crate) mod pack;
pub(crate) mod port_forward;
pub(crate) mod python_package;
pub(crate) mod queues;
pub(crate) mod scale;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tensorboard;

mod aggregated_logs;
mod dir_watcher;
mod findings;
mod follow;
mod log_tails;
mod outcome;
mod renderer;
mod resources;
mod submit_yarn;
mod wait_for_master;
