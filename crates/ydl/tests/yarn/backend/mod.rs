//! The backend on real clusters, driven as a master's loop drives it. The agent is a script that does what it is told.

mod job;

use job::{Begin, Job, Plan, content, size, small, soon};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use testbed::{Cluster, File, Hdfs, Label, Lease, Options, Queue, Version};
use tokio::sync::{Mutex, MutexGuard};
use yarn_native::{
    credentials::Credentials,
    types::{ApplicationState, FinalStatus},
};
use ydl::{
    agent::bootstrap::BOOTSTRAP_SECRET, agent::bootstrap::BootstrapSecret, backend::Backend,
};
use ydl_core::{
    Cause, ContainerExit, ContainerId, Event, NodeName, Outcome,
    spec::{Placement, Resources},
};
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
    // Without it 3.5 leaves memory to control groups, which the test bed does not have.
    let enforced = node("resource.memory.enforced");
    options.set(File::Yarn, &enforced, "false").set(
        File::Yarn,
        &node("container-monitor.interval-ms"),
        "300",
    )
}

/// Three nodes: the first has an attribute, the third a label and devices. Every node has room for many.
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

/// A turn for a test that has a cluster of its own: one of those is enough at a time.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn host(cluster: &Cluster, number: usize) -> String {
    cluster.nodes()[number - 1].address.ip().to_string()
}

#[tokio::test]
async fn containers_are_granted_started_and_their_ends_are_told() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, Plan::new("ends")).await;
    let grants = job.obtain("worker", 4, &size(128)).await;
    job.start(&grants).await;
    let [fine, failed, killed, greedy] = &grants[..] else {
        panic!("{grants:?}");
    };
    job.tell(
        &fine.container,
        "cp $HADOOP_TOKEN_FILE_LOCATION SCRATCH/token && test -e job.json && exit 0"
            .replace("SCRATCH", &job.scratch().display().to_string())
            .as_str(),
    );
    job.tell(&failed.container, "exit 7");
    job.tell(&killed.container, "kill -9 $$");
    // `tail` keeps a line until it has ended.
    let hunger = "(head -c 200M /dev/zero; sleep 60) | tail > /dev/null";
    job.tell(&greedy.container, hunger);
    let completed = |status| ContainerExit::Completed { status };
    assert_eq!(job.end_of(&fine.container).await, completed(0));
    assert_eq!(job.end_of(&failed.container).await, completed(7));
    assert_eq!(job.end_of(&killed.container).await, completed(137));
    let end = job.end_of(&greedy.container).await;
    let ContainerExit::MemoryLimit { used_mib, limit_mib: 128 } = end else {
        panic!("{end:?}");
    };
    assert!((129..2000).contains(&used_mib), "{used_mib}");

    // The agent was given what it alone may know.
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
    let words =
        format!("the job failed: 4 GPUs; logs are in `hdfs://nowhere/jobs/{}/logs`", report.id);
    assert_eq!(report.diagnostics, words);
    assert_eq!((report.host.as_str(), report.rpc_port), ("127.0.0.1", 4711));
}

