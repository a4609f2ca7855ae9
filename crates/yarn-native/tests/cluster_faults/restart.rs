//! A master and its containers across restarts of a real cluster's daemons.

use std::time::Duration;

use crate::support::master::{
    Master, cluster_lock, options, process_started, scratch, small, wait_then_exit,
};
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

/// Starts a container on each node, and waits until its node reports it as running: after a
/// restart, a ResourceManager gets its state from the nodes. Each container waits for a file named
/// after its node.
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
        // A node that dies between reporting a container as running and starting its process has
        // lost it.
        process_started(&directory.join(&container.node.host), container.id).await;
        master.until_running(container).await;
    }
    containers
}

fn end_container(cluster: &Cluster, container: &Container) {
    let file = scratch(cluster, "go").join(&container.node.host);
    std::fs::write(file, "").expect("a file");
}

/// Checks the state after every kind of restart of the ResourceManager.
async fn check_recovery(master: &mut Master, cluster: &Cluster, containers: &[Container]) {
    let [first, second, third] = containers else {
        panic!("{containers:?}");
    };
    master.until("a new registration", |master| (master.registrations > 1).then_some(())).await;
    must(cluster.wait_nodes(3));
    // It ended while the ResourceManager was down.
    let end = master.end_of(first.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(11));
    for container in [second, third] {
        let status = master.status(&container.node, container.id).await;
        assert_eq!(status.state, ContainerState::Running);
        assert_eq!(master.ended.get(&container.id), None);
    }
    end_container(cluster, second);
    let end = master.end_of(second.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(12));
    // New containers are granted with a new epoch, on nodes that the master has tokens for.
    let new = master.obtain(1, small()).await.remove(0);
    assert_eq!(new.id.epoch, 1, "{}", new.id);
    master.start(&new, &LaunchContext::command("exit 14")).await;
    let end = master.end_of(new.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(14));
    end_container(cluster, third);
    let end = master.end_of(third.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(13));
    assert_eq!(master.ended.len(), 4, "{:?}", master.ended);
    master.finish().await;
}

#[tokio::test]
async fn master_and_containers_survive_a_resource_manager_restart() {
    let _lock = cluster_lock().await;
    let cluster = start(options());
    let mut master = Master::new(&cluster, "restart").await;
    let containers = one_on_each(&mut master, &cluster).await;
    must(cluster.kill("rm"));
    end_container(&cluster, &containers[0]);
    master.until_node_reports(&containers[0], ContainerState::Complete).await;
    let deadline = Instant::now() + Duration::from_secs(2);
    let lost = master.scheduler.allocate(AllocateRequest::default, deadline).await;
    assert!(matches!(lost, Err(SchedulerError::NoResponse(_))), "{lost:?}");
    must(cluster.start_daemon("rm"));
    check_recovery(&mut master, &cluster, &containers).await;
}

#[tokio::test]
async fn master_and_containers_survive_a_failover() {
    let _lock = cluster_lock().await;
    let cluster = start(Options { rm_ha: Some(Failover::Manual), ..options() });
    let mut master = Master::new(&cluster, "failover").await;
    let containers = one_on_each(&mut master, &cluster).await;
    must(cluster.kill("rm"));
    end_container(&cluster, &containers[0]);
    master.until_node_reports(&containers[0], ContainerState::Complete).await;
    must(cluster.fail_over("rm2"));
    check_recovery(&mut master, &cluster, &containers).await;
}

#[tokio::test]
async fn containers_survive_a_node_manager_restart() {
    let _lock = cluster_lock().await;
    let cluster = start(Options {
        // The node is back before its expiry, however slowly its daemon starts.
        expiry: Duration::from_secs(120),
        ..options()
    });
    let mut master = Master::new(&cluster, "nodes").await;
    let containers = one_on_each(&mut master, &cluster).await;
    let first = &containers[0];
    must(cluster.kill("nm1"));
    must(cluster.start_daemon("nm1"));
    // The old token is still valid, and the container is still there.
    let status = master.status(&first.node, first.id).await;
    assert_eq!(status.state, ContainerState::Running);
    end_container(&cluster, first);
    let end = master.end_of(first.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(11));
    master.finish().await;
}

#[tokio::test]
async fn a_lost_node_is_reported_and_its_container_aborted() {
    let _lock = cluster_lock().await;
    let options = Options { nodes: 1, expiry: Duration::from_secs(10), ..options() };
    // Only nodes expire that soon: the master does not heartbeat while it waits for a process to
    // start.
    let expiry = ("yarn.am.liveness-monitor.expiry-interval-ms", "120000");
    let cluster = start(options.set(File::Yarn, expiry.0, expiry.1));
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
            let reported = nodes.any(|node| node.id == lost && node.state == NodeState::Lost);
            reported.then_some(())
        })
        .await;
    end_container(&cluster, only);
    master.finish().await;
}

#[tokio::test]
async fn a_master_continues_after_its_token_is_replaced() {
    let _lock = cluster_lock().await;
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
