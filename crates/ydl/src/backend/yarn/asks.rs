//! Translation of the core's asks into scheduler requests.

use super::{
    hosts::{ClusterHosts, HostFilter},
    size,
};
use std::collections::{BTreeMap, BTreeSet};
use yarn_native::{
    ledger::{ConstrainedWant, Execution, Key, Localities, NodeLocality, RackLocality, Want},
    scheduler::{Constraint, PlacementScope},
    types::Resource,
};
use ydl_core::{
    Asks, JobSpec, RoleName,
    spec::{Placement, Resources, RoleSpec},
};

/// All roles have the same priority; the allocation id identifies the role.
const PRIORITY: i32 = 1;
/// Bits of an allocation id that number the sizes of a role.
const SIZE_BITS: u32 = 20;

/// Builds requests and maps allocation ids back to roles.
#[derive(Debug)]
pub(super) struct AskBuilder {
    roles: Vec<RoleAsks>,
}

#[derive(Debug)]
struct RoleAsks {
    name: RoleName,
    label: Option<String>,
    /// Label of the nodes that the role gets: its own, otherwise the default of its queue.
    effective_label: Option<String>,
    /// Minimum number of nodes that hold all tasks of the role.
    min_nodes: usize,
    placement: Placement,
    /// Requested sizes, indexed by their number. A task with grown memory is requested separately.
    sizes: Vec<Resources>,
}

/// Wants for the ledger, without and with placement constraints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SchedulerAsks {
    pub(super) plain: BTreeMap<Key, Want>,
    pub(super) constrained: BTreeMap<Key, ConstrainedWant>,
}

impl AskBuilder {
    /// Creates a builder. `queue_label` is the default label of the queue.
    pub(super) fn new(spec: &JobSpec, queue_label: Option<String>) -> AskBuilder {
        let role = |role: &RoleSpec| {
            let own = role.placement.node_label.clone();
            let label = own.or_else(|| spec.cluster_options.node_label.clone());
            RoleAsks {
                name: role.name.clone(),
                effective_label: label.clone().or_else(|| queue_label.clone()),
                label,
                min_nodes: min_nodes(role),
                placement: role.placement.clone(),
                sizes: Vec::new(),
            }
        };
        AskBuilder { roles: spec.roles.iter().map(role).collect() }
    }

    /// Returns the role of containers with this key.
    pub(super) fn role_of(&self, key: Key) -> Option<&RoleName> {
        let index = usize::try_from(key.allocation >> SIZE_BITS).ok()?;
        let role = self.roles.get(index.checked_sub(1)?);
        role.map(|role| &role.name)
    }

    /// Returns the reason if the placement of a role cannot be requested.
    pub(super) fn unsupported_placement(&self, name: &RoleName) -> Option<String> {
        let role = self.roles.iter().find(|role| role.name == *name)?;
        let Some(Constraint::WithLabel { label, constraint }) = role.constraint() else {
            return None;
        };
        // Schedulers respect a label next to one constraint and ignore it next to several.
        let several = matches!(*constraint, Constraint::All(_) | Constraint::Any(_));
        several.then(|| {
            format!(
                "role `{name}` requests nodes with label `{label}` and several other constraints; combine a label with only `max_per_node`, or \
                 one attribute with its prefix, as `rm.yarn.io/zone`"
            )
        })
    }

    pub(super) fn build(&mut self, asks: &Asks, hosts: &mut ClusterHosts) -> SchedulerAsks {
        let mut built = SchedulerAsks::default();
        let avoid: BTreeSet<String> = asks.avoid.iter().map(ToString::to_string).collect();
        let mut keys = BTreeSet::new();
        // Hadoop's scheduler accepts only one kind of request per job: plain asks next to constrained ones are
        // never granted.
        let any_constrained = self.roles.iter().any(|role| role.constraint().is_some());
        for ask in asks.asks.iter().filter(|ask| ask.count > 0) {
            let Some((key, role)) = self.key(&ask.role, &ask.resources) else {
                continue;
            };
            let resource = size::to_yarn(&ask.resources);
            if any_constrained {
                let constraint = role.constraint().unwrap_or_else(|| role.trivial_constraint());
                let want = ConstrainedWant {
                    count: ask.count,
                    resource,
                    tag: role.name.to_string(),
                    constraint,
                };
                built.constrained.insert(key, want);
                continue;
            }
            keys.insert(key);
            let localities = role.localities(key, ask.count, &resource, &avoid, hosts);
            let want = Want {
                count: ask.count,
                resource,
                localities,
                label: role.label.clone(),
                execution: Execution::Guaranteed,
            };
            built.plain.insert(key, want);
        }
        hosts.retain_plans(&keys);
        built
    }

