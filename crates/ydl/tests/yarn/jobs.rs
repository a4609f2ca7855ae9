//! Whole jobs on a real cluster, from submission to cleanup, successful and failed.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};
use testbed::{Cluster, File, Label, Lease, Options, Queue};
use yarn_native::{
    security::Identity,
    types::{ApplicationState, FinalStatus},
};
use ydl_core::spec::MasterSpec;
use ydl_storage::hdfs::{Hdfs, JobLayout, StagingLayout};
use ydl_testkit::{
    CommandOutput,
    yarn::{
        Workspace, application,
        attached::{AttachedSubmit, release, wait_started, waiting_job},
        block_on, config, deadline,
        digits::{self, job_id, processes, wait_cleaned_up},
        shared, version, wait_finished, wait_for, wait_running,
    },
};

/// Three nodes for all queues, and a fourth with a label and two GPUs, which only the queue `gpu` may use. The queue
/// `narrow` is limited to a twentieth.
fn cluster() -> Lease {
    let options = Options {
        nodes: 4,
        node_memory_mib: 32768,
        node_vcores: 120,
        gpus: vec![0, 0, 0, 2],
        labels: vec![Label { name: "gpu".into(), nodes: vec![4], exclusive: true }],
        queues: vec![
            Queue::new("default", 85),
            Queue { labels: vec!["gpu".into()], ..Queue::new("gpu", 10) },
            Queue::new("narrow", 5),
        ],
        users: vec!["alice".into(), "bob".into()],
        // On a busy machine a master may start slowly; no container is lost in these tests.
        expiry: Duration::from_secs(60),
        ..Options::new(version())
    };
    let narrow = "yarn.scheduler.capacity.root.narrow.maximum-capacity";
    let node = |key: &str| format!("yarn.nodemanager.{key}");
    let root = options.set(File::Queues, narrow, "5");
    // Otherwise Hadoop 3.5 leaves memory limits to control groups, which the test bed does not have.
    let root = root.set(File::Yarn, &node("resource.memory.enforced"), "false");
    let root = root.set(File::Yarn, &node("container-monitor.interval-ms"), "300");
    // Off by default before 3.3.
    let root = root.set(File::Hdfs, "dfs.namenode.acls.enabled", "true");
    // Enforce ACLs; by default every queue allows all users.
    let own = Command::new("id").arg("-un").output().expect("a name");
    let own = String::from_utf8(own.stdout).expect("text");
    let queues = "yarn.scheduler.capacity.root.acl_administer_queue";
    let root = root.set(File::Queues, queues, own.trim());
    let root = root.set(File::Yarn, "yarn.acl.enable", "true");
    shared(root.set(File::Yarn, "yarn.admin.acl", own.trim()))
}

async fn hdfs(cluster: &Cluster) -> Hdfs {
    let identity = Identity::simple(cluster.own_user());
    let hdfs = Hdfs::connect(&config(cluster), None, &identity, deadline()).await;
    hdfs.expect("a file system")
}

fn read(cluster: &Cluster, path: &str) -> Option<String> {
    block_on(async {
        let hdfs = hdfs(cluster).await;
        let read = hdfs.read_if_exists(path, 64 << 20, deadline()).await;
        let bytes = read.expect("a response")?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    })
}

fn layout_of(cluster: &Cluster, id: &str) -> JobLayout {
    let home = block_on(async { hdfs(cluster).await.home(deadline()).await });
    StagingLayout::in_home(&home.expect("a home")).job(id)
}

fn history_of(cluster: &Cluster, id: &str) -> String {
    read(cluster, &layout_of(cluster, id).events()).unwrap_or_default()
}

