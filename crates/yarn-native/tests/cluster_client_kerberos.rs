//! The client on a cluster with Kerberos, where everything said is sealed, and a file system has two
//! NameNodes.

mod cluster_client_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use cluster_client_support::{
    a_cluster_is_described, a_token_lives, an_application_lives, assert_rejected, options, soon,
    submission, until, version,
};
use testbed::{Cluster, Hdfs, Options, Protection};
use yarn_native::Secret;
use yarn_native::client::{Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::credentials::{Credentials, Format};
use yarn_native::namenode::{NameNodes, fetch_tokens};
use yarn_native::rpc::{ExceptionKind, RpcError};
use yarn_native::security::{Identity, SecurityError, ServerPrincipal, Tickets};
use yarn_native::types::{ApplicationState, LaunchContext};

const NAME: &str = "who_has_a_ticket_does_all_this_and_the_tokens_do_the_rest";
/// Set in the process that has the realm's variables: where the cluster's configuration is.
const INSIDE: &str = "YARN_NATIVE_TEST_CONFIGURATION";

/// The Kerberos library reads its configuration from the environment, which a process has to be
/// started with: the test runs itself again inside the realm.
#[test]
fn who_has_a_ticket_does_all_this_and_the_tokens_do_the_rest() {
    if let Some(directory) = std::env::var_os(INSIDE) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        return runtime.block_on(inside(PathBuf::from(directory)));
    }
    let options = Options {
        kerberos: Some(Protection::Privacy),
        hdfs: Hdfs::HighlyAvailable,
        users: vec!["alice".into()],
        ..options(version())
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let mut again = Command::new(std::env::current_exe().expect("a path"));
    again
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, cluster.configuration())
        .env("KRB5_CONFIG", kerberos.configuration())
        .env("KRB5CCNAME", &ticket)
        .env("ALICE_KEYTAB", kerberos.keytab("alice"))
        .env("TOKENS", cluster.directory().join("tokens"));
    if let Some(libraries) = kerberos.libraries() {
        again.env("LD_LIBRARY_PATH", libraries);
    }
    assert!(again.status().expect("a process").success());

    // Hadoop's own client reads the file that was left, and needs no ticket.
    let mut list = cluster.hadoop("org.apache.hadoop.fs.FsShell").unwrap();
    let list = list
        .args(["-ls", "hdfs://testbed/user"])
        .env(
            "HADOOP_TOKEN_FILE_LOCATION",
            cluster.directory().join("tokens"),
        )
        .env("KRB5CCNAME", "/nonexistent")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&list.stdout);
    assert!(said.contains("/user/alice"), "{said} {list:?}");
}

async fn inside(directory: PathBuf) {
    let mut config = Config::from_directories(&[directory], Environment::of_process()).unwrap();
    // The one that stands by is asked first.
    config.set("dfs.ha.namenodes.testbed", "nn2,nn1", "a test");
    let identity = Identity::from_config(&config).unwrap();
    let client = Client::from_config(&config, identity.clone()).unwrap();

    a_cluster_is_described(&client, 1).await;
    an_application_lives(&client).await;
    a_token_lives(&config, &client, "alice").await;
    a_keytab_will_do(&config).await;
    the_wrong_server_is_not_trusted(&config, &identity).await;
    tokens_of_hdfs_are_renewed_and_cancelled(&config, &identity).await;
    let file = PathBuf::from(std::env::var_os("TOKENS").expect("a path"));
    tokens_go_with_an_application(&config, &identity, &client, &file).await;
}

async fn a_keytab_will_do(config: &Config) {
    let path = PathBuf::from(std::env::var_os("ALICE_KEYTAB").expect("a path"));
    let principal = "alice@TESTBED.LOCAL".to_owned();
    let identity = Identity::kerberos(Tickets::Keytab { path, principal });
    let client = Client::from_config(config, identity).unwrap();
    assert_eq!(client.cluster_metrics(soon()).await.unwrap().active, 1);
}

async fn the_wrong_server_is_not_trusted(config: &Config, identity: &Identity) {
    let mut options = config.resource_manager_options().unwrap();
    options.security.server = Some(ServerPrincipal::Named("hdfs/_HOST@TESTBED.LOCAL".into()));
    let address = config.resource_managers().unwrap().remove(0).client;
    let client = Client::new(vec![address], identity.clone(), options).unwrap();
    let refused = client.cluster_metrics(soon()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            RpcError::Security {
                source: SecurityError::WrongServer { .. },
                ..
            }
        ),
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
    let renewer = config
        .renewer()
        .unwrap()
        .expect("a ResourceManager with a name");
    assert_eq!(renewer, "yarn/localhost@TESTBED.LOCAL");
    let several = ["hdfs://testbed".to_owned()];
    let credentials = fetch_tokens(config, &several, identity, &renewer, soon()).await;
    let credentials = credentials.unwrap();
    credentials.write(file, Format::Writable).unwrap();
    assert_eq!(Credentials::read(file).unwrap(), credentials);

    let find = "grep -q HDFS_DELEGATION_TOKEN $HADOOP_TOKEN_FILE_LOCATION && exit 42; exit 43";
    let submission = Submission {
        launch: LaunchContext {
            credentials: Some(Secret::new(credentials.to_bytes(Format::Writable).to_vec())),
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
