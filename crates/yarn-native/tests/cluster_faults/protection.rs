//! Protection of an ApplicationMaster's connections, which with tokens needs no Kerberos.

use crate::support::master::{Master, cluster_lock, options};
use testbed::{Cluster, File, Options};
use yarn_native::types::{ExitStatus, LaunchContext};

async fn check_container_with_protection(protection: &str) {
    let _lock = cluster_lock().await;
    let options = Options { nodes: 1, ..options() };
    let options = options.set(File::Core, "hadoop.rpc.protection", protection);
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let mut master = Master::new(&cluster, protection).await;
    let mut launch = LaunchContext::command("exit 17");
    // Exceeds one protected message.
    let long = "x".repeat(100_000);
    launch.environment.insert("LONG".into(), long);
    let end = master.run(&launch).await;
    assert_eq!(end.exit, ExitStatus::Exited(17), "{}", end.diagnostics);
    master.finish().await;
}

#[tokio::test]
async fn master_connects_with_integrity() {
    check_container_with_protection("integrity").await;
}

#[tokio::test]
async fn master_connects_with_privacy() {
    check_container_with_protection("privacy").await;
}
