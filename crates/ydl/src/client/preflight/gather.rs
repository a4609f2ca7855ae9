//! Asking a ResourceManager what its cluster has.

use super::cluster::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;
use yarn_native::{
    client::Client,
    config::{Config, Origin, PlacementHandler},
    rpc::RpcError,
    types::{self, NodeReport, NodeState, QueuePermission, QueuePermissions, Resource},
};

/// The key of that limit which every version has.
const ATTEMPTS: &str = "yarn.resourcemanager.am.max-attempts";

/// Container runtimes of NodeManagers.
const RUNTIMES: &str = "yarn.nodemanager.runtime.linux.allowed-runtimes";

/// Everything a check needs but the largest container, which a ResourceManager tells only with an application's id.
/// Nothing of the cluster is changed by it.
pub async fn gather(
    client: &Client,
    config: &Config,
    user: &str,
    deadline: Instant,
) -> Result<ClusterInfo, RpcError> {
    let (queues, permissions, nodes, labels, kinds, attributes) = tokio::try_join!(
        client.queues(deadline),
        client.queue_permissions(deadline),
        client.nodes(&[], deadline),
        known(client.labels(deadline)),
        known(client.resource_kinds(deadline)),
        known(client.attributes(deadline)),
    )?;
    let mut all = Vec::new();
    flatten(&queues, "", Share { own: 1.0, most: 1.0 }, &mut all);
    permit(&mut all, &permissions);
    let labels = labels.unwrap_or_default().into_iter();
    let kinds = kinds.map(|kinds| -> Vec<String> {
        let names = kinds.into_iter().map(|kind| kind.name);
        let names = names.filter(|name| name != "memory-mb" && name != "vcores");
        names.collect()
    });
    Ok(ClusterInfo {
        user: user.to_owned(),
        queues: all,
        nodes: nodes.iter().filter(|node| may_work(node)).map(node).collect(),
        labels: labels
            .map(|label| Label { name: label.name, exclusive: label.exclusive })
            .collect(),
        kinds,
        constraints: match attributes {
            None => Constraints::TooOld,
            Some(_) => constraints(config),
        },
        largest: None,
        attempts_max: attempts_max(config),
        runtimes: runtimes(config),
        step_mib: stated(config, "yarn.scheduler.minimum-allocation-mb")
            .then(|| config.memory_mib_min().ok())
            .flatten(),
    })
}

/// Nothing where the server is too old to know the question.
async fn known<T>(asked: impl Future<Output = Result<T, RpcError>>) -> Result<Option<T>, RpcError> {
    match asked.await {
        Ok(answer) => Ok(Some(answer)),
        Err(RpcError::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a key is set here. A default is only a guess: the ResourceManager's files may differ.
fn stated(config: &Config, key: &str) -> bool {
    config.origin(key).is_some_and(|origin| !matches!(origin, Origin::Default))
}

/// Maximum number of master starts, as configured in the ResourceManager.
fn attempts_max(config: &Config) -> Option<u32> {
    let keys = ["yarn.resourcemanager.am.global.max-attempts", ATTEMPTS];
    let key = keys.into_iter().find(|key| stated(config, key))?;
    config.value(key).ok()??.text.trim().parse().ok()
}

/// With what NodeManagers run containers; without a word about it, as plain processes.
fn runtimes(config: &Config) -> Option<Vec<String>> {
    if !stated(config, RUNTIMES) {
        return None;
    }
    let text = config.value(RUNTIMES).ok()??.text;
    let words = text.split(',').map(str::trim);
    Some(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

fn constraints(config: &Config) -> Constraints {
    if !stated(config, "yarn.resourcemanager.placement-constraints.handler") {
        return Constraints::Unknown;
    }
    match config.placement_handler() {
        Ok(PlacementHandler::Disabled) => Constraints::Off,
        Ok(PlacementHandler::Processor | PlacementHandler::Scheduler) => Constraints::Yes,
        Err(_) => Constraints::Unknown,
    }
}

/// The queue and all below it. A queue's share is told of the queue above it, or of the whole by label.
fn flatten(queue: &types::Queue, above: &str, share: Share, all: &mut Vec<Queue>) {
    let own_name = queue.name.rsplit('.').next().unwrap_or(&queue.name);
    let path = match (&queue.path, above) {
        (Some(path), _) => path.clone(),
        (None, "") => own_name.to_owned(),
        (None, above) => format!("{above}.{own_name}"),
    };
    let of = |whole: f64, part: f32| match part {
        // Without a limit of its own it has that of the queue above.
        part if part < 0.0 => whole,
        part => whole * f64::from(part),
    };
    let share =
        Share { own: of(share.own, queue.capacity), most: of(share.most, queue.capacity_max) };
    let mut shares: BTreeMap<String, Share> = queue
        .shares
        .iter()
        .map(|(label, share)| {
            let share =
                Share { own: f64::from(share.capacity), most: f64::from(share.capacity_max) };
            (label.clone(), share)
        })
        .collect();
    shares.entry(String::new()).or_insert(share);
    all.push(Queue {
        path: path.clone(),
        state: queue.state.to_string(),
        has_children: !queue.children.is_empty(),
        open_to_user: None,
        labels: queue.labels.clone(),
        label: queue.label.clone().filter(|label| !label.trim().is_empty()),
        shares,
    });
    for child in &queue.children {
        flatten(child, &path, share, all);
    }
}

/// Permissions name queues by their whole path or by the last part of it, depending on the version.
fn permit(queues: &mut [Queue], permissions: &[QueuePermissions]) {
    let mut open: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in permissions {
        let may = entry.permissions.contains(&QueuePermission::Submit)
            || entry.permissions.contains(&QueuePermission::Administer);
        *open.entry(&entry.queue).or_default() |= may;
    }
    let twice: BTreeSet<String> = {
        let mut seen = BTreeSet::new();
        let names = queues.iter().map(|queue| queue.name().to_owned());
        names.filter(|name| !seen.insert(name.clone())).collect()
    };
    for queue in queues {
        let by_name = || match twice.contains(queue.name()) {
            true => None,
            false => open.get(queue.name()),
        };
        queue.open_to_user = open.get(queue.path.as_str()).or_else(by_name).copied();
    }
}

/// Returns whether the node works, or may recover without an administrator.
fn may_work(node: &NodeReport) -> bool {
    matches!(
        node.state,
        NodeState::Running | NodeState::New | NodeState::Unhealthy | NodeState::Rebooted
    )
}

fn node(report: &NodeReport) -> Node {
    let mut free = amount(&report.capability);
    free.take(&amount(&report.used));
    Node {
        host: report.id.host.clone(),
        rack: report.rack.clone(),
        label: report.labels.first().cloned().unwrap_or_default(),
        attributes: report
            .attributes
            .iter()
            .map(|attribute| (attribute.name.to_string(), attribute.value.clone()))
            .collect(),
        running: report.state == NodeState::Running,
        all: amount(&report.capability),
        free,
    }
}

/// Converts a report's amount, which is never below 0.
pub(super) fn amount(resource: &Resource) -> Amount {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    Amount {
        memory_mib: count(resource.memory_mib),
        vcores: count(i64::from(resource.vcores)),
        others: resource.others.iter().map(|(name, n)| (name.clone(), count(*n))).collect(),
    }
}

impl From<&Resource> for Amount {
    fn from(resource: &Resource) -> Amount {
        amount(resource)
    }
}
