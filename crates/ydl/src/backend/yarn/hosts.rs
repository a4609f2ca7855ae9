//! The nodes of the cluster, as far as they are known: where to name hosts in an ask.
//!
//! Schedulers that grant when a node beats give one container a beat to an ask for just anywhere, and as many as
//! there is room for to one that names the node. So every ask names hosts, in equal shares, and takes others as well.

use super::size;
use std::collections::{BTreeMap, BTreeSet};
use yarn_native::{
    ledger::{Key, NodeLocality},
    types::{NodeReport, NodeState, Resource},
};

/// Hosts that one ask names. More would make it long and no better.
const NAMED_MAX: usize = 256;
/// Nodes that are kept; a larger cluster grants quickly anyway.
const NODES_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Hosts {
    nodes: BTreeMap<String, Host>,
    /// What each ask still has on each host.
    plans: BTreeMap<Key, BTreeMap<String, u32>>,
}

#[derive(Debug)]
struct Host {
    rack: String,
    labels: Vec<String>,
    /// By their whole names.
    attributes: BTreeMap<String, String>,
    /// What it has, and what of that is free.
    has: Resource,
    free: Resource,
}

impl Host {
    /// Whether containers with this label, or without any, may go there.
    fn is_of(&self, label: Option<&str>) -> bool {
        match label {
            Some(label) => self.labels.iter().any(|one| one == label),
            None => self.labels.iter().all(String::is_empty),
        }
    }

    /// A bare name means what the node says of itself as well as what an administrator says.
    fn has_attribute(&self, name: &str, value: &str) -> bool {
        let is = |whole: &str| self.attributes.get(whole).is_some_and(|it| it == value);
        is(name) || ["nm", "rm"].iter().any(|by| is(&format!("{by}.yarn.io/{name}")))
    }
}

/// Where containers of one ask may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) size: &'a Resource,
    pub(super) label: Option<&'a str>,
    /// Only these, if any are named.
    pub(super) only: &'a [String],
    pub(super) avoid: &'a BTreeSet<String>,
}

impl Hosts {
    /// What the ResourceManager says of all nodes.
    pub(super) fn refresh(&mut self, reports: &[NodeReport]) {
        self.nodes.clear();
        for report in reports.iter().take(NODES_MAX) {
            self.update(report);
        }
    }

    /// A node has changed.
    pub(super) fn update(&mut self, report: &NodeReport) {
        if !matches!(report.state, NodeState::New | NodeState::Running) {
            self.nodes.remove(&report.id.host);
            return;
        }
        let mut free = report.capability.clone();
        lower(&mut free, &report.used);
        let attributes = report.attributes.iter();
        let attributes = attributes.map(|it| (it.name.to_string(), it.value.clone()));
        let host = Host {
            rack: report.rack.clone(),
            labels: report.labels.clone(),
            attributes: attributes.collect(),
            has: report.capability.clone(),
            free,
        };
        self.nodes.insert(report.id.host.clone(), host);
    }

    /// All hosts that are known.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.nodes.keys().cloned()
    }

    /// Hosts that can hold a container of this size some day, with this label or without any, and have these attributes.
    pub(super) fn able<'a>(
        &'a self,
        size: &'a Resource,
        label: Option<&'a str>,
        attributes: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a String> + Clone {
        let able = move |host: &Host| {
            let mut wanted = attributes.iter();
            host.is_of(label)
                && size::fits(size, &host.has)
                && wanted.all(|(name, value)| host.has_attribute(name, value))
        };
        let able = self.nodes.iter().filter(move |(_, host)| able(host));
        able.map(|(name, _)| name)
    }

    /// A container was granted for an ask.
    pub(super) fn on_grant(&mut self, key: Key, host: &str, size: &Resource) {
        if let Some(node) = self.nodes.get_mut(host) {
            lower(&mut node.free, size);
        }
        let Some(plan) = self.plans.get_mut(&key) else {
            return;
        };
        // Granted elsewhere than planned, it is one less to come all the same.
        let largest = plan.iter().max_by_key(|(_, count)| **count);
        let largest = largest.map(|(host, _)| host.clone());
        let planned = plan.contains_key(host).then(|| host.to_owned());
        if let Some(host) = planned.or(largest) {
            take_one(plan, &host);
        }
    }

    /// Nothing is asked for under other keys than these.
    pub(super) fn keep(&mut self, keys: &BTreeSet<Key>) {
        self.plans.retain(|key, _| keys.contains(key));
    }

    /// The hosts to name in an ask for so many containers. What was planned before stays, as far as it can.
    pub(super) fn plan(&mut self, key: Key, count: u32, wish: &Wish<'_>) -> Vec<NodeLocality> {
        // Of one container there is nothing to spread; it comes with the first beat of whichever node.
        if count < 2 && wish.only.is_empty() {
            self.plans.remove(&key);
            return Vec::new();
        }
        let mut plan = self.plans.remove(&key).unwrap_or_default();
        let usable = self.usable(wish);
        plan.retain(|host, _| usable.contains_key(host));
        let mut total: u32 = plan.values().sum();
        while total > count {
            let largest = plan.iter().max_by_key(|(_, count)| **count);
            let Some(host) = largest.map(|(host, _)| host.clone()) else {
                break;
            };
            take_one(&mut plan, &host);
            total -= 1;
        }
        let mut room = usable;
        for (host, planned) in &plan {
            for _ in 0..*planned {
                if let Some(free) = room.get_mut(host) {
                    lower(free, wish.size);
                }
            }
        }
        while total < count {
            let named = !wish.only.is_empty();
            let fitting = room.iter().filter(|(_, free)| named || size::fits(wish.size, free));
            let next = fitting.min_by_key(|(host, free)| {
                let planned = plan.get(*host).copied().unwrap_or(0);
                (planned, -free.memory_mib)
            });
            let Some(host) = next.map(|(host, _)| host.clone()) else {
                break;
            };
            if let Some(free) = room.get_mut(&host) {
                lower(free, wish.size);
            }
            *plan.entry(host).or_default() += 1;
            total += 1;
        }
        let places = plan.iter().map(|(host, count)| NodeLocality {
            host: host.clone(),
            rack: self.rack(host),
            count: *count,
        });
        let places = places.collect();
        self.plans.insert(key, plan);
        places
    }

    /// Hosts that will do, with what is free there. A host that somebody named may be one that is not known.
    fn usable(&self, wish: &Wish<'_>) -> BTreeMap<String, Resource> {
        if !wish.only.is_empty() {
            let named = wish.only.iter().filter(|host| !wish.avoid.contains(*host));
            let free = |host: &String| self.nodes.get(host).map(|node| node.free.clone());
            return named.map(|host| (host.clone(), free(host).unwrap_or_default())).collect();
        }
        let nodes = self.nodes.iter();
        let mut nodes: Vec<_> = nodes
            .filter(|(name, host)| host.is_of(wish.label) && !wish.avoid.contains(*name))
            .collect();
        if nodes.len() > NAMED_MAX {
            nodes.sort_by_key(|(_, host)| -host.free.memory_mib);
            nodes.truncate(NAMED_MAX);
        }
        let free = |(name, host): (&String, &Host)| (name.clone(), host.free.clone());
        nodes.into_iter().map(free).collect()
    }

    fn rack(&self, host: &str) -> String {
        let known = self.nodes.get(host).map(|node| node.rack.clone());
        known.unwrap_or_else(|| "/default-rack".to_owned())
    }
}

