//! The line to the ResourceManager: one beat after the other, whatever the master's own loop is doing.

use super::{
    News,
    constrained::Constrained,
    ends,
    hosts::Hosts,
    pace::Pace,
    size::{self, Largest},
    trouble::{Since, Trouble},
    wants::Wants,
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
    ledger::{Grant, Key, Ledger, LedgerReply, ReplyCount},
    node::NmClient,
    rpc::RpcError,
    scheduler::{
        AllocateRequest, AllocateResponse, AmRmClient, Finish, RegisterResponse, Registration,
        SchedulerError,
    },
    types::{AttemptId, Container, ContainerId, NodeId, NodeReport, NodeState},
};
use ydl_core::{Asks, ContainerExit, Event};

/// The longest that one beat may take; then it is said again.
pub(super) const BEAT_MAX: Duration = Duration::from_secs(10);
/// How long the ends of containers that were given back are waited for before the master leaves.
const RELEASE_MAX: Duration = Duration::from_secs(5);
/// How long a ResourceManager that is away is waited for in the end. One that comes back later starts another
/// master, which finds the job done.
const FINISH_MAX: Duration = Duration::from_secs(180);
/// One try to finish.
const FINISH_TRY: Duration = Duration::from_secs(20);
/// After so long a token that is not taken will never be.
const UNTRUSTED_MAX: Duration = Duration::from_secs(300);
/// For so long a refusal that may pass is waited out.
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// How often the nodes are asked for while containers are wanted.
const REFRESH: Duration = Duration::from_secs(60);
/// How long a question about the application or its nodes may take.
pub(super) const QUESTION_MAX: Duration = Duration::from_secs(5);

/// What the master wants of the line.
#[derive(Debug)]
pub(super) enum Command {
    /// What should still be granted, and the last beat that whoever says so knows of.
    Want(Asks, ReplyCount),
    Release(ContainerId),
    /// Something may have happened that only the ResourceManager tells.
    Stir,
    Close(Finish),
}

/// How the line ended.
#[derive(Debug)]
pub(super) enum Verdict {
    /// As the master wanted it.
    Finished,
    /// The cluster has ended the application.
    Ended,
    /// The master is the master no longer.
    Deposed(String),
}

#[derive(Debug, Default)]
pub(super) struct Held {
    /// Where it is; not known of one that an earlier master held and nobody has told of yet.
    pub(super) node: Option<NodeId>,
    memory_mib: u64,
}

pub(super) struct Line {
    pub(super) scheduler: AmRmClient,
    pub(super) registration: Registration,
    pub(super) ledger: Ledger<ContainerId>,
    pub(super) constrained: Constrained,
    pub(super) wants: Wants,
    pub(super) hosts: Hosts,
    pub(super) nodes: NmClient,
    pub(super) client: Option<Client>,
    pub(super) attempt: Option<AttemptId>,
    /// Containers that are ours, with what will have to be known when they end.
    pub(super) held: BTreeMap<ContainerId, Held>,
    pub(super) largest: Largest,
    pub(super) pace: Pace,
    pub(super) news: UnboundedSender<News>,
    /// How many nodes there were.
    pub(super) counted: i32,
    /// What the core avoids, and which nodes it was told not to.
    pub(super) avoided: BTreeSet<String>,
    pub(super) needed: BTreeSet<String>,
    pub(super) trouble: Since,
}

