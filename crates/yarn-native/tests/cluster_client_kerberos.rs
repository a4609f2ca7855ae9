//! The client on a cluster with Kerberos, where everything said is sealed, and a file system has two
//! NameNodes.

mod cluster_client_support;
mod cluster_kerberos_support;

use std::path::Path;
use std::time::{Duration, SystemTime};

use cluster_client_support::{
    a_cluster_is_described, a_token_lives, an_application_lives, assert_rejected, options, soon,
    submission, until, version,
};
use cluster_kerberos_support::{
    alice, alice_submits_both_ways, block_on, part, play, player, scratch,
};
use hdfs_native::{ClientBuilder, WriteOptions};
use testbed::{Cluster, Hdfs, Options, Protection};
use tokio::time::timeout;
use yarn_native::client::{Client, Submission};
use yarn_native::config::Config;
use yarn_native::credentials::{Credentials, Format};
use yarn_native::namenode::{NameNodes, fetch_tokens};
use yarn_native::rpc::{ExceptionKind, RpcError};
use yarn_native::security::{Identity, SecurityError, ServerPrincipal};
use yarn_native::types::{ApplicationState, LaunchContext};

const NAME: &str = "who_has_a_ticket_does_all_this_and_the_tokens_do_the_rest";

#[test]
fn who_has_a_ticket_does_all_this_and_the_tokens_do_the_rest() {
    match part().as_deref() {
        None => {}
        Some("holder") => return block_on(with_tokens_alone()),
        Some(_) => return block_on(inside()),
    }
    let options = Options {
        kerberos: Some(Protection::Privacy),
        hdfs: Hdfs::HighlyAvailable,
        users: vec!["alice".into()],
        ..options(version())
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    play(&mut alice(&cluster, NAME, "alice"));

    let tokens = cluster.directory().join("scratch/tokens");
    // Hadoop's own client reads the file that was left, and needs no ticket.
    let mut list = cluster.hadoop("org.apache.hadoop.fs.FsShell").unwrap();
    let list = list
        .args(["-ls", "hdfs://testbed/user"])
        .env("HADOOP_TOKEN_FILE_LOCATION", tokens)
        .env("KRB5CCNAME", "/nonexistent")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&list.stdout);
    assert!(said.contains("/user/alice"), "{said} {list:?}");
}

async fn inside() {
    let mut config = cluster_kerberos_support::config();
    // The one that stands by is asked first.
    config.set("dfs.ha.namenodes.testbed", "nn2,nn1", "a test");
    let identity = Identity::from_config(&config).unwrap();
    let client = Client::from_config(&config, identity.clone()).unwrap();

    alice_submits_both_ways(&config).await;
    a_cluster_is_described(&client, 1).await;
    an_application_lives(&client).await;
    a_token_lives(&config, &client, "alice").await;
    the_wrong_server_is_not_trusted(&config, &identity).await;
    tokens_of_hdfs_are_renewed_and_cancelled(&config, &identity).await;
    let file = scratch("tokens");
    tokens_go_with_an_application(&config, &identity, &client, &file).await;
    // The name of the file system needs no spelling out.
    let mut holder = player(NAME, "holder");
    holder.env("HADOOP_TOKEN_FILE_LOCATION", &file);
    play(holder.env("KRB5CCNAME", "/nonexistent"));
}

async fn with_tokens_alone() {
    let work = async {
        let files = ClientBuilder::new().with_url("hdfs://testbed").build();
        let files = files.unwrap();
        let path = "/user/alice/secret";
        let mut file = files.create(path, WriteOptions::default()).await.unwrap();
        file.write_bytes("sealed".into()).await.unwrap();
        file.close().await.unwrap();
        let mut file = files.read(path).await.unwrap();
        assert_eq!(file.read_bytes(100).await.unwrap(), "sealed");
    };
    let done = timeout(Duration::from_secs(60), work).await;
    done.expect("HDFS answers");
}

async fn the_wrong_server_is_not_trusted(config: &Config, identity: &Identity) {
    let mut options = config.resource_manager_options().unwrap();
    options.security.server = Some(ServerPrincipal::Exact("hdfs/_HOST@TESTBED.LOCAL".into()));
    let address = config.resource_managers().unwrap().remove(0).client;
    let client = Client::new(vec![address], identity.clone(), options).unwrap();
    let refused = client.cluster_metrics(soon()).await.unwrap_err();
    assert!(
        matches!(refused, RpcError::Security { source: SecurityError::WrongServer { .. }, .. }),
        "{refused:?}"
    );
}

async fn tokens_of_hdfs_are_renewed_and_cancelled(config: &Config, identity: &Identity) {
    let namenodes = NameNodes::from_config(config, "hdfs://testbed", identity.clone()).unwrap();
    let token = namenodes.delegation_token("alice", soon()).await.unwrap();
    let token = token.expect("a secure NameNode gives one");
    assert_eq!(token.kind, "HDFS_DELEGATION_TOKEN");
    assert_eq!(token.service, "ha-hdfs:testbed");
    let until = namenodes.renew_token(&token, soon()).await.unwrap();
    assert!(until > SystemTime::now());
    let holder = NameNodes::from_config(config, "testbed", Identity::token(token.clone()));
    assert_eq!(holder.unwrap().key_provider(soon()).await.unwrap(), None);
    namenodes.cancel_token(&token, soon()).await.unwrap();
    let again = namenodes.renew_token(&token, soon()).await;
    assert_rejected(again, ExceptionKind::InvalidToken);
}

/// The ResourceManager renews what it is given, and the master finds it in its container.
async fn tokens_go_with_an_application(
    config: &Config,
    identity: &Identity,
    client: &Client,
    file: &Path,
) {
    let renewer = config.renewer().unwrap().expect("a ResourceManager with a name");
    assert_eq!(renewer, "yarn/localhost@TESTBED.LOCAL");
    let several = ["hdfs://testbed".to_owned()];
    let credentials = fetch_tokens(config, &several, identity, &renewer, soon()).await;
    let credentials = credentials.unwrap();
    credentials.write(file, Format::Writable).unwrap();
    assert_eq!(Credentials::read(file).unwrap(), credentials);

    let find = "grep -q HDFS_DELEGATION_TOKEN $HADOOP_TOKEN_FILE_LOCATION && exit 42; exit 43";
    let submission = Submission {
        launch: LaunchContext {
            credentials: Some(credentials.to_bytes(Format::Writable).into()),
            ..LaunchContext::command(find)
        },
        cancel_tokens: false,
        ..submission(client, "with tokens").await
    };
    client.submit(&submission, soon()).await.unwrap();
    let report = until(client, submission.id, "its end", |r| r.state.is_over()).await;
    assert_eq!(report.state, ApplicationState::Failed, "it never registers");
    assert!(report.diagnostics.contains("exitCode: 42"), "{report:?}");
}
