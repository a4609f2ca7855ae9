//! Backends that run containers. A backend makes no decisions: it receives asks and reports events.

pub mod local;
pub mod yarn;

use std::future::Future;
use ydl_core::{Asks, ContainerId, Event, Outcome, TaskId, spec::Resources};

/// Description of an agent to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Task that the agent runs, shown in process listings.
    pub task: TaskId,
    /// Size of the container.
    pub resources: Resources,
}

/// This master lost leadership of the job, or never gained it. It exits at once without cleaning up, so that
/// its successor finds everything as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Reason, in one sentence.
    pub why: String,
}

/// Runs the containers of one job.
pub trait Backend {
    /// Replaces the set of containers that are still to be granted. The caller must have handled every event
    /// that [`Backend::next`] returned: asks are computed after the last one.
    fn set_asks(&mut self, asks: Asks);
    /// Starts an agent in a granted container.
    fn launch(&mut self, container: ContainerId, launch: Launch);
    /// Releases a container and kills everything in it.
    fn release(&mut self, container: ContainerId);
    /// Hints that a container may have exited, so that the backend polls for completions soon.
    fn expect_exit(&mut self) {}
    /// Reports the progress of the job, from 0 to 1.
    fn set_progress(&mut self, _: f32) {}
    /// Returns the priority of the job in its queue, where the cluster reports it.
    fn priority(&self) -> Option<i32> {
        None
    }
    /// Returns the reason why containers that fit the machine are not granted, if the backend knows it.
    fn shortage(&self) -> Option<String> {
        None
    }
    /// Returns the next event. Cancel-safe: dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = Result<Event, Fenced>>;
    /// Kills everything, waits until it is gone and reports the outcome of the job, within a time limit.
    fn close(&mut self, outcome: &Outcome) -> impl Future<Output = ()>;
}
