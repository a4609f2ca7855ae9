//! Checks whether all containers fit on the cluster, empty and at present.
//!
//! A refusal must be certain. It rests on two limits that hold for every placement: how many containers of one size fit on
//! each node, and the total of all resources. Whether everything fits right now is only a note, found by placing the
//! largest containers first.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{Amount, ClusterInfo, Node, Queue},
};
use std::collections::BTreeMap;
use ydl_core::spec::Memory;

/// Formats a number of nodes: ``3 nodes with label `gpu` ``.
pub(crate) fn node_count(count: usize, label: &str) -> String {
    let nodes = if count == 1 { "node" } else { "nodes" };
    match label {
        "" => format!("{count} {nodes}"),
        label => format!("{count} {nodes} with label `{label}`"),
    }
}

/// Checks the containers of all groups against the nodes and the queue.
pub(crate) fn check(
    groups: &[ContainerGroup],
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    // A cluster with further resource types also enforces cores. Others may schedule by memory alone.
    let count_vcores = cluster.kinds.as_ref().is_some_and(|kinds| !kinds.is_empty());
    let total: u64 = groups.iter().map(|group| group.count).sum();
    for group in groups {
        check_group(group, total, cluster, count_vcores, findings);
    }
    // The checks of totals would only repeat these refusals.
    if !findings.refusals.is_empty() {
        return;
    }
    let mut labels: BTreeMap<&str, Vec<&ContainerGroup>> = BTreeMap::new();
    for group in groups {
        labels.entry(&group.label).or_default().push(group);
    }
    for (label, groups) in &labels {
        check_total(label, groups, queue, cluster, count_vcores, findings);
    }
    if findings.refusals.is_empty() {
        check_free(groups, cluster, findings);
    }
}

/// Checks that the containers of one group fit on an empty cluster.
fn check_group(
    group: &ContainerGroup,
    total: u64,
    cluster: &ClusterInfo,
    count_vcores: bool,
    findings: &mut Findings,
) {
    let nodes: Vec<_> = cluster.nodes.iter().filter(|node| group.accepts(node, cluster)).collect();
    let (name, key) = (&group.name, &group.key);
    if nodes.is_empty() {
        let attributes = group.attributes.filter(|attributes| !attributes.is_empty());
        let what = match (attributes, group.label.as_str()) {
            (Some(attributes), _) => {
                let all: Vec<_> = attributes.iter().map(|(n, v)| format!("`{n}={v}`")).collect();
                format!("{name} asks for nodes with {}, and 0 nodes have them", all.join(", "))
            }
            (None, "") => format!("{name} needs a node, and the cluster has 0 usable ones"),
            (None, label) => {
                format!("{name} asks for nodes with label `{label}`, and 0 nodes have it")
            }
        };
        findings.refuse(what, "list the nodes with `ydl nodes --all`");
        return;
    }
    let max_per_node = group.max_per_node.map_or(u64::MAX, u64::from);
    let capacity = |node: &&&Node| node.all.count_of(&group.each, count_vcores);
    let fit: u64 = nodes.iter().map(|node| capacity(&node)).fold(0, u64::saturating_add);
    let spread: u64 =
        nodes.iter().map(|node| capacity(&node).min(max_per_node)).fold(0, u64::saturating_add);
    let node_count = node_count(nodes.len(), &group.label);
    // A container too large for every node has been refused already.
    if group.count <= spread || fit == 0 {
        return;
    }
    if group.count <= fit {
        findings.refuse(
            format!(
                "{name} has {} tasks with at most {max_per_node} on a node, and {spread} fit on {node_count}",
                group.count
            ),
            format!("lower `{key}.instances` to {spread}, or raise `{key}.placement.max_per_node`"),
        );
        return;
    }
    let tasks = total.saturating_sub(1);
    findings.refuse(
        format!(
            "{name} needs {} containers of {}, and at most {fit} fit on {node_count}; the job needs {total} in all, for {tasks} tasks and its master",
            group.count, group.each
        ),
        format!("lower `{key}.instances`, or the resources of each"),
    );
}

