//! Event loop around the core, with one bounded inbox.
//!
//! It makes no decisions. It feeds events to the core, journals them, and performs the core's actions only
//! once the journal is durable. Responses are no exception, because requesters rely on them.

mod view;

use super::{
    agent_requests::AgentRequests,
    agents::{AgentVersions, Agents},
    clock::Clock,
    history::HistoryFile,
    inbox::{DurableFlag, Envelope, MasterRequest, MasterResponse},
    journal::{Journal, JournalRecord},
    kv_service::{KvRequest, KvService},
    links::{ConnectionId, OutgoingFrame, RendezvousLinks},
    metrics::Metrics,
    outbox::{Effect, Outbox},
    recovered::{self, Recovered},
    result,
    watchers::Watchers,
};
use crate::backend::{Backend, Fenced, Launch};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use view::snapshot;
use yarn_native::credentials::Format;
use ydl_core::{Action, Asks, ContainerId, Event, Job, Outcome, RoleName};
use ydl_net::request::Reply;
use ydl_proto::{
    files::JobDir,
    messages::{AgentReport, AgentRequest, JobSnapshot, MetricsReport, Sync},
};
use ydl_rendezvous::ClientFrame;
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
    /// Effects of entries that are not durable yet.
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

    /// Runs the job to its end. When this returns an outcome, everything is released and no process of the job
    /// is left.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Envelope>) -> Result<Outcome, Fenced> {
        if let Err(error) = result::reserve(&self.dir, self.job.spec().task_count()) {
            // Some file systems do not support this; the result may then be lost on a full disk.
            tracing::debug!("cannot reserve space for the result: {error}");
        }
        let outcome = self.run_loop(&mut inbox).await?;
        self.close(&outcome).await;
        self.write_result();
        Ok(outcome)
    }

    /// Starts recovery with the containers that survived the earlier master.
    pub fn recover(&mut self, live: Vec<ContainerId>) {
        // An earlier master numbered fewer views than milliseconds have passed since 1970.
        self.watchers.number_from(self.clock.now().0);
        self.handle_event(Event::MasterRecovered { live });
    }

    /// Runs the event loop until the job is over.
    pub(super) async fn run_loop(
        &mut self,
        inbox: &mut mpsc::Receiver<Envelope>,
    ) -> Result<Outcome, Fenced> {
        let mut check = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.journal.flush().await?;
            self.perform_effects();
            if let Some(outcome) = self.outcome.take() {
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
    pub(super) async fn close(&mut self, outcome: &Outcome) {
        self.backend.close(outcome).await;
    }

    /// Writes and shows the final snapshot.
    pub(super) fn write_result(&mut self) {
        let now = self.clock.now();
        let mut last =
            snapshot(u64::MAX, &self.job, &self.agents, &RendezvousLinks::default(), now);
        last.metrics = self.metrics.latest(|task| self.job.current_attempt(task));
        if let Err(error) = result::write(&self.dir, &last) {
            tracing::error!("cannot write the result: {error}");
        }
        self.show();
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
                Effect::Send(frames_out) => self.links.deliver(&frames_out),
                Effect::Respond(to, response) => {
                    // The requester may have disconnected.
                    let _ = to.send(response);
                }
                Effect::FramesDurable { task, number, respond_to } => {
                    responses.push((task, number, respond_to))
                }
                Effect::ReportsDurable { container, versions, respond_to, durable } => {
                    durable.set();
                    self.agents.respond(&container, versions, respond_to, &self.job);
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
                self.agents.forget(&container);
                self.backend.release(container);
            }
            Action::OrderChanged(container) => self.agents.notify(&container, &self.job),
            // The rendezvous was updated with the event.
            Action::RoundStarted(_) | Action::AttemptOver(_) | Action::MembersChanged(_) => {}
            Action::Record(fact) => {
                tracing::info!("{}", fact.kind);
                self.history.add(&fact);
                self.watchers.add(fact);
            }
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn on_request(&mut self, envelope: Envelope) {
        let Envelope { request, respond_to, durable } = envelope;
        match request {
            MasterRequest::Sync(container, sync) => {
                self.on_sync(container, sync, respond_to, durable)
            }
            MasterRequest::Tokens(container) => {
                let reply = self.tokens_for(&container);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Disconnected => self.backend.expect_exit(),
            MasterRequest::View { seen } => self.watchers.view(seen, respond_to),
            MasterRequest::Snapshot => {
                let (job, links, now) = (&self.job, &self.links, self.clock.now());
                let all = JobSnapshot {
                    metrics: self.metrics.all(),
                    ..snapshot(0, job, &self.agents, links, now)
                };
                // This response has no effects, so it need not wait for the journal.
                drop(respond_to.send(Reply::json(&all).into()));
            }
            MasterRequest::History { after } => self.watchers.history(after, respond_to),
            MasterRequest::Kill(kill) => {
                let by = kill.by.chars().filter(|c| !c.is_control()).take(200).collect();
                self.handle_event(Event::KillRequested { by, immediate: kill.immediate });
                self.outbox.respond(respond_to, Reply::empty());
            }
            MasterRequest::Scale { role, instances } => self.on_scale(role, instances, respond_to),
            MasterRequest::Metrics { container, report } => {
                let reply = self.on_metrics(&container, report);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Kv { by: Some(container), request: KvRequest::Apply(_) }
                if self.job.task_in_container(&container).is_none() =>
            {
                let what = format!("container `{container}` has ended and cannot change keys");
                self.outbox.respond(respond_to, Reply::error(410, what, None));
            }
            MasterRequest::Logs { task, request } => {
                let (job, agents) = (&self.job, &mut self.agents);
                self.agent_requests.submit(task, request, respond_to, job, agents);
            }
            MasterRequest::Forward { task, port } => {
                let (request, job, agents) =
                    (AgentRequest::Forward { port }, &self.job, &mut self.agents);
                self.agent_requests.submit(task, request, respond_to, job, agents);
            }
            MasterRequest::Forwarded { container, id, failed } => {
                let reply = self.agent_requests.on_forward_reply(&container, id, failed);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Links { container, at, frames } => {
                self.on_links(&container, at, frames, respond_to)
            }
            MasterRequest::ListenLinks { container, at } => {
                let listening = self.links.listen(&self.job, &container, at, respond_to);
                if let Err((respond_to, rejected)) = listening {
                    self.outbox.respond(respond_to, rejected);
                }
            }
            MasterRequest::LogReply { container, id, reply: found } => {
                let reply = self.agent_requests.on_log_reply(&container, id, found);
                self.outbox.respond(respond_to, reply);
            }
            MasterRequest::Kv { request, .. } => {
                if let Some(op) = self.kv.handle(request, respond_to, &mut self.outbox) {
                    self.journal.append(&JournalRecord::Kv(op));
                }
            }
        }
    }

    fn on_sync(
        &mut self,
        container: ContainerId,
        sync: Sync,
        respond_to: oneshot::Sender<MasterResponse>,
        durable: DurableFlag,
    ) {
        if self.job.task_in_container(&container).is_some() {
            let awaited = self.job.expects_first_report(&container);
            if self.agents.on_heartbeat(&container, sync.usage) || awaited {
                self.handle_event(Event::HeartbeatResumed { container: container.clone() });
            }
        }
        for report in sync.reports {
            let container = container.clone();
            self.handle_event(match report {
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
        self.outbox.push(Effect::ReportsDurable {
            container,
            versions: AgentVersions {
                order: sync.order,
                tokens: sync.tokens,
                last_request: sync.last_request,
            },
            respond_to,
            durable,
        });
    }

    fn on_links(
        &mut self,
        container: &ContainerId,
        at: ConnectionId,
        frames: Vec<ClientFrame>,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        match self.links.receive(&self.job, container, at, frames) {
            Ok(output) => {
                self.journal_and_send(output);
                match self.job.task_in_container(container) {
                    Some(task) => self.outbox.push(Effect::FramesDurable {
                        task,
                        number: at.number,
                        respond_to,
                    }),
                    None => self.outbox.respond(respond_to, Reply::empty()),
                }
            }
            Err(rejected) => self.outbox.respond(respond_to, rejected),
        }
    }

    fn journal_and_send(
        &mut self,
        (records, frames_out): (Vec<ydl_rendezvous::LinkRecord>, Vec<OutgoingFrame>),
    ) {
        for durable in records {
            self.journal.append(&JournalRecord::Link(self.links.round(), durable));
        }
        self.outbox.send_frames(frames_out);
    }

    fn on_metrics(&mut self, container: &ContainerId, report: MetricsReport) -> Reply {
        let job = &self.job;
        let (Some(task), Some(attempt)) =
            (job.task_in_container(container), job.attempt_in_container(container))
        else {
            let what = format!("container `{container}` has ended and cannot report metrics");
            return Reply::error(410, what, None);
        };
        match self.metrics.store(task, attempt, report, Instant::now()) {
            Ok(()) => Reply::empty(),
            Err(rejected) => rejected,
        }
    }

    fn on_scale(
        &mut self,
        role: RoleName,
        instances: u32,
        respond_to: oneshot::Sender<MasterResponse>,
    ) {
        let answered = match self.job.check_scale(&role, instances) {
            Ok(()) if self.job.outcome().is_some() => Reply::error(400, "the job is ending", None),
            Ok(()) => {
                self.handle_event(Event::ScaleRequested { role, instances });
                Reply::empty()
            }
            Err(complaints) => {
                let what: Vec<_> =
                    complaints.iter().map(|complaint| complaint.message.clone()).collect();
                let hint = complaints.into_iter().find_map(|complaint| complaint.hint);
                Reply::error(400, what.join("; "), hint)
            }
        };
        self.outbox.respond(respond_to, answered);
    }

    /// Notifies agents with outdated tokens.
    fn renew(&mut self) {
        if let Some(tokens) = &mut self.tokens {
            let number = tokens.borrow_and_update().number;
            self.agents.set_tokens(number, &self.job);
        }
    }

    /// Returns the current tokens, for an agent of this job.
    fn tokens_for(&self, container: &ContainerId) -> Reply {
        if self.job.task_in_container(container).is_none() {
            let what = format!("container `{container}` has ended and cannot fetch tokens");
            return Reply::error(410, what, None);
        }
        match &self.tokens {
            Some(tokens) => {
                let bytes = tokens.borrow().credentials.to_bytes(Format::Writable);
                Reply::new("application/octet-stream", bytes.to_vec())
            }
            None => Reply::error(404, "this job's tokens are not renewed", None),
        }
    }

    /// Handles missed heartbeats, unacknowledged frames, waiters that disconnected, and metrics of finished
    /// attempts.
    fn check(&mut self) {
        let now = Instant::now();
        let again = self.links.retry_due(now);
        self.journal_and_send(again);
        for container in self.agents.newly_missed(&self.job) {
            tracing::warn!(%container, "missed heartbeats of an agent");
            self.handle_event(Event::HeartbeatMissed { container });
        }
        self.kv.sweep();
        self.agent_requests.sweep(&self.agents, now);
        self.metrics.expire(|task| self.job.current_attempt(task), now);
    }

    fn show(&mut self) {
        let (job, agents, links, now) = (&self.job, &self.agents, &self.links, self.clock.now());
        let metrics = &self.metrics;
        self.watchers.show(|number| JobSnapshot {
            metrics: metrics.latest(|task| job.current_attempt(task)),
            ..snapshot(number, job, agents, links, now)
        });
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