#[test]
fn the_example_learns_its_digits_on_three_nodes_and_leaves_nothing() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    digits::copy_example(&workspace);
    let began = Instant::now();
    let ran = workspace.run(&["submit", "job.yaml"]);
    let took = began.elapsed().as_secs_f64();
    let uploaded = ran.stderr.lines().find(|line| line.contains("uploaded"));
    println!("the example took {took:.1} s: {uploaded:?}");
    assert_eq!(ran.code, 0, "{ran:#?}");
    digits::assert_accuracy(&ran.stdout);
    let id = job_id(&ran);

    let home = block_on(async { hdfs(cluster).await.home(deadline()).await }).expect("a home");
    let metrics =
        read(cluster, &format!("{home}/result/metrics.json")).expect("the model's figures");
    let metrics: serde_json::Value = serde_json::from_str(&metrics).expect("JSON");
    assert!(metrics["test_accuracy"].as_f64() >= Some(0.95), "{metrics}");
    let model = read(cluster, &format!("{home}/result/digits.params"));
    assert!(model.is_some_and(|model| model.len() > 1000), "the model");

    let logs = layout_of(cluster, &id).logs();
    for (role, index) in digits::TASKS {
        let log = |file: &str| format!("{logs}/{role}/{index}/1/{file}");
        let record = read(cluster, &log("exit.json")).unwrap_or_else(|| panic!("{role}:{index}"));
        assert!(record.contains(r#""code": 0"#), "{record}");
        // A task without output has no file.
        let text = read(cluster, &log("stdout.0")).unwrap_or_default();
        let other = Workspace::new(cluster);
        let task = format!("{role}:{index}");
        let output = other.run(&["logs", &id, &task, "--stdout"]);
        assert_eq!((output.code, &output.stdout), (0, &text), "{task}: {}", output.stderr);
        assert_eq!(text.contains("test accuracy 0.9"), role == "worker", "{task}: {text}");
    }
    wait_cleaned_up(cluster, &id);
}

#[test]
fn gpus_and_labels_select_nodes() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(
        "queue: gpu\n\
         roles:\n  \
           trainer: {instances: 2, memory: 128 MiB, gpus: 1, node_label: gpu, shell: 'echo $NM_HOST'}\n  \
           reader: {instances: 2, memory: 128 MiB, shell: 'echo $NM_HOST'}\n",
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    let labelled = cluster.nodes()[3].address.ip().to_string();
    for index in 0..2 {
        let line = format!("trainer:{index} | {labelled}\n");
        assert!(ran.stdout.contains(&line), "{ran:#?}");
        let line = format!("reader:{index} | {labelled}\n");
        assert!(!ran.stdout.contains(&line), "{ran:#?}");
    }
    wait_cleaned_up(cluster, &job_id(&ran));
}

#[test]
fn features_missing_in_an_old_hadoop_are_rejected_before_submission() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let dry = |placement: &str| {
        let role = format!("memory: 128 MiB, placement: {placement}, run: 'true'");
        workspace.write("job.yaml", &format!("roles: {{worker: {{{role}}}}}"));
        workspace.run(&["submit", "--dry-run", "job.yaml"])
    };
    let spread = dry("{max_per_node: 1}");
    let by_attribute = dry("{attributes: {os: odd}}");
    if version().has_placement_constraints() {
        assert_eq!(spread.code, 0, "{spread:#?}");
        let what = "error: role `worker` asks for nodes with `os=odd`, and 0 nodes have them\n";
        assert!(by_attribute.stderr.contains(what), "{by_attribute:#?}");
        return;
    }
    for (ran, what) in
        [(spread, "at most 1 tasks on a node"), (by_attribute, "nodes by their attributes")]
    {
        assert_eq!(ran.code, 2, "{ran:#?}");
        let output = format!(
            "error: role `worker` asks for {what}, which needs Hadoop 3.2 or newer\n\n\
             hint: leave `roles.worker.placement` out\n"
        );
        assert!(ran.stderr.contains(&output), "{ran:#?}");
    }
}

#[test]
fn three_hundred_tasks_succeed() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let began = Instant::now();
    let (child, id) = AttachedSubmit::start(
        &workspace,
        "roles: {worker: {instances: 300, memory: 128 MiB, run: 'true'}}",
    );
    let client = std::thread::spawn(|| child.finish());
    // Track the peak memory of the master until it exits.
    let mut peak_kib = 0;
    while !client.is_finished() {
        for (pid, args) in processes(&id) {
            if args.starts_with("./ydl master") {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
                peak_kib = peak_kib.max(peak.unwrap_or(0));
            }
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
    let ran = client.join().expect("the client's end");
    let took = began.elapsed().as_secs_f64();
    println!("300 tasks took {took:.1} s; the master had {} MiB at most", peak_kib >> 10);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let history_of = history_of(cluster, &id);
    assert_eq!(history_of.matches("attempt-started").count(), 300);
    assert_eq!(history_of.matches("attempt-ended").count(), 300);
    // Otherwise YARN would end the master's container.
    let memory_kib = MasterSpec::default().memory_mib << 10;
    assert!(peak_kib > 0 && peak_kib < memory_kib, "{peak_kib} KiB");
    wait_cleaned_up(cluster, &id);
}

#[test]
fn a_task_over_its_memory_limit_is_reported_with_its_limit() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(
        "roles: {worker: {memory: 128 MiB, run: python3 -c 'b = b\"x\" * (300 << 20); import time; time.sleep(600)'}}",
    );
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(ran.stderr.contains(" of 128 MiB"), "{ran:#?}");
    assert!(ran.stderr.contains("hint: raise `memory` of role `worker`"), "{ran:#?}");
    wait_cleaned_up(cluster, &job_id(&ran));
}

