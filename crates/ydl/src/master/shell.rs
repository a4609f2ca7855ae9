//! The shell around the core: one loop over one bounded inbox.
//!
//! It decides nothing. It feeds the core with what happened, writes that down first, and does what the core says.

use super::{
    agents::Agents,
    clock::Clock,
    inbox::{Answer, Letter, Question},
    journal::Journal,
    kv::Op,
    result,
    store::{Shelf, Wish},
    watchers::Watchers,
};
use crate::{
    backend::{Backend, Deposed, Launch},
    jobs::{EVENTS_BYTES_MAX, JobDir},
    talk::{AgentReport, Sync, Viewed},
    wire::request::Reply,
};
use serde::{Deserialize, Serialize};
use std::{fs::File, io::Write, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep_until},
};
use ydl_core::{
    Action, Asks, ContainerId, Event, Fact, Job, JobSpec, JobView, Outcome, RoleName, Time,
};

/// How often the shell looks for agents that have become quiet.
const LOOK: Duration = Duration::from_secs(1);

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Something happened to the job.
    Happened(Time, Event),
    /// Somebody changed the key-value store.
    Changed(Op),
}

/// The master of one job.
#[derive(Debug)]
pub struct Master<B> {
    job: Job,
    dir: JobDir,
    backend: B,
    clock: Clock,
    /// Without it after a write has failed: the job matters more than its diary.
    journal: Option<Journal>,
    events: Option<File>,
    events_bytes: u64,
    shelf: Shelf,
    agents: Agents,
    watchers: Watchers,
    /// What the backend was last told.
    asked: Asks,
    outcome: Option<Outcome>,
    first: Vec<Action>,
}

impl<B: Backend> Master<B> {
    /// A master at the beginning of a job.
    pub fn new(
        spec: JobSpec,
        dir: JobDir,
        backend: B,
        journal: Option<Journal>,
        events: Option<File>,
    ) -> Master<B> {
        let clock = Clock::starting(Time(0));
        let (job, first) = Job::new(spec, clock.now());
        Master {
            job,
            dir,
            backend,
            clock,
            journal,
            events,
            events_bytes: 0,
            shelf: Shelf::default(),
            agents: Agents::new(clock.now().0),
            watchers: Watchers::default(),
            asked: Asks::default(),
            outcome: None,
            first,
        }
    }

