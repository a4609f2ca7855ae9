//! Client on a real cluster: queries, rejections with numbers, cleanup, submission, following, and access to jobs from
//! other machines.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    process::Command,
};
use testbed::{File, Label, Lease, Options, Queue};
use yarn_native::types::FinalStatus;
use ydl::client::{
    applications as job_applications,
    cluster::ClusterClient,
    mirror::{CopySelection, JobAccess},
};
use ydl_testkit::yarn::{
    Workspace, applications, block_on, config, hdfs_files, shared, version, wait_finished,
    wait_for, wait_running,
};

/// Three nodes of 4 GiB, the third with the label `gpu` and two GPUs, which the queue `gpu` alone may use.
fn cluster() -> Lease {
    let options = Options {
        nodes: 3,
        node_memory_mib: 4096,
        node_vcores: 8,
        gpus: vec![0, 0, 2],
        labels: vec![Label { name: "gpu".into(), nodes: vec![3], exclusive: true }],
        queues: vec![
            Queue::new("default", 60),
            Queue { labels: vec!["gpu".into()], ..Queue::new("gpu", 40) },
        ],
        users: vec!["ghost".into()],
        ..Options::new(version())
    };
    // Lower than the memory of a node.
    shared(options.set(File::Yarn, "yarn.scheduler.maximum-allocation-mb", "3072"))
}

