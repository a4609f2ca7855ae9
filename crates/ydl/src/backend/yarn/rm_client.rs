//! ResourceManager client: sends heartbeats independently of the master's event loop.

use super::{
    BackendEvent,
    asks::AskBuilder,
    completions,
    error::{ErrorSince, RmErrorKind},
    heartbeat::HeartbeatInterval,
    hosts::ClusterHosts,
    size::{self, MaxAllocation},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{
    sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel},
    time::{Instant, sleep, sleep_until},
};
use yarn_native::{
    client::Client,
    ledger::{Key, Ledger, LedgerReply, ReplyCount},
    node::NmClient,
    rpc::RpcError,
    scheduler::{
        AllocateRequest, AllocateResponse, AmRmClient, Finish, RegisterResponse, Registration,
        SchedulerError,
    },
    types::{AttemptId, Container, ContainerId, NodeId, NodeReport, NodeState},
};
use ydl_core::{Asks, ContainerExit, Event};

/// Timeout of one heartbeat. It is then sent again.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for the completion of released containers before the master unregisters.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to retry unregistering while the ResourceManager is unavailable. A ResourceManager that recovers later
/// starts another master, which finds the job done.
const FINISH_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout of one attempt to unregister.
const FINISH_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which a rejected token is permanent.
const TOKEN_REJECTED_MAX: Duration = Duration::from_secs(300);
/// Time to retry a request after a rejection that may be transient.
const REQUEST_REJECTED_MAX: Duration = Duration::from_secs(30);
/// Interval of node list refreshes while containers are wanted.
const NODES_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout of queries for the application or its nodes.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Command from the backend.
#[derive(Debug)]
pub(super) enum Command {
    /// Containers still to be granted, and the last heartbeat that the caller has seen.
    SetAsks(Asks, ReplyCount),
    Release(ContainerId),
    /// A container may have exited: poll soon.
    ExpectExit,
    Close(Finish),
}

/// Outcome of the client's session with the ResourceManager.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// Unregistered on request.
    Finished,
    /// The cluster ended the application.
    ApplicationEnded,
    /// Another master took over, or this one must stop.
    Fenced(String),
}

#[derive(Debug, Default)]
pub(super) struct HeldContainer {
    /// Node of the container. Unknown for a container of an earlier master until its node reports it.
    pub(super) node: Option<NodeId>,
    memory_mib: u64,
}

pub(super) struct RmClient {
    pub(super) scheduler: AmRmClient,
    pub(super) registration: Registration,
    pub(super) ledger: Ledger<ContainerId>,
    pub(super) asks: AskBuilder,
    pub(super) hosts: ClusterHosts,
    pub(super) nodes: NmClient,
    pub(super) client: Option<Client>,
    pub(super) attempt: Option<AttemptId>,
    /// Containers of this job, with what is needed when they complete.
    pub(super) held: BTreeMap<ContainerId, HeldContainer>,
    pub(super) max_allocation: MaxAllocation,
    pub(super) interval: HeartbeatInterval,
    pub(super) backend_events: UnboundedSender<BackendEvent>,
    /// Number of nodes in the cluster.
    pub(super) node_count: i32,
    /// Nodes that the core avoids, and nodes that it was told not to avoid.
    pub(super) avoided: BTreeSet<String>,
    pub(super) required_nodes: BTreeSet<String>,
    pub(super) error_since: ErrorSince,
}

