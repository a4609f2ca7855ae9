//! Nodes of the cluster, as far as known, to choose the hosts that an ask names.
//!
//! Schedulers that allocate on node heartbeats grant one container per heartbeat to an ask for any host, and as
//! many as fit to an ask for this host. So an ask for several containers names hosts in equal shares, and accepts
//! others as well.

use super::size;
use std::collections::{BTreeMap, BTreeSet};
use yarn_native::{
    ledger::{Key, NodeLocality},
    types::{NodeReport, NodeState, Resource},
};

/// Maximum number of hosts that one ask names.
const HOSTS_PER_ASK_MAX: usize = 256;
/// Maximum number of nodes to track. Larger clusters grant quickly in any case.
const NODES_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct ClusterHosts {
    nodes: BTreeMap<String, Host>,
    /// Remaining containers of each ask per host.
    plans: BTreeMap<Key, BTreeMap<String, u32>>,
}

#[derive(Debug)]
struct Host {
    rack: String,
    labels: Vec<String>,
    /// Attributes by full name.
    attributes: BTreeMap<String, String>,
    /// Total and free resources.
    capacity: Resource,
    free: Resource,
}

impl Host {
    /// Returns true if containers with this label, or without one, may run here.
    fn matches_label(&self, label: Option<&str>) -> bool {
        match label {
            Some(label) => self.labels.iter().any(|one| one == label),
            None => self.labels.iter().all(String::is_empty),
        }
    }

    /// Matches an attribute. A name without a prefix matches node and administrator attributes.
    fn has_attribute(&self, name: &str, value: &str) -> bool {
        let is = |whole: &str| self.attributes.get(whole).is_some_and(|it| it == value);
        is(name) || ["nm", "rm"].iter().any(|by| is(&format!("{by}.yarn.io/{name}")))
    }
}

/// Eligible hosts of an ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostFilter<'a> {
    pub(super) size: &'a Resource,
    pub(super) label: Option<&'a str>,
    /// Allowed hosts; empty for all.
    pub(super) only: &'a [String],
    pub(super) avoid: &'a BTreeSet<String>,
}

impl ClusterHosts {
    /// Replaces all nodes.
    pub(super) fn refresh(&mut self, reports: &[NodeReport]) {
        self.nodes.clear();
        for report in reports.iter().take(NODES_MAX) {
            self.update(report);
        }
    }

    /// Updates one node.
    pub(super) fn update(&mut self, report: &NodeReport) {
        if !matches!(report.state, NodeState::New | NodeState::Running) {
            self.nodes.remove(&report.id.host);
            return;
        }
        let mut free = report.capability.clone();
        subtract(&mut free, &report.used);
        let attributes = report.attributes.iter();
        let attributes = attributes.map(|it| (it.name.to_string(), it.value.clone()));
        let host = Host {
            rack: report.rack.clone(),
            labels: report.labels.clone(),
            attributes: attributes.collect(),
            capacity: report.capability.clone(),
            free,
        };
        self.nodes.insert(report.id.host.clone(), host);
    }

    /// Returns the names of all known hosts.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.nodes.keys().cloned()
    }

    /// Returns hosts with this label and these attributes and enough total resources to hold a container of this size.
    pub(super) fn capable<'a>(
        &'a self,
        size: &'a Resource,
        label: Option<&'a str>,
        attributes: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a String> + Clone {
        let capable = move |host: &Host| {
            let mut wanted = attributes.iter();
            host.matches_label(label)
                && size::fits(size, &host.capacity)
                && wanted.all(|(name, value)| host.has_attribute(name, value))
        };
        let capable = self.nodes.iter().filter(move |(_, host)| capable(host));
        capable.map(|(name, _)| name)
    }

    /// Records a grant.
    pub(super) fn on_grant(&mut self, key: Key, host: &str, size: &Resource) {
        if let Some(node) = self.nodes.get_mut(host) {
            subtract(&mut node.free, size);
        }
        let Some(plan) = self.plans.get_mut(&key) else {
            return;
        };
        // A container granted on another host still reduces the plan.
        let largest = plan.iter().max_by_key(|(_, count)| **count);
        let largest = largest.map(|(host, _)| host.clone());
        let planned = plan.contains_key(host).then(|| host.to_owned());
        if let Some(host) = planned.or(largest) {
            decrement(plan, &host);
        }
    }

    /// Drops the plans of all other keys.
    pub(super) fn retain_plans(&mut self, keys: &BTreeSet<Key>) {
        self.plans.retain(|key, _| keys.contains(key));
    }

    /// Returns the hosts to name in an ask for `count` containers. Keeps the previous plan where possible.
    pub(super) fn plan(
        &mut self,
        key: Key,
        count: u32,
        filter: &HostFilter<'_>,
    ) -> Vec<NodeLocality> {
        // A single container needs no spreading: the next heartbeat of any node brings it.
        if count < 2 && filter.only.is_empty() {
            self.plans.remove(&key);
            return Vec::new();
        }
        let mut plan = self.plans.remove(&key).unwrap_or_default();
        let candidates = self.candidates(filter);
        plan.retain(|host, _| candidates.contains_key(host));
        let mut total: u32 = plan.values().sum();
        while total > count {
            let largest = plan.iter().max_by_key(|(_, count)| **count);
            let Some(host) = largest.map(|(host, _)| host.clone()) else {
                break;
            };
            decrement(&mut plan, &host);
            total -= 1;
        }
        let mut free_by_host = candidates;
        for (host, planned) in &plan {
            for _ in 0..*planned {
                if let Some(free) = free_by_host.get_mut(host) {
                    subtract(free, filter.size);
                }
            }
        }
        while total < count {
            let named = !filter.only.is_empty();
            let fitting =
                free_by_host.iter().filter(|(_, free)| named || size::fits(filter.size, free));
            let next = fitting.min_by_key(|(host, free)| {
                let planned = plan.get(*host).copied().unwrap_or(0);
                (planned, -free.memory_mib)
            });
            let Some(host) = next.map(|(host, _)| host.clone()) else {
                break;
            };
            if let Some(free) = free_by_host.get_mut(&host) {
                subtract(free, filter.size);
            }
            *plan.entry(host).or_default() += 1;
            total += 1;
        }
        let localities = plan.iter().map(|(host, count)| NodeLocality {
            host: host.clone(),
            rack: self.rack(host),
            count: *count,
        });
        let localities = localities.collect();
        self.plans.insert(key, plan);
        localities
    }

    /// Returns eligible hosts and their free resources. A host named by the job may be unknown.
    fn candidates(&self, filter: &HostFilter<'_>) -> BTreeMap<String, Resource> {
        if !filter.only.is_empty() {
            let named = filter.only.iter().filter(|host| !filter.avoid.contains(*host));
            let free = |host: &String| self.nodes.get(host).map(|node| node.free.clone());
            return named.map(|host| (host.clone(), free(host).unwrap_or_default())).collect();
        }
        let nodes = self.nodes.iter();
        let mut nodes: Vec<_> = nodes
            .filter(|(name, host)| {
                host.matches_label(filter.label) && !filter.avoid.contains(*name)
            })
            .collect();
        if nodes.len() > HOSTS_PER_ASK_MAX {
            nodes.sort_by_key(|(_, host)| -host.free.memory_mib);
            nodes.truncate(HOSTS_PER_ASK_MAX);
        }
        let free = |(name, host): (&String, &Host)| (name.clone(), host.free.clone());
        nodes.into_iter().map(free).collect()
    }

    /// Returns the named hosts, and the known hosts of the named racks.
    pub(super) fn placed(&self, hosts: &[String], racks: &[String]) -> BTreeSet<String> {
        let in_racks = self.nodes.iter().filter(|(_, host)| racks.contains(&host.rack));
        let in_racks = in_racks.map(|(name, _)| name.clone());
        hosts.iter().cloned().chain(in_racks).collect()
    }

    pub(super) fn rack(&self, host: &str) -> String {
        let known = self.nodes.get(host).map(|node| node.rack.clone());
        known.unwrap_or_else(|| "/default-rack".to_owned())
    }
}

