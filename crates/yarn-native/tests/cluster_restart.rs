//! A master and its containers while the daemons of a real cluster die and come back.

mod cluster_support;

use std::time::Duration;

use cluster_support::{Master, begun, options, scratch, small, turn, wait_then_exit};
use testbed::{Cluster, Failover, File, Options};
use tokio::time::Instant;
use yarn_native::scheduler::{AllocateRequest, SchedulerError};
use yarn_native::types::{Container, ContainerState, ExitStatus, LaunchContext, NodeState};

fn start(options: Options) -> Cluster {
    Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"))
}

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// A container on each node, known to its node to run: when a ResourceManager comes back
/// it is the nodes that tell it. Each waits for the file named like its node.
async fn one_on_each(master: &mut Master, cluster: &Cluster) -> Vec<Container> {
    let directory = scratch(cluster, "go");
    let mut containers = Vec::new();
    for (node, code) in cluster.nodes().iter().zip([11, 12, 13]) {
        let container = master.obtain_on(&node.address.ip().to_string()).await;
        let file = directory.join(&container.node.host);
        master.start(&container, &wait_then_exit(&file, code)).await;
        containers.push(container);
    }
    for container in &containers {
        // A node that dies between saying that a container runs and starting its process has lost it.
        begun(&directory.join(&container.node.host), container.id).await;
        master.until_running(container).await;
    }
    containers
}

fn let_go(cluster: &Cluster, container: &Container) {
    let file = scratch(cluster, "go").join(&container.node.host);
    std::fs::write(file, "").expect("a file");
}

/// What must hold however the ResourceManager went and came back.
async fn goes_on_after(master: &mut Master, cluster: &Cluster, containers: &[Container]) {
    let [first, second, third] = containers else {
        panic!("{containers:?}");
    };
    master.until("a new registration", |master| (master.registrations > 1).then_some(())).await;
    must(cluster.wait_nodes(3));
    // One ended while nobody could be told.
    let end = master.end_of(first.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(11));
    for container in [second, third] {
        let status = master.status(&container.node, container.id).await;
        assert_eq!(status.state, ContainerState::Running);
        assert_eq!(master.ended.get(&container.id), None);
    }
    let_go(cluster, second);
    let end = master.end_of(second.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(12));
    // New containers come, on nodes that the master has tokens for and with a new epoch.
    let new = master.obtain(1, small()).await.remove(0);
    assert_eq!(new.id.epoch, 1, "{}", new.id);
    master.start(&new, &LaunchContext::command("exit 14")).await;
    let end = master.end_of(new.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(14));
    let_go(cluster, third);
    let end = master.end_of(third.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(13));
    assert_eq!(master.ended.len(), 4, "{:?}", master.ended);
    master.finish().await;
}

#[tokio::test]
async fn a_resource_manager_that_is_killed_and_comes_back_finds_master_and_containers() {
    let _turn = turn().await;
    let cluster = start(options());
    let mut master = Master::new(&cluster, "restart").await;
    let containers = one_on_each(&mut master, &cluster).await;
    must(cluster.kill("rm"));
    let_go(&cluster, &containers[0]);
    master.until_node_says(&containers[0], ContainerState::Complete).await;
    let deadline = Instant::now() + Duration::from_secs(2);
    let unheard = master.scheduler.allocate(AllocateRequest::default, deadline).await;
    assert!(matches!(unheard, Err(SchedulerError::NoResponse(_))), "{unheard:?}");
    must(cluster.start_daemon("rm"));
    goes_on_after(&mut master, &cluster, &containers).await;
}

#[tokio::test]
async fn another_resource_manager_that_takes_over_finds_master_and_containers() {
    let _turn = turn().await;
    let cluster = start(Options { rm_ha: Some(Failover::Manual), ..options() });
    let mut master = Master::new(&cluster, "failover").await;
    let containers = one_on_each(&mut master, &cluster).await;
    must(cluster.kill("rm"));
    let_go(&cluster, &containers[0]);
    master.until_node_says(&containers[0], ContainerState::Complete).await;
    must(cluster.fail_over("rm2"));
    goes_on_after(&mut master, &cluster, &containers).await;
}

#[tokio::test]
async fn a_node_that_comes_back_still_has_its_containers() {
    let _turn = turn().await;
    let cluster = start(Options {
        // The node is back before anybody misses it, however slowly its daemon starts.
        expiry: Duration::from_secs(120),
        ..options()
    });
    let mut master = Master::new(&cluster, "nodes").await;
    let containers = one_on_each(&mut master, &cluster).await;
    let first = &containers[0];
    must(cluster.kill("nm1"));
    must(cluster.start_daemon("nm1"));
    // The token from before is still good, and the container is still there.
    let status = master.status(&first.node, first.id).await;
    assert_eq!(status.state, ContainerState::Running);
    let_go(&cluster, first);
    let end = master.end_of(first.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(11));
    master.finish().await;
}

#[tokio::test]
async fn a_node_that_does_not_come_back_is_missed() {
    let _turn = turn().await;
    let options = Options { nodes: 1, expiry: Duration::from_secs(10), ..options() };
    // Only nodes are missed that soon: the master does not beat while it waits for a process to begin.
    let patience = ("yarn.am.liveness-monitor.expiry-interval-ms", "120000");
    let cluster = start(options.set(File::Yarn, patience.0, patience.1));
    let mut master = Master::new(&cluster, "lost").await;
    let containers = one_on_each(&mut master, &cluster).await;
    let only = &containers[0];
    must(cluster.kill("nm1"));
    let end = master.end_of(only.id).await;
    assert_eq!(end.exit, ExitStatus::Aborted, "{end:?}");
    let lost = only.node.clone();
    master
        .until("the news of the node", |master| {
            let mut nodes = master.answers.iter().flat_map(|answer| &answer.nodes);
            let told = nodes.any(|node| node.id == lost && node.state == NodeState::Lost);
            told.then_some(())
        })
        .await;
    let_go(&cluster, only);
    master.finish().await;
}

#[tokio::test]
async fn a_master_outlives_its_token() {
    let _turn = turn().await;
    let cluster =
        start(Options { nodes: 1, token_interval: Some(Duration::from_secs(20)), ..options() });
    let mut master = Master::new(&cluster, "token").await;
    let twice = |master: &mut Master| {
        let replaced = master.answers.iter().filter(|answer| answer.token_replaced);
        (replaced.count() >= 2).then_some(())
    };
    master.until("two new tokens", twice).await;
    let end = master.run(&LaunchContext::command("exit 3")).await;
    assert_eq!(end.exit, ExitStatus::Exited(3));
    assert_eq!(master.registrations, 1);
    master.finish().await;
}