impl RmClient {
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<Command>) -> SessionEnd {
        let mut refreshed = Instant::now();
        let mut reports: Option<Receiver<Vec<NodeReport>>> = None;
        loop {
            let awaiting = self.ledger.outstanding() > 0;
            if awaiting && reports.is_none() && refreshed.elapsed() > NODES_INTERVAL {
                reports = self.query_nodes();
                refreshed = Instant::now();
            }
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::SetAsks(asks, seen)) => self.set_asks(asks, seen),
                    Some(Command::Release(container)) => self.release(container),
                    Some(Command::ExpectExit) => self.interval.poll_soon(Instant::now()),
                    Some(Command::Close(finish)) => return self.finish(finish).await,
                    None => return SessionEnd::Fenced("the master's event loop stopped".to_owned()),
                },
                nodes = next_report(&mut reports) => {
                    reports = None;
                    if let Some(nodes) = nodes {
                        self.hosts.refresh(&nodes);
                        self.update_required_nodes();
                    }
                }
                () = sleep_until(self.interval.due()) => if let Some(end) = self.heartbeat().await {
                    return end;
                },
            }
        }
    }

    fn set_asks(&mut self, mut asks: Asks, seen: ReplyCount) {
        let mut problems = asks.asks.iter().filter_map(|ask| {
            let too_large = self.max_allocation.exceeded(&ask.role, &ask.resources);
            too_large.or_else(|| self.asks.unsupported_placement(&ask.role))
        });
        let problem = problems.next();
        if let Some(why) = problem {
            asks.asks.clear();
            self.send_event(Event::RequestUnsatisfiable { reason: why });
        }
        self.avoided = asks.avoid.iter().map(ToString::to_string).collect();
        self.ledger.set_excluded(self.avoided.clone());
        let wanted = self.asks.build(&asks, &mut self.hosts);
        self.ledger.set_wants(wanted.plain, seen);
        self.ledger.set_constrained_wants(wanted.constrained, seen);
        let now = Instant::now();
        self.ledger.set_now(now);
        if self.ledger.has_changes() {
            self.interval.send_soon(now);
        }
        self.update_required_nodes();
    }

    /// Reports nodes that must not be avoided, if they changed.
    fn update_required_nodes(&mut self) {
        let required_nodes = self.asks.required_nodes(&self.hosts, &self.avoided);
        if required_nodes != self.required_nodes {
            let nodes = required_nodes.iter().map(|host| host.as_str().into()).collect();
            self.required_nodes = required_nodes;
            self.send_event(Event::NodesRequired { nodes });
        }
    }

    fn release(&mut self, container: ContainerId) {
        if self.held.contains_key(&container) {
            self.ledger.release(container);
            self.interval.send_soon(Instant::now());
        }
    }

    /// Sends one heartbeat. Returns the end of the session if this was the last one.
    pub(super) async fn heartbeat(&mut self) -> Option<SessionEnd> {
        let now = Instant::now();
        self.ledger.set_now(now);
        let request = || AllocateRequest::from(self.ledger.request());
        let result = self.scheduler.allocate(request, now + HEARTBEAT_TIMEOUT).await;
        let now = Instant::now();
        self.ledger.set_now(now);
        match result {
            Ok(response) => {
                self.error_since.clear();
                return self.on_response(response);
            }
            Err(SchedulerError::NotRegistered) => {
                self.ledger.on_resync();
                return self.register_again().await;
            }
            Err(SchedulerError::AttemptEnded { reason }) => {
                return Some(self.on_attempt_ended(&reason).await);
            }
            Err(error @ SchedulerError::ConcurrentMaster { .. }) => {
                return Some(SessionEnd::Fenced(error.to_string()));
            }
            Err(SchedulerError::NoResponse(error)) => return self.on_no_response(&error, now),
            Err(error) => {
                self.ledger.on_rejected();
                self.on_rejection(&error, now);
            }
        }
        self.interval.on_failure(now);
        None
    }

    fn on_response(&mut self, response: AllocateResponse) -> Option<SessionEnd> {
        self.nodes.add_tokens(response.node_tokens.iter().cloned());
        let outcome = match self.ledger.on_reply(LedgerReply::from(&response)) {
            Ok(outcome) => outcome,
            Err(error) => return Some(SessionEnd::Fenced(error.to_string())),
        };
        let wanted: BTreeSet<ContainerId> = outcome.wanted.iter().map(|g| g.container).collect();
        let mut events = Vec::new();
        if response.cluster_nodes != self.node_count {
            self.node_count = response.cluster_nodes;
            let nodes = u32::try_from(self.node_count).unwrap_or(0);
            events.push(Event::NodesCounted { nodes });
        }
        self.on_completed(&response, &mut events);
        let granted = response.granted.iter().filter(|one| wanted.contains(&one.id));
        let granted = self.on_granted(granted.cloned().collect(), &mut events);
        self.on_recovered(&response.recovered);
        self.on_warnings(&response, &mut events);
        let now = Instant::now();
        let changed = !events.is_empty() || !outcome.surplus.is_empty();
        if !events.is_empty() {
            let reply = outcome.reply_count;
            let event = BackendEvent::Heartbeat { reply, granted, events };
            // The receiver lives as long as the master.
            let _ = self.backend_events.send(event);
        }
        if !response.nodes.is_empty() {
            self.update_required_nodes();
        }
        let awaiting = self.ledger.outstanding() > 0;
        self.interval.on_heartbeat(changed, awaiting, now);
        None
    }

    fn on_completed(&mut self, response: &AllocateResponse, events: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for status in &response.completed {
            let Some(held) = self.held.remove(&status.id) else {
                continue;
            };
            let diagnostics = completions::summary_line(&status.diagnostics).unwrap_or_default();
            tracing::info!(container = %status.id, exit = %status.exit, "ended: {diagnostics}");
            let end =
                completions::container_exit(status.exit, &status.diagnostics, held.memory_mib);
            ended.push((status.id.to_string().into(), end));
        }
        if !ended.is_empty() {
            events.push(Event::Ended { containers: ended });
        }
    }

    fn on_granted(&mut self, granted: Vec<Container>, events: &mut Vec<Event>) -> Vec<Container> {
        let mut grants = Vec::new();
        let mut accepted = Vec::new();
        for container in granted {
            let key = key_of(&container);
            let Some(role) = self.asks.role_of(key).cloned() else {
                self.ledger.release(container.id);
                continue;
            };
            self.hosts.on_grant(key, &container.node.host, &container.resource);
            self.track(&container);
            grants.push(ydl_core::Grant {
                container: container.id.to_string().into(),
                role,
                node: container.node.host.as_str().into(),
                resources: size::from_yarn(&container.resource),
            });
            accepted.push(container);
        }
        if !grants.is_empty() {
            events.push(Event::Granted { grants });
        }
        accepted
    }

    pub(super) fn track(&mut self, container: &Container) {
        let held = HeldContainer {
            node: Some(container.node.clone()),
            memory_mib: u64::try_from(container.resource.memory_mib).unwrap_or(0),
        };
        self.held.insert(container.id, held);
    }

    /// Handles containers of earlier attempts that nodes reported late. Releases those that were given up.
    fn on_recovered(&mut self, containers: &[Container]) {
        for container in containers {
            self.ledger.adopt(container.id);
            match self.held.contains_key(&container.id) {
                true => self.track(container),
                false => self.ledger.release(container.id),
            }
        }
    }

    /// Warns of containers that will be preempted or run on a node that is being decommissioned.
    fn on_warnings(&mut self, response: &AllocateResponse, events: &mut Vec<Event>) {
        let mut warned = BTreeSet::new();
        if let Some(preemption) = &response.preemption {
            let named = preemption.strict.iter().chain(&preemption.negotiable);
            warned.extend(named.filter(|id| self.held.contains_key(id)).copied());
        }
        for report in &response.nodes {
            tracing::info!(node = %report.id, state = %report.state, "node state changed");
            self.hosts.update(report);
            if report.state == NodeState::Decommissioning {
                let there = |held: &HeldContainer| held.node.as_ref() == Some(&report.id);
                let there = self.held.iter().filter(|(_, held)| there(held));
                warned.extend(there.map(|(id, _)| *id));
            }
        }
        events.extend(
            warned
                .into_iter()
                .map(|id| Event::PreemptionWarned { container: id.to_string().into() }),
        );
    }

    async fn register_again(&mut self) -> Option<SessionEnd> {
        tracing::warn!("the ResourceManager does not know this master; registering again");
        let deadline = Instant::now() + HEARTBEAT_TIMEOUT;
        match self.scheduler.register(&self.registration, deadline).await {
            Ok(registered) => self.on_registered(&registered),
            // The response to an earlier try was lost.
            Err(SchedulerError::AlreadyRegistered { .. }) => {
                self.interval.send_soon(Instant::now())
            }
            Err(SchedulerError::AttemptEnded { reason }) => {
                return Some(self.on_attempt_ended(&reason).await);
            }
            Err(error) => {
                tracing::warn!("cannot register: {error}");
                self.interval.on_failure(Instant::now());
            }
        }
        None
    }

    fn on_registered(&mut self, registered: &RegisterResponse) {
        self.nodes.add_tokens(registered.node_tokens.iter().cloned());
        self.max_allocation = MaxAllocation::of(registered);
        self.on_recovered(&registered.recovered);
        self.interval.send_soon(Instant::now());
    }

    fn on_no_response(&mut self, error: &RpcError, now: Instant) -> Option<SessionEnd> {
        let kind = match error {
            RpcError::Security { .. } => RmErrorKind::TokenRejected,
            _ => RmErrorKind::NoResponse,
        };
        let lasted = self.error_since.record(kind, now);
        if lasted.is_zero() {
            tracing::warn!("the ResourceManager does not answer: {error}");
        }
        if kind == RmErrorKind::TokenRejected && lasted > TOKEN_REJECTED_MAX {
            return Some(SessionEnd::Fenced(error.to_string()));
        }
        self.interval.on_failure(now);
        None
    }

    /// Treats some rejections as permanent. Others may be transient errors of the ResourceManager.
    fn on_rejection(&mut self, error: &SchedulerError, now: Instant) {
        let lasted = self.error_since.record(RmErrorKind::RequestRejected, now);
        let certain = match error {
            SchedulerError::ConstraintsUnsupported { .. } | SchedulerError::TooLong { .. } => true,
            SchedulerError::Rejected { exception } => {
                let class = exception.short_class();
                class.starts_with("Invalid") && class.contains("ResourceRequest")
            }
            _ => false,
        };
        tracing::warn!("{error}");
        if certain || lasted > REQUEST_REJECTED_MAX {
            self.error_since.clear();
            self.ledger.set_wants(BTreeMap::new(), self.ledger.reply_count());
            self.ledger.set_constrained_wants(BTreeMap::new(), self.ledger.reply_count());
            let why = match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            };
            let why = completions::truncate(&why);
            self.send_event(Event::RequestUnsatisfiable { reason: why });
        }
    }

    /// The attempt is over: the application ended, or another attempt replaced this one.
    async fn on_attempt_ended(&mut self, reason: &str) -> SessionEnd {
        let Some(ended) = self.application_diagnostics().await else {
            return SessionEnd::Fenced(reason.to_owned());
        };
        let held = std::mem::take(&mut self.held);
        let gone = held.into_keys().map(|id| (id.to_string().into(), ContainerExit::Released));
        let by = format!("the cluster: {ended}");
        self.send_event(Event::KillRequested { by, immediate: true });
        self.send_event(Event::Ended { containers: gone.collect() });
        SessionEnd::ApplicationEnded
    }

    /// Returns the diagnostics of an application that the cluster ended. Returns nothing if another attempt
    /// continues it, or on an error.
    async fn application_diagnostics(&self) -> Option<String> {
        let (client, attempt) = (self.client.as_ref()?, self.attempt?);
        let deadline = Instant::now() + QUERY_TIMEOUT;
        loop {
            let report = client.application(attempt.application, deadline).await.ok()?;
            if report.state.is_over() {
                let diagnostics = completions::summary_line(&report.diagnostics);
                return Some(
                    diagnostics.unwrap_or_else(|| format!("the application is {}", report.state)),
                );
            }
            let replaced = report.attempt.is_some_and(|current| current != attempt);
            if replaced || Instant::now() > deadline {
                return None;
            }
            // The attempt ends before the application's final state is visible.
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn query_nodes(&self) -> Option<Receiver<Vec<NodeReport>>> {
        let client = self.client.clone()?;
        let (nodes_tx, nodes_rx) = channel(1);
        tokio::spawn(async move {
            let deadline = Instant::now() + QUERY_TIMEOUT;
            if let Ok(nodes) = client.nodes(&[NodeState::Running], deadline).await {
                // The client may have stopped.
                let _ = nodes_tx.send(nodes).await;
            }
        });
        Some(nodes_rx)
    }

    fn send_event(&self, event: Event) {
        let event = BackendEvent::Heartbeat {
            reply: self.ledger.reply_count(),
            granted: Vec::new(),
            events: vec![event],
        };
        // The receiver lives as long as the master.
        let _ = self.backend_events.send(event);
    }

    /// Releases everything and reports the outcome of the job.
    async fn finish(&mut self, finish: Finish) -> SessionEnd {
        self.ledger.set_wants(BTreeMap::new(), self.ledger.reply_count());
        self.ledger.set_constrained_wants(BTreeMap::new(), self.ledger.reply_count());
        for container in self.held.keys() {
            self.ledger.release(*container);
        }
        let end = Instant::now() + RELEASE_TIMEOUT;
        self.interval.send_soon(Instant::now());
        while !self.held.is_empty() && Instant::now() < end {
            sleep_until(self.interval.due()).await;
            if let Some(end) = self.heartbeat().await {
                return end;
            }
        }
        let end = Instant::now() + FINISH_TIMEOUT;
        loop {
            let deadline = Instant::now() + FINISH_ATTEMPT_TIMEOUT;
            match self.scheduler.finish(&finish, deadline).await {
                Ok(()) => return SessionEnd::Finished,
                Err(SchedulerError::AttemptEnded { reason }) => return SessionEnd::Fenced(reason),
                Err(error) if Instant::now() > end => {
                    let why =
                        format!("cannot report the job's outcome to the ResourceManager: {error}");
                    return SessionEnd::Fenced(why);
                }
                Err(error) => tracing::warn!("cannot unregister yet: {error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
}

fn key_of(container: &Container) -> Key {
    Key { priority: container.priority, allocation: container.request_id }
}

/// Returns the response to the node query in flight; pends without one.
async fn next_report(reports: &mut Option<Receiver<Vec<NodeReport>>>) -> Option<Vec<NodeReport>> {
    match reports {
        Some(nodes) => nodes.recv().await,
        None => std::future::pending().await,
    }
}