fn refused(yaml: &str, what: &str, hint: &str) {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    workspace.write("job.yaml", yaml);
    let ran = workspace.run(&["submit", "--dry-run", "job.yaml"]);
    assert_eq!(ran.code, 2, "{yaml}\n{ran:?}");
    let output = format!("error: {what}\n\nhint: {hint}\n");
    assert!(ran.stderr.contains(&output), "{yaml}\n{}\nnot\n{output}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn requests_beyond_the_cluster_are_rejected_with_numbers() {
    refused(
        "roles: {worker: {instances: 40, memory: 512 MiB, run: sleep 1}}",
        "role `worker` needs 40 containers of 512 MiB, 1 vcore, and at most 16 fit on 2 nodes; the job needs 41 in all, for 40 tasks and its master",
        "lower `roles.worker.instances`, or the resources of each",
    );
    refused(
        "roles: {worker: {memory: 5 GiB, run: sleep 1}}",
        "role `worker` asks for containers of 5 GiB, and the largest of 2 nodes has 4 GiB",
        "lower `roles.worker.memory`",
    );
    refused(
        "roles: {worker: {memory: 3500 MiB, run: sleep 1}}",
        "role `worker` asks for containers of 3.4 GiB, and the scheduler's maximum is 3 GiB",
        "lower `roles.worker.memory`, or have an administrator raise the scheduler's maximum",
    );
    refused(
        "{queue: nowhere, roles: {worker: {run: sleep 1}}}",
        "there is no queue `nowhere` among the 2 of the cluster",
        "set `queue` to one of `default`, `gpu`",
    );
    refused(
        "{queue: gpu, node_label: fast, roles: {worker: {run: sleep 1}}}",
        "the master asks for nodes with label `fast`, which the cluster does not have",
        "set `node_label` to one of `gpu`",
    );
    refused(
        "roles: {worker: {node_label: gpu, run: sleep 1}}",
        "role `worker` asks for nodes with label `gpu`, and queue `default` may use 0 labels: none",
        "set `queue` to one that may use it: `gpu`",
    );
    refused(
        "roles: {worker: {resources: {yarn.io/fpga: 2}, run: sleep 1}}",
        "role `worker` asks for 2 `yarn.io/fpga`, which is not a resource type of the cluster",
        "leave `roles.worker.resources` out: the cluster's resource types are memory, vcores, `yarn.io/gpu`",
    );
    refused(
        "{queue: gpu, roles: {worker: {gpus: 3, node_label: gpu, run: sleep 1}}}",
        "role `worker` asks for containers of 3 `yarn.io/gpu`, and the largest of 1 node with label `gpu` has 2",
        "lower `roles.worker.gpus`",
    );
    refused(
        "{queue: gpu, roles: {worker: {gpus: 1, instances: 3, node_label: gpu, memory: 256 MiB, run: sleep 1}}}",
        "role `worker` needs 3 containers of 256 MiB, 1 vcore, 1 `yarn.io/gpu`, and at most 2 fit on 1 node with label `gpu`; the job needs 4 in all, for 3 tasks and its master",
        "lower `roles.worker.instances`, or the resources of each",
    );
    refused(
        "roles: {worker: {instances: 3, memory: 256 MiB, placement: {max_per_node: 1}, run: sleep 1}}",
        "role `worker` has 3 tasks with at most 1 on a node, and 2 fit on 2 nodes",
        "lower `roles.worker.instances` to 2, or raise `roles.worker.placement.max_per_node`",
    );
}

#[test]
fn a_dry_run_leaves_no_application_and_no_files() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    // Its own user, because other tests submit jobs to the same cluster.
    let run = |args: &[&str]| {
        let mut command = workspace.ydl();
        command.env("HADOOP_USER_NAME", "ghost").args(args);
        ydl_testkit::CommandOutput::from(command.output().expect("ydl can be started"))
    };
    workspace.write("train.py", "print(1)\n");
    workspace.write(
        "job.yaml",
        "{files: [train.py], roles: {worker: {instances: 2, memory: 256 MiB, run: python train.py}}}",
    );
    let ran = run(&["submit", "--dry-run", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("the job could run: 2 tasks and its master"), "{ran:?}");
    let json = run(&["submit", "--dry-run", "--json", "job.yaml"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("an object");
    assert_eq!(report["refusals"], serde_json::json!([]), "{report}");
    let applications = applications(cluster);
    assert!(applications.iter().all(|report| report.user != "ghost"));
    assert_eq!(hdfs_files(cluster, "/user/ghost"), Vec::<String>::new());
    // A rejected dry run leaves nothing, either.
    cluster.fs(&["-mkdir", "/shut"]).expect("a directory");
    cluster.fs(&["-chmod", "755", "/shut"]).expect("a mode");
    let staging = ["--set", "staging=/shut/deep/ghost"];
    let ran = run(&[&["submit", "--dry-run", "job.yaml"], &staging[..]].concat());
    assert_eq!(ran.code, 123, "{ran:?}");
    assert!(ran.stderr.contains("user `ghost` has no "), "{ran:?}");
    assert_eq!(hdfs_files(cluster, "/shut"), Vec::<String>::new());
    assert!(!workspace.path().join("state").exists(), "state was created");
}

#[test]
fn nodes_and_queues_are_shown() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let nodes = workspace.run(&["nodes"]);
    assert_eq!(nodes.code, 0, "{nodes:?}");
    let lines: Vec<_> = nodes.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", nodes.stdout);
    let labelled = lines.iter().filter(|line| line.contains(" gpu "));
    assert_eq!(labelled.count(), 2, "the head and one node: {}", nodes.stdout);
    let objects = workspace.run(&["nodes", "--json"]).stdout;
    let objects: Vec<serde_json::Value> =
        objects.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(objects.len(), 3);
    assert!(objects.iter().all(|node| node["all"]["memory_mib"] == 4096));
    assert_eq!(objects[2]["all"]["other"]["yarn.io/gpu"], 2);

    let queues = workspace.run(&["queues"]);
    assert_eq!(queues.code, 0, "{queues:?}");
    assert!(queues.stdout.contains("root.default  running  yes"), "{}", queues.stdout);
    let objects = workspace.run(&["queues", "--json"]).stdout;
    let gpu = objects.lines().find(|line| line.contains("root.gpu"));
    let gpu: serde_json::Value = serde_json::from_str(gpu.expect("the queue")).expect("an object");
    assert_eq!(gpu["labels"], serde_json::json!(["gpu"]));
    assert_eq!(gpu["shares"]["gpu"]["max_capacity"], 1.0);
}

#[test]
fn an_unreachable_resource_manager_is_reported_with_its_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let property = |name: &str, value: &str| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    // The discard port has no listener.
    let site = format!(
        "<configuration>{}</configuration>",
        property("yarn.resourcemanager.address", "127.0.0.1:9")
    );
    std::fs::write(dir.path().join("yarn-site.xml"), site).expect("a file");
    let ran = Command::new(ydl_testkit::ydl())
        .env("HADOOP_CONF_DIR", dir.path())
        .env_remove("YARN_CONF_DIR")
        .arg("nodes")
        .output()
        .expect("ydl can be started");
    let text = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(122), "{text}");
    let expected = "no ResourceManager can be reached at `127.0.0.1:9`: ";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("hint: check that it runs and that `"), "{text}");
}

