//! Placement of containers on a real cluster: by host, exclusion, label, device and constraint. The
//! same scenario runs with a master in the test's own process, and with one in a container, which
//! is this test binary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::master::{
    Master, client, options, process_started, scratch, small, soon, version, wait_then_exit,
};
use testbed::{Cluster, Label, Options, Version};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use yarn_native::client::{Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::credentials::Credentials;
use yarn_native::node::{NmClient, NmClientOptions};
use yarn_native::scheduler::{
    AllocateRequest, AmRmClient, Ask, Constraint, PlacementScope, SchedulerError, SchedulingRequest,
};
use yarn_native::security::Identity;
use yarn_native::types::{
    ApplicationState, ContainerId, ContainerState, ExecutionType, ExitStatus, FinalStatus,
    LaunchContext, Resource,
};

/// Environment variable that makes this program the master in a container: the directory for its
/// files.
const WORK_DIRECTORY_VARIABLE: &str = "YARN_NATIVE_TEST_WORK";

/// Held by the test that uses the devices: they suffice for one master at a time.
static DEVICES: Mutex<()> = Mutex::const_new(());

/// The first node has two devices, the fourth has an exclusive label.
fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 4,
        gpus: vec![2],
        labels: vec![Label { name: "fast".into(), nodes: vec![4], exclusive: true }],
        ..options()
    };
    Cluster::shared(options).unwrap_or_else(|failure| panic!("{failure}"))
}

fn host(number: usize) -> String {
    // The test bed numbers its nodes like this; a master in a container cannot query it.
    format!("127.0.0.{}", 10 + number)
}

#[tokio::test]
async fn an_unmanaged_master_places_containers() {
    let _lock = DEVICES.lock().await;
    let mut master = Master::new(cluster(), "outside").await;
    run_scenario(&mut master, &scratch(cluster(), "outside")).await;
    let report = master.report_when_over().await;
    assert_eq!(report.state, ApplicationState::Finished);
    assert!(report.unmanaged);
}

#[tokio::test]
async fn a_managed_master_places_containers() {
    if let Some(directory) = std::env::var_os(WORK_DIRECTORY_VARIABLE) {
        return run_in_container(&PathBuf::from(directory)).await;
    }
    let _lock = DEVICES.lock().await;
    let directory = scratch(cluster(), "inside");
    let client = client(cluster());
    let id = client.new_application(soon()).await.expect("an id").id;
    let program = std::env::current_exe().expect("a path");
    let log = directory.join("log");
    let mut launch = LaunchContext::command(format!(
        "exec {} --exact placement::a_managed_master_places_containers --nocapture >{} 2>&1",
        program.display(),
        log.display()
    ));
    for (name, value) in [
        (WORK_DIRECTORY_VARIABLE, directory.as_os_str()),
        ("HADOOP_CONF_DIR", cluster().configuration().as_os_str()),
    ] {
        let value = value.to_str().expect("a plain path").to_owned();
        launch.environment.insert(name.into(), value);
    }
    if let Ok(version) = std::env::var("HADOOP_VERSION") {
        launch.environment.insert("HADOOP_VERSION".into(), version);
    }
    let submission = Submission {
        launch,
        attempts_max: Some(1),
        resource: Resource::new(512, 1),
        ..Submission::new(id, "inside")
    };
    client.submit(&submission, soon()).await.expect("submitted");
    // Each step has its own deadline; a master that misses one fails.
    let deadline = soon();
    let report = loop {
        let report = client.application(id, soon()).await.expect("a report");
        if report.state.is_over() {
            break report;
        }
        let runs = report.state == ApplicationState::Running;
        assert!(runs || Instant::now() < deadline, "{report:?}");
        sleep(Duration::from_millis(50)).await;
    };
    let output = std::fs::read_to_string(log).unwrap_or_default();
    assert_eq!(report.state, ApplicationState::Finished, "{report:?} {output}");
    assert_eq!(report.final_status, FinalStatus::Succeeded);
    assert_eq!(report.diagnostics, "all is well");
    assert!(!report.unmanaged);
}

