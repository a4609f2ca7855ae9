//! Event loop around the core, with one bounded inbox.
//!
//! It makes no decisions. It feeds events to the core, journals them, and performs the core's actions only
//! once the journal is flushed. Responses that depend on the journal wait in the outbox for that. Logs, views
//! and history are answered directly. A slow journal delays them, too: the loop handles nothing during a
//! flush, events enter the history after it, and a log read answers a sync of the agent, which has passed the
//! outbox.

mod requests;
mod status;
mod view;

use super::{
    agent_requests::AgentRequests,
    agents::Agents,
    clock::Clock,
    history::HistoryFile,
    inbox::Envelope,
    journal::{Journal, JournalRecord},
    kv_service::KvService,
    links::{OutgoingFrame, RendezvousLinks},
    metrics::Metrics,
    outbox::{Effect, Outbox},
    page::PageState,
    progress::JobProgress,
    recovered::{self, Recovered},
    result,
    watchers::Watchers,
};
use crate::backend::{Backend, Fenced, Launch};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use ydl_core::{Action, Asks, ContainerId, Event, Job, Outcome};
use ydl_proto::files::JobDir;
use ydl_storage::hdfs::AgentTokens;

/// Interval of checks for missed heartbeats.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number and size of events that are journaled together.
const BATCH_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Master of one job.
#[derive(Debug)]
pub struct Master<B, D> {
    job: Job,
    dir: JobDir,
    backend: B,
    clock: Clock,
    journal: D,
    /// Effects of records that are not durable yet.
    outbox: Outbox,
    history: HistoryFile,
    kv: KvService,
    links: RendezvousLinks,
    agents: Agents,
    /// Current tokens of agents, where they change.
    tokens: Option<watch::Receiver<AgentTokens>>,
    agent_requests: AgentRequests,
    metrics: Metrics,
    watchers: Watchers,
    /// Progress so far, and the part of it that the backend knows.
    progress: JobProgress,
    sent_progress: JobProgress,
    /// Priority of the job, where the cluster reports it.
    priority: Option<i32>,
    /// Number of the last view whose status was published.
    status_number: u64,
    /// Page of the job, if it has one.
    page: Option<watch::Sender<PageState>>,
    /// Last asks sent to the backend.
    sent_asks: Asks,
    outcome: Option<Outcome>,
}

impl<B: Backend, D: Journal> Master<B, D> {
    /// Creates a master with this state.
    pub fn new(state: Recovered, dir: JobDir, backend: B, mut journal: D) -> Master<B, D> {
        let clock = state.clock();
        let agents = Agents::new(state.first_order(clock.now()), state.job.containers());
        let mut outbox = Outbox::default();
        if let Some(at) = state.started_at {
            journal.append(&JournalRecord::Started(at));
        }
        outbox.act(state.first);
        Master {
            agents,
            job: state.job,
            dir,
            backend,
            clock,
            journal,
            outbox,
            history: state.history,
            kv: state.kv,
            links: state.links,
            tokens: None,
            agent_requests: AgentRequests::default(),
            metrics: Metrics::default(),
            watchers: state.watchers,
            progress: state.progress,
            sent_progress: JobProgress::default(),
            priority: None,
            status_number: 0,
            page: None,
            sent_asks: Asks::default(),
            outcome: state.outcome,
        }
    }

    /// Sets environment variables of programs.
    pub(super) fn set_program_env(&mut self, env: BTreeMap<String, String>) {
        self.agents.env = env;
    }

    /// Distributes these tokens to agents from now on.
    pub(super) fn distribute_tokens(&mut self, tokens: watch::Receiver<AgentTokens>) {
        self.tokens = Some(tokens);
        self.renew();
    }

    /// Reserves disk space for the result, which is written even if the disk is full.
    pub(super) fn reserve_result(&self) {
        if let Err(error) = result::reserve(&self.dir, self.job.spec().task_count()) {
            // Some file systems do not support this; the result may then be lost on a full disk.
            tracing::debug!("cannot reserve space for the result: {error}");
        }
    }

    /// Starts recovery with the containers that survived the earlier master.
    pub fn recover(&mut self, live: Vec<ContainerId>) {
        // An earlier master numbered fewer views than milliseconds have passed since 1970.
        self.watchers.number_from(self.clock.now().0);
        self.handle_event(Event::MasterRecovered { live });
    }

