//! Queries a ResourceManager for the resources and limits of its cluster.

use super::cluster::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;
use yarn_native::{
    client::Client,
    config::{Config, Origin, PlacementHandler},
    rpc::RpcError,
    types::{self, NodeReport, NodeState, QueuePermission, QueuePermissions, Resource},
};

/// Key of the limit on master attempts that every version has.
const ATTEMPTS: &str = "yarn.resourcemanager.am.max-attempts";

/// Key of the NodeManagers' container runtimes.
const RUNTIMES: &str = "yarn.nodemanager.runtime.linux.allowed-runtimes";

/// Returns everything that a check needs except for the largest container, which a ResourceManager reports only with a new
/// application id. Changes nothing on the cluster.
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
        if_supported(client.labels(deadline)),
        if_supported(client.resource_kinds(deadline)),
        if_supported(client.attributes(deadline)),
    )?;
    let mut all = Vec::new();
    flatten(&queues, "", Share { capacity: 1.0, max_capacity: 1.0 }, &mut all);
    set_permissions(&mut all, &permissions);
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
        step_mib: is_set(config, "yarn.scheduler.minimum-allocation-mb")
            .then(|| config.memory_mib_min().ok())
            .flatten(),
    })
}

/// Returns `None` if the server is too old to support the request.
async fn if_supported<T>(
    request: impl Future<Output = Result<T, RpcError>>,
) -> Result<Option<T>, RpcError> {
    match request.await {
        Ok(response) => Ok(Some(response)),
        Err(RpcError::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the local configuration sets a key. The ResourceManager's value may differ from a default.
fn is_set(config: &Config, key: &str) -> bool {
    config.origin(key).is_some_and(|origin| !matches!(origin, Origin::Default))
}

/// Returns the maximum number of master attempts.
fn attempts_max(config: &Config) -> Option<u32> {
    let keys = ["yarn.resourcemanager.am.global.max-attempts", ATTEMPTS];
    let key = keys.into_iter().find(|key| is_set(config, key))?;
    config.value(key).ok()??.text.trim().parse().ok()
}

/// Returns the NodeManagers' container runtimes, if the local configuration sets them.
fn runtimes(config: &Config) -> Option<Vec<String>> {
    if !is_set(config, RUNTIMES) {
        return None;
    }
    let text = config.value(RUNTIMES).ok()??.text;
    let names = text.split(',').map(str::trim);
    Some(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn constraints(config: &Config) -> Constraints {
    if !is_set(config, "yarn.resourcemanager.placement-constraints.handler") {
        return Constraints::Unknown;
    }
    match config.placement_handler() {
        Ok(PlacementHandler::Disabled) => Constraints::Off,
        Ok(PlacementHandler::Processor | PlacementHandler::Scheduler) => Constraints::Yes,
        Err(_) => Constraints::Unknown,
    }
}

/// Collects a queue and its descendants. The ResourceManager reports shares relative to the parent queue, except for
/// shares by label, which are absolute.
fn flatten(queue: &types::Queue, parent: &str, parent_share: Share, all: &mut Vec<Queue>) {
    let name = queue.name.rsplit('.').next().unwrap_or(&queue.name);
    let path = match (&queue.path, parent) {
        (Some(path), _) => path.clone(),
        (None, "") => name.to_owned(),
        (None, parent) => format!("{parent}.{name}"),
    };
    let absolute = |parent: f64, relative: f32| match relative {
        // A queue without a limit has that of its parent.
        relative if relative < 0.0 => parent,
        relative => parent * f64::from(relative),
    };
    let share = Share {
        capacity: absolute(parent_share.capacity, queue.capacity),
        max_capacity: absolute(parent_share.max_capacity, queue.capacity_max),
    };
    let mut shares: BTreeMap<String, Share> = queue
        .shares
        .iter()
        .map(|(label, share)| {
            let share = Share {
                capacity: f64::from(share.capacity),
                max_capacity: f64::from(share.capacity_max),
            };
            (label.clone(), share)
        })
        .collect();
    shares.entry(String::new()).or_insert(share);
    all.push(Queue {
        path: path.clone(),
        state: queue.state.to_string(),
        has_children: !queue.children.is_empty(),
        can_submit: None,
        labels: queue.labels.clone(),
        label: queue.label.clone().filter(|label| !label.trim().is_empty()),
        shares,
    });
    for child in &queue.children {
        flatten(child, &path, share, all);
    }
}

/// Sets who may submit. Depending on the version, permissions name queues by path or by the last component.
fn set_permissions(queues: &mut [Queue], permissions: &[QueuePermissions]) {
    let mut permitted: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in permissions {
        let can_submit = entry.permissions.contains(&QueuePermission::Submit)
            || entry.permissions.contains(&QueuePermission::Administer);
        *permitted.entry(&entry.queue).or_default() |= can_submit;
    }
    let ambiguous: BTreeSet<String> = {
        let mut seen = BTreeSet::new();
        let names = queues.iter().map(|queue| queue.name().to_owned());
        names.filter(|name| !seen.insert(name.clone())).collect()
    };
    for queue in queues {
        let by_name = || match ambiguous.contains(queue.name()) {
            true => None,
            false => permitted.get(queue.name()),
        };
        queue.can_submit = permitted.get(queue.path.as_str()).or_else(by_name).copied();
    }
}

/// Returns whether a node runs, or may recover without an administrator.
fn may_work(node: &NodeReport) -> bool {
    matches!(
        node.state,
        NodeState::Running | NodeState::New | NodeState::Unhealthy | NodeState::Rebooted
    )
}

fn node(report: &NodeReport) -> Node {
    let mut free = amount(&report.capability);
    free.subtract(&amount(&report.used));
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

/// Converts the resources of a report; negative numbers become 0.
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
