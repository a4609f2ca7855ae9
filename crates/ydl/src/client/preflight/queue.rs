//! The job's queue, and the labels it may use.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{ClusterInfo, Queue},
};
use std::collections::BTreeSet;
use ydl_core::JobSpec;

/// Default queue.
const USUAL: &str = "default";
/// Names listed in a hint.
const NAMED_MAX: usize = 8;

/// The queue of the job, if it exists; or the one that may make it, whose limits hold for it, too.
pub fn check<'a>(
    spec: &JobSpec,
    cluster: &'a ClusterInfo,
    findings: &mut Findings,
) -> Option<&'a Queue> {
    let name = spec.cluster_options.queue.as_deref().unwrap_or(USUAL);
    let Some(queue) = find(name, cluster) else {
        if let Some(above) = above(name, cluster) {
            findings.note(format!(
                "there is no queue `{name}` yet: the cluster makes it with the job if queue `{}` may make queues, and refuses the job if not",
                above.path
            ));
            return Some(above);
        }
        let all = cluster.queues.iter().filter(|queue| queue.is_leaf()).count();
        let what = match all {
            1 => format!("there is no queue `{name}`: the cluster has one"),
            n => format!("there is no queue `{name}` among the {n} of the cluster"),
        };
        findings.refuse(what, format!("set `queue` to one of {}", open(cluster)));
        return None;
    };
    if queue.has_children {
        let below = format!("{}.", queue.path);
        let below: Vec<_> = cluster
            .queues
            .iter()
            .filter(|other| other.is_leaf() && other.path.starts_with(&below))
            .map(|other| other.path.as_str())
            .collect();
        let what =
            format!("queue `{name}` takes no jobs itself: it holds {} other queues", below.len());
        findings.refuse(what, format!("set `queue` to one of {}", list(below)));
    } else if queue.state != "RUNNING" {
        let what = format!("queue `{name}` takes no jobs: it is {}", queue.state);
        findings.refuse(what, format!("set `queue` to another: {}", open(cluster)));
    } else if queue.open_to_user == Some(false) {
        let what = format!("queue `{name}` takes no jobs of user `{}`", cluster.user);
        findings.refuse(what, format!("set `queue` to another: {}", open(cluster)));
    }
    Some(queue)
}

/// By its whole path, or by its own name where only one has it.
fn find<'a>(name: &str, cluster: &'a ClusterInfo) -> Option<&'a Queue> {
    let path = match name.starts_with("root.") || name == "root" {
        true => name.to_owned(),
        false => format!("root.{name}"),
    };
    let exact = cluster.queues.iter().find(|queue| queue.path == path);
    exact.or_else(|| cluster.queues.iter().find(|queue| queue.name() == name))
}

/// The queue below which a queue of that name would be. No ResourceManager tells whether it makes queues by itself, and
/// one that does and has made none yet looks like any other.
fn above<'a>(name: &str, cluster: &'a ClusterInfo) -> Option<&'a Queue> {
    let (above, own) = name.rsplit_once('.')?;
    find(above, cluster).filter(|queue| !own.is_empty() && queue.state == "RUNNING")
}

/// The queues that would take this user's job.
fn open(cluster: &ClusterInfo) -> String {
    let open = cluster.queues.iter().filter(|queue| {
        queue.is_leaf() && queue.state == "RUNNING" && queue.open_to_user != Some(false)
    });
    list(open.map(Queue::name))
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

/// Returns whether each label exists, and whether the queue may use it.
pub fn labels(
    groups: &[ContainerGroup],
    queue: &Queue,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    let mut reported = BTreeSet::new();
    for group in groups.iter().filter(|group| !group.label.is_empty()) {
        // One label of the whole job is one mistake.
        if !reported.insert((&group.label, &group.label_key)) {
            continue;
        }
        let (name, label, key) = (&group.name, &group.label, &group.label_key);
        if !cluster.labels.iter().any(|known| known.name == *label) {
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
            let may = cluster.queues.iter().filter(|queue| queue.is_leaf());
            let may = may.filter(|queue| may_use(queue, label));
            let own = match queue.labels.iter().any(|own| own == "*") {
                true => "has 0% of its nodes".to_owned(),
                false => format!(
                    "may use {} labels: {}",
                    queue.labels.len(),
                    list(queue.labels.iter().map(String::as_str))
                ),
            };
            let what = format!(
                "{name} asks for nodes with label `{label}`, and queue `{}` {own}",
                queue.name()
            );
            let hint =
                format!("set `queue` to one that may use it: {}", list(may.map(Queue::name)));
            findings.refuse(what, hint);
        }
    }
}

/// A queue that has no share of a label's nodes waits for ever, whatever it may name.
fn may_use(queue: &Queue, label: &str) -> bool {
    let named = queue.labels.iter().any(|own| own == "*" || own == label);
    let share = queue.shares.get(label);
    named && share.is_none_or(|share| share.most > 0.0)
}