/// Runs the master in a container, configured by its environment.
async fn run_in_container(directory: &Path) {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("no {name}"));
    let config = Config::load(Environment::of_process()).expect("a configuration");
    let identity = Identity::from_config(&config).expect("an identity");
    let client = Client::from_config(&config, identity).expect("a client");
    let credentials = Credentials::read(Path::new(&variable("HADOOP_TOKEN_FILE_LOCATION")));
    let credentials = credentials.expect("credentials");
    let token = credentials.of_kind("YARN_AM_RM_TOKEN").expect("a token");
    let own: ContainerId = variable("CONTAINER_ID").parse().expect("an id");
    let scheduler = AmRmClient::from_config(&config, token.clone()).expect("a client");
    let nodes = NmClient::new(NmClientOptions::from_config(&config).expect("options"));
    let id = own.attempt.application;
    let mut master = Master::register(client, scheduler, nodes, id, token.clone()).await;
    run_scenario(&mut master, directory).await;
}

/// Runs the whole scenario.
async fn run_scenario(master: &mut Master, directory: &Path) {
    each_of_three_nodes_runs_a_command(master, directory).await;
    each_end_has_its_exit_status(master, directory).await;
    an_excluded_node_gets_nothing(master).await;
    a_label_restricts_placement(master).await;
    a_device_restricts_placement(master).await;
    a_constraint_spreads_containers(master).await;
    master.finish().await;
}

async fn each_of_three_nodes_runs_a_command(master: &mut Master, directory: &Path) {
    let mut containers = Vec::new();
    for (number, code) in [(1, 0), (2, 3), (3, 77)] {
        let container = master.obtain_on(&host(number)).await;
        let file = directory.join(number.to_string());
        let launch = LaunchContext::command(format!(
            "echo $NM_HOST > {}; echo trouble >&2; exit {code}",
            file.display()
        ));
        master.start(&container, &launch).await;
        containers.push((container, file, code));
    }
    for (container, file, code) in containers {
        let end = master.end_of(container.id).await;
        assert_eq!(end.exit, ExitStatus::Exited(code));
        assert_eq!(end.state, ContainerState::Complete);
        let words = format!("exit code {code}");
        assert_eq!(end.diagnostics.contains(&words), code != 0, "{end:?}");
        let host = std::fs::read_to_string(file).expect("the container wrote it");
        assert_eq!(host.trim(), container.node.host);
    }
}

async fn each_end_has_its_exit_status(master: &mut Master, directory: &Path) {
    let never = directory.join("never");
    let stay = wait_then_exit(&never, 0);
    let containers = master.obtain(3, small()).await;
    for container in &containers {
        master.start(container, &stay).await;
        process_started(&never, container.id).await;
    }
    let [stopped, released, lost] = &containers[..] else {
        panic!("{containers:?}");
    };
    let each = master.nodes.stop(&stopped.node, &[stopped.id], soon()).await;
    assert_eq!(each, Ok(vec![(stopped.id, Ok(()))]));
    let end = master.end_of(stopped.id).await;
    let ends = [ExitStatus::KilledByMaster, ExitStatus::Exited(143)];
    assert!(ends.contains(&end.exit), "{end:?}");
    master.release(&[released.clone(), lost.clone()]).await;
    for container in [released, lost] {
        let end = master.end_of(container.id).await;
        assert_eq!(end.exit, ExitStatus::Aborted, "{end:?}");
        assert!(end.diagnostics.contains("released"), "{end:?}");
    }
}