#[tokio::test]
async fn a_file_that_cannot_be_fetched_is_named() {
    let cluster = &*cluster();
    let mut plan = Plan::new("stale");
    let directory = cluster.directory().join("scratch");
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("stale.txt");
    std::fs::write(&path, "old").expect("a file");
    let mut stale = content(&path);
    stale.modified_ms += 1;
    plan.files.insert("stale.txt".to_owned(), stale);
    let mut job = Job::new(cluster, plan).await;
    let grant = job.obtain("worker", 1, &small()).await.remove(0);
    job.launch(&grant);
    let end = job.end_of(&grant.container).await;
    let ContainerExit::NodeFault { reason: why } = &end else {
        panic!("{end:?}");
    };
    assert!(why.contains("stale.txt"), "{why}");
    assert!(why.contains("changed on src"), "{why}");
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_binary_that_cannot_be_executed_is_the_nodes_fault() {
    let cluster = &*cluster();
    let mut plan = Plan::new("foreign");
    plan.script = Some("\u{7f}ELF is not a program of this machine");
    let mut job = Job::new(cluster, plan).await;
    let grant = job.obtain("worker", 1, &small()).await.remove(0);
    job.launch(&grant);
    let end = job.end_of(&grant.container).await;
    let ContainerExit::NodeFault { reason: why } = &end else {
        panic!("{end:?}");
    };
    assert!(why.contains("ydl"), "{why}");
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_blamed_node_gets_nothing_until_it_is_forgiven() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, Plan::new("avoid")).await;
    let first = host(cluster, 1);
    job.avoid(&[&first]);
    let grants = job.obtain("worker", 6, &small()).await;
    let second = host(cluster, 2);
    let hosts: BTreeSet<_> = grants.iter().map(|grant| grant.node.as_str()).collect();
    assert_eq!(hosts, BTreeSet::from([second.as_str()]));
    job.avoid(&[&second]);
    let grants = job.obtain("worker", 6, &small()).await;
    let hosts: BTreeSet<_> = grants.iter().map(|grant| grant.node.as_str()).collect();
    assert_eq!(hosts, BTreeSet::from([first.as_str()]));
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn labels_and_devices_place_containers() {
    let cluster = &*cluster();
    let mut plan = Plan::new("places");
    let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
    plan.roles.push(("trainer", labelled));
    let mut job = Job::new(cluster, plan).await;
    let with_gpu = Resources { gpus: 1, ..small() };
    job.set_asks("worker", 4, &small());
    job.set_asks("trainer", 2, &with_gpu);
    let grants = job.granted(6).await;
    let third = host(cluster, 3);
    for grant in &grants {
        let there = grant.node.as_str() == third;
        let trains = grant.role.as_str() == "trainer";
        assert_eq!(there, trains, "{grants:?}");
        assert_eq!(grant.resources.gpus, u32::from(trains), "{grants:?}");
    }
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_grant_that_is_turned_down_is_asked_for_again() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, Plan::new("again")).await;
    let size = small();
    let asks = ydl_core::Asks {
        asks: vec![ydl_core::Ask { role: "worker".into(), resources: size, count: 1 }],
        avoid: Vec::new(),
    };
    // A master that turns a grant down wants as many as before, and so says nothing.
    job.yarn.set_asks(asks);
    for _ in 0..3 {
        let container = loop {
            let event = tokio::time::timeout(job::WAIT, job.yarn.next()).await;
            if let Event::Granted { grants } = event.expect("an event").expect("not fenced") {
                assert_eq!(grants.len(), 1);
                break grants[0].container.clone();
            }
        };
        job.yarn.release(container);
    }
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn constraints_spread_a_role_and_choose_its_nodes() {
    let cluster = &*cluster();
    if version() == Version::V2_10_2 {
        return;
    }
    let mut plan = Plan::new("constraints");
    let alone = Placement { max_per_node: Some(1), ..Placement::default() };
    let fast = Placement {
        attributes: [("disk".to_owned(), "fast".to_owned())].into(),
        ..Placement::default()
    };
    let labelled = Placement {
        node_label: Some("gpu".to_owned()),
        max_per_node: Some(2),
        ..Placement::default()
    };
    plan.roles = vec![("alone", alone), ("fast", fast), ("labelled", labelled)];
    let mut job = Job::new(cluster, plan).await;
    job.set_asks("alone", 2, &small());
    job.set_asks("fast", 3, &small());
    job.set_asks("labelled", 2, &small());
    let grants = job.granted(7).await;
    let on = |role: &str| {
        let mine = grants.iter().filter(|grant| grant.role.as_str() == role);
        mine.map(|grant| grant.node.to_string()).collect::<Vec<_>>()
    };
    let (first, second) = (host(cluster, 1), host(cluster, 2));
    let spread: BTreeSet<_> = on("alone").into_iter().collect();
    assert_eq!(spread, BTreeSet::from([first.clone(), second]));
    assert_eq!(on("fast"), [first.clone(), first.clone(), first]);
    assert_eq!(on("labelled"), [host(cluster, 3), host(cluster, 3)]);
    // One that ends makes room for another, and what is not wanted any more does not come.
    job.set_asks("alone", 2, &small());
    job.set_asks("fast", 1, &small());
    job.granted(1).await;
    job.forgo();
    job.set_asks("fast", 1, &small());
    assert_eq!(job.granted(1).await[0].role.as_str(), "fast");
    job.close(Outcome::Succeeded).await;
}

/// The nodes that the core was last told not to avoid.
async fn needed(job: &mut Job, cluster: &Cluster, hosts: &[usize]) {
    let mut nodes: Vec<NodeName> =
        hosts.iter().map(|number| NodeName::from(host(cluster, *number).as_str())).collect();
    nodes.sort();
    job.until("needed nodes", |job| {
        let told = job.events.iter().rev().find_map(|event| match event {
            Event::NodesRequired { nodes } => Some(nodes.clone()),
            _ => None,
        });
        (told.unwrap_or_default() == nodes).then_some(())
    })
    .await;
}

/// Of three nodes one has an exclusive label: those without it have two to choose from, those with it none.
#[tokio::test]
async fn nodes_that_a_role_cannot_do_without_are_told() {
    let cluster = &*cluster();
    let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
    let mut plan = Plan::new("needed");
    plan.roles = vec![("worker", Placement::default()), ("labelled", labelled)];
    let mut job = Job::new(cluster, plan).await;
    let (first, second) = (host(cluster, 1), host(cluster, 2));
    job.avoid(&[&first]);
    let grant = job.obtain("worker", 1, &small()).await.remove(0);
    assert_eq!(grant.node.as_str(), second);
    needed(&mut job, cluster, &[]).await;
    job.avoid(&[&first, &second]);
    needed(&mut job, cluster, &[1, 2]).await;
    job.avoid(&[]);
    needed(&mut job, cluster, &[]).await;
    let grant = job.obtain("labelled", 1, &small()).await.remove(0);
    assert_eq!(grant.node.as_str(), host(cluster, 3));
    needed(&mut job, cluster, &[3]).await;
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn what_can_never_be_had_is_told_with_numbers() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, Plan::new("giant")).await;
    job.set_asks("worker", 1, &size(1 << 20));
    let why = job
        .until("refusal", |job| {
            job.events.iter().find_map(|event| match event {
                Event::RequestUnsatisfiable { reason: why } => Some(why.clone()),
                _ => None,
            })
        })
        .await;
    let words = "a task of role `worker` needs 1024 GiB of memory, but the cluster's largest container has 8 GiB";
    assert_eq!(why, words);
    job.forgo();
    let grants = job.obtain("worker", 1, &small()).await;
    assert_eq!(grants.len(), 1);
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_label_that_a_queue_may_not_use_is_the_resource_managers_refusal() {
    let cluster = &*cluster();
    let mut plan = Plan::new("no-label");
    plan.on_cluster.node_label = Some("no_such".to_owned());
    let mut job = Job::new(cluster, plan).await;
    job.set_asks("worker", 1, &small());
    let why = job
        .until("refusal", |job| {
            job.events.iter().find_map(|event| match event {
                Event::RequestUnsatisfiable { reason: why } => Some(why.clone()),
                _ => None,
            })
        })
        .await;
    assert!(why.contains("no_such"), "{why}");
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn an_application_that_an_administrator_kills_is_a_killed_job() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, Plan::new("killed")).await;
    let grants = job.obtain("worker", 2, &small()).await;
    job.start(&grants).await;
    while !job.client.kill(job.id, soon()).await.expect("killing") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let by = job
        .until("end", |job| {
            job.events.iter().find_map(|event| match event {
                Event::KillRequested { by, immediate: true } => Some(by.clone()),
                _ => None,
            })
        })
        .await;
    assert!(by.starts_with("the cluster: "), "{by}");
    for grant in &grants {
        assert_eq!(job.end_of(&grant.container).await, ContainerExit::Released);
    }
    let report = job.close(Outcome::Killed { by }).await;
    assert_eq!(report.state, ApplicationState::Killed);
}