#[test]
fn a_file_missing_on_a_node_is_named_and_the_task_runs_elsewhere() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let home = block_on(async { hdfs(cluster).await.home(deadline()).await }).expect("a home");
    workspace.write("data.txt", "gone soon\n");
    let local = workspace.path().join("data.txt").display().to_string();
    let remote = format!("{home}/gone-soon.txt");
    cluster.fs(&["-mkdir", "-p", &home]).expect("the home directory");
    cluster.fs(&["-put", &local, &remote]).expect("a file in HDFS");
    // The first worker's node has the file; other nodes cannot fetch it any more.
    let yaml = waiting_job(
        &workspace,
        1,
        &format!("files: [{{data.txt: \"{remote}\"}}]\nrestart: {{limit: 0}}"),
    );
    let job = workspace.detach(&yaml);
    wait_started(&workspace, 1);
    cluster.fs(&["-rm", "-skipTrash", &remote]).expect("removed");
    // The first additional workers may run on the node that has the file.
    let mut workers = 1;
    let status = wait_for("one that came to another node", || {
        workers += 5;
        let ran = workspace.run(&["scale", &job, &format!("worker={workers}")]);
        assert_eq!(ran.code, 0, "{ran:?}");
        wait_started(&workspace, workers);
        let status = workspace.run(&["status", "--events", "1000", &job]);
        let reported = status.stdout.contains("could not run on its node: ");
        reported.then_some(status)
    });
    assert!(status.stdout.contains("gone-soon.txt"), "{}", status.stdout);
    release(&workspace);
    let report = wait_finished(cluster, &job);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    wait_cleaned_up(cluster, &job);
}

#[test]
fn a_job_killed_by_an_administrator_is_reported_as_killed() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let yaml = waiting_job(&workspace, 2, "");
    let (child, job) = AttachedSubmit::start(&workspace, &yaml);
    wait_started(&workspace, 2);
    let mut yarn =
        cluster.hadoop("org.apache.hadoop.yarn.client.cli.ApplicationCLI").expect("a command");
    let killed = yarn.args(["application", "-kill", &job]).output().expect("it runs");
    assert!(killed.status.success(), "{killed:?}");
    let ran = child.finish();
    assert_eq!(ran.code, 121, "{ran:#?}");
    let text = format!("{job} was killed: Application {job} was killed by user ");
    assert!(ran.stderr.contains(&text), "{ran:#?}");
    assert_eq!(application(cluster, &job).state, ApplicationState::Killed);
    wait_cleaned_up(cluster, &job);
    let status = Workspace::new(cluster).run(&["status", &job]);
    assert!(status.stdout.contains("killed"), "{}", status.stdout);
}

#[test]
fn a_job_waits_for_a_full_queue_until_the_allocation_timeout() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    // 4,915 MiB is a twentieth of three nodes.
    let full = waiting_job(&workspace, 4, "queue: narrow").replace("128 MiB", "1 GiB");
    let holder = workspace.detach(&full);
    wait_started(&workspace, 4);

    let other = Workspace::new(cluster);
    // The queue has room for the master, but for no worker.
    let workers = "roles: {worker: {memory: 1 GiB, run: 'true'}}";
    let (child, waits) = AttachedSubmit::start(&other, &format!("{{queue: narrow, {workers}}}"));
    let message =
        "0 of 1 containers allocated; 0 tasks running; waiting: 1 × `worker` for a container\n";
    wait_for("the message about waiting", || child.stderr().contains(message).then_some(()));
    child.signal("-INT");
    assert_eq!(child.finish().code, 121);
    wait_cleaned_up(cluster, &waits);
    let ran = other.submit(&format!("{{queue: narrow, timeouts: {{allocation: 5s}}, {workers}}}"));
    assert_eq!(ran.code, 120, "{ran:#?}");
    assert!(
        ran.stderr
            .contains("0 of 1 containers granted after 5s; missing: 1 × `worker` (1 GiB, 1 vcore)"),
        "{ran:#?}"
    );
    // The queue has no room for the master, either.
    let ran = other.submit(
        "{queue: narrow, timeouts: {allocation: 5s}, master: {memory: 600 MiB}, \
         roles: {worker: {memory: 128 MiB, run: 'true'}}}",
    );
    assert_eq!(ran.code, 120, "{ran:#?}");
    assert!(ran.stderr.contains("waiting: "), "{ran:#?}");
    assert!(ran.stderr.contains("had no container for its master after 5s"), "{ran:#?}");
    wait_cleaned_up(cluster, &job_id(&ran));

    release(&workspace);
    let report = wait_finished(cluster, &holder);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
}

