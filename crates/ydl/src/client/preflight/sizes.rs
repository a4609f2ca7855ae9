//! Checks resource types and container sizes.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{Amount, ClusterInfo, Node},
};
use ydl_core::spec::Memory;

/// Returns whether everything asked for is something the cluster counts.
pub fn kinds(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
    for group in groups {
        for (kind, count) in &group.each.others {
            let name = &group.name;
            let key = match kind.as_str() {
                super::cluster::GPU => format!("{}.gpus", group.key),
                _ => format!("{}.resources", group.key),
            };
            match &cluster.kinds {
                None => findings.refuse(
                    format!(
                        "{name} asks for {count} `{kind}`, and this Hadoop is too old to count anything but memory and cores"
                    ),
                    format!("leave `{key}` out; `node_label` may lead to nodes that have it"),
                ),
                Some(kinds) if !kinds.contains(kind) => {
                    let there = kinds.iter().map(|kind| format!(", `{kind}`"));
                    let there: String = there.collect();
                    findings.refuse(
                        format!("{name} asks for {count} `{kind}`, which the cluster does not count"),
                        format!("leave `{key}` out: the cluster counts memory, vcores{there}"),
                    );
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns whether the cluster counts everything in it.
pub fn are_counted(each: &Amount, cluster: &ClusterInfo) -> bool {
    let kinds = cluster.kinds.as_deref().unwrap_or_default();
    each.others.keys().all(|name| kinds.contains(name))
}

/// No container may be larger than the largest of its nodes, nor than the scheduler's largest. The nodes go first: a
/// ResourceManager gives as its own largest what its largest node has, which no administrator can raise.
pub fn largest(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
    for group in groups {
        let (name, key) = (&group.name, &group.key);
        if !fits_a_node(group, cluster, findings) {
            continue;
        }
        let over = cluster.largest.as_ref();
        let over = over.and_then(|largest| exceeds(&group.each, largest));
        if let Some((thing, asked, there)) = over {
            findings.refuse(
                format!("{name} asks for containers of {asked}, and the largest the cluster gives has {there}"),
                format!("lower `{key}.{thing}`, or have an administrator raise the scheduler's maximum"),
            );
        }
    }
}

/// Returns whether there is a node that could hold one of them, or no node at all, which is said elsewhere.
fn fits_a_node(group: &ContainerGroup, cluster: &ClusterInfo, findings: &mut Findings) -> bool {
    let (name, key) = (&group.name, &group.key);
    let nodes: Vec<_> = cluster.nodes.iter().filter(|node| group.accepts(node, cluster)).collect();
    let holds = |node: &&Node| node.all.holds(&group.each, true) > 0;
    if nodes.is_empty() || nodes.iter().any(holds) {
        return true;
    }
    let mut most = Amount::default();
    for node in &nodes {
        most.memory_mib = most.memory_mib.max(node.all.memory_mib);
        most.vcores = most.vcores.max(node.all.vcores);
        for (name, count) in &node.all.others {
            let there = most.others.entry(name.clone()).or_default();
            *there = (*there).max(*count);
        }
    }
    let nodes_text = super::capacity::node_count(nodes.len(), &group.label);
    match exceeds(&group.each, &most) {
        Some((thing, asked, there)) => findings.refuse(
            format!(
                "{name} asks for containers of {asked}, and the largest of {nodes_text} has {there}"
            ),
            format!("lower `{key}.{thing}`"),
        ),
        None => findings.refuse(
            format!(
                "{name} asks for containers of {}, and none of {nodes_text} has all of that",
                group.each
            ),
            "`ydl nodes` shows what each node has",
        ),
    }
    false
}

/// Returns the excess over the limit, with both numbers.
fn exceeds(each: &Amount, largest: &Amount) -> Option<(String, String, String)> {
    if each.memory_mib > largest.memory_mib {
        let (asked, there) = (Memory(each.memory_mib), Memory(largest.memory_mib));
        return Some(("memory".into(), asked.to_string(), there.to_string()));
    }
    if each.vcores > largest.vcores {
        let (asked, there) = (each.vcores, largest.vcores);
        return Some(("vcores".into(), format!("{asked} vcores"), there.to_string()));
    }
    let over = each.others.iter().find(|(name, count)| **count > largest.other(name));
    over.map(|(name, count)| {
        let key = match name.as_str() {
            super::cluster::GPU => "gpus",
            _ => "resources",
        };
        let there = largest.other(name).to_string();
        (key.into(), format!("{count} `{name}`"), there)
    })
}
