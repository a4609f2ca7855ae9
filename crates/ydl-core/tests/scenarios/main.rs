//! Scenarios of jobs as text, with events and the resulting actions of the core; messages about a job's
//! specification; and the variables and arguments of a task.

#[path = "../builder/mod.rs"]
mod builder;
mod script;

mod attempts;
mod container_exits;
mod dependencies;
mod downloads;
mod elastic;
mod end;
mod failure;
mod first_cause;
mod followers;
mod gang;
mod heartbeats;
mod launch;
mod limits;
mod lost_peers;
mod newcomers;
mod nodes;
mod notified;
mod recovery;
mod rendezvous;
mod scale_down;
mod scaling;
mod serving;
mod sidecars;
mod single;
mod start;
mod timeouts;
mod uploads;

mod addresses;
mod autoscaling;
mod messages;
mod mxnet;
mod processes;