#[test]
fn a_killed_client_leaves_its_job_running_and_an_interrupted_one_ends_it() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let yaml = waiting_job(&workspace, 2, "");
    let (child, job) = AttachedSubmit::start(&workspace, &yaml);
    wait_started(&workspace, 2);
    child.signal("-KILL");
    assert_ne!(child.finish().code, 0);
    release(&workspace);
    let report = wait_finished(cluster, &job);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    assert!(!history_of(cluster, &job).contains("kill"), "a task was stopped");

    let workspace = Workspace::new(cluster);
    let yaml = waiting_job(&workspace, 2, "");
    let (child, job) = AttachedSubmit::start(&workspace, &yaml);
    wait_started(&workspace, 2);
    child.signal("-INT");
    let ran = child.finish();
    assert_eq!(ran.code, 121, "{ran:#?}");
    assert!(ran.stderr.contains("was killed"), "{ran:#?}");
    wait_cleaned_up(cluster, &job);
}

#[test]
fn access_lists_control_who_may_view_scale_and_kill_a_job() {
    let cluster = &*cluster();
    let workspace = Workspace::of(cluster, "alice");
    // `began` and `go` are written by the containers' user, which is the user of this process.
    let yaml = waiting_job(&workspace, 1, "name: shared\nacls: {view: bob}");
    let job = workspace.detach(&yaml);
    wait_started(&workspace, 1);
    wait_running(cluster, &job);

    let elsewhere = Workspace::of(cluster, "alice");
    let listed = elsewhere.run(&["ls"]);
    let tasks = |listed: &CommandOutput| -> String {
        let row = listed.stdout.lines().find(|line| line.starts_with(&job));
        let row = row.unwrap_or_else(|| panic!("{listed:?}"));
        row.split_whitespace().nth(3).unwrap_or_default().to_owned()
    };
    assert_eq!(tasks(&listed), "1/1", "{listed:?}");
    // The master learns of the start a moment later.
    let runs = |workspace: &Workspace, task: &str| {
        wait_for(&format!("the reported start of {task}"), || {
            let status = workspace.run(&["status", &job]);
            let running = format!("{task}  running");
            status.stdout.contains(&running).then_some(())
        });
    };
    runs(&elsewhere, "worker:0");
    let scaled = elsewhere.run(&["scale", "shared", "worker=2"]);
    assert_eq!(scaled.code, 0, "{scaled:?}");
    wait_started(&workspace, 2);

    let bob = Workspace::of(cluster, "bob");
    runs(&bob, "worker:1");
    let refused = |ran: CommandOutput| {
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("error: "), "{ran:?}");
    };
    refused(bob.run(&["scale", &job, "worker=1"]));
    refused(bob.run(&["kill", &job]));
    let carol = Workspace::of(cluster, "carol");
    refused(carol.run(&["logs", &job]));
    refused(carol.run(&["kill", &job]));
    assert_eq!(application(cluster, &job).state, ApplicationState::Running);

    let killed = elsewhere.run(&["kill", &job]);
    assert_eq!(killed.code, 0, "{killed:?}");
    let report = wait_finished(cluster, &job);
    assert_eq!(report.final_status, FinalStatus::Killed, "{report:?}");
    wait_cleaned_up(cluster, &job);
    let status = bob.run(&["status", &job]);
    assert!(status.stdout.contains("state      killed"), "{status:?}");
    let listed = elsewhere.run(&["ls"]);
    assert_eq!(tasks(&listed), "1", "not as submitted: {listed:?}");
}