    /// Runs the event loop until the job is over, and closes `inbox`: a request that nothing handles any more would keep
    /// its connection, and so the end of the API server, waiting.
    pub async fn run(&mut self, inbox: &mut mpsc::Receiver<Envelope>) -> Result<Outcome, Fenced> {
        let mut check = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.journal.flush().await?;
            self.perform_effects();
            if let Some(outcome) = self.outcome.take() {
                inbox.close();
                while inbox.try_recv().is_ok() {}
                return Ok(outcome);
            }
            let due = self.job.next_wakeup().map(|at| self.clock.instant(at));
            let show = self.watchers.show_at();
            tokio::select! {
                Some(envelope) = inbox.recv() => self.on_request(envelope),
                event = self.backend.next() => self.handle_event(event?),
                () = at(due) => self.handle_event(Event::Ticked),
                () = at(show) => self.show(),
                () = renewed(&mut self.tokens) => self.renew(),
                _ = check.tick() => self.check(),
            }
            self.handle_ready(inbox).await?;
        }
    }

    /// Releases everything.
    pub async fn close(&mut self, outcome: &Outcome) {
        self.backend.close(outcome).await;
    }

    /// Handles everything that is ready: journaling it together reduces latency.
    async fn handle_ready(&mut self, inbox: &mut mpsc::Receiver<Envelope>) -> Result<(), Fenced> {
        for _ in 0..BATCH_MAX {
            if self.journal.pending_bytes() > BATCH_BYTES_MAX {
                break;
            }
            tokio::select! {
                biased;
                event = self.backend.next() => self.handle_event(event?),
                Some(envelope) = inbox.recv() => self.on_request(envelope),
                () = std::future::ready(()) => break,
            }
        }
        Ok(())
    }

    /// Journals an event and feeds it to the core.
    fn handle_event(&mut self, event: Event) {
        let record = recovered::journal_record(&self.job, &self.links, self.clock.now(), event);
        self.journal.append(&record);
        let JournalRecord::Event(now, event) = record else {
            return;
        };
        let (job, kv, links) = (&mut self.job, &mut self.kv, &mut self.links);
        let actions = recovered::apply_event(job, kv, links, now, event, &mut self.outbox);
        self.outbox.act(actions);
        self.watchers.changed();
    }

    /// Performs decided effects, now that their causes are durable.
    fn perform_effects(&mut self) {
        let mut responses = Vec::new();
        for effect in self.outbox.take() {
            match effect {
                Effect::Act(action) => self.act(action),
                Effect::Send(frame) => self.links.enqueue(&frame),
                Effect::Respond(to, response) => {
                    // The requester may have disconnected.
                    let _ = to.send(response);
                }
                Effect::AnswerLinksPost { task, number, respond_to } => {
                    responses.push((task, number, respond_to))
                }
                Effect::AnswerSync { container, versions, respond_to, durable } => {
                    durable.set();
                    self.agents.hold_sync(&container, versions, respond_to, &self.job);
                    self.agent_requests.on_poll(
                        &container,
                        versions.last_request,
                        &mut self.agents,
                    );
                }
            }
        }
        // Send them together, since each response has a cost of its own.
        for (task, number, respond_to) in responses {
            self.links.respond(&task, number, respond_to);
        }
        self.links.flush();
        if self.progress != self.sent_progress {
            self.sent_progress = self.progress;
            self.backend.set_progress(self.progress.fraction());
        }
        let asks = self.job.asks();
        if asks != self.sent_asks {
            self.sent_asks = asks.clone();
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
                self.agents.notify(&container, &self.job);
                // While its end is awaited, the agent may ask for its order, which must have a new number.
                if self.job.task_in_container(&container).is_none() {
                    self.agents.forget(&container);
                }
                self.backend.release(container);
            }
            Action::OrderChanged(container) => self.agents.notify(&container, &self.job),
            // The rendezvous was updated with the event.
            Action::RoundStarted(_) | Action::AttemptOver(_) | Action::MembersChanged(_) => {}
            Action::Record(event) => {
                tracing::info!("{}", event.kind);
                self.history.add(&event);
                self.watchers.add(event);
            }
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Appends records to the journal, and queues frames until they are durable.
    fn append_and_queue(
        &mut self,
        (records, frames_out): (Vec<ydl_rendezvous::LinkRecord>, Vec<OutgoingFrame>),
    ) {
        for record in records {
            self.journal.append(&JournalRecord::Link(self.links.round(), record));
        }
        self.outbox.send_frames(frames_out);
    }

    /// Notifies agents with outdated tokens.
    fn renew(&mut self) {
        if let Some(tokens) = &mut self.tokens {
            let number = tokens.borrow_and_update().number;
            self.agents.set_tokens(number, &self.job);
        }
    }

    /// Handles missed heartbeats, due retry timers of the protocol, waiters that disconnected, metrics of finished
    /// attempts, and the status of the job.
    fn check(&mut self) {
        let now = Instant::now();
        let again = self.links.retry_due(now);
        self.append_and_queue(again);
        for container in self.agents.newly_missed(&self.job) {
            tracing::warn!(%container, "missed heartbeats of an agent");
            self.handle_event(Event::HeartbeatMissed { container });
        }
        self.kv.sweep();
        self.agent_requests.sweep(&self.agents, now);
        self.metrics.expire(|task| self.job.current_attempt(task), now);
        self.update_status();
    }
}

/// Waits for other tokens, possibly forever.
async fn renewed(tokens: &mut Option<watch::Receiver<AgentTokens>>) {
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