/// Job whose tasks print and produce an output.
const SHORT: &str = "\
name: short
files: [note.txt]
outputs: {out/: 'left/{role}-{index}'}
roles:
  worker:
    instances: 2
    memory: 256 MiB
    shell: mkdir out; cat note.txt > out/note; echo hello from $YDL_INDEX; echo oops >&2
";

#[test]
fn a_job_is_submitted_and_followed_and_visible_from_another_machine() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    workspace.write("note.txt", "a note\n");
    let ran = workspace.submit(SHORT);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in ["worker:0 | hello from 0", "worker:1 | hello from 1"] {
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
    let id = ran
        .stderr
        .lines()
        .find_map(|line| line.strip_suffix(" submitted to queue `default`"))
        .unwrap_or_else(|| panic!("{ran:?}"));
    assert!(ran.stderr.contains(&format!("{id} succeeded after ")), "{ran:?}");
    // Each phase is reported, and the end with locations and resource usage.
    let home = format!("{}/user/{}", cluster.default_fs(), cluster.own_user());
    let mut rest = ran.stderr.as_str();
    for line in [
        "uploaded ".to_owned(),
        format!("{id} submitted to queue `default`\n"),
        "the job started\n".to_owned(),
        "worker:".to_owned(),
        " runs on `127.0.0.1".to_owned(),
        format!("{id} succeeded after "),
        "; peak memory ".to_owned(),
        format!("logs:    ydl logs {id}    ({home}/.ydl/jobs/{id}/logs)\n"),
        format!("output:  out/ → {home}/left/{{role}}-{{index}}\n"),
        "used:    ".to_owned(),
        " GiB·seconds, ".to_owned(),
        " vcore·seconds\n".to_owned(),
    ] {
        let Some((_, after)) = rest.split_once(line.as_str()) else {
            panic!("no `{line}` in {ran:#?}");
        };
        rest = after;
    }

    // Access from another machine with the same configuration.
    let other = Workspace::new(cluster);
    let status = other.run(&["status", "--json", id]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("an object");
    assert_eq!(status["state"], "succeeded", "{status}");
    assert_eq!(status["application"]["final_status"], "SUCCEEDED", "{status}");
    let logs = other.run(&["logs", id, "worker:1", "--stdout"]);
    assert_eq!(logs.stdout, "hello from 1\n", "{logs:?}");
    let logs = other.run(&["logs", "short", "worker", "--stderr"]);
    assert!(logs.stdout.contains("worker:0 | oops"), "{logs:?}");
    let listed = other.run(&["ls"]);
    let row = listed.stdout.lines().find(|line| line.starts_with(id));
    assert!(row.is_some_and(|row| row.contains("succeeded")), "{listed:?}");
    let killed = other.run(&["kill", id]);
    assert!(killed.stderr.contains("had already ended: succeeded"), "{killed:?}");
    let home = format!("/user/{}/left/worker-1/note", cluster.own_user());
    assert_eq!(cluster.fs(&["-cat", &home]).expect("the output"), "a note\n");

    // Uploaded files are not uploaded again.
    let again = workspace.submit(SHORT);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(!again.stderr.contains("uploaded"), "{again:?}");
}

#[test]
fn tail_downloads_only_the_end_of_a_long_log() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(
        "{name: chatty, roles: {worker: {memory: 256 MiB, shell: 'seq 1 600000; printf end'}}}",
    );
    assert_eq!(ran.code, 0, "{:?}", ran.stderr);
    let logs = workspace.run(&["logs", "chatty", "worker:0", "--stdout", "--tail", "3"]);
    assert_eq!(logs.stdout, "599999\n600000\nend", "{:?}", logs.stderr);
    let logs = workspace.run(&["logs", "chatty", "worker:0", "--stdout", "--tail", "100000"]);
    assert_eq!(logs.stdout.lines().count(), 100_000);
    assert!(logs.stdout.starts_with("500002\n"));
    block_on(async {
        let client = ClusterClient::with(config(cluster)).expect("a client");
        let report = job_applications::find(&client, "chatty").await;
        let report = report.expect("a response").expect("the job");
        let opened = JobAccess::open(&client, report).await.expect("the job");
        let JobAccess::Full(known, mirror) = opened else {
            panic!("{opened:?}");
        };
        let wanted = CopySelection { tail: Some(3), ..CopySelection::default() };
        assert_eq!(mirror.copy_logs(&wanted, None).await, Vec::<String>::new());
        let task = "worker:0".parse().expect("a task");
        let copy = known.dir.attempt_logs(&task, 1).join("stdout.0");
        let metadata = std::fs::metadata(copy).expect("a copy");
        // As long as the original, and mostly a hole.
        let bytes: usize = (1..=600_000).map(|number: u32| number.to_string().len() + 1).sum();
        assert_eq!(metadata.len(), bytes as u64 + 3);
        assert!(metadata.blocks() * 512 < metadata.len() / 4, "{metadata:?}");
    });
}

