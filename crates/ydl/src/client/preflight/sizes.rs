//! Checks resource types and container sizes.

use super::{
    check::{ContainerGroup, Findings},
    cluster::{Amount, ClusterInfo, Node},
};
use ydl_core::spec::Memory;

/// Returns whether everything asked for is something the cluster counts.
pub fn kinds(wants: &[ContainerGroup], has: &ClusterInfo, found: &mut Findings) {
    for want in wants {
        for (name, count) in &want.each.others {
            let who = &want.who;
            let key = match name.as_str() {
                super::cluster::GPU => format!("{}.gpus", want.key),
                _ => format!("{}.resources", want.key),
            };
            match &has.kinds {
                None => found.refuse(
                    format!(
                        "{who} asks for {count} `{name}`, and this Hadoop is too old to count anything but memory and cores"
                    ),
                    format!("leave `{key}` out; `node_label` may lead to nodes that have it"),
                ),
                Some(kinds) if !kinds.contains(name) => {
                    let there = kinds.iter().map(|kind| format!(", `{kind}`"));
                    let there: String = there.collect();
                    found.refuse(
                        format!("{who} asks for {count} `{name}`, which the cluster does not count"),
                        format!("leave `{key}` out: the cluster counts memory, vcores{there}"),
                    );
                }
                Some(_) => {}
            }
        }
    }
}

/// Returns whether the cluster counts everything in it.
pub fn are_counted(each: &Amount, has: &ClusterInfo) -> bool {
    let kinds = has.kinds.as_deref().unwrap_or_default();
    each.others.keys().all(|name| kinds.contains(name))
}

/// No container may be larger than the largest of its nodes, nor than the scheduler's largest. The nodes go first: a
/// ResourceManager gives as its own largest what its largest node has, which no administrator can raise.
pub fn largest(wants: &[ContainerGroup], has: &ClusterInfo, found: &mut Findings) {
    for want in wants {
        let (who, key) = (&want.who, &want.key);
        if !fits_a_node(want, has, found) {
            continue;
        }
        let over = has.largest.as_ref();
        let over = over.and_then(|largest| exceeds(&want.each, largest));
        if let Some((thing, asked, there)) = over {
            found.refuse(
                format!("{who} asks for containers of {asked}, and the largest the cluster gives has {there}"),
                format!("lower `{key}.{thing}`, or have an administrator raise the scheduler's maximum"),
            );
        }
    }
}

/// Returns whether there is a node that could hold one of them, or no node at all, which is said elsewhere.
fn fits_a_node(want: &ContainerGroup, has: &ClusterInfo, found: &mut Findings) -> bool {
    let (who, key) = (&want.who, &want.key);
    let nodes: Vec<_> = has.nodes.iter().filter(|node| want.takes(node, has)).collect();
    let holds = |node: &&Node| node.all.holds(&want.each, true) > 0;
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
    let places = super::capacity::places(nodes.len(), &want.label);
    match exceeds(&want.each, &most) {
        Some((thing, asked, there)) => found.refuse(
            format!(
                "{who} asks for containers of {asked}, and the largest of {places} has {there}"
            ),
            format!("lower `{key}.{thing}`"),
        ),
        None => found.refuse(
            format!(
                "{who} asks for containers of {}, and none of {places} has all of that",
                want.each
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
