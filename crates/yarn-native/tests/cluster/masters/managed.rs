//! A managed application with two attempts of its master. The launched process only exposes its
//! token; the test's own process acts as the master with it.

use std::fs;
use std::path::{Path, PathBuf};

use super::cluster;
use crate::support::master::{Master, client, scratch, small, soon, wait_then_exit};
use testbed::Cluster;
use yarn_native::Token;
use yarn_native::client::Submission;
use yarn_native::types::{
    ApplicationId, ApplicationState, AttemptId, ContainerId, ContainerState, ExitStatus,
    FinalStatus, LaunchContext,
};

/// Returns the master's launch context: it copies its credentials to the test's directory, and runs
/// until the test ends it.
fn token_exporter(directory: &Path) -> LaunchContext {
    let directory = directory.display();
    LaunchContext::command(format!(
        "cp $HADOOP_TOKEN_FILE_LOCATION {directory}/$CONTAINER_ID.part && \
         mv {directory}/$CONTAINER_ID.part {directory}/$CONTAINER_ID.tokens && \
         for i in {{1..2000}}; do test -e {directory}/$CONTAINER_ID.end && exit 1; sleep 0.1; done"
    ))
}

/// Returns the path of a file of an attempt's first container, the master.
fn file_of(directory: &Path, attempt: AttemptId, ending: &str) -> PathBuf {
    let AttemptId { application: ApplicationId { cluster, number }, number: attempt } = attempt;
    let name = format!("container_{cluster}_{number:04}_{attempt:02}_000001.{ending}");
    directory.join(name)
}

/// Waits for the token of an attempt's master.
fn token_of(cluster: &Cluster, directory: &Path, attempt: AttemptId) -> Token {
    let file = file_of(directory, attempt, "tokens");
    let bytes = cluster.wait("the master's credentials", || fs::read(&file).ok());
    let bytes = bytes.unwrap_or_else(|failure| panic!("{failure}"));
    let body = bytes.strip_prefix(b"HDTS\0\x01").expect("one token");
    // Four short length-prefixed fields follow an empty alias.
    let mut rest = body.strip_prefix(b"\0").expect("no alias");
    let mut field = || {
        let (length, after) = rest.split_first().expect("a length");
        let (field, after) = after.split_at(usize::from(*length));
        rest = after;
        field.to_vec()
    };
    let (identifier, password) = (field(), field());
    let kind = String::from_utf8(field()).expect("a kind");
    assert_eq!(kind, "YARN_AM_RM_TOKEN");
    Token { identifier, password: password.into(), kind, service: String::new() }
}

#[tokio::test]
async fn a_second_attempt_recovers_containers_and_missed_ends() {
    let cluster = cluster();
    let directory = scratch(cluster, "managed");
    let client = client(cluster);
    let id = client.new_application(soon()).await.expect("an id").id;
    let submission = Submission {
        launch: token_exporter(&directory),
        keep_containers: true,
        attempts_max: Some(2),
        ..Submission::new(id, "managed")
    };
    client.submit(&submission, soon()).await.expect("submitted");
    let attempt = |number| AttemptId { application: id, number };
    let token = token_of(cluster, &directory, attempt(1));
    let mut first = Master::with_token(cluster, client.clone(), id, token).await;
    let [ends, stays] = &first.obtain(2, small()).await[..] else {
        panic!("not two containers");
    };
    let (ends, stays) = (ends.clone(), stays.clone());
    let go = |name: &str| directory.join(name);
    first.start(&ends, &wait_then_exit(&go("ends"), 31)).await;
    first.start(&stays, &wait_then_exit(&go("stays"), 32)).await;
    // State that the ResourceManager has not received by then would be lost. It reports all of them
    // as running; only its log is precise.
    let running = cluster.wait("two containers that are known to run", || {
        let log = cluster.log("rm").ok()?;
        let runs = |id: ContainerId| {
            let change = format!("{id} Container Transitioned from ");
            let mut changes = log.lines().filter(|line| line.contains(&change));
            changes.any(|line| line.ends_with(" to RUNNING"))
        };
        (runs(ends.id) && runs(stays.id)).then_some(())
    });
    running.unwrap_or_else(|failure| panic!("{failure}"));

    fs::write(file_of(&directory, attempt(1), "end"), "").expect("a file");
    let token = token_of(cluster, &directory, attempt(2));
    fs::write(go("ends"), "").expect("a file");
    // No master is connected to the ResourceManager now, but the nodes still respond.
    first.until_node_reports(&ends, ContainerState::Complete).await;

    let mut second = Master::with_token(cluster, client, id, token).await;
    let recovered = &second.registered.recovered;
    let found = recovered.iter().find(|container| container.id == stays.id);
    let found = found.unwrap_or_else(|| panic!("{recovered:?}")).clone();
    assert_eq!(found.request_id, stays.request_id);
    second.nodes.add_tokens(second.registered.node_tokens.clone());
    let status = second.status(&found.node, found.id).await;
    assert_eq!(status.state, ContainerState::Running);
    let end = second.end_of(ends.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(31));
    fs::write(go("stays"), "").expect("a file");
    let end = second.end_of(stays.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(32));
    let new = second.obtain(1, small()).await.remove(0);
    assert_eq!(new.id.attempt, attempt(2));
    second.finish().await;
    fs::write(file_of(&directory, attempt(2), "end"), "").expect("a file");
    let report = second.report_when_over().await;
    assert_eq!(report.state, ApplicationState::Finished);
    assert_eq!(report.final_status, FinalStatus::Succeeded);
    assert_eq!(report.attempt, Some(attempt(2)));
}
