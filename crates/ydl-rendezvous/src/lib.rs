//! Rendezvous protocols of distributed frameworks (scheduler, tracker, store), served by the master.
//!
//! Each protocol is a deterministic state machine without sockets, clock, randomness or async: messages go in, actions
//! come out. A new master rebuilds the state by replaying the persisted messages, even in the middle of a barrier.
//!
//! * [`protocol`]: the [`Protocol`] trait and its types.
//! * [`link`]: byte streams between a program and a protocol, across reconnects and master restarts. The agent runs a
//!   [`AgentLinks`], the master a [`LinkServer`].
//! * [`c10d`]: PyTorch's TCPStore.
//! * [`gloo`]: Horovod's store, and the driver of its elastic jobs.
//! * [`pslite`]: the scheduler of MXNet's `dist_*` stores. [`zmtp`] is its transport.
//! * [`tracker`]: XGBoost's tracker. It detects the version of a worker and dispatches to [`rabit`] or [`xgboost`].
//!
//! Each module knows the bytes and rules of one protocol and nothing of the others. Nothing here performs I/O, waits,
//! or knows about jobs.
#![forbid(unsafe_code)]

mod base64;
pub mod c10d;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gloo;
pub mod link;
mod protocol;
pub mod pslite;
mod rabit;
pub mod tracker;
mod xgboost;
pub mod zmtp;

#[cfg(any(test, fuzzing))]
mod harness;

use ydl_core::{Cluster, Framework};

pub use link::{
    agent::{AgentLinks, SocketAction},
    frame::{ClientFrame, ConnId, Seq, ServerFrame},
    server::{LinkOutput, LinkRecord, LinkServer},
};
pub use protocol::{Action, Effects, LinkId, Peer, Protocol, Rejection, RetryTimer};

/// Returns the rendezvous for a round of `members`, or `None` if `framework` needs none.
pub fn protocol_for(framework: Framework, members: &Cluster) -> Option<Box<dyn Protocol>> {
    match framework {
        // The job runs its own scheduler.
        Framework::Mxnet if members.role("scheduler").is_some() => None,
        Framework::Mxnet => {
            let count = |role| members.role(role).map_or(0, |member| member.instances);
            let scheduler = pslite::PsScheduler::new(count("worker"), count("server"));
            Some(Box::new(scheduler))
        }
        Framework::Horovod => {
            let driver = gloo::GlooDriver::new(members, gloo::GlooLimits::default());
            Some(Box::new(driver))
        }
        Framework::Pytorch => {
            let store = c10d::C10dStore::default();
            Some(Box::new(store.with_members(members.tasks().collect())))
        }
        Framework::Xgboost => Some(Box::new(tracker::Tracker::new(members.tasks().collect()))),
        _ => None,
    }
}
