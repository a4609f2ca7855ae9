//! What a job has come to: at its beginning, or as a diary tells it. How a new master becomes the old one.

use super::{
    clock::Clock, diary::Record, facts::Facts, links::Links, outbox::Outbox, store::Shelf,
    watchers::Watchers,
};
use std::fs::File;
use ydl_core::{Action, ContainerId, Event, Job, JobSpec, Outcome, Time};

/// Everything of a master that follows from its diary alone.
#[derive(Debug)]
pub struct Past {
    pub(super) job: Job,
    pub(super) shelf: Shelf,
    pub(super) links: Links,
    pub(super) facts: Facts,
    pub(super) watchers: Watchers,
    /// How the job ended, if it has.
    pub(super) outcome: Option<Outcome>,
    /// What a new job begins with; nothing where a diary was read.
    pub(super) first: Vec<Action>,
    /// When it began, where nobody has written that down.
    pub(super) began: Option<Time>,
    last: Time,
    entries: u64,
}

impl Past {
    /// A job that begins now. Its facts are written to that file.
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
                // Nobody waits for anything yet.
                let out = &mut Outbox::default();
                let (job, shelf, links) = (&mut self.job, &mut self.shelf, &mut self.links);
                let actions = happen(job, shelf, links, now, event, out);
                self.follow(actions);
            }
            // Whoever waited for it has long been answered, or asks again.
            Record::Changed(op) => self.shelf.repeat(op),
            Record::Linked(round, kept) => self.links.replay(round, kept),
        }
    }

    /// Of what a master did only what it remembers is done again.
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

    /// How many entries came after its beginning.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The containers it held.
    pub(super) fn containers(&self) -> Vec<ContainerId> {
        self.job.containers().cloned().collect()
    }

    /// A number that no order of an earlier master has: it began to count at its own time, and went up with its
    /// entries at most.
    pub(super) fn first_order(&self, now: Time) -> u64 {
        now.0 + self.entries
    }

    /// A clock that goes on where the last entry was written.
    pub(super) fn clock(&self) -> Clock {
        Clock::starting(self.last)
    }
}

/// A diary while it is read.
#[derive(Debug)]
pub enum Reading {
    /// Nothing is known but what to run, and where facts are written.
    Before(Box<JobSpec>, Option<File>),
    /// So far it has come.
    Begun(Box<Past>),
}

impl Reading {
    /// The diary of that job. All its facts are written to that file, as the master before had done or would have.
    pub fn new(spec: JobSpec, events: Option<File>) -> Reading {
        Reading::Before(Box::new(spec), events)
    }

    /// Takes the next entry in. The first must be the job's beginning.
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

    /// What the job has come to. Without any entry it begins now.
    pub fn end(self) -> Past {
        match self {
            Reading::Before(spec, events) => Past::none(*spec, events),
            Reading::Begun(past) => *past,
        }
    }
}

/// What is written down of something that happened: with what the rendezvous knows of it, whatever an agent says, so that
/// whoever reads it need not come to the same by himself.
pub(super) fn entry(job: &Job, links: &Links, now: Time, mut event: Event) -> Record {
    if let Event::Exited { container, round, exit } = &mut event {
        let run = job.run_in(container).filter(|run| run.round == *round);
        exit.outdated = run.is_some_and(|run| links.is_outdated(&run));
    }
    Record::Happened(now, event)
}

/// Tells the core what happened, and the key-value store and the rendezvous what follows for them. The same entries give the same state,
/// whether they happen or are read.
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
