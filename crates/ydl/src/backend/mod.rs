//! A place where containers run. A backend decides nothing: it is told what is wanted, and says what happened.

pub mod local;
pub mod yarn;

use std::future::Future;
use ydl_core::{Asks, ContainerId, Event, Outcome, TaskId, spec::Resources};

/// What an agent needs to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The task it is for, for people who look at processes.
    pub task: TaskId,
    /// How large its container is.
    pub resources: Resources,
}

/// This master is the job's master no longer, or cannot be. It ends at once and finishes nothing: everything stays
/// as it is, for the master that comes after it or has come already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deposed {
    /// Why, in one sentence.
    pub why: String,
}

/// A place where containers run.
pub trait Backend {
    /// What should still be granted, from now on: it replaces what was wanted before. Whoever says this has heard
    /// everything that [`Backend::next`] has returned: it is asked of the core after the last of it.
    fn want(&mut self, asks: Asks);
    /// Start an agent in a container that was granted.
    fn launch(&mut self, container: ContainerId, launch: Launch);
    /// Take the container back, whatever runs in it.
    fn release(&mut self, container: ContainerId);
    /// A container may have ended: news of that is worth listening for.
    fn stir(&mut self) {}
    /// What happened next. May be dropped and asked again without losing anything.
    fn next(&mut self) -> impl Future<Output = Result<Event, Deposed>>;
    /// End everything, wait until it is gone, and say how the job ended, within a bound.
    fn close(&mut self, outcome: &Outcome) -> impl Future<Output = ()>;
}
