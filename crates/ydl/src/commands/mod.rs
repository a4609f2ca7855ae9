//! The verbs, one file each, and what several of them need.
//!
//! * `submit`, `ls`, `status`, `logs`, `kill`, `scale`, `kv`, `completions`: the verbs.
//! * `offer`, `start`: what `submit` needs. * `reach`: talking to a master. * `changes`, `tails`, `follow`, `sink`: watching a job.
//! * `ending`: how a job ended, for people and for the shell.

pub mod completions;
pub mod kill;
pub mod kv;
pub mod logs;
pub mod ls;
pub mod scale;
pub mod status;
pub mod submit;

mod changes;
mod ending;
mod follow;
mod offer;
mod reach;
mod sink;
mod start;
mod tails;
