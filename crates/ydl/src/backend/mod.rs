//! A place where containers run. A backend decides nothing: it is told what is wanted, and says what happened.

pub mod local;

use std::future::Future;
use ydl_core::{Asks, ContainerId, Event, TaskId, spec::Resources};

/// What an agent needs to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The task it is for, for people who look at processes.
    pub task: TaskId,
    /// How large its container is.
    pub resources: Resources,
}

/// A place where containers run.
pub trait Backend {
    /// What should still be granted, from now on: it replaces what was wanted before.
    fn want(&mut self, asks: Asks);
    /// Start an agent in a container that was granted.
    fn launch(&mut self, container: ContainerId, launch: Launch);
    /// Take the container back, whatever runs in it.
    fn release(&mut self, container: ContainerId);
    /// What happened next. May be dropped and asked again without losing anything.
    fn next(&mut self) -> impl Future<Output = Event>;
    /// End everything and wait until it is gone, within a bound.
    fn close(&mut self) -> impl Future<Output = ()>;
}
