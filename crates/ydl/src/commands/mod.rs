//! Commands, one file each, and their shared modules.
//!
//! * `submit`, `ls`, `status`, `logs`, `fetch`, `kill`, `scale`, `port_forward`, `pack`, `kv`, `nodes`, `queues`, `doctor`,
//!   `completions`: the commands.
//! * `tensorboard`: runs inside a task.
//! * `cluster`: selects the cluster or this machine.
//! * `submit_local`, `submit_yarn`, `inputs`, `resources`, `wait_for_master`: submission.
//! * `resolve_job`: finds the job that a command names. `master_client`: calls its master.
//! * `dir_watcher`, `log_tails`, `follow`, `renderer`: follow a job. `wait`: waits for its end.
//! * `aggregated_logs`: reads container logs aggregated by YARN.
//! * `outcome`, `diagnose_failure`, `output_locations`: report the end of a job.

pub mod completions;
pub mod doctor;
pub mod fetch;
pub mod kill;
pub mod kv;
pub mod logs;
pub mod ls;
pub mod nodes;
mod output_locations;
pub mod pack;
pub mod port_forward;
pub mod queues;
pub mod scale;
pub mod status;
pub mod submit;
pub mod tensorboard;

mod aggregated_logs;
mod cluster;
mod diagnose_failure;
mod dir_watcher;
mod follow;
mod inputs;
mod log_tails;
mod master_client;
mod outcome;
mod renderer;
mod resolve_job;
mod resources;
mod submit_local;
mod submit_yarn;
mod wait;
mod wait_for_master;
