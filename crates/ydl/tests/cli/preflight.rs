//! Preflight checks of jobs against clusters.

use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use ydl::client::preflight::{Amount, ClusterInfo, Constraints, Label, Node, Queue, Share, check};
use ydl_core::JobSpec;
use ydl_jobfile::load;

/// Returns a cluster of two plain nodes and one with a label and GPUs. Only the queue `gpu` may use the label.
fn cluster() -> ClusterInfo {
    let node = |host: &str, label: &str, gpus: u64| {
        let mut all = Amount::new(8192, 8);
        all.others.insert("yarn.io/gpu".into(), gpus);
        Node {
            host: host.into(),
            rack: "/default-rack".into(),
            label: label.into(),
            attributes: BTreeMap::from([("rm.yarn.io/os".to_owned(), host.to_owned())]),
            running: true,
            free: all.clone(),
            all,
        }
    };
    let queue = |path: &str, labels: &[&str], shares: &[(&str, f64, f64)]| Queue {
        path: path.into(),
        state: "RUNNING".into(),
        has_children: path == "root",
        can_submit: Some(path != "root.closed"),
        labels: labels.iter().map(|l| l.to_string()).collect(),
        label: None,
        shares: shares
            .iter()
            .map(|(label, capacity, max_capacity)| {
                let share = Share { capacity: *capacity, max_capacity: *max_capacity };
                (label.to_string(), share)
            })
            .collect(),
    };
    ClusterInfo {
        user: "alice".into(),
        queues: vec![
            queue("root", &["*"], &[("", 1.0, 1.0)]),
            queue("root.default", &[], &[("", 0.5, 1.0)]),
            queue("root.small", &[], &[("", 0.1, 0.25)]),
            queue("root.gpu", &["gpu"], &[("", 0.2, 1.0), ("gpu", 1.0, 1.0)]),
            queue("root.star", &["*"], &[("", 0.1, 1.0), ("gpu", 0.0, 0.0)]),
            queue("root.closed", &[], &[("", 0.1, 1.0)]),
            Queue { state: "STOPPED".into(), ..queue("root.stopped", &[], &[("", 0.1, 1.0)]) },
        ],
        nodes: vec![node("a", "", 0), node("b", "", 0), node("c", "gpu", 2)],
        labels: vec![Label { name: "gpu".into(), exclusive: true }],
        kinds: Some(vec!["yarn.io/gpu".into()]),
        constraints: Constraints::Yes,
        largest: Some(Amount {
            memory_mib: 6144,
            vcores: 8,
            others: BTreeMap::from([("yarn.io/gpu".to_owned(), 8)]),
        }),
        step_mib: Some(256),
        attempts_max: None,
        runtimes: None,
    }
}

