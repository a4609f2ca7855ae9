//! A master's first words to the ResourceManager, and what it is told of an earlier master's containers.

use super::{
    News, Yarn,
    constrained::Constrained,
    gpus::Gpus,
    hosts::Hosts,
    launch::Launcher,
    line::{Held, Line, QUESTION_MAX, Verdict},
    pace::Pace,
    setting::YarnSetting,
    size::Largest,
    trouble::Since,
    wants::Wants,
};
use std::{collections::BTreeSet, fmt, time::Duration};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};
use yarn_native::{
    client::{Client, QueueDetail},
    config::PlacementHandler,
    credentials::TokenIdentifier,
    ledger::Ledger,
    node::{NmClient, NmClientOptions},
    scheduler::{AmRmClient, RegisterResponse, Registration},
    types::{ContainerId, NodeState},
};
use ydl_core::spec::Timeouts;
use ydl_os::report::{Exit, Report};

/// How long a ResourceManager that is away is waited for at the beginning.
const REGISTER_MAX: Duration = Duration::from_secs(300);
/// How long a ResourceManager that was started again may need until all nodes have told it of their containers.
/// Longer than this agents should not be without their master.
const RECOVER_MAX: Duration = Duration::from_secs(20);

impl Yarn {
    /// Registers the master with the ResourceManager. The containers are those of earlier attempts that are still
    /// the job's, and those that have ended since: their ends follow as events.
    pub async fn register(
        setting: YarnSetting,
    ) -> Result<(Yarn, Vec<ydl_core::ContainerId>), Report> {
        let (news, heard) = unbounded_channel();
        let (mut line, registered) = registered(&setting, news.clone()).await?;
        let live = recovered(&mut line, &registered, &setting).await?;
        let launcher = Launcher::new(&setting, line.nodes.clone(), news)?;
        let logs = format!("{}/logs", setting.staged.dir);
        let gpus = Gpus::of(&setting.spec);
        Ok((Yarn::begin(line, launcher, heard, gpus, logs), live))
    }
}

async fn registered(
    setting: &YarnSetting,
    news: UnboundedSender<News>,
) -> Result<(Line, RegisterResponse), Report> {
    let config = &setting.config;
    let wrong = |error: &dyn fmt::Display| {
        Report::trouble(format!("the Hadoop configuration is of no use: {error}"))
    };
    let token = setting.token.clone();
    let attempt = match TokenIdentifier::decode(&token) {
        Ok(TokenIdentifier::Master { attempt, .. }) => attempt.parse().ok(),
        _ => None,
    };
    let mut scheduler = AmRmClient::from_config(config, token).map_err(|e| wrong(&e))?;
    let options = NmClientOptions::from_config(config).map_err(|e| wrong(&e))?;
    let client = match setting.identity.clone() {
        Some(identity) => Some(Client::from_config(config, identity).map_err(|e| wrong(&e))?),
        None => None,
    };
    let expiry = config.master_expiry().map_err(|e| wrong(&e))?;
    let handler = config.placement_handler().map_err(|e| wrong(&e))?;
    let (host, port) = match setting.address.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (setting.address.as_str(), None),
    };
    let registration = Registration {
        port,
        tracking_url: setting.tracking_url.clone(),
        ..Registration::new(host)
    };
    let deadline = Instant::now() + REGISTER_MAX;
    let (registered, hosts) =
        tokio::join!(scheduler.register(&registration, deadline), hosts(client.as_ref()));
    let registered = registered.map_err(|error| {
        let what = format!("the ResourceManager does not take this master: {error}");
        let report = Report::new(Exit::Unreachable, what);
        match error.hint() {
            Some(hint) => report.hint(hint),
            None => report,
        }
    })?;
    let of_queue = label(client.as_ref(), &registered.queue).await;
    let nodes = NmClient::new(options);
    nodes.add_tokens(registered.node_tokens.iter().cloned());
    let line = Line {
        scheduler,
        registration,
        ledger: Ledger::new(),
        constrained: Constrained::new(handler == PlacementHandler::Processor),
        wants: Wants::new(&setting.spec, of_queue),
        hosts,
        nodes,
        client,
        attempt,
        held: Default::default(),
        largest: Largest::of(&registered),
        pace: Pace::new(expiry, Instant::now()),
        news,
        counted: 0,
        avoided: BTreeSet::new(),
        needed: BTreeSet::new(),
        trouble: Since::default(),
    };
    Ok((line, registered))
}

/// The nodes, if they can be had quickly: they are a hint.
async fn hosts(client: Option<&Client>) -> Hosts {
    let mut hosts = Hosts::default();
    if let Some(client) = client {
        let deadline = Instant::now() + QUESTION_MAX;
        match client.nodes(&[NodeState::Running], deadline).await {
            Ok(nodes) => hosts.refresh(&nodes),
            Err(error) => tracing::warn!("the nodes are not known: {error}"),
        }
    }
    hosts
}

/// The label of asks that name none, if it can be had quickly.
async fn label(client: Option<&Client>, queue: &str) -> Option<String> {
    let deadline = Instant::now() + QUESTION_MAX;
    let asked = client?.queue(queue, QueueDetail::default(), deadline).await;
    match asked {
        Ok(queue) => queue.and_then(|queue| queue.label),
        Err(error) => {
            tracing::warn!("the queue's label is not known: {error}");
            None
        }
    }
    .filter(|label| !label.is_empty())
}

/// What has become of an earlier master's containers. Usually the ResourceManager says so at once; one that was
/// started again has to hear of them from their nodes first.
async fn recovered(
    line: &mut Line,
    registered: &RegisterResponse,
    setting: &YarnSetting,
) -> Result<Vec<ydl_core::ContainerId>, Report> {
    let told = setting.held.iter().filter_map(|id| id.as_str().parse().ok());
    let expected: BTreeSet<ContainerId> = told.collect();
    for id in &expected {
        line.held.insert(*id, Held::default());
    }
    if !expected.is_empty() || !registered.recovered.is_empty() {
        line.ledger.inherit_excluded(line.hosts.names());
    }
    for container in &registered.recovered {
        line.ledger.adopt(container.id);
        line.hold(container);
    }
    let Timeouts { heartbeat: silence, .. } = setting.spec.timeouts;
    let patience = RECOVER_MAX.min(Duration::from_millis(silence.0) / 2);
    let end = Instant::now() + patience;
    let is_untold = |held: &Held| held.node.is_none();
    while line.held.values().any(is_untold) && Instant::now() < end {
        sleep_until(line.pace.due()).await;
        match line.beat().await {
            None => {}
            Some(Verdict::Deposed(why)) => return Err(Report::trouble(why)),
            Some(Verdict::Finished | Verdict::Ended) => {
                return Err(Report::trouble("the cluster has ended the job"));
            }
        }
    }
    let untold: BTreeSet<ContainerId> =
        line.held.iter().filter(|(_, held)| is_untold(held)).map(|(id, _)| *id).collect();
    if !untold.is_empty() {
        tracing::warn!("{} containers of an earlier master are not known any more", untold.len());
    }
    line.held.retain(|id, _| !untold.contains(id));
    let live = line.held.keys().chain(&expected);
    let live: BTreeSet<&ContainerId> = live.filter(|id| !untold.contains(id)).collect();
    Ok(live.into_iter().map(|id| id.to_string().into()).collect())
}