    /// Returns nodes that must not be avoided: all nodes that a role can use, if too few others remain or if
    /// there is no spare node.
    pub(super) fn required_nodes(
        &self,
        hosts: &ClusterHosts,
        avoid: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        let mut required = BTreeSet::new();
        for role in &self.roles {
            if role.placement.strict {
                // No other node may be used.
                required.extend(hosts.placed(&role.placement.nodes, &role.racks()));
            }
            for size in role.sizes.iter().map(size::to_yarn) {
                let capable = hosts.capable(
                    &size,
                    role.effective_label.as_deref(),
                    &role.placement.attributes,
                );
                let none_to_spare = capable.clone().nth(role.min_nodes).is_none();
                let mut left = capable.clone().filter(|host| !avoid.contains(*host));
                if none_to_spare || left.nth(role.min_nodes - 1).is_none() {
                    required.extend(capable.cloned());
                }
            }
        }
        required
    }

    /// Returns the key of a size of a role. Keys are stable.
    fn key(&mut self, name: &RoleName, size: &Resources) -> Option<(Key, &RoleAsks)> {
        let index = self.roles.iter().position(|role| role.name == *name)?;
        let role = &mut self.roles[index];
        let known = role.sizes.iter().position(|one| one == size);
        let number = known.unwrap_or_else(|| {
            role.sizes.push(size.clone());
            role.sizes.len() - 1
        });
        let allocation = ((index as i64 + 1) << SIZE_BITS) | number as i64;
        let key = Key { priority: PRIORITY, allocation };
        Some((key, &self.roles[index]))
    }
}

impl RoleAsks {
    /// Expresses the placement that host and rack names cannot.
    fn constraint(&self) -> Option<Constraint> {
        let mut all = Vec::new();
        if let Some(most) = self.placement.max_per_node {
            // The constraint counts the containers that are already on the node.
            let others_max = most.saturating_sub(1);
            let tag = self.name.to_string();
            all.push(Constraint::cardinality(PlacementScope::Node, [tag], 0, Some(others_max)));
        }
        let attributes = self.placement.attributes.iter();
        all.extend(attributes.map(|(name, value)| attribute(name, value)));
        let constraint = match all.len() {
            0 => return None,
            1 => all.swap_remove(0),
            _ => Constraint::All(all),
        };
        Some(match self.label.clone() {
            Some(label) => Constraint::WithLabel { label, constraint: Box::new(constraint) },
            None => constraint,
        })
    }

    /// Returns a constraint that is always satisfied, or satisfied by the label. Without a constraint Hadoop's
    /// scheduler fails to compare a request with its predecessor.
    fn trivial_constraint(&self) -> Constraint {
        match self.label.clone() {
            Some(label) => Constraint::Label(vec![label]),
            None => Constraint::cardinality(PlacementScope::Node, [self.name.to_string()], 0, None),
        }
    }

    /// Returns the named racks as YARN names them.
    fn racks(&self) -> Vec<String> {
        let racks = self.placement.racks.iter().map(|rack| match rack.starts_with('/') {
            true => rack.clone(),
            false => format!("/{rack}"),
        });
        racks.collect()
    }

    fn localities(
        &self,
        key: Key,
        count: u32,
        resource: &Resource,
        avoid: &BTreeSet<String>,
        hosts: &mut ClusterHosts,
    ) -> Localities {
        let racks = self.racks().into_iter().map(|rack| RackLocality { rack, count });
        let racks: Vec<RackLocality> = racks.collect();
        if self.placement.strict {
            let nodes = self.placement.nodes.iter().map(|host| NodeLocality {
                rack: hosts.rack(host),
                host: host.clone(),
                // Each of them may get all containers.
                count,
            });
            return Localities { nodes: nodes.collect(), racks, strict: true };
        }
        let filter = HostFilter {
            size: resource,
            label: self.effective_label.as_deref(),
            only: &self.placement.nodes,
            avoid,
        };
        let nodes = match racks.is_empty() || !self.placement.nodes.is_empty() {
            true => hosts.plan(key, count, &filter),
            false => Vec::new(),
        };
        Localities { nodes, racks, strict: false }
    }
}

