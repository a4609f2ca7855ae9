//! Registration with the ResourceManager and recovery of an earlier master's containers.

use super::{
    BackendEvent, YarnBackend,
    asks::AskBuilder,
    error::ErrorSince,
    heartbeat::HeartbeatInterval,
    hosts::ClusterHosts,
    launch::Launcher,
    rm_client::{HeldContainer, QUERY_TIMEOUT, RmClient, RmClientEnd},
    setup::YarnSetup,
    size::MaxAllocation,
};
use std::{collections::BTreeSet, fmt, time::Duration};
use tokio::{
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        watch,
    },
    time::{Instant, sleep_until},
};
use yarn_native::{
    client::{Client, QueueDetail},
    config::PlacementHandler,
    credentials::TokenIdentifier,
    ledger::{Ledger, SchedulingRequestMode},
    node::{NmClient, NmClientOptions},
    scheduler::{AmRmClient, RegisterResponse, Registration},
    types::{ContainerId, NodeState},
};
use ydl_core::spec::Timeouts;
use ydl_os::report::{Exit, Report};

/// Time to wait for an unavailable ResourceManager.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(300);
/// Time for a restarted ResourceManager to collect containers from all nodes. Agents should not be without a
/// master for longer.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(20);

impl YarnBackend {
    /// Registers the master. Also returns the containers of earlier attempts that belong to the job. Exits
    /// since then follow as events.
    pub async fn register(
        setup: YarnSetup,
    ) -> Result<(YarnBackend, Vec<ydl_core::ContainerId>), Report> {
        let (backend_events, backend_event_rx) = unbounded_channel();
        let (priority, priority_rx) = watch::channel(None);
        let registering = register_application(&setup, backend_events.clone(), priority);
        let (mut rm, registered) = registering.await?;
        let live = recover_containers(&mut rm, &registered, &setup).await?;
        let launcher = Launcher::new(&setup, rm.nm_client.clone(), backend_events)?;
        Ok((YarnBackend::begin(rm, launcher, backend_event_rx, &setup, priority_rx), live))
    }
}

async fn register_application(
    setup: &YarnSetup,
    backend_events: UnboundedSender<BackendEvent>,
    priority: watch::Sender<Option<i32>>,
) -> Result<(RmClient, RegisterResponse), Report> {
    let config = &setup.config;
    let config_error = |error: &dyn fmt::Display| {
        Report::internal(format!("invalid Hadoop configuration: {error}"))
    };
    let token = setup.token.clone();
    let attempt = match TokenIdentifier::decode(&token) {
        Ok(TokenIdentifier::Master { attempt, .. }) => attempt.parse().ok(),
        _ => None,
    };
    let mut scheduler = AmRmClient::from_config(config, token).map_err(|e| config_error(&e))?;
    let options = NmClientOptions::from_config(config).map_err(|e| config_error(&e))?;
    let query_client = match setup.identity.clone() {
        Some(identity) => {
            Some(Client::from_config(config, identity).map_err(|e| config_error(&e))?)
        }
        None => None,
    };
    let expiry = config.master_expiry().map_err(|e| config_error(&e))?;
    let handler = config.placement_handler().map_err(|e| config_error(&e))?;
    let (host, port) = match setup.address.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (setup.address.as_str(), None),
    };
    let registration =
        Registration { port, tracking_url: setup.tracking_url.clone(), ..Registration::new(host) };
    let deadline = Instant::now() + REGISTER_TIMEOUT;
    let (registered, hosts) =
        tokio::join!(scheduler.register(&registration, deadline), hosts(query_client.as_ref()));
    let registered = registered.map_err(|error| {
        let message = format!("cannot register with the ResourceManager: {error}");
        let report = Report::new(Exit::Unreachable, message);
        match error.hint() {
            Some(hint) => report.hint(hint),
            None => report,
        }
    })?;
    let queue_label = label(query_client.as_ref(), &registered.queue).await;
    let nm_client = NmClient::new(options);
    nm_client.add_tokens(registered.node_tokens.iter().cloned());
    let mut ledger = Ledger::new();
    ledger.set_scheduling_request_mode(match handler {
        PlacementHandler::Processor => SchedulingRequestMode::Add,
        PlacementHandler::Scheduler | PlacementHandler::Disabled => SchedulingRequestMode::Replace,
    });
    let rm = RmClient {
        scheduler,
        registration,
        ledger,
        ask_builder: AskBuilder::new(&setup.spec, queue_label),
        hosts,
        nm_client,
        query_client,
        attempt,
        held: Default::default(),
        max_allocation: MaxAllocation::of(&registered),
        progress: setup.progress,
        priority,
        interval: HeartbeatInterval::new(expiry, Instant::now()),
        backend_events,
        node_count: 0,
        avoided: BTreeSet::new(),
        required_nodes: BTreeSet::new(),
        error_since: ErrorSince::default(),
    };
    Ok((rm, registered))
}

