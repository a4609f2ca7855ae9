//! The core of ydl: a job as a state machine. Events go in, actions come out.
//!
//! The core has no clock, I/O, randomness or async code: the same events give the same actions. The
//! journal of events is therefore the durable state, and thousands of fault schedules can be
//! simulated in a second.
//!
//! Modules, in reading order:
//! * [`id`] and [`time`]: names and time.
//! * [`spec`]: the validated job specification.
//! * [`event`]: the input. [`action`]: the output, with the standing asks and orders.
//! * [`ending`]: endings of attempts and jobs, and their consequences.
//! * [`job`]: the state machine. [`serve`]: values of serving.
//! * [`cluster`] and [`framework`]: the members of a round and the environment of their programs.
//! * [`history`] and [`view`]: the history and the current view of a job.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
pub mod cluster;
pub mod ending;
mod event;
pub mod framework;
pub mod history;
mod id;
pub mod job;
pub mod serve;
pub mod spec;
pub mod time;
pub mod view;

pub use action::{Action, Ask, Asks, AttemptRun, Order};
pub use cluster::{Cluster, Endpoint, RoleMembers};
pub use ending::{Cause, Ending, Outcome, TaskResult};
pub use event::{ContainerExit, Event, Grant, ProgramExit};
pub use framework::Framework;
pub use history::{HistoryEvent, HistoryKind, RestartCause, RolloutEnd};
pub use id::{ContainerId, NodeName, RoleName, TaskId};
pub use job::Job;
pub use spec::{JobSpec, JobSpecBuilder};
pub use time::{Span, Time};
pub use view::JobView;
