//! Compares a job with a cluster.

use super::{
    capacity,
    cluster::{Amount, ClusterInfo, Constraints, Node, Queue},
    images, queue, sizes,
};
use std::{collections::BTreeMap, fmt};
use ydl_core::{
    JobSpec,
    spec::{GpuAssignment, Memory, Resources},
};

/// Something the cluster cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One sentence, with the number asked and the number there.
    pub what: String,
    /// Hint.
    pub hint: String,
}

/// Result of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the job cannot run; none if it can.
    pub refusals: Vec<Problem>,
    /// Notes that do not prevent the job.
    pub notes: Vec<String>,
}

impl Findings {
    pub(super) fn refuse(&mut self, what: impl Into<String>, hint: impl Into<String>) {
        self.refusals.push(Problem { what: what.into(), hint: hint.into() });
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Problem { what, hint }) in self.refusals.iter().enumerate() {
            let before = if n > 0 { "\n\n" } else { "" };
            write!(f, "{before}error: {what}")?;
            if !hint.is_empty() {
                write!(f, "\n\nhint: {hint}")?;
            }
        }
        Ok(())
    }
}

/// Containers that are alike: those of a role, or the master's.
#[derive(Debug)]
pub(super) struct ContainerGroup<'a> {
    /// As a sentence names it: `role `worker``.
    pub name: String,
    /// Its key in the job file: `roles.worker`.
    pub key: String,
    pub count: u64,
    pub each: Amount,
    /// The label of its nodes; empty for none.
    pub label: String,
    /// The key that says so.
    pub label_key: String,
    pub max_per_node: Option<u32>,
    pub attributes: Option<&'a BTreeMap<String, String>>,
    pub is_master: bool,
}

impl ContainerGroup<'_> {
    /// Returns whether the node could be one of its own.
    pub fn accepts(&self, node: &Node, cluster: &ClusterInfo) -> bool {
        let label = node.label == self.label
            // Nodes of a label that is not exclusive are lent to asks without one.
            || self.label.is_empty()
                && cluster
                    .labels
                    .iter()
                    .any(|label| label.name == node.label && !label.exclusive);
        let attributes = self.attributes.into_iter().flatten().all(|(name, value)| {
            let whole = whole_attribute(name);
            node.attributes.get(&whole) == Some(value)
        });
        label && attributes
    }
}

/// A name without a prefix is one that was given centrally.
fn whole_attribute(name: &str) -> String {
    match name.contains('/') {
        true => name.to_owned(),
        false => format!("rm.yarn.io/{name}"),
    }
}

/// Returns everything that keeps the job from running there, and notes.
pub fn check(spec: &JobSpec, cluster: &ClusterInfo) -> Findings {
    let mut findings = Findings::default();
    let queue = queue::check(spec, cluster, &mut findings);
    check_attempts(spec, cluster, &mut findings);
    let groups = container_groups(spec, queue);
    if let Some(queue) = queue {
        queue::labels(&groups, queue, cluster, &mut findings);
    }
    check_constraints(spec, cluster, &mut findings);
    images::check(spec, cluster, &mut findings);
    sizes::kinds(&groups, cluster, &mut findings);
    // What a label or a kind does not exist for has no place to be counted in.
    let groups: Vec<_> = groups
        .into_iter()
        .filter(|group| {
            let known =
                group.label.is_empty() || cluster.labels.iter().any(|l| l.name == group.label);
            known && sizes::are_counted(&group.each, cluster)
        })
        .collect();
    check_capacity(groups, queue, cluster, &mut findings);
    check_preferred_nodes(spec, cluster, &mut findings);
    findings
}

/// Returns whether everything has a place. What is too much only because memory is given in steps is no reason to
/// refuse: the step is from the configuration here, and the ResourceManager's may say otherwise.
fn check_capacity(
    mut groups: Vec<ContainerGroup>,
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    let before = findings.refusals.clone();
    let placed = |groups: &[ContainerGroup]| {
        // What was found before decides how much of the rest is worth saying.
        let (refusals, notes) = (before.clone(), Vec::new());
        let mut findings = Findings { refusals, notes };
        sizes::largest(groups, cluster, &mut findings);
        capacity::check(groups, queue, cluster, &mut findings);
        findings.refusals.drain(..before.len());
        findings
    };
    let mut plain = placed(&groups);
    let fits = plain.refusals.is_empty();
    if let Some(step) = cluster.step_mib.filter(|step| *step > 0 && fits) {
        for group in &mut groups {
            let steps = group.each.memory_mib.div_ceil(step);
            group.each.memory_mib = steps.saturating_mul(step);
        }
        let rounded = placed(&groups);
        plain.notes = rounded.notes;
        let step = Memory(step);
        plain.notes.extend(rounded.refusals.iter().map(|complaint| {
            format!(
                "{}, assuming that memory is allocated in steps of {step}, as in this configuration",
                complaint.what
            )
        }));
    }
    findings.refusals.extend(plain.refusals);
    findings.notes.extend(plain.notes);
}