/// Returns the nodes if the ResourceManager answers quickly: they are only a hint.
async fn hosts(client: Option<&Client>) -> ClusterHosts {
    let mut hosts = ClusterHosts::default();
    if let Some(client) = client {
        let deadline = Instant::now() + QUERY_TIMEOUT;
        match client.nodes(&[NodeState::Running], deadline).await {
            Ok(nodes) => hosts.refresh(&nodes),
            Err(error) => tracing::warn!("cannot list the cluster's nodes: {error}"),
        }
    }
    hosts
}

/// Returns the queue's default label if the ResourceManager answers quickly.
async fn label(client: Option<&Client>, queue: &str) -> Option<String> {
    let deadline = Instant::now() + QUERY_TIMEOUT;
    let answer = client?.queue(queue, QueueDetail::default(), deadline).await;
    match answer {
        Ok(queue) => queue.and_then(|queue| queue.label),
        Err(error) => {
            tracing::warn!("cannot read the queue's label: {error}");
            None
        }
    }
    .filter(|label| !label.is_empty())
}

/// Collects the containers of an earlier master. The ResourceManager usually returns them at once; a restarted
/// one waits for reports from the nodes.
async fn recover_containers(
    rm: &mut RmClient,
    registered: &RegisterResponse,
    setup: &YarnSetup,
) -> Result<Vec<ydl_core::ContainerId>, Report> {
    let parsed = setup.held.iter().filter_map(|id| id.as_str().parse().ok());
    let expected: BTreeSet<ContainerId> = parsed.collect();
    for id in &expected {
        rm.held.insert(*id, HeldContainer::default());
    }
    if !expected.is_empty() || !registered.recovered.is_empty() {
        rm.ledger.inherit_excluded(rm.hosts.names());
    }
    for container in &registered.recovered {
        rm.ledger.adopt(container.id);
        rm.track(container);
    }
    let Timeouts { heartbeat, .. } = setup.spec.timeouts;
    let wait_max = RECOVER_TIMEOUT.min(Duration::from_millis(heartbeat.0) / 2);
    let end = Instant::now() + wait_max;
    let is_unreported = |held: &HeldContainer| held.node.is_none();
    while rm.held.values().any(is_unreported) && Instant::now() < end {
        sleep_until(rm.interval.due()).await;
        match rm.heartbeat().await {
            None => {}
            Some(RmClientEnd::Fenced(why)) => return Err(Report::internal(why)),
            Some(RmClientEnd::Finished | RmClientEnd::ApplicationEnded) => {
                return Err(Report::internal("the cluster ended the application"));
            }
        }
    }
    let lost: BTreeSet<ContainerId> =
        rm.held.iter().filter(|(_, held)| is_unreported(held)).map(|(id, _)| *id).collect();
    if !lost.is_empty() {
        tracing::warn!("{} containers of an earlier master were not recovered", lost.len());
    }
    rm.held.retain(|id, _| !lost.contains(id));
    let live = rm.held.keys().chain(&expected);
    let live: BTreeSet<&ContainerId> = live.filter(|id| !lost.contains(id)).collect();
    Ok(live.into_iter().map(|id| id.to_string().into()).collect())
}
