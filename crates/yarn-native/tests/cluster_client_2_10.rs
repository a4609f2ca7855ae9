//! The client on Hadoop 2.10: the life of an application, and what that version lacks.

mod cluster_client_support;

use cluster_client_support::{
    a_cluster_is_described, a_token_lives, an_application_lives, client, config, options, soon,
};
use testbed::{Cluster, Version};
use yarn_native::rpc::RpcError;

#[tokio::test]
async fn an_application_lives_and_what_2_10_lacks_is_said() {
    let cluster = Cluster::start(options(Version::V2_10_2));
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let client = client(&cluster);
    a_cluster_is_described(&client, 1).await;
    an_application_lives(&client).await;
    a_token_lives(&config(&cluster), &client, &cluster.own_user()).await;
    assert_eq!(client.labels(soon()).await.unwrap(), []);
    let attributes = client.attributes(soon()).await;
    assert!(
        matches!(attributes, Err(RpcError::Unsupported { .. })),
        "{attributes:?}"
    );
}
