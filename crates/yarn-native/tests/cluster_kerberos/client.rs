//! Client tests on a cluster with Kerberos, privacy and highly available HDFS.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::client::{
    assert_rejected, check_application_lifecycle, check_cluster_reports, check_token_lifecycle,
    options, soon, submission, until, version,
};
use crate::support::kerberos::{
    alice, block_on, check_submission_with_keytab_and_ticket, child, part, run_child, scratch,
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

const NAME: &str = "client::tickets_and_tokens_authenticate_all_clients";

#[test]
fn tickets_and_tokens_authenticate_all_clients() {
    match part().as_deref() {
        None => {}
        Some("holder") => return block_on(check_hdfs_access_with_tokens()),
        Some(_) => return block_on(inside()),
    }
    let options = Options {
        kerberos: Some(Protection::Privacy),
        hdfs: Hdfs::HighlyAvailable,
        users: vec!["alice".into()],
        ..options(version())
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    run_child(&mut alice(&cluster, NAME, "alice"));

    let tokens = cluster.directory().join("scratch/tokens");
    // Hadoop's own client uses the token file without a ticket.
    let mut list = cluster.hadoop("org.apache.hadoop.fs.FsShell").unwrap();
    let list = list
        .args(["-ls", "hdfs://testbed/user"])
        .env("HADOOP_TOKEN_FILE_LOCATION", tokens)
        .env("KRB5CCNAME", "/nonexistent")
        .output()
        .expect("a process");
    let stdout = String::from_utf8_lossy(&list.stdout);
    assert!(stdout.contains("/user/alice"), "{stdout} {list:?}");
}

async fn inside() {
    let mut config = crate::support::kerberos::config();
    // The standby NameNode is tried first.
    config.set("dfs.ha.namenodes.testbed", "nn2,nn1", "a test");
    let identity = Identity::from_config(&config).unwrap();
    let client = Client::from_config(&config, identity.clone()).unwrap();

    check_submission_with_keytab_and_ticket(&config).await;
    check_cluster_reports(&client, 1).await;
    check_application_lifecycle(&client).await;
    check_token_lifecycle(&config, &client, "alice").await;
    check_wrong_server_is_rejected(&config, &identity).await;
    check_hdfs_token_renewal_and_cancellation(&config, &identity).await;
    let file = scratch("tokens");
    check_tokens_are_shipped_with_an_application(&config, &identity, &client, &file).await;
    // The name service of the file system is used as is.
    let mut holder = child(NAME, "holder");
    holder.env("HADOOP_TOKEN_FILE_LOCATION", &file);
    run_child(holder.env("KRB5CCNAME", "/nonexistent"));
}

async fn check_hdfs_access_with_tokens() {
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

async fn check_wrong_server_is_rejected(config: &Config, identity: &Identity) {
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

async fn check_hdfs_token_renewal_and_cancellation(config: &Config, identity: &Identity) {
    let namenodes = NameNodes::from_config(config, "hdfs://testbed", identity.clone()).unwrap();
    let token = namenodes.delegation_token("alice", soon()).await.unwrap();
    let token = token.expect("a secure NameNode issues one");
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

/// The ResourceManager renews the tokens, and the ApplicationMaster finds them in its container.
async fn check_tokens_are_shipped_with_an_application(
    config: &Config,
    identity: &Identity,
    client: &Client,
    file: &Path,
) {
    let renewer = config.renewer().unwrap().expect("a ResourceManager with a name");
    assert_eq!(renewer, "yarn/localhost@TESTBED.LOCAL");
    let file_systems = ["hdfs://testbed".to_owned()];
    let credentials = fetch_tokens(config, &file_systems, identity, &renewer, soon()).await;
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
