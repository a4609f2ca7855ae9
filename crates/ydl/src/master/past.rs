//! State of a job, new or recovered from a journal.

use super::{
    clock::Clock, diary::Record, facts::Facts, links::Links, outbox::Outbox, store::Shelf,
    watchers::Watchers,
};
use std::fs::File;
use ydl_core::{Action, ContainerId, Event, Job, JobSpec, Outcome, Time};

/// State of a master that follows from its journal alone.
#[derive(Debug)]
pub struct Past {
    pub(super) job: Job,
    pub(super) shelf: Shelf,
    pub(super) links: Links,
    pub(super) facts: Facts,
    pub(super) watchers: Watchers,
    /// Outcome of the job, if it has ended.
    pub(super) outcome: Option<Outcome>,
    /// First actions of a new job; empty after recovery.
    pub(super) first: Vec<Action>,
    /// Start of a new job, which is not journaled yet.
    pub(super) began: Option<Time>,
    last: Time,
    entries: u64,
}

impl Past {
    /// Creates the state of a new job. Its history is written to `events`.
    pub fn none(spec: JobSpec, events: Option<File>) -> Past {
        let now = Clock::starting(Time(0)).now();
        let (past, first) = Past::begun(spec, now, events);
        Past { first, began: Some(now), ..past }
    }

    fn begun(spec: JobSpec, at: Time, events: Option<File>) -> (Past, Vec<Action>) {
        let (job, first) = Job::new(spec, at);
        let past = Past {
            job,
            shelf: Shelf::default(),
            links: Links::default(),
            facts: Facts::new(events),
            watchers: Watchers::default(),
            outcome: None,
            first: Vec::new(),
            began: None,
            last: at,
            entries: 0,
        };
        (past, first)
    }

    fn take(&mut self, record: Record) {
        self.entries += 1;
        match record {
            Record::Began(_) | Record::Full => {}
            Record::Happened(now, event) => {
                self.last = self.last.max(now);
                // Nothing waits for responses during a replay.
                let out = &mut Outbox::default();
                let (job, shelf, links) = (&mut self.job, &mut self.shelf, &mut self.links);
                let actions = happen(job, shelf, links, now, event, out);
                self.follow(actions);
            }
            // The requester was answered long ago, or asks again.
            Record::Changed(op) => self.shelf.repeat(op),
            Record::Linked(round, kept) => self.links.replay(round, kept),
        }
    }

    /// Replays actions only as far as they change the state.
    fn follow(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Record(fact) => {
                    self.facts.add(&fact);
                    self.watchers.add(fact);
                }
                Action::Finish(outcome) => self.outcome = Some(outcome),
                Action::Launch { .. }
                | Action::Release(_)
                | Action::OrderChanged(_)
                | Action::RoundStarted(_)
                | Action::AttemptOver(_)
                | Action::MembersChanged(_) => {}
            }
        }
    }

    /// Returns the number of entries after the start.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the containers that the job held.
    pub(super) fn containers(&self) -> Vec<ContainerId> {
        self.job.containers().cloned().collect()
    }

    /// Returns a number above those of all orders of earlier masters: each started at its own time and advanced
    /// by at most its entries.
    pub(super) fn first_order(&self, now: Time) -> u64 {
        now.0 + self.entries
    }

    /// Returns a clock that continues at the last entry.
    pub(super) fn clock(&self) -> Clock {
        Clock::starting(self.last)
    }
}

/// Replay of a journal.
#[derive(Debug)]
pub enum Reading {
    /// No entry yet: the specification and the history file.
    Before(Box<JobSpec>, Option<File>),
    /// State after the entries so far.
    Begun(Box<Past>),
}

impl Reading {
    /// Creates a replay. The whole history is written to `events`, as the earlier master did.
    pub fn new(spec: JobSpec, events: Option<File>) -> Reading {
        Reading::Before(Box::new(spec), events)
    }

    /// Applies the next entry. The first must be the start of the job.
    pub fn take(&mut self, record: Record) {
        match (&mut *self, record) {
            (Reading::Before(spec, events), Record::Began(at)) => {
                let (mut past, first) = Past::begun(JobSpec::clone(spec), at, events.take());
                past.follow(first);
                *self = Reading::Begun(Box::new(past));
            }
            (Reading::Before(..), _) => {}
            (Reading::Begun(past), record) => past.take(record),
        }
    }

    /// Returns the recovered state. Without any entry the job starts now.
    pub fn end(self) -> Past {
        match self {
            Reading::Before(spec, events) => Past::none(*spec, events),
            Reading::Begun(past) => *past,
        }
    }
}

/// Creates the journal record of an event. Includes what the rendezvous knows about it, whatever the agent
/// reports, so that a replay need not derive it again.
pub(super) fn entry(job: &Job, links: &Links, now: Time, mut event: Event) -> Record {
    if let Event::Exited { container, round, exit } = &mut event {
        let run = job.run_in(container).filter(|run| run.round == *round);
        exit.outdated = run.is_some_and(|run| links.is_outdated(&run));
    }
    Record::Happened(now, event)
}

/// Applies an event to the core, the key-value store and the rendezvous. The same events give the same state,
/// live or replayed.
pub(super) fn happen(
    job: &mut Job,
    shelf: &mut Shelf,
    links: &mut Links,
    now: Time,
    event: Event,
    out: &mut Outbox,
) -> Vec<Action> {
    if let Event::Ended { containers } = &event {
        for (container, _) in containers {
            shelf.owner_gone(container.as_str(), out);
        }
    }
    let actions = job.handle(now, event);
    for action in &actions {
        match action {
            Action::Release(container) => shelf.owner_gone(container.as_str(), out),
            Action::RoundStarted(cluster) => links.begun(job.spec().framework, cluster),
            Action::AttemptOver(run) => out.pass(links.ended(run)),
            Action::MembersChanged(cluster) => out.pass(links.changed(cluster)),
            Action::Launch { .. }
            | Action::OrderChanged(_)
            | Action::Record(_)
            | Action::Finish(_) => {}
        }
    }
    actions
}
