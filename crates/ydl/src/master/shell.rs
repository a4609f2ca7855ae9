//! Event loop around the core, with one bounded inbox.
//!
//! It makes no decisions. It feeds events to the core, journals them, and performs the core's actions only
//! once the journal is durable. Responses are no exception, because requesters rely on them.

mod seen;

use super::{
    agents::{Agents, Seen},
    clock::Clock,
    diary::{Diary, Record},
    facts::Facts,
    inbox::{Answer, Kept, Letter, Question},
    links::{Connection, Links, Passed},
    metrics::Metrics,
    outbox::{Effect, Outbox},
    past::{self, Past},
    relay::Relay,
    result,
    store::{Shelf, Wish},
    watchers::Watchers,
};
use crate::backend::{Backend, Fenced, Launch};
use seen::viewed;
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use yarn_native::credentials::Format;
use ydl_core::{Action, Asks, ContainerId, Event, Job, Outcome, RoleName};
use ydl_net::request::Reply;
use ydl_proto::{
    files::JobDir,
    messages::{AgentReport, AgentRequest, JobSnapshot, MetricsReport, Sync},
};
use ydl_rendezvous::ClientFrame;
use ydl_storage::hdfs::Fresh;

/// Interval of checks for missed heartbeats.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number and size of events that are journaled together.
const TURN_MAX: usize = 256;
const TURN_BYTES_MAX: usize = 1 << 20;

/// Master of one job.
#[derive(Debug)]
pub struct Master<B, D> {
    job: Job,
    dir: JobDir,
    backend: B,
    clock: Clock,
    diary: D,
    /// Effects of entries that are not durable yet.
    outbox: Outbox,
    facts: Facts,
    shelf: Shelf,
    links: Links,
    agents: Agents,
    /// Current tokens of agents, where they change.
    tokens: Option<watch::Receiver<Fresh>>,
    relay: Relay,
    metrics: Metrics,
    watchers: Watchers,
    /// Last asks sent to the backend.
    asked: Asks,
    outcome: Option<Outcome>,
}

impl<B: Backend, D: Diary> Master<B, D> {
    /// Creates a master with this state.
    pub fn new(past: Past, dir: JobDir, backend: B, mut diary: D) -> Master<B, D> {
        let clock = past.clock();
        let agents = Agents::new(past.first_order(clock.now()), past.job.containers());
        let mut outbox = Outbox::default();
        if let Some(at) = past.began {
            diary.note(&Record::Began(at));
        }
        outbox.act(past.first);
        Master {
            agents,
            job: past.job,
            dir,
            backend,
            clock,
            diary,
            outbox,
            facts: past.facts,
            shelf: past.shelf,
            links: past.links,
            tokens: None,
            relay: Relay::default(),
            metrics: Metrics::default(),
            watchers: past.watchers,
            asked: Asks::default(),
            outcome: past.outcome,
        }
    }

    /// Sets environment variables of programs.
    pub(super) fn tell_programs(&mut self, env: BTreeMap<String, String>) {
        self.agents.env = env;
    }

    /// Distributes these tokens to agents from now on.
    pub(super) fn renew_with(&mut self, tokens: watch::Receiver<Fresh>) {
        self.tokens = Some(tokens);
        self.renew();
    }

