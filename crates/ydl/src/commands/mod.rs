//! Commands, one file each, and their shared modules.
//!
//! * `submit`, `ls`, `status`, `logs`, `fetch`, `kill`, `scale`, `port_forward`, `pack`, `kv`, `nodes`, `queues`, `doctor`,
//!   `completions`: the commands.
//! * `tensorboard`: runs inside a task.
//! * `findings`: reports what preflight found.
//! * `submit_yarn`, `resources`, `wait_for_master`: submission.
//! * `dir_watcher`, `log_tails`, `follow`, `renderer`: follow a job.
//! * `aggregated_logs`: reads container logs aggregated by YARN.
//! * `outcome`: reports the end of a job.

pub mod completions;
pub mod doctor;
pub mod fetch;
pub mod kill;
pub mod kv;
pub mod logs;
pub mod ls;
pub mod nodes;
pub mod pack;
pub mod port_forward;
pub mod queues;
pub mod scale;
pub mod status;
pub mod submit;
pub mod tensorboard;

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
