//! What frameworks call scheduler, tracker or store, served by the master: each protocol as a value.
//!
//! No sockets, no clock, no randomness, no async: messages go in, acts come out, and the same messages give the same
//! acts. So the messages that changed something, written down, are all that a new master needs to go on where the old
//! one stopped, in the middle of a barrier too.
//!
//! * [`protocol`]: what a protocol is: the words everything else is said in.
//! * [`frames`], [`porter`], [`desk`]: how what a program says reaches a protocol, and the answer the program, over any
//!   number of breaks and masters. An agent has the porter, the master the desk.
//! * [`c10d`]: PyTorch's store.
//! * [`gloo`]: Horovod's store, and the driver's side of its elastic jobs.
//! * [`pslite`]: the scheduler of MXNet's `dist_*` stores; [`zmtp`] is the wire it is spoken over.
//! * [`tracker`]: the tracker of XGBoost, of which there are two: [`rabit`] and [`xgboost`].
//!
//! A room per protocol, which knows its bytes and its rules and nothing of the others. What may not be here: anything
//! that reads or writes, waits, or knows what a job is.
#![forbid(unsafe_code)]

mod base64;
pub mod c10d;
pub mod desk;
pub mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gloo;
pub mod porter;
pub mod protocol;
pub mod pslite;
pub mod rabit;
pub mod tracker;
pub mod xgboost;
pub mod zmtp;

#[cfg(any(test, fuzzing))]
mod trial;

use ydl_core::{Cluster, Framework};

pub use desk::{Desk, Kept, Work};
pub use frames::{Call, Down, Mark, Up};
pub use porter::{Errand, Porter};
pub use protocol::{Act, Link, Peer, Protocol, Reaction, Refusal, Reminder};

/// The rendezvous that a job of that framework needs in a round with these members, if it needs any.
pub fn serve(framework: Framework, members: &Cluster) -> Option<Box<dyn Protocol>> {
    match framework {
        // A job may bring a scheduler of its own.
        Framework::Mxnet if members.role("scheduler").is_some() => None,
        Framework::Mxnet => {
            let count = |role| members.role(role).map_or(0, |member| member.instances);
            let scheduler = pslite::Scheduler::new(count("worker"), count("server"));
            Some(Box::new(scheduler))
        }
        Framework::Horovod => {
            let driver = gloo::Driver::new(members, gloo::Limits::default());
            Some(Box::new(driver))
        }
        Framework::Pytorch => {
            let store = c10d::Store::default();
            Some(Box::new(store.with_members(members.tasks().collect())))
        }
        Framework::Xgboost => Some(Box::new(tracker::Tracker::new(members.tasks().collect()))),
        _ => None,
    }
}