    /// Runs the job to its end. When this returns an outcome, everything is released and no process of the job
    /// is left.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Letter>) -> Result<Outcome, Fenced> {
        if let Err(error) = result::reserve(&self.dir, self.job.spec().task_count()) {
            // Some file systems do not support this; the result may then be lost on a full disk.
            tracing::debug!("no room is taken for the result: {error}");
        }
        let outcome = self.attend(&mut inbox).await?;
        self.give_back(&outcome).await;
        self.leave_result();
        Ok(outcome)
    }

    /// Starts recovery with the containers that survived the earlier master.
    pub fn recover(&mut self, live: Vec<ContainerId>) {
        // An earlier master numbered fewer views than milliseconds have passed since 1970.
        self.watchers.number_from(self.clock.now().0);
        self.feed(Event::MasterRecovered { live });
    }

    /// Runs the event loop until the job is over.
    pub(super) async fn attend(
        &mut self,
        inbox: &mut mpsc::Receiver<Letter>,
    ) -> Result<Outcome, Fenced> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.diary.flush().await?;
            self.perform();
            if let Some(outcome) = self.outcome.take() {
                return Ok(outcome);
            }
            let due = self.job.next_wakeup().map(|at| self.clock.instant(at));
            let show = self.watchers.show_at();
            tokio::select! {
                Some(letter) = inbox.recv() => self.on_letter(letter),
                event = self.backend.next() => self.feed(event?),
                () = at(due) => self.feed(Event::Ticked),
                () = at(show) => self.show(),
                () = renewed(&mut self.tokens) => self.renew(),
                _ = look.tick() => self.look(),
            }
            self.take_ready(inbox).await?;
        }
    }

    /// Releases everything.
    pub(super) async fn give_back(&mut self, outcome: &Outcome) {
        self.backend.close(outcome).await;
    }

    /// Writes and shows the final snapshot.
    pub(super) fn leave_result(&mut self) {
        let now = self.clock.now();
        let mut last = viewed(u64::MAX, &self.job, &self.agents, &Links::default(), now);
        last.metrics = self.metrics.latest(|task| self.job.current_attempt(task));
        if let Err(error) = result::keep(&self.dir, &last) {
            tracing::error!("the result cannot be kept: {error}");
        }
        self.show();
    }

    /// Handles everything that is ready: journaling it together reduces latency.
    async fn take_ready(&mut self, inbox: &mut mpsc::Receiver<Letter>) -> Result<(), Fenced> {
        for _ in 0..TURN_MAX {
            if self.diary.waiting_bytes() > TURN_BYTES_MAX {
                break;
            }
            tokio::select! {
                biased;
                event = self.backend.next() => self.feed(event?),
                Some(letter) = inbox.recv() => self.on_letter(letter),
                () = std::future::ready(()) => break,
            }
        }
        Ok(())
    }

    /// Journals an event and feeds it to the core.
    fn feed(&mut self, event: Event) {
        let record = past::entry(&self.job, &self.links, self.clock.now(), event);
        self.diary.note(&record);
        let Record::Happened(now, event) = record else {
            return;
        };
        let (job, shelf, links) = (&mut self.job, &mut self.shelf, &mut self.links);
        let actions = past::happen(job, shelf, links, now, event, &mut self.outbox);
        self.outbox.act(actions);
        self.watchers.changed();
    }

    /// Performs decided effects, now that their causes are durable.
    fn perform(&mut self) {
        let mut said = Vec::new();
        for effect in self.outbox.take() {
            match effect {
                Effect::Act(action) => self.act(action),
                Effect::Pass(passed) => self.links.deliver(&passed),
                Effect::Answer(to, answer) => {
                    // The requester may have disconnected.
                    let _ = to.send(answer);
                }
                Effect::Said { task, number, answer } => said.push((task, number, answer)),
                Effect::Listen { container, seen, answer, kept } => {
                    kept.set();
                    self.agents.answer(&container, seen, answer, &self.job);
                    self.relay.asked(&container, seen.wished, &mut self.agents);
                }
            }
        }
        // Send them together, since each response has a cost of its own.
        for (task, number, answer) in said {
            self.links.answer(&task, number, answer);
        }
        self.links.tell();
        let asks = self.job.asks();
        if asks != self.asked {
            self.asked = asks.clone();
            self.backend.set_asks(asks);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Launch { container, task, resources } => {
                self.backend.launch(container, Launch { task, resources });
            }
            Action::Release(container) => {
                // Let the agent stop in order if it is waiting.
                self.agents.tell(&container, &self.job);
                self.agents.forget(&container);
                self.backend.release(container);
            }
            Action::OrderChanged(container) => self.agents.tell(&container, &self.job),
            // The rendezvous was updated with the event.
            Action::RoundStarted(_) | Action::AttemptOver(_) | Action::MembersChanged(_) => {}
            Action::Record(fact) => {
                tracing::info!("{}", fact.kind);
                self.facts.add(&fact);
                self.watchers.add(fact);
            }
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn on_letter(&mut self, letter: Letter) {
        let Letter { question, answer, kept } = letter;
        match question {
            Question::Sync(container, sync) => self.on_sync(container, sync, answer, kept),
            Question::Tokens(container) => {
                let reply = self.hand_over(&container);
                self.outbox.answer(answer, reply);
            }
            Question::Gone => self.backend.expect_exit(),
            Question::View { seen } => self.watchers.view(seen, answer),
            Question::Everything => {
                let (job, links, now) = (&self.job, &self.links, self.clock.now());
                let all = JobSnapshot {
                    metrics: self.metrics.all(),
                    ..viewed(0, job, &self.agents, links, now)
                };
                // This response has no effects, so it need not wait for the journal.
                drop(answer.send(Reply::json(&all).into()));
            }
            Question::Facts { after } => self.watchers.facts(after, answer),
            Question::Kill(kill) => {
                let by = kill.by.chars().filter(|c| !c.is_control()).take(200).collect();
                self.feed(Event::KillRequested { by, immediate: kill.immediate });
                self.outbox.answer(answer, Reply::empty());
            }
            Question::Scale { role, instances } => self.on_scale(role, instances, answer),
            Question::Metrics { container, said } => {
                let reply = self.on_metrics(&container, said);
                self.outbox.answer(answer, reply);
            }
            Question::Store { by: Some(container), wish: Wish::Do(_) }
                if self.job.task_in_container(&container).is_none() =>
            {
                let what = format!("`{container}` is gone and can change nothing");
                self.outbox.answer(answer, Reply::error(410, what, None));
            }
            Question::Logs { task, want } => {
                let (job, agents) = (&self.job, &mut self.agents);
                self.relay.wish(task, want, answer, job, agents);
            }
            Question::Open { task, port } => {
                let (want, job, agents) =
                    (AgentRequest::Forward { port }, &self.job, &mut self.agents);
                self.relay.wish(task, want, answer, job, agents);
            }
            Question::Opened { container, id, refused } => {
                let reply = self.relay.opened(&container, id, refused);
                self.outbox.answer(answer, reply);
            }
            Question::Links { container, at, ups } => self.on_links(&container, at, ups, answer),
            Question::Listen { container, at } => {
                let listening = self.links.listen(&self.job, &container, at, answer);
                if let Err((answer, refused)) = listening {
                    self.outbox.answer(answer, refused);
                }
            }
            Question::Logged { container, id, found } => {
                let reply = self.relay.logged(&container, id, found);
                self.outbox.answer(answer, reply);
            }
            Question::Store { wish, .. } => {
                if let Some(op) = self.shelf.grant(wish, answer, &mut self.outbox) {
                    self.diary.note(&Record::Changed(op));
                }
            }
        }
    }

    fn on_sync(
        &mut self,
        container: ContainerId,
        sync: Sync,
        answer: oneshot::Sender<Answer>,
        kept: Kept,
    ) {
        if self.job.task_in_container(&container).is_some() {
            let awaited = self.job.expects_first_report(&container);
            if self.agents.heard(&container, sync.usage) || awaited {
                self.feed(Event::HeartbeatResumed { container: container.clone() });
            }
        }
        for report in sync.reports {
            let container = container.clone();
            self.feed(match report {
                AgentReport::Ready { round, endpoint } => {
                    Event::Ready { container, round, endpoint }
                }
                AgentReport::SetupFailed { why, node_fault: node } => {
                    Event::SetupFailed { container, reason: why, node_fault: node }
                }
                AgentReport::Started { round } => Event::Started { container, round },
                AgentReport::Exited { round, exit } => Event::Exited { container, round, exit },
                AgentReport::OutputsUploaded { error } => {
                    Event::OutputsUploaded { container, error }
                }
            });
        }
        self.outbox.push(Effect::Listen {
            container,
            seen: Seen { order: sync.order, tokens: sync.tokens, wished: sync.last_request },
            answer,
            kept,
        });
    }

    fn on_links(
        &mut self,
        container: &ContainerId,
        at: Connection,
        ups: Vec<ClientFrame>,
        answer: oneshot::Sender<Answer>,
    ) {
        match self.links.hear(&self.job, container, at, ups) {
            Ok(heard) => {
                self.keep_and_pass(heard);
                match self.job.task_in_container(container) {
                    Some(task) => {
                        self.outbox.push(Effect::Said { task, number: at.number, answer })
                    }
                    None => self.outbox.answer(answer, Reply::empty()),
                }
            }
            Err(refused) => self.outbox.answer(answer, refused),
        }
    }

    fn keep_and_pass(&mut self, (keep, passed): (Vec<ydl_rendezvous::LinkRecord>, Vec<Passed>)) {
        for kept in keep {
            self.diary.note(&Record::Linked(self.links.round(), kept));
        }
        self.outbox.pass(passed);
    }

    fn on_metrics(&mut self, container: &ContainerId, said: MetricsReport) -> Reply {
        let job = &self.job;
        let (Some(task), Some(attempt)) =
            (job.task_in_container(container), job.attempt_in_container(container))
        else {
            let what = format!("`{container}` is gone and can report nothing");
            return Reply::error(410, what, None);
        };
        match self.metrics.take(task, attempt, said, Instant::now()) {
            Ok(()) => Reply::empty(),
            Err(refused) => refused,
        }
    }

    fn on_scale(&mut self, role: RoleName, instances: u32, answer: oneshot::Sender<Answer>) {
        let answered = match self.job.check_scale(&role, instances) {
            Ok(()) if self.job.outcome().is_some() => Reply::error(400, "the job is ending", None),
            Ok(()) => {
                self.feed(Event::ScaleRequested { role, instances });
                Reply::empty()
            }
            Err(complaints) => {
                let what: Vec<_> =
                    complaints.iter().map(|complaint| complaint.message.clone()).collect();
                let hint = complaints.into_iter().find_map(|complaint| complaint.hint);
                Reply::error(400, what.join("; "), hint)
            }
        };
        self.outbox.answer(answer, answered);
    }

    /// Notifies agents with outdated tokens.
    fn renew(&mut self) {
        if let Some(tokens) = &mut self.tokens {
            let number = tokens.borrow_and_update().number;
            self.agents.renew(number, &self.job);
        }
    }

    /// Returns the current tokens, for an agent of this job.
    fn hand_over(&self, container: &ContainerId) -> Reply {
        if self.job.task_in_container(container).is_none() {
            let what = format!("`{container}` is gone and gets no tokens");
            return Reply::error(410, what, None);
        }
        match &self.tokens {
            Some(tokens) => {
                let bytes = tokens.borrow().credentials.to_bytes(Format::Writable);
                Reply::new("application/octet-stream", bytes.to_vec())
            }
            None => Reply::error(404, "there are no other tokens", None),
        }
    }

    /// Handles missed heartbeats, unacknowledged frames, waiters that disconnected, and metrics of finished
    /// attempts.
    fn look(&mut self) {
        let now = Instant::now();
        let again = self.links.remind(now);
        self.keep_and_pass(again);
        for container in self.agents.quieted(&self.job) {
            tracing::warn!(%container, "an agent has become quiet");
            self.feed(Event::HeartbeatMissed { container });
        }
        self.shelf.sweep();
        self.relay.sweep(&self.agents, now);
        self.metrics.settle(|task| self.job.current_attempt(task), now);
    }

    fn show(&mut self) {
        let (job, agents, links, now) = (&self.job, &self.agents, &self.links, self.clock.now());
        let metrics = &self.metrics;
        self.watchers.show(|number| JobSnapshot {
            metrics: metrics.latest(|task| job.current_attempt(task)),
            ..viewed(number, job, agents, links, now)
        });
    }
}

/// Waits for other tokens, possibly forever.
async fn renewed(tokens: &mut Option<watch::Receiver<Fresh>>) {
    let changed = match tokens {
        Some(tokens) => tokens.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending().await
    }
}

/// Waits for that moment, possibly forever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
pub(super) mod tests;
