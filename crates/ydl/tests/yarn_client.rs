//! What a client does on a real cluster before a job runs there: it looks, refuses with numbers, and leaves no trace.

mod yarn_support;

use testbed::{Cluster, Label, Options, Queue};
use yarn_support::{Desk, applications, hdfs_files, shared, version};

/// Three nodes of 4 GiB, the third with the label `gpu` and two GPUs, which the queue `gpu` alone may use.
fn cluster() -> &'static Cluster {
    shared(Options {
        nodes: 3,
        node_memory_mib: 4096,
        node_vcores: 8,
        gpus: vec![0, 0, 2],
        labels: vec![Label {
            name: "gpu".into(),
            nodes: vec![3],
            exclusive: true,
        }],
        queues: vec![
            Queue::new("default", 60),
            Queue {
                labels: vec!["gpu".into()],
                ..Queue::new("gpu", 40)
            },
        ],
        ..Options::new(version())
    })
}

fn refused(yaml: &str, what: &str, hint: &str) {
    let desk = Desk::at(cluster());
    desk.write("job.yaml", yaml);
    let ran = desk.run(&["submit", "--dry-run", "job.yaml"]);
    assert_eq!(ran.code, 2, "{yaml}\n{ran:?}");
    let said = format!("error: {what}\n\nhint: {hint}\n");
    assert!(ran.err.contains(&said), "{yaml}\n{}\nnot\n{said}", ran.err);
    assert_eq!(ran.out, "");
}

#[test]
fn what_the_cluster_cannot_give_is_refused_with_numbers() {
    refused(
        "roles: {worker: {instances: 40, memory: 512 MiB, run: sleep 1}}",
        "role `worker` needs 40 containers of 512 MiB, 1 vcore, and at most 16 fit on 2 nodes; the job needs 41 in all, for 40 tasks and its master",
        "lower `roles.worker.instances`, or ask for less in each",
    );
    refused(
        "roles: {worker: {memory: 5 GiB, run: sleep 1}}",
        "role `worker` asks for containers of 5 GiB, and the largest the cluster gives has 4 GiB",
        "lower `roles.worker.memory`, or have an administrator raise the scheduler's maximum",
    );
    refused(
        "{queue: nowhere, roles: {worker: {run: sleep 1}}}",
        "there is no queue `nowhere` among the 2 of the cluster",
        "set `queue` to one of `default`, `gpu`",
    );
    refused(
        "{queue: gpu, node_label: fast, roles: {worker: {run: sleep 1}}}",
        "the master asks for nodes with label `fast`, which is none of the cluster's 1",
        "set `node_label` to one of `gpu`",
    );
    refused(
        "roles: {worker: {node_label: gpu, run: sleep 1}}",
        "role `worker` asks for nodes with label `gpu`, and queue `default` may use 0 labels: none",
        "set `queue` to one that may use it: `gpu`",
    );
    refused(
        "roles: {worker: {resources: {yarn.io/fpga: 2}, run: sleep 1}}",
        "role `worker` asks for 2 `yarn.io/fpga`, which the cluster does not count",
        "leave `roles.worker.resources` out: the cluster counts memory, vcores, `yarn.io/gpu`",
    );
    refused(
        "{queue: gpu, roles: {worker: {gpus: 3, node_label: gpu, run: sleep 1}}}",
        "role `worker` asks for containers of 3 `yarn.io/gpu`, and the largest of 1 node with label `gpu` has 2",
        "lower `roles.worker.gpus`",
    );
    refused(
        "{queue: gpu, roles: {worker: {gpus: 1, instances: 3, node_label: gpu, memory: 256 MiB, run: sleep 1}}}",
        "role `worker` needs 3 containers of 256 MiB, 1 vcore, 1 `yarn.io/gpu`, and at most 2 fit on 1 node with label `gpu`; the job needs 4 in all, for 3 tasks and its master",
        "lower `roles.worker.instances`, or ask for less in each",
    );
    refused(
        "roles: {worker: {instances: 3, memory: 256 MiB, placement: {most_per_node: 1}, run: sleep 1}}",
        "role `worker` has 3 tasks with at most 1 on a node, and 2 nodes take 2",
        "lower `roles.worker.instances` to 2, or raise `roles.worker.placement.most_per_node`",
    );
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let cluster = cluster();
    let desk = Desk::at(cluster);
    let before = (applications(cluster).len(), hdfs_files(cluster, "/"));
    desk.write("train.py", "print(1)\n");
    desk.write(
        "job.yaml",
        "{files: [train.py], roles: {worker: {instances: 2, memory: 256 MiB, run: python train.py}}}",
    );
    let ran = desk.run(&["submit", "--dry-run", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.err
            .contains("the job could run: 2 tasks and its master"),
        "{ran:?}"
    );
    let json = desk.run(&["submit", "--dry-run", "--json", "job.yaml"]);
    let told: serde_json::Value = serde_json::from_str(&json.out).expect("an object");
    assert_eq!(told["refusals"], serde_json::json!([]), "{told}");
    let after = (applications(cluster).len(), hdfs_files(cluster, "/"));
    assert_eq!(before, after);
    assert!(!desk.path().join("state").exists(), "nor here");
}

#[test]
fn nodes_and_queues_are_shown() {
    let desk = Desk::at(cluster());
    let nodes = desk.run(&["nodes"]);
    assert_eq!(nodes.code, 0, "{nodes:?}");
    let lines: Vec<_> = nodes.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", nodes.out);
    let labelled = lines.iter().filter(|line| line.contains(" gpu "));
    assert_eq!(labelled.count(), 2, "the head and one node: {}", nodes.out);
    let objects = desk.run(&["nodes", "--json"]).out;
    let objects: Vec<serde_json::Value> = objects
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(objects.len(), 3);
    assert!(objects.iter().all(|node| node["all"]["memory_mib"] == 4096));
    assert_eq!(objects[2]["all"]["other"]["yarn.io/gpu"], 2);

    let queues = desk.run(&["queues"]);
    assert_eq!(queues.code, 0, "{queues:?}");
    assert!(
        queues.out.contains("root.default  running  yes"),
        "{}",
        queues.out
    );
    let objects = desk.run(&["queues", "--json"]).out;
    let gpu = objects.lines().find(|line| line.contains("root.gpu"));
    let gpu: serde_json::Value = serde_json::from_str(gpu.expect("the queue")).expect("an object");
    assert_eq!(gpu["labels"], serde_json::json!(["gpu"]));
    assert_eq!(gpu["shares"]["gpu"]["most"], 1.0);
}

#[test]
fn a_resource_manager_out_of_reach_is_told_with_its_addresses() {
    let dir = tempfile::tempdir().expect("a directory");
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    // Nobody listens on the discard port.
    let site = format!(
        "<configuration>{}</configuration>",
        property("yarn.resourcemanager.address", "127.0.0.1:9")
    );
    std::fs::write(dir.path().join("yarn-site.xml"), site).expect("a file");
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_ydl"))
        .env("HADOOP_CONF_DIR", dir.path())
        .env_remove("YARN_CONF_DIR")
        .arg("nodes")
        .output()
        .expect("ydl can be started");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(122), "{said}");
    let expected = "no ResourceManager can be reached at `127.0.0.1:9`: ";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("hint: is it up, and is `"), "{said}");
}