#[tokio::test]
async fn a_new_master_gets_the_containers_of_the_one_before() {
    let cluster = &*cluster();
    let begin = Begin::new(cluster, Plan::new("twice")).await;
    let (mut first, live) = begin.register(Vec::new()).await;
    assert!(live.is_empty());
    let grants = first.obtain("worker", 3, &small()).await;
    first.start(&grants).await;
    let [one, two, three] = [0, 1, 2].map(|index| grants[index].container.clone());
    let (good, bad) = (host(cluster, 1), host(cluster, 2));
    first.avoid(&[&bad]);
    first.obtain("worker", 1, &small()).await;
    drop(first);
    let held = vec![one.clone(), two.clone(), three.clone()];
    let (mut second, live) = begin.register(held.clone()).await;
    // A container that was allocated and not launched has no owner, or is released already.
    let live: Vec<_> = live.into_iter().filter(|id| held.contains(id)).collect();
    assert_eq!(live, held);
    second.tell(&one, "exit 21");
    let end = ContainerExit::Completed { status: 21 };
    assert_eq!(second.end_of(&one).await, end);
    second.yarn.release(two.clone());
    assert_eq!(second.end_of(&two).await, ContainerExit::Released);
    assert_eq!(second.ended(&three), None);
    // What the one before avoided has been forgiven.
    second.avoid(&[&good]);
    let more = second.obtain("worker", 1, &small()).await;
    assert!(!held.contains(&more[0].container));
    assert_eq!(more[0].node.as_str(), bad);
    let report = second.close(Outcome::Succeeded).await;
    assert_eq!(report.final_status, FinalStatus::Succeeded);
}