#[test]
fn a_running_job_is_inspected_scaled_and_killed_from_another_machine() {
    let cluster = &*cluster();
    let id = Workspace::new(cluster).detach(
        "{name: lasting, roles: {worker: {memory: 256 MiB, shell: 'echo begun; sleep 600'}}}",
    );
    let other = Workspace::new(cluster);
    let status = || {
        let ran = other.run(&["status", "--json", &id]);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("an object")
    };
    let running = |count: usize| {
        move |status: serde_json::Value| {
            let tasks = status["view"]["tasks"].as_array()?;
            let runs = |task: &&serde_json::Value| task.to_string().contains("running");
            (tasks.iter().filter(runs).count() == count).then_some(())
        }
    };
    wait_for("a running task", || running(1)(status()));
    let scaled = other.run(&["scale", &id, "worker=2"]);
    assert_eq!(scaled.code, 0, "{scaled:?}");
    wait_for("a second task", || running(2)(status()));
    let put = other.run(&["kv", "--job", &id, "put", "key", "value"]);
    assert_eq!(put.code, 0, "{put:?}");
    assert_eq!(other.run(&["kv", "--job", &id, "get", "key"]).stdout, "value");
    // `ydl logs` shows the output so far without waiting.
    wait_for("what it printed", || {
        let logs = other.run(&["logs", &id, "worker:0"]);
        assert_eq!(logs.code, 0, "{logs:?}");
        (logs.stdout == "begun\n").then_some(())
    });
    // A follower sees output while the program runs.
    let mut follower = other.start(&["logs", "-f", &id, "worker:0"]);
    let mut line = String::new();
    let out = follower.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert_eq!(line, "begun\n");
    let killed = other.run(&["kill", &id]);
    assert_eq!(killed.code, 0, "{killed:?}");
    assert!(killed.stderr.contains(&format!("{id} ended: killed")), "{killed:?}");
    assert_eq!(finish_quietly(follower), Some(0));
    assert_eq!(status()["state"], "killed");
}

#[test]
fn logs_are_followed_before_the_master_runs() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let id = workspace.detach("{roles: {worker: {memory: 256 MiB, shell: 'echo begun; sleep 1'}}}");
    let logs = workspace.run(&["logs", "-f", &id, "worker:0"]);
    assert_eq!((logs.code, logs.stdout.as_str()), (0, "begun\n"), "{logs:?}");
    let logs = workspace.run(&["logs", &id, "worker:1"]);
    assert_eq!(logs.code, 2, "{logs:?}");
    assert!(logs.stderr.contains("has no task `worker:1`"), "{logs:?}");
}