fn take_one(plan: &mut BTreeMap<String, u32>, host: &str) {
    if let Some(count) = plan.get_mut(host) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            plan.remove(host);
        }
    }
}

fn lower(free: &mut Resource, by: &Resource) {
    free.memory_mib -= by.memory_mib;
    free.vcores -= by.vcores;
    for (name, count) in &by.others {
        *free.others.entry(name.clone()).or_default() -= count;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn hosts(sizes: &[(&str, i64, &str)]) -> Hosts {
        let mut hosts = Hosts::default();
        for (name, memory, label) in sizes {
            let host = Host {
                rack: "/r".to_owned(),
                labels: [*label].map(str::to_owned).to_vec(),
                attributes: BTreeMap::new(),
                has: Resource::new(*memory, 8),
                free: Resource::new(*memory, 8),
            };
            hosts.nodes.insert((*name).to_owned(), host);
        }
        hosts
    }

    const KEY: Key = Key { priority: 1, allocation: 1 };

    fn planned(hosts: &mut Hosts, count: u32, label: Option<&str>, avoid: &[&str]) -> String {
        let size = Resource::new(1024, 1);
        let avoid = avoid.iter().map(|host| (*host).to_owned()).collect();
        let wish = Wish { size: &size, label, only: &[], avoid: &avoid };
        let places = hosts.plan(KEY, count, &wish);
        let places: Vec<_> = places.iter().map(|p| format!("{}={}", p.host, p.count)).collect();
        places.join(" ")
    }

    #[test]
    fn hosts_get_equal_shares_as_far_as_there_is_room() {
        let mut even = hosts(&[("a", 8192, ""), ("b", 8192, ""), ("c", 8192, "")]);
        assert_eq!(planned(&mut even, 7, None, &[]), "a=3 b=2 c=2");
        let mut full = hosts(&[("a", 1024, ""), ("b", 8192, ""), ("c", 100, "")]);
        assert_eq!(planned(&mut full, 4, None, &[]), "a=1 b=3");
        assert_eq!(planned(&mut hosts(&[("a", 99999, "")]), 1, None, &[]), "");
    }

    #[test]
    fn a_plan_stays_while_its_containers_come() {
        let mut three = hosts(&[("a", 8192, ""), ("b", 8192, ""), ("c", 8192, "")]);
        assert_eq!(planned(&mut three, 6, None, &[]), "a=2 b=2 c=2");
        let size = Resource::new(1024, 1);
        three.on_grant(KEY, "b", &size);
        assert_eq!(planned(&mut three, 5, None, &[]), "a=2 b=1 c=2");
        three.on_grant(KEY, "elsewhere", &size);
        assert_eq!(planned(&mut three, 4, None, &[]), "a=2 b=1 c=1");
        assert_eq!(planned(&mut three, 2, None, &[]), "a=1 b=1");
        assert_eq!(planned(&mut three, 4, None, &["c"]), "a=2 b=2");
    }

    #[test]
    fn labels_decide_which_hosts_are_named() {
        let mut two = hosts(&[("a", 8192, ""), ("b", 8192, "gpu")]);
        assert_eq!(planned(&mut two, 2, None, &[]), "a=2");
        assert_eq!(planned(&mut two, 2, Some("gpu"), &[]), "b=2");
    }
}
