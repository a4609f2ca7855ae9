//! State of a job, new or recovered from a journal, and the application of each event to it, live or replayed.

use super::{
    clock::Clock, history::HistoryFile, journal::JournalRecord, kv_service::KvService,
    links::RendezvousLinks, outbox::Outbox, progress::JobProgress, watchers::Watchers,
};
use std::fs::File;
use ydl_core::{Action, ContainerId, Event, Job, JobSpec, Outcome, Time};

/// State of a master that follows from its journal alone.
#[derive(Debug)]
pub struct Recovered {
    pub(super) job: Job,
    pub(super) kv: KvService,
    pub(super) links: RendezvousLinks,
    pub(super) history: HistoryFile,
    pub(super) watchers: Watchers,
    pub(super) progress: JobProgress,
    /// Outcome of the job, if it has ended.
    pub(super) outcome: Option<Outcome>,
    /// First actions of a new job; empty after recovery.
    pub(super) first: Vec<Action>,
    /// Start of a new job, which is not journaled yet.
    pub(super) started_at: Option<Time>,
    last: Time,
    records: u64,
}

impl Recovered {
    /// Creates the state of a new job. Its history is written to `events`.
    pub fn new_job(spec: JobSpec, events: Option<File>) -> Recovered {
        let now = Clock::starting(Time(0)).now();
        let (state, first) = Recovered::started(spec, now, events);
        Recovered { first, started_at: Some(now), ..state }
    }

    fn started(spec: JobSpec, at: Time, events: Option<File>) -> (Recovered, Vec<Action>) {
        let (job, first) = Job::new(spec, at);
        let state = Recovered {
            job,
            kv: KvService::default(),
            links: RendezvousLinks::default(),
            history: HistoryFile::new(events),
            watchers: Watchers::default(),
            progress: JobProgress::default(),
            outcome: None,
            first: Vec::new(),
            started_at: None,
            last: at,
            records: 0,
        };
        (state, first)
    }

    fn apply(&mut self, record: JournalRecord) {
        self.records += 1;
        match record {
            JournalRecord::Started(_) | JournalRecord::Full => {}
            JournalRecord::Event(now, event) => {
                self.last = self.last.max(now);
                // Nothing waits for responses during a replay.
                let out = &mut Outbox::default();
                let (job, kv, links) = (&mut self.job, &mut self.kv, &mut self.links);
                let actions = apply_event(job, kv, links, now, event, out);
                self.apply_actions(actions);
            }
            // The requester was answered long ago, or asks again.
            JournalRecord::Kv(op) => self.kv.replay(op),
            JournalRecord::Link(round, record) => self.links.replay(round, record),
            JournalRecord::Progress(progress) => self.progress = self.progress.max(progress),
        }
    }

    /// Replays actions only as far as they change the state.
    fn apply_actions(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Record(event) => {
                    self.history.add(&event);
                    self.watchers.add(event);
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

    /// Returns the number of records after the start.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the containers that the job held.
    pub(super) fn containers(&self) -> Vec<ContainerId> {
        self.job.containers().cloned().collect()
    }

    /// Returns a number above those of all orders of earlier masters: each started at its own time and advanced
    /// by at most its records.
    pub(super) fn first_order(&self, now: Time) -> u64 {
        now.0 + self.records
    }

    /// Returns a clock that continues at the last record.
    pub(super) fn clock(&self) -> Clock {
        Clock::starting(self.last)
    }
}

/// Replay of a journal.
#[derive(Debug)]
pub enum Replay {
    /// No record yet: the specification and the history file.
    Empty(Box<JobSpec>, Option<File>),
    /// State after the records so far.
    Started(Box<Recovered>),
}

impl Replay {
    /// Creates a replay. The whole history is written to `events`, as the earlier master did.
    pub fn new(spec: JobSpec, events: Option<File>) -> Replay {
        Replay::Empty(Box::new(spec), events)
    }

    /// Applies the next record. The first must be the start of the job.
    pub fn apply(&mut self, record: JournalRecord) {
        match (&mut *self, record) {
            (Replay::Empty(spec, events), JournalRecord::Started(at)) => {
                let (mut state, first) =
                    Recovered::started(JobSpec::clone(spec), at, events.take());
                state.apply_actions(first);
                *self = Replay::Started(Box::new(state));
            }
            (Replay::Empty(..), _) => {}
            (Replay::Started(state), record) => state.apply(record),
        }
    }

    /// Returns the recovered state. Without any record the job starts now.
    pub fn finish(self) -> Recovered {
        match self {
            Replay::Empty(spec, events) => Recovered::new_job(*spec, events),
            Replay::Started(state) => *state,
        }
    }
}

/// Creates the journal record of an event. Includes what the rendezvous knows about it, whatever the agent
/// reports, so that a replay need not derive it again.
pub(super) fn journal_record(
    job: &Job,
    links: &RendezvousLinks,
    now: Time,
    mut event: Event,
) -> JournalRecord {
    if let Event::Exited { container, round, exit } = &mut event {
        let run = job.run_in(container).filter(|run| run.round == *round);
        exit.outdated = run.is_some_and(|run| links.is_outdated(&run));
    }
    JournalRecord::Event(now, event)
}

/// Applies an event to the core, the key-value store and the rendezvous. The same events give the same state,
/// live or replayed.
pub(super) fn apply_event(
    job: &mut Job,
    kv: &mut KvService,
    links: &mut RendezvousLinks,
    now: Time,
    event: Event,
    out: &mut Outbox,
) -> Vec<Action> {
    if let Event::Ended { containers } = &event {
        for (container, _) in containers {
            kv.owner_gone(container.as_str(), out);
        }
    }
    let actions = job.handle(now, event);
    for action in &actions {
        match action {
            Action::Release(container) => kv.owner_gone(container.as_str(), out),
            Action::RoundStarted(cluster) => links.start_round(job.spec().framework, cluster),
            Action::AttemptOver(run) => out.send_frames(links.attempt_ended(run)),
            Action::MembersChanged(cluster) => out.send_frames(links.members_changed(cluster)),
            Action::Launch { .. }
            | Action::OrderChanged(_)
            | Action::Record(_)
            | Action::Finish(_) => {}
        }
    }
    actions
}
