//! The YARN backend on real clusters, driven by the test like by a master's event loop.

mod job;
mod placement;

use job::{Job, JobOptions, SubmittedJob, content, size, small, soon};
use std::time::{Duration, Instant};
use testbed::{Cluster, File, Hdfs, Label, Lease, Options, Queue, Version};
use tokio::sync::{Mutex, MutexGuard};
use yarn_native::{
    credentials::Credentials,
    types::{ApplicationState, FinalStatus},
};
use ydl::{
    agent::bootstrap::BOOTSTRAP_SECRET, agent::bootstrap::BootstrapSecret, backend::Backend,
};
use ydl_core::{Cause, ContainerExit, ContainerId, Event, Outcome};
use ydl_net::secret::Scope;
use ydl_proto::version::from_json;
use ydl_testkit::yarn::shared;

fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("{failure}")),
        Err(_) => Version::NEWEST,
    }
}

fn options() -> Options {
    let options = Options { nodes: 3, hdfs: Hdfs::None, ..Options::new(version()) };
    let node = |key: &str| format!("yarn.nodemanager.{key}");
    // Otherwise Hadoop 3.5 leaves memory limits to control groups, which the test bed does not have.
    let enforced = node("resource.memory.enforced");
    options.set(File::Yarn, &enforced, "false").set(
        File::Yarn,
        &node("container-monitor.interval-ms"),
        "300",
    )
}

/// Leases a cluster of three nodes: the first has an attribute, the third a label and GPUs.
fn cluster() -> Lease {
    let attributes = match version() {
        Version::V2_10_2 => Vec::new(),
        _ => vec![(1, "disk".to_owned(), "fast".to_owned())],
    };
    let options = Options {
        node_vcores: 200,
        gpus: vec![0, 0, 2],
        labels: vec![Label { name: "gpu".into(), nodes: vec![3], exclusive: true }],
        attributes,
        ..options()
    };
    shared(options)
}

/// Waits until no other test has its own cluster.
async fn own_cluster_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::const_new(());
    LOCK.lock().await
}

fn expect_ok<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn host(cluster: &Cluster, number: usize) -> String {
    cluster.nodes()[number - 1].address.ip().to_string()
}

#[tokio::test]
async fn containers_are_granted_and_started_and_their_exits_reported() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, JobOptions::new("ends")).await;
    let grants = job.request("worker", 4, &size(128)).await;
    job.start(&grants).await;
    let [fine, failed, killed, over_limit] = &grants[..] else {
        panic!("{grants:?}");
    };
    job.run_script(
        &fine.container,
        "cp $HADOOP_TOKEN_FILE_LOCATION SCRATCH/token && test -e job.json && exit 0"
            .replace("SCRATCH", &job.scratch().display().to_string())
            .as_str(),
    );
    job.run_script(&failed.container, "exit 7");
    job.run_script(&killed.container, "kill -9 $$");
    // `tail` buffers a line until its end.
    let script = "(head -c 200M /dev/zero; sleep 60) | tail > /dev/null";
    job.run_script(&over_limit.container, script);
    let completed = |status| ContainerExit::Completed { status };
    assert_eq!(job.wait_for_exit(&fine.container).await, completed(0));
    assert_eq!(job.wait_for_exit(&failed.container).await, completed(7));
    assert_eq!(job.wait_for_exit(&killed.container).await, completed(137));
    let end = job.wait_for_exit(&over_limit.container).await;
    let ContainerExit::MemoryLimit { used_mib, limit_mib: 128 } = end else {
        panic!("{end:?}");
    };
    assert!((129..2000).contains(&used_mib), "{used_mib}");

    // The agent got its secrets.
    let credentials = Credentials::read(&job.scratch().join("token")).expect("credentials");
    let delivered = credentials.secret(BOOTSTRAP_SECRET).expect("a setting");
    let delivered: BootstrapSecret = from_json(delivered.expose()).expect("a setting");
    assert_eq!(delivered.bootstrap.container, fine.container);
    assert_eq!(delivered.bootstrap.master, "127.0.0.1:4711");
    assert_eq!(delivered.bootstrap.host, fine.node.as_str());
    let scope = job.secret.verify(&delivered.agent_token);
    assert_eq!(scope, Some(Scope::Agent(fine.container.to_string())));
    let scope = job.secret.verify(&delivered.program_token);
    assert_eq!(scope, Some(Scope::Program(fine.container.to_string())));

    let counted = Event::NodesCounted { nodes: 3 };
    assert!(job.events.contains(&counted), "{:?}", job.events);
    let missing = "4 GPUs".to_owned();
    let report = job.close(Outcome::Failed(Cause::NoContainers { missing })).await;
    assert_eq!(report.state, ApplicationState::Finished);
    assert_eq!(report.final_status, FinalStatus::Failed);
    let expected =
        format!("the job failed: 4 GPUs; logs are in `hdfs://nowhere/jobs/{}/logs`", report.id);
    assert_eq!(report.diagnostics, expected);
    assert_eq!((report.host.as_str(), report.rpc_port), ("127.0.0.1", 4711));
}

