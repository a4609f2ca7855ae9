//! The verbs, one file each, and what several of them need.
//!
//! * `submit`, `ls`, `status`, `logs`, `fetch`, `kill`, `scale`, `open`, `pack`, `kv`, `nodes`, `queues`, `doctor`,
//!   `completions`: the verbs. * `board`: what is run inside a task to show a job.
//! * `cluster`: where a job runs. * `afar`, `waiting`: a job on a cluster. * `which`: the job that is meant.
//! * `aggregated`: what YARN itself has collected of containers' logs.
//! * `inputs`, `offer`, `start`: what `submit` needs. * `reach`: talking to a master.
//! * `changes`, `tails`, `follow`, `sink`: watching a job. * `over`: waiting for its end.
//! * `ending`, `autopsy`: how a job ended, for people and for the shell.

pub mod board;
pub mod completions;
pub mod doctor;
pub mod fetch;
pub mod kill;
pub mod kv;
pub mod logs;
pub mod ls;
pub mod nodes;
pub mod open;
pub mod pack;
mod places;
pub mod queues;
pub mod scale;
pub mod status;
pub mod submit;

mod afar;
mod aggregated;
mod autopsy;
mod changes;
mod cluster;
mod ending;
mod follow;
mod inputs;
mod offer;
mod over;
mod reach;
mod sink;
mod start;
mod tails;
mod waiting;
mod which;
