//! The keys of node tokens are rolled while a master calls the node, and the node restarts without
//! recovery. (`restart` covers recovery.)

use std::time::Duration;

use crate::support::master::{Master, cluster_lock, options, scratch, small, wait_then_exit};
use testbed::{Cluster, File, Options};
use tokio::time::{Instant, sleep};
use yarn_native::credentials::TokenIdentifier;
use yarn_native::types::{ContainerState, ExitStatus, LaunchContext};

/// Returns the key ids of the node tokens received so far.
fn keys(master: &Master) -> Vec<i32> {
    let tokens = master.answers.iter().flat_map(|answer| &answer.node_tokens);
    let key = |token| match TokenIdentifier::decode(token) {
        Ok(TokenIdentifier::Node { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    tokens.map(|token| key(&token.token)).collect()
}

#[tokio::test]
async fn node_calls_survive_key_rolling_and_a_restart_without_recovery() {
    let _lock = cluster_lock().await;
    let options = Options {
        nodes: 1,
        token_interval: Some(Duration::from_secs(24)),
        nm_recovery: false,
        ..options()
    };
    // The master's own token is not rolled in this test.
    let options =
        options.set(File::Yarn, "yarn.am.liveness-monitor.expiry-interval-ms", "60000").set(
            File::Yarn,
            "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs",
            "86400",
        );
    let cluster = Cluster::start(options);
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let must = |outcome: Result<(), testbed::Error>| {
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    };
    let file = scratch(&cluster, "go").join("old");
    let mut master = Master::new(&cluster, "keys").await;
    let old = master.obtain(1, small()).await.remove(0);
    master.start(&old, &wait_then_exit(&file, 31)).await;
    assert_eq!(keys(&master).len(), 1);

    // A new token comes with the first container granted after the keys were rolled.
    let deadline = Instant::now() + Duration::from_secs(120);
    while keys(&master).len() < 2 {
        assert!(Instant::now() < deadline, "the keys are not rolled");
        // Limits the number of containers on a small machine.
        sleep(Duration::from_secs(1)).await;
        let end = master.run(&LaunchContext::command("exit 32")).await;
        assert_eq!(end.exit, ExitStatus::Exited(32));
    }
    let keys_seen = keys(&master);
    assert_ne!(keys_seen[0], keys_seen[1]);
    let status = master.status(&old.node, old.id).await;
    assert_eq!(
        status.state,
        ContainerState::Running,
        "the new token is valid for an old container"
    );
    std::fs::write(file, "").expect("a file");
    let end = master.end_of(old.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(31));

    // A node without recovery knows the newest key only, so that the newest token must be used.
    must(cluster.kill("nm1"));
    must(cluster.start_daemon("nm1"));
    must(cluster.wait_nodes(1));
    let end = master.run(&LaunchContext::command("exit 33")).await;
    assert_eq!(end.exit, ExitStatus::Exited(33));
    assert_eq!(master.registrations, 1);
    master.finish().await;
}
