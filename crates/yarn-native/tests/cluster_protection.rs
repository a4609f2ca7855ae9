//! What a master says is protected as the cluster wants it: with tokens that needs no Kerberos.

mod cluster_support;

use cluster_support::{Master, options, turn};
use testbed::{Cluster, File, Options};
use yarn_native::types::{ExitStatus, LaunchContext};

async fn runs_a_container_under(protection: &str) {
    let _turn = turn().await;
    let options = Options { nodes: 1, ..options() };
    let options = options.set(File::Core, "hadoop.rpc.protection", protection);
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let mut master = Master::new(&cluster, protection).await;
    let mut launch = LaunchContext::command("exit 17");
    // Longer than what fits into one protected message.
    let long = "x".repeat(100_000);
    launch.environment.insert("LONG".into(), long);
    let end = master.run(&launch).await;
    assert_eq!(end.exit, ExitStatus::Exited(17), "{}", end.diagnostics);
    master.finish().await;
}

#[tokio::test]
async fn a_master_speaks_with_integrity() {
    runs_a_container_under("integrity").await;
}

#[tokio::test]
async fn a_master_speaks_in_private() {
    runs_a_container_under("privacy").await;
}