    /// Runs the job to its end. When this returns everything is given back and nothing of the job runs any more.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Letter>) -> Result<Outcome, Deposed> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Err(error) = result::reserve(&self.dir, self.job.spec().tasks()) {
            // Some file systems cannot; then the result takes its chances.
            tracing::debug!("no room is taken for the result: {error}");
        }
        let first = std::mem::take(&mut self.first);
        self.act(first);
        self.ask();
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            let due = self.job.next_deadline().map(|at| self.clock.instant(at));
            let show = self.watchers.show_at();
            tokio::select! {
                Some(letter) = inbox.recv() => self.on_letter(letter),
                event = self.backend.next() => self.feed(event?),
                () = at(due) => self.feed(Event::Ticked),
                () = at(show) => self.show(),
                _ = look.tick() => self.look(),
            }
        };
        self.backend.close(&outcome).await;
        self.keep_result();
        self.show();
        Ok(outcome)
    }

    /// Writes down what happened, tells the core, and does what it says.
    fn feed(&mut self, event: Event) {
        let now = self.clock.now();
        self.write_down(&Record::Happened(now, event.clone()));
        if let Event::Ended { containers } = &event {
            for (container, _) in containers {
                self.shelf.owner_gone(container.as_str());
            }
        }
        let actions = self.job.handle(now, event);
        self.act(actions);
        self.ask();
        self.watchers.changed();
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Launch {
                    container,
                    task,
                    resources,
                } => {
                    self.backend.launch(container, Launch { task, resources });
                }
                Action::Release(container) => {
                    // Its agent is told to stop if it listens, so that it need not be surprised.
                    self.agents.tell(&container, &self.job);
                    self.agents.forget(&container);
                    self.shelf.owner_gone(container.as_str());
                    self.backend.release(container);
                }
                Action::Tell(container) => self.agents.tell(&container, &self.job),
                Action::Record(fact) => self.record(fact),
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn ask(&mut self) {
        let asks = self.job.asks();
        if asks != self.asked {
            self.asked = asks.clone();
            self.backend.want(asks);
        }
    }

    fn on_letter(&mut self, Letter { question, answer }: Letter) {
        match question {
            Question::Sync(container, sync) => self.on_sync(container, sync, answer),
            Question::View { seen } => self.watchers.view(seen, answer),
            Question::Facts { after } => self.watchers.facts(after, answer),
            Question::Kill(kill) => {
                let by = kill
                    .by
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(200)
                    .collect();
                self.feed(Event::Killed { by, now: kill.now });
                reply(answer, Reply::empty());
            }
            Question::Scale { role, instances } => self.on_scale(role, instances, answer),
            Question::Store {
                by: Some(container),
                wish: Wish::Do(_),
            } if self.job.task_of(&container).is_none() => {
                let what = format!("`{container}` is gone and can change nothing");
                reply(answer, Reply::error(410, what, None));
            }
            Question::Store { wish, .. } => {
                if let Some(op) = self.shelf.grant(wish, answer) {
                    self.write_down(&Record::Changed(op));
                }
            }
        }
    }

    fn on_sync(&mut self, container: ContainerId, sync: Sync, answer: oneshot::Sender<Answer>) {
        if self.job.task_of(&container).is_some() && self.agents.heard(&container, sync.usage) {
            self.feed(Event::Heard {
                container: container.clone(),
            });
        }
        for report in sync.reports {
            let container = container.clone();
            self.feed(match report {
                AgentReport::Ready { round, endpoint } => Event::Ready {
                    container,
                    round,
                    endpoint,
                },
                AgentReport::Unready { why } => Event::Unready { container, why },
                AgentReport::Started { round } => Event::Started { container, round },
                AgentReport::Exited { round, exit } => Event::Exited {
                    container,
                    round,
                    exit,
                },
                AgentReport::Saved { error } => Event::Saved { container, error },
            });
        }
        self.agents.answer(&container, sync.seen, answer, &self.job);
    }

    fn on_scale(&mut self, role: RoleName, instances: u32, answer: oneshot::Sender<Answer>) {
        let answered = match self.job.scalable(&role, instances) {
            Ok(()) if self.job.outcome().is_some() => Reply::error(400, "the job is ending", None),
            Ok(()) => {
                self.feed(Event::Scaled { role, instances });
                Reply::empty()
            }
            Err(complaints) => {
                let what: Vec<_> = complaints
                    .iter()
                    .map(|complaint| complaint.what.clone())
                    .collect();
                let hint = complaints.into_iter().find_map(|complaint| complaint.hint);
                Reply::error(400, what.join("; "), hint)
            }
        };
        reply(answer, answered);
    }

    /// Agents that have missed their beats, waiters that have gone, a job that nobody can find any more.
    fn look(&mut self) {
        let gone = matches!(self.dir.path().try_exists(), Ok(false));
        if gone && self.job.outcome().is_none() {
            let by = "the removal of its directory".to_owned();
            self.feed(Event::Killed { by, now: false });
        }
        for container in self.agents.quieted(&self.job) {
            tracing::warn!(%container, "an agent has become quiet");
            self.feed(Event::Quieted { container });
        }
        self.shelf.sweep();
    }

    fn show(&mut self) {
        let (job, agents, now) = (&self.job, &self.agents, self.clock.now());
        self.watchers
            .show(|number| viewed(number, job, agents, now));
    }

    fn record(&mut self, fact: Fact) {
        tracing::info!("{}", fact.what);
        if let Some(events) = &mut self.events {
            let written = serde_json::to_vec(&fact)
                .map_err(std::io::Error::from)
                .and_then(|mut line| {
                    line.push(b'\n');
                    self.events_bytes += line.len() as u64;
                    if self.events_bytes > EVENTS_BYTES_MAX {
                        return Err(std::io::ErrorKind::FileTooLarge.into());
                    }
                    events.write_all(&line)
                });
            if let Err(error) = written {
                tracing::error!("facts are no longer written down: {error}");
                self.events = None;
            }
        }
        self.watchers.add(fact);
    }

    fn write_down(&mut self, record: &Record) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let written = serde_json::to_vec(record)
            .map_err(|error| error.to_string())
            .and_then(|bytes| journal.append(&bytes).map_err(|error| error.to_string()))
            .and_then(|()| journal.flush().map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::error!("the journal is no longer written: {error}");
            self.journal = None;
        }
    }

    fn keep_result(&self) {
        let last = viewed(u64::MAX, &self.job, &self.agents, self.clock.now());
        if let Err(error) = result::keep(&self.dir, &last) {
            tracing::error!("the result cannot be kept: {error}");
        }
    }
}

/// The job as it is at this moment, which may be long after the last event.
fn viewed(number: u64, job: &Job, agents: &Agents, now: Time) -> Viewed {
    let view = JobView { now, ..job.view() };
    Viewed {
        number,
        view,
        usage: agents.usage(job),
    }
}

/// Waits for that moment, or for ever.
async fn at(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn reply(answer: oneshot::Sender<Answer>, reply: Reply) {
    // Whoever asked may have gone.
    let _ = answer.send(reply.into());
}
