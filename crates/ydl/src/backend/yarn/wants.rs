//! From what the core asks for to what is said to the scheduler.

use super::{
    constrained::Lot,
    hosts::{Hosts, Wish},
    size,
};
use std::collections::{BTreeMap, BTreeSet};
use yarn_native::{
    ledger::{Execution, Key, Localities, RackLocality, Want},
    scheduler::{Constraint, PlacementScope},
    types::Resource,
};
use ydl_core::{
    Asks, JobSpec, RoleName,
    spec::{Placement, Resources, RoleSpec},
};

/// All roles are served alike: what tells them apart is their number.
const PRIORITY: i32 = 1;
/// Numbers of sizes below that of their role.
const SIZES_BITS: u32 = 20;

/// What each number stands for, and where each role goes.
#[derive(Debug)]
pub(super) struct Wants {
    roles: Vec<Role>,
}

#[derive(Debug)]
struct Role {
    name: RoleName,
    label: Option<String>,
    /// The label of the nodes that it gets: its own, else what the queue says of those that name none.
    gets: Option<String>,
    /// The fewest nodes that hold all its tasks.
    fewest: usize,
    placement: Placement,
    /// Sizes that were asked for, in the order of their numbers: a grown task is asked for beside the others.
    sizes: Vec<Resources>,
}

/// What is wanted: of the ledger, and with constraints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) plain: BTreeMap<Key, Want>,
    pub(super) lots: BTreeMap<Key, Lot>,
}

impl Wants {
    /// What a job wants in a queue that gives those who name no label this one.
    pub(super) fn new(spec: &JobSpec, of_queue: Option<String>) -> Wants {
        let role = |role: &RoleSpec| {
            let own = role.placement.node_label.clone();
            let label = own.or_else(|| spec.cluster_options.node_label.clone());
            Role {
                name: role.name.clone(),
                gets: label.clone().or_else(|| of_queue.clone()),
                label,
                fewest: fewest(role),
                placement: role.placement.clone(),
                sizes: Vec::new(),
            }
        };
        Wants { roles: spec.roles.iter().map(role).collect() }
    }

    /// The role that containers under this key are for.
    pub(super) fn role_of(&self, key: Key) -> Option<&RoleName> {
        let index = usize::try_from(key.allocation >> SIZES_BITS).ok()?;
        let role = self.roles.get(index.checked_sub(1)?);
        role.map(|role| &role.name)
    }

    /// Why the places of a role cannot be asked for.
    pub(super) fn complaint(&self, name: &RoleName) -> Option<String> {
        let role = self.roles.iter().find(|role| role.name == *name)?;
        let Some(Constraint::WithLabel { label, constraint }) = role.constraint() else {
            return None;
        };
        // Schedulers heed a label beside one constraint and forget it beside several.
        let several = matches!(*constraint, Constraint::All(_) | Constraint::Any(_));
        several.then(|| {
            format!(
                "role `{name}` wants nodes with label `{label}` and more than one thing beside: `most_per_node`, or \
                 one attribute with its prefix, as `rm.yarn.io/zone`"
            )
        })
    }

    pub(super) fn wanted(&mut self, asks: &Asks, hosts: &mut Hosts) -> Wanted {
        let mut wanted = Wanted::default();
        let avoid: BTreeSet<String> = asks.avoid.iter().map(ToString::to_string).collect();
        let mut keys = BTreeSet::new();
        // Beside plain asks those with constraints wait for ever: Hadoop's scheduler takes either form from a job.
        let constrained = self.roles.iter().any(|role| role.constraint().is_some());
        for ask in asks.asks.iter().filter(|ask| ask.count > 0) {
            let Some((key, role)) = self.key(&ask.role, &ask.resources) else {
                continue;
            };
            let resource = size::to_yarn(&ask.resources);
            if constrained {
                let constraint = role.constraint().unwrap_or_else(|| role.anywhere());
                let lot =
                    Lot { count: ask.count, resource, tag: role.name.to_string(), constraint };
                wanted.lots.insert(key, lot);
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
            wanted.plain.insert(key, want);
        }
        hosts.keep(&keys);
        wanted
    }

    /// Nodes that must not be avoided: all that some role can use, where those that are not avoided are too few for it; and
    /// before any is avoided, where there are none to spare.
    pub(super) fn needed(&self, hosts: &Hosts, avoid: &BTreeSet<String>) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        for role in &self.roles {
            for size in role.sizes.iter().map(size::to_yarn) {
                let able = hosts.able(&size, role.gets.as_deref(), &role.placement.attributes);
                let none_to_spare = able.clone().nth(role.fewest).is_none();
                let mut left = able.clone().filter(|host| !avoid.contains(*host));
                if none_to_spare || left.nth(role.fewest - 1).is_none() {
                    needed.extend(able.cloned());
                }
            }
        }
        needed
    }