#[tokio::test]
async fn a_file_that_cannot_be_localized_is_named() {
    let cluster = &*cluster();
    let mut job_options = JobOptions::new("stale");
    let directory = cluster.directory().join("scratch");
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("stale.txt");
    std::fs::write(&path, "old").expect("a file");
    let mut file = content(&path);
    file.modified_ms += 1;
    job_options.files.insert("stale.txt".to_owned(), file);
    let mut job = Job::new(cluster, job_options).await;
    let grant = job.request("worker", 1, &small()).await.remove(0);
    job.launch(&grant);
    let end = job.wait_for_exit(&grant.container).await;
    let ContainerExit::NodeFault { reason } = &end else {
        panic!("{end:?}");
    };
    assert!(reason.contains("stale.txt"), "{reason}");
    assert!(reason.contains("changed on src"), "{reason}");
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_binary_that_cannot_be_executed_is_a_node_fault() {
    let cluster = &*cluster();
    let mut job_options = JobOptions::new("foreign");
    job_options.script = Some("\u{7f}ELF is not a program of this machine");
    let mut job = Job::new(cluster, job_options).await;
    let grant = job.request("worker", 1, &small()).await.remove(0);
    job.launch(&grant);
    let end = job.wait_for_exit(&grant.container).await;
    let ContainerExit::NodeFault { reason } = &end else {
        panic!("{end:?}");
    };
    assert!(reason.contains("ydl"), "{reason}");
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn an_application_killed_by_an_administrator_is_a_killed_job() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, JobOptions::new("killed")).await;
    let grants = job.request("worker", 2, &small()).await;
    job.start(&grants).await;
    while !job.client.kill(job.id, soon()).await.expect("killing") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let by = job
        .wait_for("end", |job| {
            job.events.iter().find_map(|event| match event {
                Event::KillRequested { by, immediate: true } => Some(by.clone()),
                _ => None,
            })
        })
        .await;
    assert!(by.starts_with("the cluster: "), "{by}");
    for grant in &grants {
        assert_eq!(job.wait_for_exit(&grant.container).await, ContainerExit::Released);
    }
    let report = job.close(Outcome::Killed { by }).await;
    assert_eq!(report.state, ApplicationState::Killed);
}

#[tokio::test]
async fn a_new_master_recovers_the_containers_of_its_predecessor() {
    let cluster = &*cluster();
    let submitted = SubmittedJob::new(cluster, JobOptions::new("twice")).await;
    let (mut first, live) = submitted.register(Vec::new()).await;
    assert!(live.is_empty());
    let grants = first.request("worker", 3, &small()).await;
    first.start(&grants).await;
    let [one, two, three] = [0, 1, 2].map(|index| grants[index].container.clone());
    let (good, bad) = (host(cluster, 1), host(cluster, 2));
    first.avoid(&[&bad]);
    first.request("worker", 1, &small()).await;
    drop(first);
    let held = vec![one.clone(), two.clone(), three.clone()];
    let (mut second, live) = submitted.register(held.clone()).await;
    // A container that was allocated but not launched belongs to no master, or is released already.
    let live: Vec<_> = live.into_iter().filter(|id| held.contains(id)).collect();
    assert_eq!(live, held);
    second.run_script(&one, "exit 21");
    let end = ContainerExit::Completed { status: 21 };
    assert_eq!(second.wait_for_exit(&one).await, end);
    second.yarn.release(two.clone());
    assert_eq!(second.wait_for_exit(&two).await, ContainerExit::Released);
    assert_eq!(second.exit_of(&three), None);
    // The exclusions of the first master do not apply any more.
    second.avoid(&[&good]);
    let more = second.request("worker", 1, &small()).await;
    assert!(!held.contains(&more[0].container));
    assert_eq!(more[0].node.as_str(), bad);
    let report = second.close(Outcome::Succeeded).await;
    assert_eq!(report.final_status, FinalStatus::Succeeded);
}

