//! ResourceManager client: sends heartbeats independently of the master's event loop.
//!
//! * `responses`: handlers of heartbeat responses. * `failures`: rejections, outages and the end of the
//!   application attempt.

mod failures;
mod responses;

use super::{
    BackendEvent, asks::AskBuilder, error::ErrorSince, heartbeat::HeartbeatInterval,
    hosts::ClusterHosts, size::MaxAllocation,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{Receiver, UnboundedReceiver, UnboundedSender, channel},
        watch,
    },
    time::{Instant, sleep, sleep_until},
};
use yarn_native::{
    client::Client,
    ledger::{Ledger, ReplyCount},
    node::NmClient,
    scheduler::{AllocateRequest, AmRmClient, Finish, Registration, SchedulerError},
    types::{AttemptId, ContainerId, NodeId, NodeReport, NodeState},
};
use ydl_core::{Asks, Event};

/// Timeout of one heartbeat. It is then sent again.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for the completion of released containers before the master unregisters.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to retry unregistering while the ResourceManager is unavailable. A ResourceManager that recovers later
/// starts another master, which finds the job done.
const FINISH_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout of one attempt to unregister.
const FINISH_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of node list refreshes while containers are wanted.
const NODES_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout of queries for the application or its nodes.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Command from the backend.
#[derive(Debug)]
pub(super) enum Command {
    /// Containers still to be granted, and the last heartbeat that the caller has seen.
    SetAsks(Asks, ReplyCount),
    /// A container is not needed any more.
    Release(ContainerId),
    /// Progress of the job, from 0 to 1.
    SetProgress(f32),
    /// A container may have exited: poll soon.
    ExpectExit,
    /// The job is over: release everything and unregister.
    Close(Finish),
}

/// Reason why the client has stopped.
#[derive(Debug)]
pub(super) enum RmClientEnd {
    /// Unregistered on request.
    Finished,
    /// The cluster ended the application.
    ApplicationEnded,
    /// Another master took over, or this one must stop.
    Fenced(String),
}

/// Container of this job, with what is needed when it completes.
#[derive(Debug, Default)]
pub(super) struct HeldContainer {
    /// Node of the container. Unknown for a container of an earlier master until its node reports it.
    pub(super) node: Option<NodeId>,
    memory_mib: u64,
}

/// Connection of this master to the ResourceManager. Runs in a task of its own, and exchanges commands and events with
/// the [`YarnBackend`](super::YarnBackend).
pub(super) struct RmClient {
    /// Client of the scheduler, for registration and heartbeats.
    pub(super) scheduler: AmRmClient,
    /// Registration of this master, to register again with a restarted ResourceManager.
    pub(super) registration: Registration,
    /// Wanted containers, and what the ResourceManager knows of them.
    pub(super) ledger: Ledger<ContainerId>,
    /// Translates the core's asks into the ledger's wants.
    pub(super) ask_builder: AskBuilder,
    /// Hosts and racks to name in requests.
    pub(super) hosts: ClusterHosts,
    /// Client of the NodeManagers, shared with the launcher. Heartbeats bring its tokens.
    pub(super) nm_client: NmClient,
    /// Client for queries about nodes and the application; none without credentials for it.
    pub(super) query_client: Option<Client>,
    /// Application attempt of this master, if its token names it.
    pub(super) attempt: Option<AttemptId>,
    /// Containers that are granted or recovered and have not completed.
    pub(super) held: BTreeMap<ContainerId, HeldContainer>,
    pub(super) max_allocation: MaxAllocation,
    /// Progress of the job, from 0 to 1.
    pub(super) progress: f32,
    /// Priority of the application.
    pub(super) priority: watch::Sender<Option<i32>>,
    /// Time of the next heartbeat.
    pub(super) interval: HeartbeatInterval,
    /// Results of heartbeats for the backend.
    pub(super) backend_events: UnboundedSender<BackendEvent>,
    /// Number of nodes in the cluster.
    pub(super) node_count: i32,
    /// Nodes that the core avoids, and nodes that it was told not to avoid.
    pub(super) avoided: BTreeSet<String>,
    pub(super) required_nodes: BTreeSet<String>,
    /// Duration of the current error of the ResourceManager.
    pub(super) error_since: ErrorSince,
}

impl RmClient {
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<Command>) -> RmClientEnd {
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
                    // It need not be known at once: the next heartbeat has it.
                    Some(Command::SetProgress(progress)) => self.progress = progress,
                    Some(Command::ExpectExit) => self.interval.poll_soon(Instant::now()),
                    Some(Command::Close(finish)) => return self.finish(finish).await,
                    None => return RmClientEnd::Fenced("the master's event loop stopped".to_owned()),
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
            too_large.or_else(|| self.ask_builder.unsupported_placement(&ask.role))
        });
        let problem = problems.next();
        if let Some(why) = problem {
            asks.asks.clear();
            self.send_event(Event::RequestUnsatisfiable { reason: why });
        }
        self.avoided = asks.avoid.iter().map(ToString::to_string).collect();
        self.ledger.set_excluded(self.avoided.clone());
        let wanted = self.ask_builder.build(&asks, &mut self.hosts);
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
        let required_nodes = self.ask_builder.required_nodes(&self.hosts, &self.avoided);
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

    /// Sends one heartbeat. Returns the reason to stop if this was the last one.
    pub(super) async fn heartbeat(&mut self) -> Option<RmClientEnd> {
        let now = Instant::now();
        self.ledger.set_now(now);
        let progress = self.progress;
        let request =
            || AllocateRequest { progress, ..AllocateRequest::from(self.ledger.request()) };
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
                return Some(RmClientEnd::Fenced(error.to_string()));
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

    fn query_nodes(&self) -> Option<Receiver<Vec<NodeReport>>> {
        let client = self.query_client.clone()?;
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
    async fn finish(&mut self, finish: Finish) -> RmClientEnd {
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
                Ok(()) => return RmClientEnd::Finished,
                Err(SchedulerError::AttemptEnded { reason }) => return RmClientEnd::Fenced(reason),
                Err(error) if Instant::now() > end => {
                    let why =
                        format!("cannot report the job's outcome to the ResourceManager: {error}");
                    return RmClientEnd::Fenced(why);
                }
                Err(error) => tracing::warn!("cannot unregister yet: {error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Returns the response to the node query in flight; pends without one.
async fn next_report(reports: &mut Option<Receiver<Vec<NodeReport>>>) -> Option<Vec<NodeReport>> {
    match reports {
        Some(nodes) => nodes.recv().await,
        None => std::future::pending().await,
    }
}