#[test]
fn an_ambiguous_id_prefix_kills_no_job() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let job = "{roles: {worker: {memory: 256 MiB, run: 'true'}}}";
    let ids = [workspace.detach(job), workspace.detach(job)];
    let killed = workspace.run(&["kill", "application_"]);
    assert_eq!(killed.code, 2, "{killed:?}");
    assert!(killed.stderr.contains("matches "), "{killed:?}");
    for id in &ids {
        workspace.run(&["kill", id]);
    }
}

#[test]
fn logs_of_a_task_with_a_killed_agent_are_available() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let go = workspace.path().join("go");
    // The shell's parent is the shim, and the parent of that is the agent.
    let id = workspace.detach(&format!(
        r"
name: sudden
roles:
  worker:
    memory: 256 MiB
    restart: {{limit: 0}}
    shell: echo last words; until [ -e {} ]; do sleep 0.1; done; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600
",
        go.display()
    ));
    let user = cluster.own_user();
    let log = format!("/user/{user}/.ydl/jobs/{id}/logs/worker/0/1/stdout.0");
    wait_for("its words in HDFS", || {
        let size = cluster.fs(&["-stat", "%b", &log]).ok()?;
        (size.trim() == "11").then_some(())
    });
    std::fs::write(&go, "").expect("a file");
    wait_for("the end of the job", || {
        let status = workspace.run(&["status", "--json", &id]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("an object");
        (status["state"] == "failed").then_some(())
    });
    let logs = Workspace::new(cluster).run(&["logs", &id, "worker:0"]);
    assert_eq!(logs.stdout, "last words\n", "{logs:?}");
}

/// Waits for a child whose output is not read any more. Returns its exit code.
fn finish_quietly(mut child: std::process::Child) -> Option<i32> {
    child.wait().expect("a child can be waited for").code()
}

#[test]
fn an_interrupt_during_submit_kills_the_job() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    workspace
        .write("job.yaml", "{name: stopped, roles: {worker: {memory: 256 MiB, run: sleep 600}}}");
    let mut child = workspace.start(&["submit", "job.yaml"]);
    let mut output = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut next = || output.next().expect("a line").expect("text");
    let id = loop {
        if let Some(id) = next().strip_suffix(" submitted to queue `default`") {
            break id.to_owned();
        }
    };
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("kill can be started").success());
    assert_eq!(child.wait().expect("an exit").code(), Some(121));
    let report = wait_finished(cluster, &id);
    assert_eq!(report.final_status, FinalStatus::Killed, "{report:?}");
}

#[test]
fn a_missing_program_is_reported_by_name() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran =
        workspace.submit("{name: broken, roles: {worker: {memory: 256 MiB, run: ./nothing}}}");
    assert_eq!(ran.code, 120, "{ran:?}");
    assert!(ran.stderr.contains("failed after"), "{ran:?}");
    assert!(ran.stderr.contains("`./nothing`"), "{ran:?}");
}

#[test]
fn logs_collected_by_yarn_are_shown_for_jobs_without_files() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let id =
        workspace.detach("{name: stillborn, roles: {worker: {memory: 256 MiB, run: sleep 600}}}");
    wait_running(cluster, &id);
    // After this only YARN knows the job.
    let home = format!("/user/{}/.ydl/jobs/{id}", cluster.own_user());
    let killed = workspace.run(&["kill", "--now", &id]);
    assert_eq!(killed.code, 0, "{killed:?}");
    cluster.fs(&["-rm", "-r", &home]).expect("removed");
    let status = workspace.run(&["status", &id]);
    assert_eq!(status.code, 0, "{status:?}");
    assert!(status.stdout.contains("files      unavailable"), "{status:?}");
    assert!(status.stdout.contains("state      killed"), "{status:?}");
    // A busy node may upload the logs later than a client waits.
    wait_for("what YARN collected", || {
        let logs = workspace.run(&["logs", &id]);
        assert_eq!(logs.code, 0, "{logs:?}");
        let master = logs.stdout.contains("_000001/master.stderr | ");
        master.then_some(())
    });
}