/// Returns the minimum number of nodes, at least one.
fn min_nodes(role: &RoleSpec) -> usize {
    let nodes = match role.placement.max_per_node {
        Some(most) => role.instances.div_ceil(most.max(1)),
        None => 1,
    };
    usize::try_from(nodes).unwrap_or(usize::MAX).max(1)
}

/// Both nodes and administrators set attributes. A name without a prefix matches either.
fn attribute(name: &str, value: &str) -> Constraint {
    let one = |name: String| Constraint::Attribute { name, value: value.to_owned(), equal: true };
    match name.contains('/') {
        true => one(name.to_owned()),
        false => Constraint::Any(vec![
            one(format!("nm.yarn.io/{name}")),
            one(format!("rm.yarn.io/{name}")),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::hosts::tests::hosts, *};
    use ydl_core::Ask;

    fn role(name: &str, placement: Placement) -> RoleAsks {
        RoleAsks {
            name: RoleName::from(name),
            label: placement.node_label.clone(),
            effective_label: placement.node_label.clone(),
            min_nodes: 1,
            placement,
            sizes: Vec::new(),
        }
    }

    fn ask(role: &str, memory_mib: u64, count: u32) -> Ask {
        let resources = Resources { memory_mib, vcores: 1, ..Resources::default() };
        Ask { role: RoleName::from(role), resources, count }
    }

    #[test]
    fn each_role_and_size_keeps_its_allocation_id() {
        let roles = ["worker", "server"].map(|name| role(name, Placement::default()));
        let mut builder = AskBuilder { roles: roles.into() };
        let mut hosts = ClusterHosts::default();
        let mut keys = |asks: Vec<Ask>| {
            let asks = Asks { asks, avoid: Vec::new() };
            let built = builder.build(&asks, &mut hosts);
            built.plain.into_keys().collect::<Vec<_>>()
        };
        let first = keys(vec![ask("worker", 64, 1), ask("server", 64, 1)]);
        let grown = keys(vec![ask("worker", 128, 1), ask("worker", 64, 2)]);
        assert_eq!(first.len(), 2);
        assert!(grown.contains(&first[0]), "{grown:?}");
        assert!(!grown.contains(&first[1]), "{grown:?}");
        assert!(keys(vec![ask("stranger", 64, 1), ask("worker", 64, 0)]).is_empty());
        let named = |key: Key| builder.role_of(key).map(RoleName::as_str);
        assert_eq!(named(first[0]), Some("worker"));
        assert_eq!(named(first[1]), Some("server"));
        assert!(grown.iter().all(|key| named(*key) == Some("worker")));
        for allocation in [-1, 0, 5 << SIZE_BITS] {
            let priority = PRIORITY;
            let unknown = Key { priority, allocation };
            assert_eq!(named(unknown), None);
        }
    }

    #[test]
    fn a_strict_placement_offers_all_containers_to_each_node_and_rack() {
        let placement = Placement {
            nodes: vec!["a".to_owned(), "elsewhere".to_owned()],
            racks: vec!["r2".to_owned()],
            strict: true,
            ..Placement::default()
        };
        let mut builder = AskBuilder { roles: vec![role("worker", placement)] };
        let mut hosts = hosts(&[("a", 8192, ""), ("b", 8192, "")]);
        let asks = Asks { asks: vec![ask("worker", 64, 3)], avoid: vec!["a".into()] };
        let mut built = builder.build(&asks, &mut hosts).plain.into_values();
        let Localities { nodes, racks, strict } = built.next().expect("a want").localities;
        assert!(strict);
        let nodes: Vec<_> = nodes.iter().map(|it| (it.host.as_str(), it.count)).collect();
        assert_eq!(nodes, [("a", 3), ("elsewhere", 3)]);
        assert_eq!((racks[0].rack.as_str(), racks[0].count), ("/r2", 3));
        // Neither of them is excluded for long.
        let avoid = ["a".to_owned()].into();
        assert_eq!(
            builder.required_nodes(&hosts, &avoid),
            ["a", "elsewhere"].map(str::to_owned).into()
        );
    }

    #[test]
    fn one_constrained_role_makes_all_roles_use_scheduling_requests() {
        let alone = Placement { max_per_node: Some(1), ..Placement::default() };
        let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
        let roles =
            [role("worker", alone), role("server", Placement::default()), role("chief", labelled)];
        let mut builder = AskBuilder { roles: roles.into() };
        let asks = Asks {
            asks: ["worker", "server", "chief"].map(|name| ask(name, 64, 1)).into(),
            avoid: Vec::new(),
        };
        let built = builder.build(&asks, &mut ClusterHosts::default());
        assert!(built.plain.is_empty(), "{built:?}");
        let constraints: Vec<_> =
            built.constrained.into_values().map(|ask| ask.constraint).collect();
        let [worker, server, chief] = &constraints[..] else { panic!("{constraints:?}") };
        assert!(matches!(worker, Constraint::Cardinality { max: Some(0), .. }));
        assert!(matches!(server, Constraint::Cardinality { min: 0, max: None, .. }));
        assert_eq!(*chief, Constraint::Label(vec!["gpu".to_owned()]));
    }

    #[test]
    fn placement_beyond_hosts_and_racks_becomes_a_constraint() {
        let labelled =
            |placement: Placement| Placement { node_label: Some("gpu".to_owned()), ..placement };
        let alone = Placement { max_per_node: Some(1), ..Placement::default() };
        let zone = |name: &str| Placement {
            attributes: [(name.to_owned(), "a".to_owned())].into(),
            ..Placement::default()
        };
        assert_eq!(role("w", Placement::default()).constraint(), None);
        let anti_affinity = Constraint::anti_affinity(PlacementScope::Node, ["w"]);
        assert_eq!(role("w", alone.clone()).constraint(), Some(anti_affinity));
        let any = role("w", zone("zone")).constraint();
        assert!(matches!(any, Some(Constraint::Any(_))), "{any:?}");
        let unsupported_placement = |placement: Placement| {
            let roles = vec![role("w", labelled(placement))];
            AskBuilder { roles }.unsupported_placement(&RoleName::from("w"))
        };
        assert_eq!(unsupported_placement(alone), None);
        assert_eq!(unsupported_placement(zone("rm.yarn.io/zone")), None);
        assert!(unsupported_placement(zone("zone")).is_some());
    }

    #[test]
    fn nodes_are_required_when_a_role_can_use_no_other() {
        let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
        let mut builder = AskBuilder {
            roles: vec![role("server", Placement::default()), role("worker", labelled)],
        };
        let mut many = hosts(&[
            ("a", 4096, ""),
            ("b", 4096, ""),
            ("c", 4096, "gpu"),
            ("d", 4096, "gpu"),
            ("small", 64, "gpu"),
        ]);
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let none: BTreeSet<String> = BTreeSet::new();
        let both: BTreeSet<String> = names(&["c", "d"]);
        assert_eq!(
            builder.required_nodes(&many, &both),
            none,
            "nodes are required without requests"
        );
        let asks =
            Asks { asks: vec![ask("server", 64, 1), ask("worker", 1024, 1)], avoid: Vec::new() };
        builder.build(&asks, &mut many);
        // Another node with the label is large enough.
        assert_eq!(builder.required_nodes(&many, &names(&["c"])), none);
        assert_eq!(builder.required_nodes(&many, &both), both);
        // The queue's default label counts for roles without one.
        builder.roles[0].effective_label = Some("gpu".to_owned());
        builder.roles[1].effective_label = None;
        assert_eq!(builder.required_nodes(&many, &names(&["a", "b"])), names(&["a", "b"]));
        builder.roles[1].min_nodes = 2;
        assert_eq!(builder.required_nodes(&many, &none), names(&["a", "b"]));
        builder.roles[1].min_nodes = 1;
        builder.roles[1].placement.attributes = [("disk".to_owned(), "fast".to_owned())].into();
        assert_eq!(builder.required_nodes(&many, &names(&["a", "b"])), none);
        builder.roles[1].placement.attributes.clear();
        let mut alone = hosts(&[("a", 4096, ""), ("c", 4096, "gpu")]);
        builder.build(&asks, &mut alone);
        assert_eq!(builder.required_nodes(&alone, &none), names(&["a", "c"]));
    }
}
