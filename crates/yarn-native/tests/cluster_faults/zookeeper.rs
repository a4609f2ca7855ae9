//! Automatic ResourceManager failover by ZooKeeper while an ApplicationMaster is registered and its
//! containers run.

use std::path::{Path, PathBuf};

use crate::support::master::{Master, cluster_lock, options, scratch, small, wait_then_exit};
use testbed::{Cluster, Failover, Options};
use yarn_native::types::{Container, ContainerState, ExitStatus, LaunchContext};

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn release(directory: &Path, name: &str) {
    std::fs::write(directory.join(name), "").expect("a file");
}

async fn started(master: &mut Master, file: PathBuf, code: i32) -> Container {
    let container = master.obtain(1, small()).await.remove(0);
    master.start(&container, &wait_then_exit(&file, code)).await;
    master.until_node_reports(&container, ContainerState::Running).await;
    container
}

#[tokio::test]
async fn failover_loses_no_container_exit() {
    let _lock = cluster_lock().await;
    let cluster =
        must(Cluster::start(Options { nodes: 2, rm_ha: Some(Failover::Automatic), ..options() }));
    let directory = scratch(&cluster, "go");
    let mut master = Master::new(&cluster, "zookeeper").await;
    let missed = started(&mut master, directory.join("missed"), 21).await;
    let kept = started(&mut master, directory.join("kept"), 22).await;

    // Either may be active, and on a busy machine a failover may have happened already.
    let active = must(cluster.wait_active()).daemon.as_str();
    must(cluster.kill(active));
    // This container ends while no ResourceManager is active.
    release(&directory, "missed");
    master.until_node_reports(&missed, ContainerState::Complete).await;

    master
        .until("a registration with the other", |master| (master.registrations >= 2).then_some(()))
        .await;
    assert_eq!(must(cluster.pid(active)), None, "it is still down");
    must(cluster.wait_nodes(2));
    let end = master.end_of(missed.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(21));
    master.until_node_reports(&kept, ContainerState::Running).await;
    assert_eq!(master.ended.get(&kept.id), None);

    let new = master.obtain(1, small()).await.remove(0);
    assert!(new.id.epoch >= 1, "{}", new.id);
    master.start(&new, &LaunchContext::command("exit 23")).await;
    let end = master.end_of(new.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(23));

    // Fails back to the first one, which has been restarted meanwhile.
    must(cluster.start_daemon(active));
    let other = must(cluster.wait_active()).daemon.as_str();
    let before = master.registrations;
    must(cluster.kill(other));
    master
        .until("a registration with the first", |master| {
            (master.registrations > before).then_some(())
        })
        .await;
    must(cluster.wait_nodes(2));
    release(&directory, "kept");
    let end = master.end_of(kept.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(22));
    assert_eq!(master.ended.len(), 3, "{:?}", master.ended);
    master.finish().await;
    assert!(master.report_when_over().await.state.is_over());
}