fn decrement(plan: &mut BTreeMap<String, u32>, host: &str) {
    if let Some(count) = plan.get_mut(host) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            plan.remove(host);
        }
    }
}

fn subtract(free: &mut Resource, by: &Resource) {
    free.memory_mib -= by.memory_mib;
    free.vcores -= by.vcores;
    for (name, count) in &by.others {
        *free.others.entry(name.clone()).or_default() -= count;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn hosts(sizes: &[(&str, i64, &str)]) -> ClusterHosts {
        let mut hosts = ClusterHosts::default();
        for (name, memory, label) in sizes {
            let host = Host {
                rack: "/r".to_owned(),
                labels: [*label].map(str::to_owned).to_vec(),
                attributes: BTreeMap::new(),
                capacity: Resource::new(*memory, 8),
                free: Resource::new(*memory, 8),
            };
            hosts.nodes.insert((*name).to_owned(), host);
        }
        hosts
    }

    const KEY: Key = Key { priority: 1, allocation: 1 };

    fn planned(
        hosts: &mut ClusterHosts,
        count: u32,
        label: Option<&str>,
        avoid: &[&str],
    ) -> String {
        let size = Resource::new(1024, 1);
        let avoid = avoid.iter().map(|host| (*host).to_owned()).collect();
        let filter = HostFilter { size: &size, label, only: &[], avoid: &avoid };
        let localities = hosts.plan(KEY, count, &filter);
        let localities: Vec<_> =
            localities.iter().map(|p| format!("{}={}", p.host, p.count)).collect();
        localities.join(" ")
    }

    #[test]
    fn hosts_get_equal_shares_up_to_their_capacity() {
        let mut even = hosts(&[("a", 8192, ""), ("b", 8192, ""), ("c", 8192, "")]);
        assert_eq!(planned(&mut even, 7, None, &[]), "a=3 b=2 c=2");
        let mut full = hosts(&[("a", 1024, ""), ("b", 8192, ""), ("c", 100, "")]);
        assert_eq!(planned(&mut full, 4, None, &[]), "a=1 b=3");
        assert_eq!(planned(&mut hosts(&[("a", 99999, "")]), 1, None, &[]), "");
    }

    #[test]
    fn a_plan_is_stable_while_its_containers_are_granted() {
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
    fn a_strict_placement_includes_the_hosts_of_its_racks() {
        let two = hosts(&[("a", 8192, ""), ("b", 8192, "")]);
        let placed = |hosts: &[&str], racks: &[&str]| {
            let owned =
                |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            two.placed(&owned(hosts), &owned(racks)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(placed(&["c"], &[]), ["c"]);
        assert_eq!(placed(&["c"], &["/r"]), ["a", "b", "c"]);
    }

    #[test]
    fn labels_restrict_the_hosts_of_an_ask() {
        let mut two = hosts(&[("a", 8192, ""), ("b", 8192, "gpu")]);
        assert_eq!(planned(&mut two, 2, None, &[]), "a=2");
        assert_eq!(planned(&mut two, 2, Some("gpu"), &[]), "b=2");
    }
}
