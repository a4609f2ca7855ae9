//! Checks resource types and container sizes.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{Amount, ClusterInfo, Node},
};
use ydl_core::spec::Memory;

/// Checks that the cluster has the requested resource types.
pub(crate) fn kinds(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
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
                        "{name} asks for {count} `{kind}`, and resource types other than memory and cores need Hadoop 3.1 or newer"
                    ),
                    format!("leave `{key}` out, or select nodes with it by `node_label`"),
                ),
                Some(kinds) if !kinds.contains(kind) => {
                    let all = kinds.iter().map(|kind| format!(", `{kind}`"));
                    let all: String = all.collect();
                    findings.refuse(
                        format!("{name} asks for {count} `{kind}`, which is not a resource type of the cluster"),
                        format!("leave `{key}` out: the cluster's resource types are memory, vcores{all}"),
                    );
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns whether the cluster has all resource types of an amount.
pub(crate) fn has_kinds(each: &Amount, cluster: &ClusterInfo) -> bool {
    let kinds = cluster.kinds.as_deref().unwrap_or_default();
    each.others.keys().all(|name| kinds.contains(name))
}

/// Checks that no container is larger than the largest of its nodes or than the scheduler's maximum. Nodes are checked
/// first: the scheduler's maximum may be the size of the largest node, which an administrator cannot raise.
pub(crate) fn largest(groups: &[ContainerGroup], cluster: &ClusterInfo, findings: &mut Findings) {
    for group in groups {
        let (name, key) = (&group.name, &group.key);
        if !fits_a_node(group, cluster, findings) {
            continue;
        }
        let largest = cluster.largest.as_ref();
        let excess = largest.and_then(|largest| excess(&group.each, largest));
        if let Some((resource, requested, limit)) = excess {
            findings.refuse(
                format!("{name} asks for containers of {requested}, and the scheduler's maximum is {limit}"),
                format!("lower `{key}.{resource}`, or have an administrator raise the scheduler's maximum"),
            );
        }
    }
}

/// Checks that a container fits on some node. Returns true if there is no node at all, which `capacity` reports.
fn fits_a_node(group: &ContainerGroup, cluster: &ClusterInfo, findings: &mut Findings) -> bool {
    let (name, key) = (&group.name, &group.key);
    let nodes: Vec<_> = cluster.nodes.iter().filter(|node| group.accepts(node, cluster)).collect();
    let fits = |node: &&Node| node.all.count_of(&group.each, true) > 0;
    if nodes.is_empty() || nodes.iter().any(fits) {
        return true;
    }
    let mut max = Amount::default();
    for node in &nodes {
        max.memory_mib = max.memory_mib.max(node.all.memory_mib);
        max.vcores = max.vcores.max(node.all.vcores);
        for (name, count) in &node.all.others {
            let largest = max.others.entry(name.clone()).or_default();
            *largest = (*largest).max(*count);
        }
    }
    let nodes_text = super::capacity::node_count(nodes.len(), &group.label);
    match excess(&group.each, &max) {
        Some((resource, requested, limit)) => findings.refuse(
            format!(
                "{name} asks for containers of {requested}, and the largest of {nodes_text} has {limit}"
            ),
            format!("lower `{key}.{resource}`"),
        ),
        None => findings.refuse(
            format!(
                "{name} asks for containers of {}, and none of {nodes_text} has all of that",
                group.each
            ),
            "compare the nodes with `ydl nodes`",
        ),
    }
    false
}

/// Returns the key of the first resource that exceeds a limit, the requested amount and the limit.
fn excess(each: &Amount, limit: &Amount) -> Option<(String, String, String)> {
    if each.memory_mib > limit.memory_mib {
        let (requested, limit) = (Memory(each.memory_mib), Memory(limit.memory_mib));
        return Some(("memory".into(), requested.to_string(), limit.to_string()));
    }
    if each.vcores > limit.vcores {
        let requested = format!("{} vcores", each.vcores);
        return Some(("vcores".into(), requested, limit.vcores.to_string()));
    }
    let excess = each.others.iter().find(|(name, count)| **count > limit.other(name));
    excess.map(|(name, count)| {
        let key = match name.as_str() {
            super::cluster::GPU => "gpus",
            _ => "resources",
        };
        (key.into(), format!("{count} `{name}`"), limit.other(name).to_string())
    })
}