#[tokio::test]
async fn three_hundred_short_containers_run_and_complete() {
    let cluster = &*cluster();
    let mut job_options = JobOptions::new("many");
    job_options.script = Some("#!/bin/sh\nexit 0\n");
    let mut job = Job::new(cluster, job_options).await;
    let began = Instant::now();
    job.set_asks("worker", 300, &small());
    let mut launched = 0;
    let mut exit_of = 0;
    while exit_of < 300 {
        match job.next().await {
            Event::Granted { grants } => {
                launched += grants.len();
                grants.iter().for_each(|grant| job.launch(grant));
            }
            Event::Ended { containers } => {
                exit_of += containers.len();
                let fine = ContainerExit::Completed { status: 0 };
                assert!(containers.iter().all(|(_, end)| *end == fine), "{containers:?}");
            }
            Event::Launched { .. } | Event::NodesCounted { .. } | Event::NodesRequired { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(launched, 300);
    println!("300 containers took {:?}", began.elapsed());
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn preemption_is_announced_by_a_warning() {
    let _lock = own_cluster_lock().await;
    let cluster = expect_ok(Cluster::start(Options {
        nodes: 1,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        // Longer than heartbeats, which carry the warning, are delayed on a busy machine.
        preemption: Some(Duration::from_secs(5)),
        ..options()
    }));
    let mut rich = Job::new(&cluster, JobOptions::new("rich")).await;
    let grants = rich.request("worker", 8, &size(1024)).await;
    rich.start(&grants).await;
    let mut job_options = JobOptions::new("poor");
    job_options.queue = "other";
    let mut poor = Job::new(&cluster, job_options).await;
    poor.set_asks("worker", 1, &size(1024));
    let warned = rich
        .wait_for("warning", |job| {
            job.events.iter().find_map(|event| match event {
                Event::PreemptionWarned { container } => Some(container.clone()),
                _ => None,
            })
        })
        .await;
    assert_eq!(rich.wait_for_exit(&warned).await, ContainerExit::Preempted);
    assert_eq!(poor.granted(1).await.len(), 1);
    poor.close(Outcome::Succeeded).await;
    rich.close(Outcome::Succeeded).await;
}

/// Starts a container on each node. Returns them in the order of the nodes.
async fn one_on_each(job: &mut Job, cluster: &Cluster) -> Vec<ContainerId> {
    let mut containers = Vec::new();
    for number in 1..=3 {
        let others = (1..=3).filter(|other| *other != number);
        let others: Vec<_> = others.map(|other| host(cluster, other)).collect();
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        job.avoid(&others);
        let grant = job.request("worker", 1, &small()).await.remove(0);
        assert_eq!(grant.node.as_str(), host(cluster, number));
        job.start(std::slice::from_ref(&grant)).await;
        containers.push(grant.container);
    }
    job.avoid(&[]);
    containers
}

fn nodes(job: &Job) -> Option<u32> {
    let counted = |event: &Event| match event {
        Event::NodesCounted { nodes } => Some(*nodes),
        _ => None,
    };
    job.events.iter().rev().find_map(counted)
}

#[tokio::test]
async fn a_job_survives_daemon_failures_and_decommissioned_nodes() {
    let _lock = own_cluster_lock().await;
    let scratch = tempfile::tempdir().expect("a directory");
    let excluded = scratch.path().join("excluded");
    std::fs::write(&excluded, "").expect("a file");
    let options = Options { expiry: Duration::from_secs(8), ..options() };
    // The test sends no heartbeats while it waits for daemons to start.
    let expiry = "yarn.am.liveness-monitor.expiry-interval-ms";
    let options = options.set(File::Yarn, expiry, "120000");
    let key = "yarn.resourcemanager.nodes.exclude-path";
    let path = excluded.display().to_string();
    let cluster = expect_ok(Cluster::start(options.set(File::Yarn, key, &path)));
    let mut job = Job::new(&cluster, JobOptions::new("restarts")).await;
    let containers = one_on_each(&mut job, &cluster).await;
    let [first, second, third] = &containers[..] else {
        panic!("{containers:?}");
    };

    // The ResourceManager restarts: exits in the meantime are reported, other containers keep running.
    expect_ok(cluster.kill("rm"));
    job.run_script(first, "exit 11");
    expect_ok(cluster.start_daemon("rm"));
    expect_ok(cluster.wait_nodes(3));
    let end = ContainerExit::Completed { status: 11 };
    assert_eq!(job.wait_for_exit(first).await, end);
    let more = job.request("worker", 2, &small()).await;
    job.start(&more).await;
    for grant in &more {
        job.run_script(&grant.container, "exit 12");
        let end = ContainerExit::Completed { status: 12 };
        assert_eq!(job.wait_for_exit(&grant.container).await, end);
    }
    assert_eq!((job.exit_of(second), job.exit_of(third)), (None, None));

    // A node is lost permanently.
    expect_ok(cluster.kill("nm2"));
    assert_eq!(job.wait_for_exit(second).await, ContainerExit::NodeLost);
    job.run_script(second, "exit 0");
    job.wait_for("count", |job| (nodes(job) == Some(2)).then_some(())).await;

    // Another node is decommissioned: first a warning, then its containers are lost.
    std::fs::write(&excluded, host(&cluster, 3)).expect("a file");
    expect_ok(cluster.rm_admin(&["-refreshNodes", "-g", "60", "-server"]));
    let warned = Event::PreemptionWarned { container: third.clone() };
    job.wait_for("warning", |job| job.events.contains(&warned).then_some(())).await;
    assert_eq!(job.exit_of(third), None);
    expect_ok(cluster.rm_admin(&["-refreshNodes"]));
    assert_eq!(job.wait_for_exit(third).await, ContainerExit::NodeLost);

    // The outcome is reported to a ResourceManager that is available again in time.
    expect_ok(cluster.kill("rm"));
    let back = async {
        expect_ok(cluster.start_daemon("rm"));
    };
    let (report, ()) = tokio::join!(job.close(Outcome::Succeeded), back);
    assert_eq!(report.final_status, FinalStatus::Succeeded);
}