    /// The number of a size of a role, which it keeps.
    fn key(&mut self, name: &RoleName, size: &Resources) -> Option<(Key, &Role)> {
        let index = self.roles.iter().position(|role| role.name == *name)?;
        let role = &mut self.roles[index];
        let known = role.sizes.iter().position(|one| one == size);
        let number = known.unwrap_or_else(|| {
            role.sizes.push(size.clone());
            role.sizes.len() - 1
        });
        let allocation = ((index as i64 + 1) << SIZES_BITS) | number as i64;
        let key = Key { priority: PRIORITY, allocation };
        Some((key, &self.roles[index]))
    }
}

impl Role {
    /// What cannot be said by naming places.
    fn constraint(&self) -> Option<Constraint> {
        let mut all = Vec::new();
        if let Some(most) = self.placement.max_per_node {
            // It counts those that are there already.
            let beside = most.saturating_sub(1);
            let tag = self.name.to_string();
            all.push(Constraint::cardinality(PlacementScope::Node, [tag], 0, Some(beside)));
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

    /// A constraint that holds everywhere, or on all nodes with the label. Without any Hadoop's scheduler fails when it
    /// compares a request with the one before.
    fn anywhere(&self) -> Constraint {
        match self.label.clone() {
            Some(label) => Constraint::Label(vec![label]),
            None => Constraint::cardinality(PlacementScope::Node, [self.name.to_string()], 0, None),
        }
    }

    fn localities(
        &self,
        key: Key,
        count: u32,
        resource: &Resource,
        avoid: &BTreeSet<String>,
        hosts: &mut Hosts,
    ) -> Localities {
        let racks = self.placement.racks.iter().map(|rack| RackLocality {
            rack: match rack.starts_with('/') {
                true => rack.clone(),
                false => format!("/{rack}"),
            },
            count,
        });
        let racks: Vec<RackLocality> = racks.collect();
        let wish = Wish {
            size: resource,
            label: self.gets.as_deref(),
            only: &self.placement.nodes,
            avoid,
        };
        let nodes = match racks.is_empty() || !self.placement.nodes.is_empty() {
            true => hosts.plan(key, count, &wish),
            false => Vec::new(),
        };
        Localities { nodes, racks, strict: false }
    }
}

/// At least one.
fn fewest(role: &RoleSpec) -> usize {
    let nodes = match role.placement.max_per_node {
        Some(most) => role.instances.div_ceil(most.max(1)),
        None => 1,
    };
    usize::try_from(nodes).unwrap_or(usize::MAX).max(1)
}

/// Nodes report attributes themselves or have them from an administrator; a bare name means either.
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

    fn role(name: &str, placement: Placement) -> Role {
        Role {
            name: RoleName::from(name),
            label: placement.node_label.clone(),
            gets: placement.node_label.clone(),
            fewest: 1,
            placement,
            sizes: Vec::new(),
        }
    }

    fn ask(role: &str, memory_mib: u64, count: u32) -> Ask {
        let resources = Resources { memory_mib, vcores: 1, ..Resources::default() };
        Ask { role: RoleName::from(role), resources, count }
    }

    #[test]
    fn each_role_and_size_has_a_number_that_it_keeps() {
        let roles = ["worker", "server"].map(|name| role(name, Placement::default()));
        let mut wants = Wants { roles: roles.into() };
        let mut hosts = Hosts::default();
        let mut keys = |asks: Vec<Ask>| {
            let asks = Asks { asks, avoid: Vec::new() };
            let wanted = wants.wanted(&asks, &mut hosts);
            wanted.plain.into_keys().collect::<Vec<_>>()
        };
        let first = keys(vec![ask("worker", 64, 1), ask("server", 64, 1)]);
        let grown = keys(vec![ask("worker", 128, 1), ask("worker", 64, 2)]);
        assert_eq!(first.len(), 2);
        assert!(grown.contains(&first[0]), "{grown:?}");
        assert!(!grown.contains(&first[1]), "{grown:?}");
        assert!(keys(vec![ask("stranger", 64, 1), ask("worker", 64, 0)]).is_empty());
        let named = |key: Key| wants.role_of(key).map(RoleName::as_str);
        assert_eq!(named(first[0]), Some("worker"));
        assert_eq!(named(first[1]), Some("server"));
        assert!(grown.iter().all(|key| named(*key) == Some("worker")));
        for allocation in [-1, 0, 5 << SIZES_BITS] {
            let priority = PRIORITY;
            let strange = Key { priority, allocation };
            assert_eq!(named(strange), None);
        }
    }

    #[test]
    fn one_constraint_brings_all_roles_into_that_form() {
        let alone = Placement { max_per_node: Some(1), ..Placement::default() };
        let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
        let roles =
            [role("worker", alone), role("server", Placement::default()), role("chief", labelled)];
        let mut wants = Wants { roles: roles.into() };
        let asks = Asks {
            asks: ["worker", "server", "chief"].map(|name| ask(name, 64, 1)).into(),
            avoid: Vec::new(),
        };
        let wanted = wants.wanted(&asks, &mut Hosts::default());
        assert!(wanted.plain.is_empty(), "{wanted:?}");
        let constraints: Vec<_> = wanted.lots.into_values().map(|lot| lot.constraint).collect();
        let [worker, server, chief] = &constraints[..] else { panic!("{constraints:?}") };
        assert!(matches!(worker, Constraint::Cardinality { max: Some(0), .. }));
        assert!(matches!(server, Constraint::Cardinality { min: 0, max: None, .. }));
        assert_eq!(*chief, Constraint::Label(vec!["gpu".to_owned()]));
    }

    #[test]
    fn what_cannot_be_said_by_places_is_a_constraint() {
        let labelled =
            |placement: Placement| Placement { node_label: Some("gpu".to_owned()), ..placement };
        let alone = Placement { max_per_node: Some(1), ..Placement::default() };
        let zone = |name: &str| Placement {
            attributes: [(name.to_owned(), "a".to_owned())].into(),
            ..Placement::default()
        };
        assert_eq!(role("w", Placement::default()).constraint(), None);
        let away = Constraint::anti_affinity(PlacementScope::Node, ["w"]);
        assert_eq!(role("w", alone.clone()).constraint(), Some(away));
        let any = role("w", zone("zone")).constraint();
        assert!(matches!(any, Some(Constraint::Any(_))), "{any:?}");
        let complaint = |placement: Placement| {
            let roles = vec![role("w", labelled(placement))];
            Wants { roles }.complaint(&RoleName::from("w"))
        };
        assert_eq!(complaint(alone), None);
        assert_eq!(complaint(zone("rm.yarn.io/zone")), None);
        assert!(complaint(zone("zone")).is_some());
    }

    #[test]
    fn nodes_are_needed_where_a_role_can_use_no_other() {
        let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
        let mut wants =
            Wants { roles: vec![role("server", Placement::default()), role("worker", labelled)] };
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
        assert_eq!(wants.needed(&many, &both), none, "nobody has asked");
        let asks =
            Asks { asks: vec![ask("server", 64, 1), ask("worker", 1024, 1)], avoid: Vec::new() };
        wants.wanted(&asks, &mut many);
        // There is another one with the label that is large enough.
        assert_eq!(wants.needed(&many, &names(&["c"])), none);
        assert_eq!(wants.needed(&many, &both), both);
        // What a queue gives to those who name no label is what counts.
        wants.roles[0].gets = Some("gpu".to_owned());
        wants.roles[1].gets = None;
        assert_eq!(wants.needed(&many, &names(&["a", "b"])), names(&["a", "b"]));
        wants.roles[1].fewest = 2;
        assert_eq!(wants.needed(&many, &none), names(&["a", "b"]));
        wants.roles[1].fewest = 1;
        wants.roles[1].placement.attributes = [("disk".to_owned(), "fast".to_owned())].into();
        assert_eq!(wants.needed(&many, &names(&["a", "b"])), none);
        wants.roles[1].placement.attributes.clear();
        let mut alone = hosts(&[("a", 4096, ""), ("c", 4096, "gpu")]);
        wants.wanted(&asks, &mut alone);
        assert_eq!(wants.needed(&alone, &none), names(&["a", "c"]));
    }
}
