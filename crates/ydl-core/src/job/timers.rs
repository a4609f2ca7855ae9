//! Armed timers: one per wait; arming a timer again replaces it.

use super::phase::TaskKey;
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Task(TaskKey),
    PendingRound(u32),
    Starvation,
    RunTimeout,
    Followers,
    Suspicion,
    Readmission,
    /// Wait of an update of this role.
    Rollout(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timers {
    due: BTreeSet<(Time, Timer)>,
    at: BTreeMap<Timer, Time>,
}

impl Timers {
    pub(super) fn arm(&mut self, timer: Timer, at: Option<Time>) {
        if self.at.get(&timer).copied() == at {
            return;
        }
        if let Some(old) = self.at.remove(&timer) {
            self.due.remove(&(old, timer));
        }
        if let Some(at) = at {
            self.at.insert(timer, at);
            self.due.insert((at, timer));
        }
    }

    pub(super) fn of(&self, timer: Timer) -> Option<Time> {
        self.at.get(&timer).copied()
    }

    /// Returns true if a timer is armed for a task or a round.
    pub(super) fn has_waits(&self) -> bool {
        let mut timers = self.at.keys();
        timers.any(|timer| {
            matches!(timer, Timer::Task(_) | Timer::PendingRound(_) | Timer::Suspicion)
        })
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Disarms and returns the next expired timer.
    pub(super) fn pop(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        self.at.remove(&timer);
        Some(timer)
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.at.clear();
    }
}
