//! Checks the job's queue, and the labels that it may use.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{ClusterInfo, Queue},
};
use std::collections::BTreeSet;
use ydl_core::JobSpec;

/// Default queue.
const DEFAULT: &str = "default";
/// Names listed in a hint.
const NAMED_MAX: usize = 8;

/// Returns the job's queue. If it does not exist, returns its parent, which may create it and whose limits apply.
pub(crate) fn check<'a>(
    spec: &JobSpec,
    cluster: &'a ClusterInfo,
    findings: &mut Findings,
) -> Option<&'a Queue> {
    let name = spec.cluster_options.queue.as_deref().unwrap_or(DEFAULT);
    let Some(queue) = find(name, cluster) else {
        if let Some(parent) = parent_of(name, cluster) {
            findings.note(format!(
                "there is no queue `{name}` yet: the cluster creates it if queue `{}` allows automatic creation, and otherwise rejects the job",
                parent.path
            ));
            return Some(parent);
        }
        let all = cluster.queues.iter().filter(|queue| queue.is_leaf()).count();
        let what = match all {
            1 => format!("there is no queue `{name}`: the cluster has a single queue"),
            n => format!("there is no queue `{name}` among the {n} of the cluster"),
        };
        findings.refuse(what, format!("set `queue` to one of {}", usable(cluster)));
        return None;
    };
    if queue.has_children {
        let prefix = format!("{}.", queue.path);
        let leaves: Vec<_> = cluster
            .queues
            .iter()
            .filter(|other| other.is_leaf() && other.path.starts_with(&prefix))
            .map(|other| other.path.as_str())
            .collect();
        let what =
            format!("queue `{name}` is the parent of {} queues and accepts no jobs", leaves.len());
        findings.refuse(what, format!("set `queue` to one of {}", list(leaves)));
    } else if queue.state != "RUNNING" {
        let what = format!("queue `{name}` accepts no jobs: it is {}", queue.state);
        findings.refuse(what, format!("set `queue` to another: {}", usable(cluster)));
    } else if queue.can_submit == Some(false) {
        let what =
            format!("permission denied: queue `{name}` accepts no jobs of user `{}`", cluster.user);
        findings.refuse(what, format!("set `queue` to another: {}", usable(cluster)));
    }
    Some(queue)
}

/// Finds a queue by path, or by its last component.
fn find<'a>(name: &str, cluster: &'a ClusterInfo) -> Option<&'a Queue> {
    let path = match name.starts_with("root.") || name == "root" {
        true => name.to_owned(),
        false => format!("root.{name}"),
    };
    let exact = cluster.queues.iter().find(|queue| queue.path == path);
    exact.or_else(|| cluster.queues.iter().find(|queue| queue.name() == name))
}

/// Returns the running parent of a queue that does not exist. A ResourceManager does not report whether a queue allows
/// automatic creation of children.
fn parent_of<'a>(name: &str, cluster: &'a ClusterInfo) -> Option<&'a Queue> {
    let (parent, child) = name.rsplit_once('.')?;
    find(parent, cluster).filter(|queue| !child.is_empty() && queue.state == "RUNNING")
}

/// Lists the queues that accept this user's jobs.
fn usable(cluster: &ClusterInfo) -> String {
    let usable = cluster.queues.iter().filter(|queue| {
        queue.is_leaf() && queue.state == "RUNNING" && queue.can_submit != Some(false)
    });
    list(usable.map(Queue::name))
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<_> = names.into_iter().collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    let more = if names.len() > NAMED_MAX { ", …" } else { "" };
    let some: Vec<_> = names.into_iter().take(NAMED_MAX).collect();
    format!("`{}`{more}", some.join("`, `"))
}

/// Checks that each label exists and that the queue may use it.
pub(crate) fn labels(
    groups: &[ContainerGroup],
    queue: &Queue,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    let mut reported = BTreeSet::new();
    for group in groups.iter().filter(|group| !group.label.is_empty()) {
        // Report a label of the whole job once.
        if !reported.insert((&group.label, &group.label_key)) {
            continue;
        }
        let (name, label, key) = (&group.name, &group.label, &group.label_key);
        if !cluster.labels.iter().any(|existing| existing.name == *label) {
            let what = format!(
                "{name} asks for nodes with label `{label}`, which the cluster does not have"
            );
            let hint = match cluster.labels.is_empty() {
                true => format!("leave `{key}` out: the cluster has no labels"),
                false => {
                    let names = cluster.labels.iter().map(|label| label.name.as_str());
                    format!("set `{key}` to one of {}", list(names))
                }
            };
            findings.refuse(what, hint);
            continue;
        }
        if !may_use(queue, label) {
            let others = cluster.queues.iter().filter(|queue| queue.is_leaf());
            let others = others.filter(|queue| may_use(queue, label));
            let reason = match queue.labels.iter().any(|label| label == "*") {
                true => "has 0% of its nodes".to_owned(),
                false => format!(
                    "may use {} labels: {}",
                    queue.labels.len(),
                    list(queue.labels.iter().map(String::as_str))
                ),
            };
            let what = format!(
                "{name} asks for nodes with label `{label}`, and queue `{}` {reason}",
                queue.name()
            );
            let hint =
                format!("set `queue` to one that may use it: {}", list(others.map(Queue::name)));
            findings.refuse(what, hint);
        }
    }
}

/// Returns whether a queue may use a label. With a share of 0, its requests would wait forever.
fn may_use(queue: &Queue, label: &str) -> bool {
    let is_listed = queue.labels.iter().any(|listed| listed == "*" || listed == label);
    let share = queue.shares.get(label);
    is_listed && share.is_none_or(|share| share.max_capacity > 0.0)
}
