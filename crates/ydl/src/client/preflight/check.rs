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

/// Requirement of the job that the cluster does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One sentence, with the requested and the available number.
    pub what: String,
    /// Hint.
    pub hint: String,
}

/// Result of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Reasons why the job cannot run; empty if it can.
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

/// Equal containers: those of a role, or the master's.
#[derive(Debug)]
pub(super) struct ContainerGroup<'a> {
    /// Name in messages: ``role `worker` ``.
    pub name: String,
    /// Key in the job file: `roles.worker`.
    pub key: String,
    pub count: u64,
    pub each: Amount,
    /// Node label; empty for none.
    pub label: String,
    /// Key in the job file that sets the label.
    pub label_key: String,
    pub max_per_node: Option<u32>,
    pub attributes: Option<&'a BTreeMap<String, String>>,
    pub is_master: bool,
}

impl ContainerGroup<'_> {
    /// Returns whether the group's containers may run on a node.
    pub(crate) fn accepts(&self, node: &Node, cluster: &ClusterInfo) -> bool {
        let label = node.label == self.label
            // Requests without a label may use nodes of a label that is not exclusive.
            || self.label.is_empty()
                && cluster
                    .labels
                    .iter()
                    .any(|label| label.name == node.label && !label.exclusive);
        let attributes =
            self.attributes.into_iter().flatten().all(|(name, value)| {
                node.attributes.get(&qualified_attribute(name)) == Some(value)
            });
        label && attributes
    }
}

/// Returns the full name of a node attribute. A name without a prefix is one that the ResourceManager assigned.
fn qualified_attribute(name: &str) -> String {
    match name.contains('/') {
        true => name.to_owned(),
        false => format!("rm.yarn.io/{name}"),
    }
}

/// Compares a job with a cluster. Returns the reasons why it cannot run, and notes.
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
    // Groups with an unknown label or resource type have been refused already.
    let groups: Vec<_> = groups
        .into_iter()
        .filter(|group| {
            let has_label =
                group.label.is_empty() || cluster.labels.iter().any(|l| l.name == group.label);
            has_label && sizes::has_kinds(&group.each, cluster)
        })
        .collect();
    check_capacity(groups, queue, cluster, &mut findings);
    check_preferred_nodes(spec, cluster, &mut findings);
    findings
}

/// Checks the sizes and numbers of the containers. What exceeds a limit only after rounding memory up to the allocation
/// step is a note: the step is from the local configuration and may differ from the ResourceManager's.
fn check_capacity(
    mut groups: Vec<ContainerGroup>,
    queue: Option<&Queue>,
    cluster: &ClusterInfo,
    findings: &mut Findings,
) {
    let earlier = findings.refusals.clone();
    let place = |groups: &[ContainerGroup]| {
        // `capacity::check` skips its later parts if there are refusals already.
        let (refusals, notes) = (earlier.clone(), Vec::new());
        let mut findings = Findings { refusals, notes };
        sizes::largest(groups, cluster, &mut findings);
        capacity::check(groups, queue, cluster, &mut findings);
        findings.refusals.drain(..earlier.len());
        findings
    };
    let mut plain = place(&groups);
    let fits = plain.refusals.is_empty();
    if let Some(step) = cluster.step_mib.filter(|step| *step > 0 && fits) {
        for group in &mut groups {
            let steps = group.each.memory_mib.div_ceil(step);
            group.each.memory_mib = steps.saturating_mul(step);
        }
        let rounded = place(&groups);
        plain.notes = rounded.notes;
        let step = Memory(step);
        plain.notes.extend(rounded.refusals.iter().map(|refusal| {
            format!(
                "{}, assuming that memory is allocated in steps of {step}, as in this configuration",
                refusal.what
            )
        }));
    }
    findings.refusals.extend(plain.refusals);
    findings.notes.extend(plain.notes);
}

/// Notes a lower limit of the cluster on the number of master attempts.
fn check_attempts(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    let requested = spec.cluster_options.master.attempts;
    if let Some(max) = cluster.attempts_max.filter(|max| *max < requested) {
        findings.note(format!(
            "`master.attempts` is {requested}, and the cluster starts a master at most {max} times: \
             an administrator may raise `yarn.resourcemanager.am.max-attempts`"
        ));
    }
}

/// Returns all containers of the job, the master's first.
fn container_groups<'a>(spec: &'a JobSpec, queue: Option<&Queue>) -> Vec<ContainerGroup<'a>> {
    let options = &spec.cluster_options;
    let queue_label = queue.and_then(|queue| queue.label.clone());
    let label = |group_label: &Option<String>, key: &str| {
        let (label, key) = match (group_label, &options.node_label) {
            (Some(label), _) => (Some(label.clone()), format!("{key}.node_label")),
            (None, Some(label)) => (Some(label.clone()), "node_label".to_owned()),
            (None, None) => (queue_label.clone(), "queue".to_owned()),
        };
        (label.unwrap_or_default(), key)
    };
    let (master_label, master_key) = label(&options.master.node_label, "master");
    let master = ContainerGroup {
        name: "the master".into(),
        key: "master".into(),
        count: 1,
        each: Amount::new(options.master.memory_mib, u64::from(options.master.vcores)),
        label: master_label,
        label_key: master_key,
        max_per_node: None,
        attributes: None,
        is_master: true,
    };
    // With assignment by the agents, the cluster does not count GPUs.
    let counted = |size: &Resources| match options.gpu_assignment {
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
        let constraint = match (placement.max_per_node, placement.attributes.is_empty()) {
            (Some(max), _) => format!("at most {max} tasks on a node"),
            (None, false) => "nodes by their attributes".to_owned(),
            (None, true) => continue,
        };
        let what = format!("role `{}` asks for {constraint}", role.name);
        let hint = format!("leave `roles.{}.placement` out", role.name);
        let handler = "`yarn.resourcemanager.placement-constraints.handler`";
        match cluster.constraints {
            Constraints::Yes => {}
            Constraints::TooOld => findings.refuse(
                format!("{what}, which needs Hadoop 3.2 or newer"),
                hint,
            ),
            Constraints::Off => findings.refuse(
                format!("{what}, and {handler} of this cluster is `disabled`"),
                format!("{hint}, or have an administrator set it to `scheduler`"),
            ),
            Constraints::Unknown => findings.note(format!(
                "{what}, which works only if {handler} is set on the ResourceManager; the local configuration does not set it"
            )),
        }
    }
}

/// Notes preferred nodes and racks that the cluster does not have.
fn check_preferred_nodes(spec: &JobSpec, cluster: &ClusterInfo, findings: &mut Findings) {
    for role in &spec.roles {
        let missing = |names: &[String], name_of: &dyn Fn(&Node) -> &str| -> Vec<String> {
            let is_missing =
                |name: &&String| !cluster.nodes.iter().any(|node| name_of(node) == *name);
            let missing = names.iter().filter(is_missing);
            missing.map(|name| format!("`{name}`")).collect()
        };
        let nodes = missing(&role.placement.nodes, &|node| &node.host);
        let racks = missing(&role.placement.racks, &|node| &node.rack);
        for (kind, names) in [("node", nodes), ("rack", racks)] {
            if !names.is_empty() {
                findings.note(format!(
                    "role `{}` prefers {} {}, which the cluster does not have",
                    role.name,
                    if names.len() == 1 { kind.to_owned() } else { format!("{kind}s") },
                    names.join(", ")
                ));
            }
        }
    }
}