/// Checks that all containers of one label fit together on an empty cluster, and into the queue's share.
fn check_total(
    label: &str,
    groups: &[&ContainerGroup],
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    count_vcores: bool,
    findings: &mut Findings,
) {
    let mut needed = Amount::default();
    let mut total = Amount::default();
    let mut nodes = 0;
    for node in &cluster.nodes {
        if groups.iter().any(|group| group.accepts(node, cluster)) {
            total.add(&node.all, 1);
            nodes += 1;
        }
    }
    let mut count = 0;
    for group in groups {
        needed.add(&group.each, group.count);
        count += group.count;
    }
    let containers = containers(groups, count);
    let node_count = node_count(nodes, label);
    if let Some((requested, available)) = shortfall(&needed, &total, count_vcores) {
        findings.refuse(
            format!("{containers} need {requested} together, and {node_count} have {available}"),
            "lower `instances` or the size of a role",
        );
        return;
    }
    let Some(share) = queue.and_then(|queue| queue.shares.get(label)) else {
        return;
    };
    let name = queue.map_or("", Queue::name);
    // Shares are rounded percentages, so a tolerance keeps a difference of a MiB from being refused.
    let excess = |part: f64| {
        shortfall(&needed, &scaled(&total, part * 1.001), count_vcores)?;
        shortfall(&needed, &scaled(&total, part), count_vcores)
    };
    if let Some((requested, available)) = excess(share.max_capacity) {
        findings.refuse(
            format!(
                "{containers} need {requested} together, and the maximum of queue `{name}` is {available}: {:.0}% of {node_count}",
                share.max_capacity * 100.0
            ),
            "lower `instances` or the size of a role, or set `queue` to a larger one",
        );
    } else if let Some((requested, available)) = excess(share.capacity) {
        findings.note(format!(
            "{containers} need {requested} together; queue `{name}` is guaranteed {available}, the rest is borrowed and may be preempted"
        ));
    }
}

/// Names the containers in a sentence.
fn containers(groups: &[&ContainerGroup], count: u64) -> String {
    let master = groups.iter().any(|group| group.is_master);
    let tasks = count - u64::from(master);
    let plural = if tasks == 1 { "" } else { "s" };
    match (tasks, master) {
        (0, _) => "the master alone".to_owned(),
        (1, false) => "1 container".to_owned(),
        (_, true) => format!("{count} containers ({tasks} task{plural} and the master)"),
        (_, false) => format!("{count} containers ({tasks} task{plural})"),
    }
}

fn scaled(all: &Amount, part: f64) -> Amount {
    let of = |n: u64| (n as f64 * part) as u64;
    Amount {
        memory_mib: of(all.memory_mib),
        vcores: of(all.vcores),
        others: all.others.iter().map(|(k, n)| (k.clone(), of(*n))).collect(),
    }
}

/// Returns the first resource of which more is needed than available, with both amounts.
fn shortfall(needed: &Amount, available: &Amount, count_vcores: bool) -> Option<(String, String)> {
    if needed.memory_mib > available.memory_mib {
        let (needed, available) = (Memory(needed.memory_mib), Memory(available.memory_mib));
        return Some((needed.to_string(), available.to_string()));
    }
    if count_vcores && needed.vcores > available.vcores {
        return Some((format!("{} vcores", needed.vcores), available.vcores.to_string()));
    }
    let short = needed.others.iter().find(|(name, count)| **count > available.other(name));
    short.map(|(name, count)| (format!("{count} `{name}`"), available.other(name).to_string()))
}

/// Places all containers on the free resources, the largest first, and notes those that do not fit.
fn check_free(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
    let mut nodes: Vec<Node> = cluster.nodes.iter().filter(|n| n.running).cloned().collect();
    let mut order: Vec<_> = groups.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(group.each.memory_mib));
    let mut waiting = Vec::new();
    let mut total = 0;
    let mut placed = 0;
    for group in order {
        let max_per_node = group.max_per_node.map_or(u64::MAX, u64::from);
        let mut left = group.count;
        for node in nodes.iter_mut().filter(|node| group.accepts(node, cluster)) {
            let count = node.free.count_of(&group.each, true).min(max_per_node).min(left);
            let mut used = Amount::default();
            used.add(&group.each, count);
            node.free.subtract(&used);
            left -= count;
        }
        total += group.count;
        placed += group.count - left;
        if left > 0 {
            waiting.push(match group.is_master {
                true => group.name.clone(),
                false => format!("{left} of {}", group.name),
            });
        }
    }
    if !waiting.is_empty() {
        findings.note(format!(
            "{placed} of {total} containers fit on the resources that are free now; the rest will wait: {}",
            waiting.join(", ")
        ));
    }
}