#[tokio::test]
async fn three_hundred_short_containers_come_and_go() {
    let cluster = &*cluster();
    let mut plan = Plan::new("many");
    plan.script = Some("#!/bin/sh\nexit 0\n");
    let mut job = Job::new(cluster, plan).await;
    let began = Instant::now();
    job.set_asks("worker", 300, &small());
    let mut launched = 0;
    let mut ended = 0;
    while ended < 300 {
        match job.next().await {
            Event::Granted { grants } => {
                launched += grants.len();
                grants.iter().for_each(|grant| job.launch(grant));
            }
            Event::Ended { containers } => {
                ended += containers.len();
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
async fn a_queue_that_takes_back_its_share_warns_first() {
    let _turn = turn().await;
    let cluster = must(Cluster::start(Options {
        nodes: 1,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        // Longer than a busy machine keeps a master from its beats, by which it is warned.
        preemption: Some(Duration::from_secs(5)),
        ..options()
    }));
    let mut rich = Job::new(&cluster, Plan::new("rich")).await;
    let grants = rich.obtain("worker", 8, &size(1024)).await;
    rich.start(&grants).await;
    let mut plan = Plan::new("poor");
    plan.queue = "other";
    let mut poor = Job::new(&cluster, plan).await;
    poor.set_asks("worker", 1, &size(1024));
    let warned = rich
        .until("warning", |job| {
            job.events.iter().find_map(|event| match event {
                Event::PreemptionWarned { container } => Some(container.clone()),
                _ => None,
            })
        })
        .await;
    assert_eq!(rich.end_of(&warned).await, ContainerExit::Preempted);
    assert_eq!(poor.granted(1).await.len(), 1);
    poor.close(Outcome::Succeeded).await;
    rich.close(Outcome::Succeeded).await;
}

/// A container on each node, in their order.
async fn one_on_each(job: &mut Job, cluster: &Cluster) -> Vec<ContainerId> {
    let mut there = Vec::new();
    for number in 1..=3 {
        let others = (1..=3).filter(|other| *other != number);
        let others: Vec<_> = others.map(|other| host(cluster, other)).collect();
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        job.avoid(&others);
        let grant = job.obtain("worker", 1, &small()).await.remove(0);
        assert_eq!(grant.node.as_str(), host(cluster, number));
        job.start(std::slice::from_ref(&grant)).await;
        there.push(grant.container);
    }
    job.avoid(&[]);
    there
}

fn nodes(job: &Job) -> Option<u32> {
    let counted = |event: &Event| match event {
        Event::NodesCounted { nodes } => Some(*nodes),
        _ => None,
    };
    job.events.iter().rev().find_map(counted)
}

#[tokio::test]
async fn a_job_goes_on_while_daemons_die_and_nodes_are_taken_away() {
    let _turn = turn().await;
    let scratch = tempfile::tempdir().expect("a directory");
    let excluded = scratch.path().join("excluded");
    std::fs::write(&excluded, "").expect("a file");
    let options = Options { expiry: Duration::from_secs(8), ..options() };
    // The job's master is in this very program, which does not speak while it waits for daemons to start.
    let patience = ("yarn.am.liveness-monitor.expiry-interval-ms", "120000");
    let options = options.set(File::Yarn, patience.0, patience.1);
    let key = "yarn.resourcemanager.nodes.exclude-path";
    let path = excluded.display().to_string();
    let cluster = must(Cluster::start(options.set(File::Yarn, key, &path)));
    let mut job = Job::new(&cluster, Plan::new("restarts")).await;
    let containers = one_on_each(&mut job, &cluster).await;
    let [first, second, third] = &containers[..] else {
        panic!("{containers:?}");
    };

    // The ResourceManager dies and comes back; what ended meanwhile is told, the rest runs on.
    must(cluster.kill("rm"));
    job.tell(first, "exit 11");
    must(cluster.start_daemon("rm"));
    must(cluster.wait_nodes(3));
    let end = ContainerExit::Completed { status: 11 };
    assert_eq!(job.end_of(first).await, end);
    let more = job.obtain("worker", 2, &small()).await;
    job.start(&more).await;
    for grant in &more {
        job.tell(&grant.container, "exit 12");
        let end = ContainerExit::Completed { status: 12 };
        assert_eq!(job.end_of(&grant.container).await, end);
    }
    assert_eq!((job.ended(second), job.ended(third)), (None, None));

    // A node dies for good.
    must(cluster.kill("nm2"));
    assert_eq!(job.end_of(second).await, ContainerExit::NodeLost);
    job.tell(second, "exit 0");
    job.until("count", |job| (nodes(job) == Some(2)).then_some(())).await;

    // Another is drained: first a warning, then its containers go.
    std::fs::write(&excluded, host(&cluster, 3)).expect("a file");
    must(cluster.rm_admin(&["-refreshNodes", "-g", "60", "-server"]));
    let warned = Event::PreemptionWarned { container: third.clone() };
    job.until("warning", |job| job.events.contains(&warned).then_some(())).await;
    assert_eq!(job.ended(third), None);
    must(cluster.rm_admin(&["-refreshNodes"]));
    assert_eq!(job.end_of(third).await, ContainerExit::NodeLost);

    // And a job's end is told to a ResourceManager that comes back in time.
    must(cluster.kill("rm"));
    let back = async {
        must(cluster.start_daemon("rm"));
    };
    let (report, ()) = tokio::join!(job.close(Outcome::Succeeded), back);
    assert_eq!(report.final_status, FinalStatus::Succeeded);
}