impl Line {
    pub(super) async fn run(mut self, mut commands: UnboundedReceiver<Command>) -> Verdict {
        let mut refreshed = Instant::now();
        let mut reports: Option<Receiver<Vec<NodeReport>>> = None;
        loop {
            let awaiting = self.ledger.outstanding() > 0 || self.constrained.outstanding() > 0;
            if awaiting && reports.is_none() && refreshed.elapsed() > REFRESH {
                reports = self.ask_for_nodes();
                refreshed = Instant::now();
            }
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Want(asks, seen)) => self.want(asks, seen),
                    Some(Command::Release(container)) => self.release(container),
                    Some(Command::Stir) => self.pace.stir(Instant::now()),
                    Some(Command::Close(finish)) => return self.finish(finish).await,
                    None => return Verdict::Deposed("its master has gone".to_owned()),
                },
                nodes = next_report(&mut reports) => {
                    reports = None;
                    if let Some(nodes) = nodes {
                        self.hosts.refresh(&nodes);
                        self.spare();
                    }
                }
                () = sleep_until(self.pace.due()) => if let Some(verdict) = self.beat().await {
                    return verdict;
                },
            }
        }
    }

    fn want(&mut self, mut asks: Asks, seen: ReplyCount) {
        let mut complaints = asks.asks.iter().filter_map(|ask| {
            let too_large = self.largest.complaint(&ask.role, &ask.resources);
            too_large.or_else(|| self.wants.complaint(&ask.role))
        });
        let complaint = complaints.next();
        if let Some(why) = complaint {
            asks.asks.clear();
            self.tell(Event::RequestUnsatisfiable { why });
        }
        self.avoided = asks.avoid.iter().map(ToString::to_string).collect();
        self.ledger.set_excluded(self.avoided.clone());
        let wanted = self.wants.wanted(&asks, &mut self.hosts);
        self.ledger.set_wants(wanted.plain, seen);
        self.constrained.set(wanted.lots, seen);
        let now = Instant::now();
        if self.ledger.has_changes() || self.constrained.has_news(now) {
            self.pace.speak(now);
        }
        self.spare();
    }

    /// Tells which nodes must not be avoided, where that has changed.
    fn spare(&mut self) {
        let needed = self.wants.needed(&self.hosts, &self.avoided);
        if needed != self.needed {
            let nodes = needed.iter().map(|host| host.as_str().into()).collect();
            self.needed = needed;
            self.tell(Event::NodesRequired { nodes });
        }
    }

    fn release(&mut self, container: ContainerId) {
        if self.held.contains_key(&container) {
            self.ledger.release(container);
            self.pace.speak(Instant::now());
        }
    }

    /// One exchange with the ResourceManager. A verdict where it was the last.
    pub(super) async fn beat(&mut self) -> Option<Verdict> {
        let now = Instant::now();
        let (ledger, constrained) = (&mut self.ledger, &mut self.constrained);
        let request = || AllocateRequest {
            scheduling_requests: constrained.request(now),
            ..AllocateRequest::from(ledger.request())
        };
        let heard = self.scheduler.allocate(request, now + BEAT_MAX).await;
        let now = Instant::now();
        match heard {
            Ok(answer) => {
                self.trouble.over();
                return self.hear(answer);
            }
            Err(SchedulerError::NotRegistered) => {
                self.ledger.on_resync();
                self.constrained.on_resync();
                return self.register_again().await;
            }
            Err(SchedulerError::AttemptEnded { reason }) => return Some(self.over(&reason).await),
            Err(error @ SchedulerError::ConcurrentMaster { .. }) => {
                return Some(Verdict::Deposed(error.to_string()));
            }
            Err(SchedulerError::NoResponse(error)) => return self.on_silence(&error, now),
            Err(error) => {
                self.ledger.on_rejected();
                self.constrained.on_refused();
                self.on_refused(&error, now);
            }
        }
        self.pace.fail(now);
        None
    }

    fn hear(&mut self, answer: AllocateResponse) -> Option<Verdict> {
        self.nodes.add_tokens(answer.node_tokens.iter().cloned());
        self.constrained.on_answer();
        let mine = |container: &&Container| self.constrained.is_mine(key_of(container));
        let (special, plain): (Vec<_>, Vec<_>) = answer.granted.iter().partition(mine);
        let reply = LedgerReply {
            response_id: answer.response_id,
            granted: plain.into_iter().map(Grant::from).collect(),
            completed: answer.completed.iter().map(|status| status.id).collect(),
        };
        let taken = match self.ledger.on_reply(reply) {
            Ok(taken) => taken,
            Err(error) => return Some(Verdict::Deposed(error.to_string())),
        };
        let mut wanted: BTreeSet<ContainerId> = taken.wanted.iter().map(|g| g.container).collect();
        for container in special {
            match self.constrained.on_grant(key_of(container), taken.reply_count) {
                true => drop(wanted.insert(container.id)),
                false => self.ledger.release(container.id),
            }
        }
        let mut events = Vec::new();
        if answer.cluster_nodes != self.counted {
            self.counted = answer.cluster_nodes;
            let nodes = u32::try_from(self.counted).unwrap_or(0);
            events.push(Event::NodesCounted { nodes });
        }
        self.on_completed(&answer, &mut events);
        let granted = answer.granted.iter().filter(|one| wanted.contains(&one.id));
        let granted = self.on_granted(granted.cloned().collect(), &mut events);
        self.on_kept(&answer.recovered);
        self.on_warnings(&answer, &mut events);
        let now = Instant::now();
        for rejection in &answer.rejected {
            self.constrained.on_rejected(rejection, now);
        }
        let stirring = !events.is_empty() || !taken.surplus.is_empty();
        if !events.is_empty() {
            let beat = taken.reply_count;
            let heard = News::Heard { beat, granted, events };
            // The receiver is gone only when the master is.
            let _ = self.news.send(heard);
        }
        if !answer.nodes.is_empty() {
            self.spare();
        }
        let awaiting = self.ledger.outstanding() > 0 || self.constrained.outstanding() > 0;
        self.pace.beat(stirring, awaiting, now);
        None
    }

    fn on_completed(&mut self, answer: &AllocateResponse, events: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for status in &answer.completed {
            let Some(held) = self.held.remove(&status.id) else {
                continue;
            };
            let words = ends::telling(&status.diagnostics).unwrap_or_default();
            tracing::info!(container = %status.id, exit = %status.exit, "ended: {words}");
            let end = ends::end_of(status.exit, &status.diagnostics, held.memory_mib);
            ended.push((status.id.to_string().into(), end));
        }
        if !ended.is_empty() {
            events.push(Event::Ended { containers: ended });
        }
    }

    fn on_granted(&mut self, granted: Vec<Container>, events: &mut Vec<Event>) -> Vec<Container> {
        let mut grants = Vec::new();
        let mut kept = Vec::new();
        for container in granted {
            let key = key_of(&container);
            let Some(role) = self.wants.role_of(key).cloned() else {
                self.ledger.release(container.id);
                continue;
            };
            self.hosts.on_grant(key, &container.node.host, &container.resource);
            self.hold(&container);
            grants.push(ydl_core::Grant {
                container: container.id.to_string().into(),
                role,
                node: container.node.host.as_str().into(),
                resources: size::from_yarn(&container.resource),
            });
            kept.push(container);
        }
        if !grants.is_empty() {
            events.push(Event::Granted { grants });
        }
        kept
    }

    pub(super) fn hold(&mut self, container: &Container) {
        let held = Held {
            node: Some(container.node.clone()),
            memory_mib: u64::try_from(container.resource.memory_mib).unwrap_or(0),
        };
        self.held.insert(container.id, held);
    }

    /// Containers of earlier attempts whose nodes have come back only now. Those that nobody has counted on any more
    /// are given back.
    fn on_kept(&mut self, kept: &[Container]) {
        for container in kept {
            self.ledger.adopt(container.id);
            match self.held.contains_key(&container.id) {
                true => self.hold(container),
                false => self.ledger.release(container.id),
            }
        }
    }

    /// What will be taken back, and what will be lost with a node that is being taken out of service.
    fn on_warnings(&mut self, answer: &AllocateResponse, events: &mut Vec<Event>) {
        let mut warned = BTreeSet::new();
        if let Some(preemption) = &answer.preemption {
            let named = preemption.strict.iter().chain(&preemption.negotiable);
            warned.extend(named.filter(|id| self.held.contains_key(id)).copied());
        }
        for report in &answer.nodes {
            tracing::info!(node = %report.id, state = %report.state, "a node has changed");
            self.hosts.update(report);
            if report.state == NodeState::Decommissioning {
                let there = |held: &Held| held.node.as_ref() == Some(&report.id);
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

    async fn register_again(&mut self) -> Option<Verdict> {
        tracing::warn!("the ResourceManager has forgotten this master; it registers again");
        let deadline = Instant::now() + BEAT_MAX;
        match self.scheduler.register(&self.registration, deadline).await {
            Ok(registered) => self.on_registered(&registered),
            // The answer to an earlier try was lost.
            Err(SchedulerError::AlreadyRegistered { .. }) => self.pace.speak(Instant::now()),
            Err(SchedulerError::AttemptEnded { reason }) => return Some(self.over(&reason).await),
            Err(error) => {
                tracing::warn!("it cannot register: {error}");
                self.pace.fail(Instant::now());
            }
        }
        None
    }

    fn on_registered(&mut self, registered: &RegisterResponse) {
        self.nodes.add_tokens(registered.node_tokens.iter().cloned());
        self.largest = Largest::of(registered);
        self.on_kept(&registered.recovered);
        self.pace.speak(Instant::now());
    }

    fn on_silence(&mut self, error: &RpcError, now: Instant) -> Option<Verdict> {
        let trouble = match error {
            RpcError::Security { .. } => Trouble::Untrusted,
            _ => Trouble::Silent,
        };
        let lasts = self.trouble.has(trouble, now);
        if lasts.is_zero() {
            tracing::warn!("the ResourceManager does not answer: {error}");
        }
        if trouble == Trouble::Untrusted && lasts > UNTRUSTED_MAX {
            return Some(Verdict::Deposed(error.to_string()));
        }
        self.pace.fail(now);
        None
    }

    /// Some refusals would be repeated for ever; others may be a ResourceManager in trouble.
    fn on_refused(&mut self, error: &SchedulerError, now: Instant) {
        let lasts = self.trouble.has(Trouble::Refused, now);
        let certain = match error {
            SchedulerError::ConstraintsUnsupported { .. } | SchedulerError::TooLong { .. } => true,
            SchedulerError::Rejected { exception } => {
                let class = exception.short_class();
                class.starts_with("Invalid") && class.contains("ResourceRequest")
            }
            _ => false,
        };
        tracing::warn!("{error}");
        if certain || lasts > REFUSED_MAX {
            self.trouble.over();
            self.ledger.set_wants(BTreeMap::new(), self.ledger.reply_count());
            self.constrained.set(BTreeMap::new(), self.ledger.reply_count());
            let why = match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            };
            let why = ends::short(&why);
            self.tell(Event::RequestUnsatisfiable { why });
        }
    }

    /// The attempt is over: the application was ended, or another attempt has taken this one's place.
    async fn over(&mut self, reason: &str) -> Verdict {
        let Some(ended) = self.how_it_ended().await else {
            return Verdict::Deposed(reason.to_owned());
        };
        let held = std::mem::take(&mut self.held);
        let gone = held.into_keys().map(|id| (id.to_string().into(), ContainerExit::Released));
        let by = format!("the cluster: {ended}");
        self.tell(Event::KillRequested { by, immediate: true });
        self.tell(Event::Ended { containers: gone.collect() });
        Verdict::Ended
    }

    /// What the cluster says of an application that it has ended; nothing where it goes on with another attempt, or
    /// where nobody can tell.
    async fn how_it_ended(&self) -> Option<String> {
        let (client, attempt) = (self.client.as_ref()?, self.attempt?);
        let deadline = Instant::now() + QUESTION_MAX;
        loop {
            let report = client.application(attempt.application, deadline).await.ok()?;
            if report.state.is_over() {
                let words = ends::telling(&report.diagnostics);
                return Some(words.unwrap_or_else(|| format!("it is {}", report.state)));
            }
            let replaced = report.attempt.is_some_and(|current| current != attempt);
            if replaced || Instant::now() > deadline {
                return None;
            }
            // An end is written down before it is told.
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn ask_for_nodes(&self) -> Option<Receiver<Vec<NodeReport>>> {
        let client = self.client.clone()?;
        let (answer, answered) = channel(1);
        tokio::spawn(async move {
            let deadline = Instant::now() + QUESTION_MAX;
            if let Ok(nodes) = client.nodes(&[NodeState::Running], deadline).await {
                // The line may have ended meanwhile.
                let _ = answer.send(nodes).await;
            }
        });
        Some(answered)
    }

    fn tell(&self, event: Event) {
        let heard = News::Heard {
            beat: self.ledger.reply_count(),
            granted: Vec::new(),
            events: vec![event],
        };
        // The receiver is gone only when the master is.
        let _ = self.news.send(heard);
    }

    /// Gives everything back, and says how the job ended.
    async fn finish(&mut self, finish: Finish) -> Verdict {
        self.ledger.set_wants(BTreeMap::new(), self.ledger.reply_count());
        self.constrained.set(BTreeMap::new(), self.ledger.reply_count());
        for container in self.held.keys() {
            self.ledger.release(*container);
        }
        let end = Instant::now() + RELEASE_MAX;
        self.pace.speak(Instant::now());
        while !self.held.is_empty() && Instant::now() < end {
            sleep_until(self.pace.due()).await;
            if let Some(verdict) = self.beat().await {
                return verdict;
            }
        }
        let end = Instant::now() + FINISH_MAX;
        loop {
            let deadline = Instant::now() + FINISH_TRY;
            match self.scheduler.finish(&finish, deadline).await {
                Ok(()) => return Verdict::Finished,
                Err(SchedulerError::AttemptEnded { reason }) => return Verdict::Deposed(reason),
                Err(error) if Instant::now() > end => {
                    let why = format!("the ResourceManager was not told of the job's end: {error}");
                    return Verdict::Deposed(why);
                }
                Err(error) => tracing::warn!("cannot finish yet: {error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
}

fn key_of(container: &Container) -> Key {
    Key { priority: container.priority, allocation: container.request_id }
}

/// The answer to the question for the nodes, if there is one under way.
async fn next_report(reports: &mut Option<Receiver<Vec<NodeReport>>>) -> Option<Vec<NodeReport>> {
    match reports {
        Some(answer) => answer.recv().await,
        None => std::future::pending().await,
    }
}