fn job(yaml: &str) -> JobSpec {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut source = load(&file).unwrap();
    source.for_cluster();
    source.job().unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn output(yaml: &str, has: &ClusterInfo) -> String {
    let found = check(&job(yaml), has);
    let refusals = found.refusals.iter();
    let refusals = refusals.map(|c| format!("error: {}\nhint: {}", c.what, c.hint));
    let notes = found.notes.iter().map(|note| format!("note: {note}"));
    let all: Vec<_> = refusals.chain(notes).collect();
    all.join("\n")
}

fn check_said(yaml: &str, expected: Expect) {
    expected.assert_eq(&output(yaml, &cluster()));
}

#[test]
fn a_job_that_fits_passes() {
    check_said("roles: {worker: {instances: 4, run: sleep 1}}", expect![""]);
    check_said(
        "{queue: root.gpu, roles: {worker: {gpus: 2, node_label: gpu, run: sleep 1}}}",
        expect![""],
    );
}

#[test]
fn missing_stopped_and_forbidden_queues_are_rejected() {
    check_said(
        "{queue: nowhere, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: there is no queue `nowhere` among the 6 of the cluster
            hint: set `queue` to one of `default`, `gpu`, `small`, `star`"#]],
    );
    check_said(
        "{queue: root, roles: {w: {run: sleep 1}}}",
        expect![[r#"
        error: queue `root` is the parent of 6 queues and accepts no jobs
        hint: set `queue` to one of `root.closed`, `root.default`, `root.gpu`, `root.small`, `root.star`, `root.stopped`"#]],
    );
    check_said(
        "{queue: stopped, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: queue `stopped` accepts no jobs: it is STOPPED
            hint: set `queue` to another: `default`, `gpu`, `small`, `star`"#]],
    );
    check_said(
        "{queue: root.closed, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: permission denied: queue `root.closed` accepts no jobs of user `alice`
            hint: set `queue` to another: `default`, `gpu`, `small`, `star`"#]],
    );
}

#[test]
fn a_missing_queue_below_an_existing_one_is_only_noted() {
    check_said(
        "{queue: root.small.alice, roles: {w: {instances: 5, memory: 1 GiB, run: sleep 1}}}",
        expect![[r#"
            error: 6 containers (5 tasks and the master) need 5.2 GiB together, and the maximum of queue `small` is 4 GiB: 25% of 2 nodes
            hint: lower `instances` or the size of a role, or set `queue` to a larger one
            note: there is no queue `root.small.alice` yet: the cluster creates it if queue `root.small` allows automatic creation, and otherwise rejects the job"#]],
    );
    check_said(
        "{queue: root.nowhere.alice, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: there is no queue `root.nowhere.alice` among the 6 of the cluster
            hint: set `queue` to one of `default`, `gpu`, `small`, `star`"#]],
    );
}

#[test]
fn values_known_only_from_local_files_cause_notes_not_errors() {
    let mut has = cluster();
    has.step_mib = Some(2048);
    expect!["note: role `w` needs 10 containers of 2 GiB, 1 vcore, and at most 8 fit on 2 nodes; the job needs 11 in all, for 10 tasks and its master, assuming that memory is allocated in steps of 2 GiB, as in this configuration"]
        .assert_eq(&output("roles: {w: {instances: 10, memory: 256 MiB, run: sleep 1}}", &has));
    has.attempts_max = Some(2);
    has.step_mib = None;
    expect!["note: `master.attempts` is 4, and the cluster starts a master at most 2 times: an administrator may raise `yarn.resourcemanager.am.max-attempts`"]
        .assert_eq(&output("roles: {w: {run: sleep 1}}", &has));
    expect![""].assert_eq(&output("{master: {attempts: 2}, roles: {w: {run: sleep 1}}}", &has));
}

#[test]
fn missing_and_forbidden_labels_are_rejected() {
    check_said(
        "{node_label: fast, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: the master asks for nodes with label `fast`, which the cluster does not have
            hint: set `node_label` to one of `gpu`"#]],
    );
    check_said(
        "roles: {w: {node_label: gpu, run: sleep 1}}",
        expect![[r#"
        error: role `w` asks for nodes with label `gpu`, and queue `default` may use 0 labels: none
        hint: set `queue` to one that may use it: `gpu`"#]],
    );
    check_said(
        "{queue: star, roles: {w: {node_label: gpu, run: sleep 1}}}",
        expect![[r#"
            error: role `w` asks for nodes with label `gpu`, and queue `star` has 0% of its nodes
            hint: set `queue` to one that may use it: `gpu`"#]],
    );
    check_said(
        "{queue: gpu, master: {node_label: odd}, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: the master asks for nodes with label `odd`, which the cluster does not have
            hint: set `master.node_label` to one of `gpu`"#]],
    );
}

#[test]
fn containers_above_the_maximum_allocation_are_rejected() {
    check_said(
        "roles: {w: {memory: 7 GiB, run: sleep 1}}",
        expect![[r#"
        error: role `w` asks for containers of 7 GiB, and the scheduler's maximum is 6 GiB
        hint: lower `roles.w.memory`, or have an administrator raise the scheduler's maximum"#]],
    );
    check_said(
        "roles: {w: {vcores: 9, run: sleep 1}}",
        expect![[r#"
            error: role `w` asks for containers of 9 vcores, and the largest of 2 nodes has 8
            hint: lower `roles.w.vcores`"#]],
    );
    check_said(
        "roles: {w: {gpus: 1, run: sleep 1}}",
        expect![[r#"
            error: role `w` asks for containers of 1 `yarn.io/gpu`, and the largest of 2 nodes has 0
            hint: lower `roles.w.gpus`"#]],
    );
    check_said(
        "roles: {w: {gpus: 9, run: sleep 1}}",
        expect![[r#"
            error: role `w` asks for containers of 9 `yarn.io/gpu`, and the largest of 2 nodes has 0
            hint: lower `roles.w.gpus`"#]],
    );
    check_said(
        "roles: {w: {resources: {fpga: 1}, run: sleep 1}}",
        expect![[r#"
            error: role `w` asks for 1 `fpga`, which is not a resource type of the cluster
            hint: leave `roles.w.resources` out: the cluster's resource types are memory, vcores, `yarn.io/gpu`"#]],
    );
    check_said(
        "{master: {memory: 10 GiB}, roles: {w: {run: sleep 1}}}",
        expect![[r#"
            error: the master asks for containers of 10 GiB, and the largest of 2 nodes has 8 GiB
            hint: lower `master.memory`"#]],
    );
}

#[test]
fn jobs_that_can_never_fit_are_rejected() {
    check_said(
        "roles: {w: {instances: 20, memory: 1 GiB, run: sleep 1}}",
        expect![[r#"
            error: role `w` needs 20 containers of 1 GiB, 1 vcore, and at most 16 fit on 2 nodes; the job needs 21 in all, for 20 tasks and its master
            hint: lower `roles.w.instances`, or the resources of each"#]],
    );
    // 16 tasks fit, but not together with the master.
    check_said(
        "roles: {w: {instances: 16, memory: 1 GiB, run: sleep 1}}",
        expect![[r#"
            error: 17 containers (16 tasks and the master) need 16.2 GiB together, and 2 nodes have 16 GiB
            hint: lower `instances` or the size of a role"#]],
    );
    check_said(
        "{queue: small, roles: {w: {instances: 5, memory: 1 GiB, run: sleep 1}}}",
        expect![[r#"
            error: 6 containers (5 tasks and the master) need 5.2 GiB together, and the maximum of queue `small` is 4 GiB: 25% of 2 nodes
            hint: lower `instances` or the size of a role, or set `queue` to a larger one"#]],
    );
    check_said(
        "roles: {w: {instances: 10, memory: 1 GiB, run: sleep 1}}",
        expect![
            "note: 11 containers (10 tasks and the master) need 10.2 GiB together; queue `default` is guaranteed 8 GiB, the rest is borrowed and may be preempted"
        ],
    );
    check_said(
        "roles: {w: {instances: 3, placement: {max_per_node: 1}, run: sleep 1}}",
        expect![[r#"
            error: role `w` has 3 tasks with at most 1 on a node, and 2 fit on 2 nodes
            hint: lower `roles.w.instances` to 2, or raise `roles.w.placement.max_per_node`"#]],
    );
    check_said(
        "roles: {w: {placement: {attributes: {os: z}}, run: sleep 1}}",
        expect![[r#"
            error: role `w` asks for nodes with `os=z`, and 0 nodes have them
            hint: list the nodes with `ydl nodes --all`"#]],
    );
    check_said(
        "roles: {w: {placement: {attributes: {os: a}, nodes: [a, x], racks: [/r]}, run: sleep 1}}",
        expect![[r#"
            note: role `w` prefers node `x`, which the cluster does not have
            note: role `w` prefers rack `/r`, which the cluster does not have"#]],
    );
}

#[test]
fn resources_in_use_cause_a_note_about_waiting() {
    let mut has = cluster();
    has.nodes[0].free = Amount::new(1024, 8);
    has.nodes[1].running = false;
    expect!["note: 1 of 5 containers fit on the resources that are free now; the rest will wait: 3 of role `w`, the master"].assert_eq(&output("roles: {w: {instances: 4, run: sleep 1}}", &has));
    has.nodes.clear();
    expect![[r#"
        error: the master needs a node, and the cluster has 0 usable ones
        hint: list the nodes with `ydl nodes --all`
        error: role `w` needs a node, and the cluster has 0 usable ones
        hint: list the nodes with `ydl nodes --all`"#]]
    .assert_eq(&output("roles: {w: {run: sleep 1}}", &has));
}

#[test]
fn features_missing_in_an_old_cluster_are_rejected() {
    let mut has = cluster();
    (has.kinds, has.constraints) = (None, Constraints::TooOld);
    let yaml = "roles: {w: {gpus: 1, placement: {max_per_node: 1}, run: sleep 1}}";
    expect![[r#"
        error: role `w` asks for at most 1 tasks on a node, which needs Hadoop 3.2 or newer
        hint: leave `roles.w.placement` out
        error: role `w` asks for 1 `yarn.io/gpu`, and resource types other than memory and cores need Hadoop 3.1 or newer
        hint: leave `roles.w.gpus` out, or select nodes with it by `node_label`"#]].assert_eq(&output(yaml, &has));
    (has.kinds, has.constraints) = (Some(Vec::new()), Constraints::Off);
    let yaml = "roles: {w: {placement: {attributes: {os: a}}, run: sleep 1}}";
    expect![[r#"
        error: role `w` asks for nodes by their attributes, and `yarn.resourcemanager.placement-constraints.handler` of this cluster is `disabled`
        hint: leave `roles.w.placement` out, or have an administrator set it to `scheduler`"#]].assert_eq(&output(yaml, &has));
    has.constraints = Constraints::Unknown;
    expect!["note: role `w` asks for nodes by their attributes, which works only if `yarn.resourcemanager.placement-constraints.handler` is set on the ResourceManager; the local configuration does not set it"].assert_eq(&output(yaml, &has));
}
