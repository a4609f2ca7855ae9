//! Client tests during ResourceManager failover.

use crate::support::client::{client, config, options, soon, submission, version};
use crate::support::master::cluster_lock;
use testbed::{Cluster, Failover, Options};
use yarn_native::client::Client;
use yarn_native::security::Identity;
use yarn_native::types::ApplicationState;

#[tokio::test]
async fn client_fails_over_and_its_token_is_valid_on_both_servers() {
    let _lock = cluster_lock().await;
    let cluster = Cluster::start(Options { rm_ha: Some(Failover::Manual), ..options(version()) });
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let (config, client) = (config(&cluster), client(&cluster));
    let submission = submission(&client, "moving").await;
    let report = client.submit_and_wait(&submission, soon()).await.unwrap();
    assert_eq!(report.state, ApplicationState::Accepted);
    let token = client.delegation_token(&cluster.own_user(), soon()).await;
    let token = token.unwrap();
    let both: Vec<String> =
        cluster.resource_managers().iter().map(|rm| rm.client.to_string()).collect();
    assert_eq!(token.service, both.join(","));

    cluster.kill("rm").unwrap();
    cluster.fail_over("rm2").unwrap();
    let report = client.application(submission.id, soon()).await.unwrap();
    assert!(!report.state.is_over(), "{report:?}");
    let holder = Client::from_config(&config, Identity::token(token.clone())).unwrap();
    holder.cluster_metrics(soon()).await.unwrap();
    client.renew_token(&token, soon()).await.unwrap();
    assert!(client.kill_and_wait(submission.id, "done", soon()).await.unwrap());
}
