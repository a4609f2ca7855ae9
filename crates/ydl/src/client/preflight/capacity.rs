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
pub fn places(count: usize, label: &str) -> String {
    let nodes = if count == 1 { "node" } else { "nodes" };
    match label {
        "" => format!("{count} {nodes}"),
        label => format!("{count} {nodes} with label `{label}`"),
    }
}

/// Counts what fits.
pub fn check(
    wants: &[ContainerGroup],
    queue: Option<&Queue>,
    has: &ClusterInfo,
    found: &mut Findings,
) {
    // A cluster that counts more than memory counts cores, too; others may not, and give out more than there are.
    let count_vcores = has.kinds.as_ref().is_some_and(|kinds| !kinds.is_empty());
    let total: u64 = wants.iter().map(|want| want.count).sum();
    for want in wants {
        alone(want, total, has, count_vcores, found);
    }
    // What follows counts all of them together, and would only repeat what is wrong with one.
    if !found.refusals.is_empty() {
        return;
    }
    let mut labels: BTreeMap<&str, Vec<&ContainerGroup>> = BTreeMap::new();
    for want in wants {
        labels.entry(&want.label).or_default().push(want);
    }
    for (label, wants) in &labels {
        together(label, wants, queue, has, count_vcores, found);
    }
    if found.refusals.is_empty() {
        now(wants, has, found);
    }
}

/// Returns whether the containers of one role would fit if they had the cluster for themselves.
fn alone(
    want: &ContainerGroup,
    total: u64,
    has: &ClusterInfo,
    count_vcores: bool,
    found: &mut Findings,
) {
    let nodes: Vec<_> = has.nodes.iter().filter(|node| want.takes(node, has)).collect();
    let (who, key) = (&want.who, &want.key);
    if nodes.is_empty() {
        let attributes = want.attributes.filter(|attributes| !attributes.is_empty());
        let what = match (attributes, want.label.as_str()) {
            (Some(attributes), _) => {
                let all: Vec<_> = attributes.iter().map(|(n, v)| format!("`{n}={v}`")).collect();
                format!("{who} asks for nodes with {}, and 0 have that", all.join(", "))
            }
            (None, "") => format!("{who} needs a node, and the cluster has 0 that it may use"),
            (None, label) => format!("{who} asks for nodes with label `{label}`, and 0 have it"),
        };
        found.refuse(what, "`ydl nodes` shows what each node has");
        return;
    }
    let max_per_node = want.max_per_node.map_or(u64::MAX, u64::from);
    let one = |node: &&&Node| node.all.holds(&want.each, count_vcores);
    let fit: u64 = nodes.iter().map(|node| one(&node)).fold(0, u64::saturating_add);
    let spread: u64 =
        nodes.iter().map(|node| one(&node).min(max_per_node)).fold(0, u64::saturating_add);
    let places = places(nodes.len(), &want.label);
    // A container too large for every node has been complained about.
    if want.count <= spread || fit == 0 {
        return;
    }
    if want.count <= fit {
        found.refuse(
            format!(
                "{who} has {} tasks with at most {max_per_node} on a node, and {places} take {spread}",
                want.count
            ),
            format!("lower `{key}.instances` to {spread}, or raise `{key}.placement.max_per_node`"),
        );
        return;
    }
    let tasks = total.saturating_sub(1);
    found.refuse(
        format!(
            "{who} needs {} containers of {}, and at most {fit} fit on {places}; the job needs {total} in all, for {tasks} tasks and its master",
            want.count, want.each
        ),
        format!("lower `{key}.instances`, or ask for less in each"),
    );
}

/// Returns whether all containers of one label would fit together, and into the queue.
fn together(
    label: &str,
    wants: &[&ContainerGroup],
    queue: Option<&Queue>,
    has: &ClusterInfo,
    count_vcores: bool,
    found: &mut Findings,
) {
    let mut needed = Amount::default();
    let mut there = Amount::default();
    let mut nodes = 0;
    for node in &has.nodes {
        if wants.iter().any(|want| want.takes(node, has)) {
            there.add(&node.all, 1);
            nodes += 1;
        }
    }
    let mut count = 0;
    for want in wants {
        needed.add(&want.each, want.count);
        count += want.count;
    }
    let who = containers(wants, count);
    let places = places(nodes, label);
    if let Some((asked, have)) = lacks(&needed, &there, count_vcores) {
        found.refuse(
            format!("{who} need {asked} together, and {places} have {have}"),
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
        lacks(&needed, &scaled(&there, part * 1.001), count_vcores)?;
        lacks(&needed, &scaled(&there, part), count_vcores)
    };
    if let Some((asked, have)) = beyond(share.most) {
        found.refuse(
            format!(
                "{who} need {asked} together, and queue `{name}` may have {have}: {:.0}% of {places}",
                share.most * 100.0
            ),
            "lower `instances` or the size of a role, or set `queue` to a larger one",
        );
    } else if let Some((asked, have)) = beyond(share.own) {
        found.note(format!(
            "{who} need {asked} together; queue `{name}` has {have} of its own, the rest is borrowed and may be taken back"
        ));
    }
}

/// Names the containers in a sentence.
fn containers(wants: &[&ContainerGroup], count: u64) -> String {
    let master = wants.iter().any(|want| want.is_master);
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
fn lacks(needed: &Amount, there: &Amount, count_vcores: bool) -> Option<(String, String)> {
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
fn now(wants: &[ContainerGroup], has: &ClusterInfo, found: &mut Findings) {
    let mut nodes: Vec<Node> = has.nodes.iter().filter(|n| n.running).cloned().collect();
    let mut order: Vec<_> = wants.iter().collect();
    order.sort_by_key(|want| std::cmp::Reverse(want.each.memory_mib));
    let mut waits = Vec::new();
    let mut total = 0;
    let mut placed = 0;
    for want in order {
        let most = want.max_per_node.map_or(u64::MAX, u64::from);
        let mut left = want.count;
        for node in nodes.iter_mut().filter(|node| want.takes(node, has)) {
            let here = node.free.holds(&want.each, true).min(most).min(left);
            let mut taken = Amount::default();
            taken.add(&want.each, here);
            node.free.take(&taken);
            left -= here;
        }
        total += want.count;
        placed += want.count - left;
        if left > 0 {
            waits.push(match want.is_master {
                true => want.who.clone(),
                false => format!("{left} of {}", want.who),
            });
        }
    }
    if !waits.is_empty() {
        found.note(format!(
            "{placed} of {total} containers fit on what is free now; the rest will wait: {}",
            waits.join(", ")
        ));
    }
}
