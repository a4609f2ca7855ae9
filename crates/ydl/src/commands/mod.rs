//! The verbs, one file each, and what several of them need.
//!
//! * `submit`, `ls`, `status`, `logs`, `fetch`, `kill`, `scale`, `open`, `pack`, `kv`, `nodes`, `queues`, `doctor`,
//!   `completions`: the verbs. * `board`: what is run inside a task to show a job.
//! * `cluster`: where a job runs. * `afar`, `waiting`: a job on a cluster. * `which`: the job that is meant.
//! * `aggregated`: what YARN itself has collected of containers' logs.
//! * `inputs`, `offer`, `start`: what `submit` needs. * `reach`: talking to a master.
//! * `changes`, `tails`, `follow`, `sink`: watching a job. * `over`: waiting for its end.
//! * `ending`, `autopsy`: how a job ended, for people and for the shell.

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
