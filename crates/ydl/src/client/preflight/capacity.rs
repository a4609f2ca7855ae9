//! Counts the containers that fit: now, and at the very most.
//!
//! A refusal must be certain, so it rests on what no order of packing can change: how often one size goes into
//! each node, and how much all of them need together. Whether everything fits right now is only worth a note,
//! and tried by putting the large ones first.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{Amount, ClusterInfo, Node, Queue},
};
use std::collections::BTreeMap;
use ydl_core::spec::Memory;

/// Nodes for a sentence: ``the 3 nodes with label `gpu` ``.
pub fn node_count(count: usize, label: &str) -> String {
    let nodes = if count == 1 { "node" } else { "nodes" };
    match label {
        "" => format!("{count} {nodes}"),
        label => format!("{count} {nodes} with label `{label}`"),
    }
}

/// Counts what fits.
pub fn check(
    groups: &[ContainerGroup],
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    // A cluster that counts more than memory counts cores, too; others may not, and give out more than there are.
    let count_vcores = cluster.kinds.as_ref().is_some_and(|kinds| !kinds.is_empty());
    let total: u64 = groups.iter().map(|group| group.count).sum();
    for group in groups {
        check_group(group, total, cluster, count_vcores, findings);
    }
    // What follows counts all of them together, and would only repeat what is wrong with one.
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

/// Returns whether the containers of one role would fit if they had the cluster for themselves.
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
                format!("{name} asks for nodes with {}, and 0 have that", all.join(", "))
            }
            (None, "") => format!("{name} needs a node, and the cluster has 0 that it may use"),
            (None, label) => format!("{name} asks for nodes with label `{label}`, and 0 have it"),
        };
        findings.refuse(what, "`ydl nodes` shows what each node has");
        return;
    }
    let max_per_node = group.max_per_node.map_or(u64::MAX, u64::from);
    let fitting = |node: &&&Node| node.all.holds(&group.each, count_vcores);
    let fit: u64 = nodes.iter().map(|node| fitting(&node)).fold(0, u64::saturating_add);
    let spread: u64 =
        nodes.iter().map(|node| fitting(&node).min(max_per_node)).fold(0, u64::saturating_add);
    let node_count = node_count(nodes.len(), &group.label);
    // A container too large for every node has been complained about.
    if group.count <= spread || fit == 0 {
        return;
    }
    if group.count <= fit {
        findings.refuse(
            format!(
                "{name} has {} tasks with at most {max_per_node} on a node, and {node_count} take {spread}",
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
        format!("lower `{key}.instances`, or ask for less in each"),
    );
}

/// Returns whether all containers of one label would fit together, and into the queue.
fn check_total(
    label: &str,
    groups: &[&ContainerGroup],
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    count_vcores: bool,
    findings: &mut Findings,
) {
    let mut needed = Amount::default();
    let mut there = Amount::default();
    let mut nodes = 0;
    for node in &cluster.nodes {
        if groups.iter().any(|group| group.accepts(node, cluster)) {
            there.add(&node.all, 1);
            nodes += 1;
        }
    }
    let mut count = 0;
    for group in groups {
        needed.add(&group.each, group.count);
        count += group.count;
    }
    let asking = containers(groups, count);
    let node_count = node_count(nodes, label);
    if let Some((asked, have)) = shortfall(&needed, &there, count_vcores) {
        findings.refuse(
            format!("{asking} need {asked} together, and {node_count} have {have}"),
            "lower `instances` or the size of a role",
        );
        return;
    }
    let Some(share) = queue.and_then(|queue| queue.shares.get(label)) else {
        return;
    };
    let name = queue.map_or("", Queue::name);
    // Shares are floats that went through percents; a MiB more or less is no reason to refuse.
    let beyond = |part: f64| {
        shortfall(&needed, &scaled(&there, part * 1.001), count_vcores)?;
        shortfall(&needed, &scaled(&there, part), count_vcores)
    };
    if let Some((asked, have)) = beyond(share.most) {
        findings.refuse(
            format!(
                "{asking} need {asked} together, and queue `{name}` may have {have}: {:.0}% of {node_count}",
                share.most * 100.0
            ),
            "lower `instances` or the size of a role, or set `queue` to a larger one",
        );
    } else if let Some((asked, have)) = beyond(share.own) {
        findings.note(format!(
            "{asking} need {asked} together; queue `{name}` has {have} of its own, the rest is borrowed and may be taken back"
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

/// Returns the shortfall, with both numbers.
fn shortfall(needed: &Amount, there: &Amount, count_vcores: bool) -> Option<(String, String)> {
    if needed.memory_mib > there.memory_mib {
        let (asked, have) = (Memory(needed.memory_mib), Memory(there.memory_mib));
        return Some((asked.to_string(), have.to_string()));
    }
    if count_vcores && needed.vcores > there.vcores {
        let (asked, have) = (needed.vcores, there.vcores);
        return Some((format!("{asked} vcores"), have.to_string()));
    }
    let short = needed.others.iter().find(|(name, count)| **count > there.other(name));
    short.map(|(name, count)| {
        let have = there.other(name).to_string();
        (format!("{count} `{name}`"), have)
    })
}

/// Puts everything where there is room now, the large ones first.
fn check_free(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
    let mut nodes: Vec<Node> = cluster.nodes.iter().filter(|n| n.running).cloned().collect();
    let mut order: Vec<_> = groups.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(group.each.memory_mib));
    let mut waiting = Vec::new();
    let mut total = 0;
    let mut placed = 0;
    for group in order {
        let most = group.max_per_node.map_or(u64::MAX, u64::from);
        let mut left = group.count;
        for node in nodes.iter_mut().filter(|node| group.accepts(node, cluster)) {
            let here = node.free.holds(&group.each, true).min(most).min(left);
            let mut taken = Amount::default();
            taken.add(&group.each, here);
            node.free.take(&taken);
            left -= here;
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
            "{placed} of {total} containers fit on what is free now; the rest will wait: {}",
            waiting.join(", ")
        ));
    }
}
