//! Access lists for viewing and modifying an application.

use std::collections::BTreeMap;

use yarn_native::client::{Client, Submission};
use yarn_native::rpc::{self, Address, RpcError};
use yarn_native::security::Identity;
use yarn_native::types::{Access, ApplicationState, AttemptId, LaunchContext};

use super::cluster;
use crate::support::master::{end_of, soon};

fn client_of(user: &str) -> Client {
    let at = cluster().resource_managers()[0].client;
    let address = Address::new(at.ip().to_string(), at.port());
    let identity = Identity::simple(user);
    Client::new(vec![address], identity, rpc::Options::default()).expect("a client")
}

fn assert_forbidden<T: std::fmt::Debug>(outcome: Result<T, RpcError>, user: &str) {
    match outcome {
        Err(RpcError::Rejected { exception, .. }) if exception.message.contains(user) => {}
        other => panic!("{user} should not: {other:?}"),
    }
}

#[tokio::test]
async fn only_listed_users_can_view_and_kill_an_application() {
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(client_of);
    let id = alice.new_application(soon()).await.expect("an id").id;
    let submission = Submission {
        attempts_max: Some(1),
        launch: LaunchContext {
            access: BTreeMap::from([
                (Access::View, "bob".to_owned()),
                (Access::Modify, "carol".to_owned()),
            ]),
            ..LaunchContext::command("sleep 120")
        },
        ..Submission::new(id, "access")
    };
    let report = alice.submit_and_wait(&submission, soon()).await;
    assert_eq!(report.expect("a report").state, ApplicationState::Accepted);
    let attempt = AttemptId { application: id, number: 1 };
    for client in [&alice, &bob] {
        client.attempt(attempt, soon()).await.expect("a report");
    }
    for (client, user) in [(&carol, "carol"), (&dave, "dave")] {
        assert_forbidden(client.attempt(attempt, soon()).await, user);
    }
    for (client, user) in [(&bob, "bob"), (&dave, "dave")] {
        assert_forbidden(client.kill(id, soon()).await, user);
    }
    let ended = carol.kill_and_wait(id, "carol has had enough", soon()).await;
    assert!(ended.expect("an answer"));
    let report = end_of(&alice, id).await;
    assert_eq!(report.state, ApplicationState::Killed);
    assert!(report.diagnostics.contains("carol has had enough"), "{report:?}");
}