async fn an_excluded_node_gets_nothing(master: &mut Master) {
    let excluded = host(2);
    let exclude = AllocateRequest { exclude: vec![excluded.clone()], ..AllocateRequest::default() };
    master.heartbeat(exclude).await.expect("a heartbeat");
    let containers = master.obtain(9, small()).await;
    let hosts: BTreeSet<_> = containers.iter().map(|c| c.node.host.clone()).collect();
    assert!(!hosts.contains(&excluded), "{hosts:?}");
    master.release(&containers).await;
    let readmit = AllocateRequest { readmit: vec![excluded.clone()], ..AllocateRequest::default() };
    master.heartbeat(readmit).await.expect("a heartbeat");
    let there = master.obtain_on(&excluded).await;
    master.release(&[there]).await;
}

async fn a_label_restricts_placement(master: &mut Master) {
    let id = master.fresh_id();
    let ask = Ask { label: Some("fast".into()), ..Ask::anywhere(id, small(), 2) };
    let labelled = master.obtain_by(vec![ask], 2).await;
    assert!(labelled.iter().all(|c| c.node.host == host(4)), "{labelled:?}");
    let plain = master.obtain(2, small()).await;
    assert!(plain.iter().all(|c| c.node.host != host(4)), "{plain:?}");
    master.start(&labelled[0], &LaunchContext::command("exit 5")).await;
    let end = master.end_of(labelled[0].id).await;
    assert_eq!(end.exit, ExitStatus::Exited(5));
    let unknown = Ask { label: Some("slow".into()), ..Ask::anywhere(99, small(), 1) };
    let unknown = AllocateRequest { asks: vec![unknown], ..AllocateRequest::default() };
    let rejected = master.heartbeat(unknown).await;
    assert!(matches!(rejected, Err(SchedulerError::Rejected { .. })), "{rejected:?}");
    master.release(&[labelled[1].clone()]).await;
    master.release(&plain).await;
}

async fn a_device_restricts_placement(master: &mut Master) {
    let mut with_gpu = small();
    with_gpu.others.insert("yarn.io/gpu".into(), 1);
    let types = &master.registered.resource_types;
    assert!(types.iter().any(|known| known.name == "yarn.io/gpu"), "{types:?}");
    let containers = master.obtain(2, with_gpu.clone()).await;
    for container in &containers {
        assert_eq!(container.node.host, host(1));
        assert_eq!(container.resource, with_gpu);
    }
    // There is no third device. An ask without devices is granted while that ask waits.
    let third = AllocateRequest {
        asks: vec![Ask::anywhere(77, with_gpu, 1)],
        ..AllocateRequest::default()
    };
    master.heartbeat(third).await.expect("a heartbeat");
    let plain = master.obtain(1, Resource::new(64, 1)).await;
    assert_eq!(master.granted, []);
    master.release(&containers[..1]).await;
    let third = master.of_request(77, 1).await;
    for containers in [&containers[1..], &third, &plain] {
        master.release(containers).await;
    }
}

async fn a_constraint_spreads_containers(master: &mut Master) {
    let ask = SchedulingRequest {
        priority: 5,
        request_id: 500,
        tags: BTreeSet::from(["worker".to_owned()]),
        resource: small(),
        // One more than can be placed.
        count: 4,
        constraint: Some(Constraint::anti_affinity(PlacementScope::Node, ["worker"])),
        execution: ExecutionType::Guaranteed,
    };
    let request = AllocateRequest { scheduling_requests: vec![ask], ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
    if version() == Version::V2_10_2 {
        // Version 2.10 ignores the unknown field; plain asks still work.
        let end = master.run(&LaunchContext::command("exit 6")).await;
        assert_eq!(end.exit, ExitStatus::Exited(6));
        assert_eq!(master.granted, []);
        return;
    }
    let containers = master.of_request(500, 3).await;
    let hosts: BTreeSet<_> = containers.iter().map(|c| &c.node.host).collect();
    assert_eq!((containers.len(), hosts.len()), (3, 3), "{hosts:?}");
    // A later ask is granted, and the fourth container is not.
    let after = Ask { priority: 9, ..Ask::anywhere(501, small(), 1) };
    master.obtain_by(vec![after], 1).await;
    assert_eq!(master.granted, []);
    assert!(containers.iter().all(|c| c.tags == ["worker"]));
}