/// A master that fails more often than the cluster lets it is not started again, whatever the job says.
fn check_attempts(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    let asked = spec.cluster_options.master.attempts;
    if let Some(most) = cluster.attempts_max.filter(|most| *most < asked) {
        findings.note(format!(
            "`master.attempts` is {asked}, and the cluster starts a master {most} times at most: \
             `yarn.resourcemanager.am.max-attempts`, which an administrator may raise"
        ));
    }
}

/// All containers of the job, the master's first.
fn container_groups<'a>(spec: &'a JobSpec, queue: Option<&Queue>) -> Vec<ContainerGroup<'a>> {
    let on = &spec.cluster_options;
    let usual = queue.and_then(|queue| queue.label.clone());
    let label = |own: &Option<String>, key: &str| {
        let (label, key) = match (own, &on.node_label) {
            (Some(own), _) => (Some(own.clone()), format!("{key}.node_label")),
            (None, Some(jobs)) => (Some(jobs.clone()), "node_label".to_owned()),
            (None, None) => (usual.clone(), "queue".to_owned()),
        };
        (label.unwrap_or_default(), key)
    };
    let (master_label, master_key) = label(&on.master.node_label, "master");
    let master = ContainerGroup {
        name: "the master".into(),
        key: "master".into(),
        count: 1,
        each: Amount::new(on.master.memory_mib, u64::from(on.master.vcores)),
        label: master_label,
        label_key: master_key,
        max_per_node: None,
        attributes: None,
        is_master: true,
    };
    // What agents find by themselves the cluster does not count.
    let counted = |size: &Resources| match on.gpu_assignment {
        GpuAssignment::Cluster => size.clone(),
        GpuAssignment::Agent => Resources { gpus: 0, ..size.clone() },
    };
    let roles = spec.roles.iter().map(|role| {
        let key = format!("roles.{}", role.name);
        let (label, label_key) = label(&role.placement.node_label, &key);
        ContainerGroup {
            name: format!("role `{}`", role.name),
            key,
            count: u64::from(role.min_instances()),
            each: Amount::of(&counted(&role.resources)),
            label,
            label_key,
            max_per_node: role.placement.max_per_node,
            attributes: Some(&role.placement.attributes),
            is_master: false,
        }
    });
    std::iter::once(master).chain(roles).collect()
}

fn check_constraints(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    for role in &spec.roles {
        let placement = &role.placement;
        let asks = match (placement.max_per_node, placement.attributes.is_empty()) {
            (Some(most), _) => format!("at most {most} tasks on a node"),
            (None, false) => "nodes by their attributes".to_owned(),
            (None, true) => continue,
        };
        let what = format!("role `{}` asks for {asks}", role.name);
        let hint = format!("leave `roles.{}.placement` out", role.name);
        let handler = "`yarn.resourcemanager.placement-constraints.handler`";
        match cluster.constraints {
            Constraints::Yes => {}
            Constraints::TooOld => findings.refuse(
                format!("{what}, which this Hadoop is too old for: that came with 3.1 and 3.2"),
                hint,
            ),
            Constraints::Off => findings.refuse(
                format!("{what}, and {handler} of this cluster is `disabled`"),
                format!("{hint}, or have an administrator set it to `scheduler`"),
            ),
            Constraints::Unknown => findings.note(format!(
                "{what}: that works only where the ResourceManager's {handler} is set, which the configuration here does not say"
            )),
        }
    }
}

/// Nodes and racks that tasks would best run on, and that are not there.
fn check_preferred_nodes(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    for role in &spec.roles {
        let missing = |names: &[String], there: &dyn Fn(&Node) -> &str| -> Vec<String> {
            let absent = |name: &&String| !cluster.nodes.iter().any(|node| there(node) == *name);
            let absent = names.iter().filter(absent);
            absent.map(|name| format!("`{name}`")).collect()
        };
        let nodes = missing(&role.placement.nodes, &|node| &node.host);
        let racks = missing(&role.placement.racks, &|node| &node.rack);
        for (kind, names) in [("node", nodes), ("rack", racks)] {
            if !names.is_empty() {
                findings.note(format!(
                    "role `{}` would best run on {} {}, which the cluster does not have",
                    role.name,
                    if names.len() == 1 { kind.to_owned() } else { format!("{kind}s") },
                    names.join(", ")
                ));
            }
        }
    }
}
