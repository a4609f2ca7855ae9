//! The brain of ydl: a job as a value. Events go in, actions come out.
//!
//! No clock, no I/O, no randomness, no async: the same events give the same actions, so the journal of what
//! went in *is* the durable state, and thousands of fault schedules can be simulated in a second.
//!
//! The tour, in reading order:
//! * [`id`] and [`time`]: the words everything else is said in.
//! * [`spec`]: what the user asked for, valid by construction.
//! * [`event`]: what happened. [`action`]: what must be done once; the standing asks and orders.
//! * [`ending`]: how an attempt or a job ended, and what follows from it.
//! * [`job`]: the state machine between them.
//! * [`cluster`] and [`framework`]: what a program is told about its peers.
//! * [`history`] and [`view`]: what people see.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod action;
pub mod cluster;
pub mod ending;
pub mod event;
pub mod framework;
pub mod history;
pub mod id;
pub mod job;
pub mod spec;
pub mod time;
pub mod view;

pub use action::{Action, Ask, Asks, Order, Run};
pub use cluster::{Cluster, Endpoint, RoleMembers};
pub use ending::{Cause, Ending, Outcome, TaskResult};
pub use event::{ContainerExit, Event, Grant, ProgramExit};
pub use framework::Framework;
pub use history::{HistoryEvent, HistoryKind, RestartCause};
pub use id::{ContainerId, NodeName, RoleName, TaskId};
pub use job::Job;
pub use spec::{JobSpec, JobSpecBuilder};
pub use time::{Span, Time};
pub use view::JobView;
