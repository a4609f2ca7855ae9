//! Authentication in HDFS: by ticket, keytab and token, and the error without any.
//!
//! The Kerberos library reads its configuration from the environment of the process. So the test starts the cluster,
//! and runs itself again for each case.

use std::{path::PathBuf, process::Command, time::Duration};
use testbed::{Cluster, Options, Protection, Version};
use tokio::time::Instant;
use yarn_native::{
    config::{Config, Environment},
    credentials::Format,
    namenode::fetch_tokens,
    security::{Identity, TicketSource},
};
use ydl::client::stage::StagingDir;
use ydl_storage::hdfs::{Hdfs, Kind};

const NAME: &str = "credentials::hdfs_accepts_a_ticket_a_keytab_or_a_token";
const PART: &str = "YDL_TEST_PART";
const KEYTAB: &str = "YDL_TEST_KEYTAB";
const TOKENS: &str = "YDL_TEST_TOKENS";
const SYSTEMS: &str = "YDL_TEST_FILE_SYSTEMS";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("a variable")
}

fn config() -> Config {
    Config::load(Environment::of_process()).expect("a configuration")
}

/// Returns the two file systems; the first is the default.
fn systems() -> Vec<String> {
    variable(SYSTEMS).split(' ').map(str::to_owned).collect()
}

#[test]
fn hdfs_accepts_a_ticket_a_keytab_or_a_token() {
    if let Ok(part) = std::env::var(PART) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        return runtime.block_on(async {
            match part.as_str() {
                "ticket" => ticket_is_used().await,
                "keytab" => keytab_is_used().await,
                "token" => tokens_alone_suffice().await,
                _ => missing_credentials_are_reported().await,
            }
        });
    }
    let version = std::env::var("HADOOP_VERSION").map(|name| name.parse().expect("a version"));
    let options = Options {
        kerberos: Some(Protection::Privacy),
        hdfs: testbed::Hdfs::Two,
        users: vec!["alice".into()],
        ..Options::new(version.unwrap_or(Version::NEWEST))
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let tokens = cluster.directory().join("tokens");
    let mut systems = vec![cluster.default_fs()];
    for namenode in &cluster.namenodes()[1..] {
        systems.push(format!("hdfs://{}", namenode.rpc));
    }
    let play = |part: &str, ticket: PathBuf, token_file: bool| {
        let mut player = Command::new(std::env::current_exe().expect("a path"));
        player
            .args(["--exact", NAME, "--nocapture"])
            .env(PART, part)
            .env("HADOOP_CONF_DIR", cluster.configuration())
            .env("KRB5_CONFIG", kerberos.configuration())
            .env("KRB5CCNAME", ticket)
            .env(KEYTAB, kerberos.keytab("alice"))
            .env(TOKENS, &tokens)
            .env(SYSTEMS, systems.join(" "));
        if token_file {
            player.env("HADOOP_TOKEN_FILE_LOCATION", &tokens);
        }
        if let Some(libraries) = kerberos.libraries() {
            player.env("LD_LIBRARY_PATH", libraries);
        }
        let status = player.status().expect("a process");
        assert!(status.success(), "{part} ended with {status}");
    };
    let none = || PathBuf::from("/nonexistent");
    play("ticket", ticket, false);
    play("keytab", none(), false);
    play("token", none(), true);
    play("nothing", none(), false);
}

async fn write_and_read(hdfs: &Hdfs, file: &str) {
    let bytes = vec![5; 3 << 20];
    hdfs.write_atomic(file, bytes.clone(), 0o600, soon()).await.expect("written");
    assert_eq!(hdfs.read_file(file, 4 << 20, soon()).await.expect("read"), bytes);
    let entry = hdfs.stat(file, soon()).await.expect("a response").expect("a file");
    assert_eq!(entry.owner, "alice");
}

async fn ticket_is_used() {
    let config = config();
    let identity = Identity::from_config(&config).expect("an identity");
    let staging =
        StagingDir::find(&config, &identity, None, soon()).await.expect("a staging directory");
    assert_eq!(staging.home, format!("{}/user/alice", systems()[0]));
    assert_eq!(staging.layout.root(), format!("{}/user/alice/.ydl", systems()[0]));
    write_and_read(&staging.hdfs, "/user/alice/by-ticket").await;
    let other = Hdfs::connect(&config, Some(&systems()[1]), &identity, soon()).await;
    let other = other.expect("a file system");
    let refused = other.write_atomic("/by-ticket", "x", 0o600, soon()).await;
    assert_eq!(refused.expect_err("the root is not hers").kind, Kind::Denied);
    let tokens = fetch_tokens(&config, &systems(), &identity, "alice", soon()).await;
    let tokens = tokens.expect("tokens");
    assert_eq!(tokens.tokens().count(), 2);
    let file = PathBuf::from(variable(TOKENS));
    tokens.write(&file, Format::Writable).expect("a file of tokens");
}

async fn keytab_is_used() {
    let tickets = TicketSource::Keytab {
        path: variable(KEYTAB).into(),
        principal: "alice@TESTBED.LOCAL".into(),
    };
    let identity = Identity::kerberos(tickets);
    let hdfs = Hdfs::connect(&config(), None, &identity, soon()).await.expect("a file system");
    assert_eq!(hdfs.user(soon()).await.expect("a user"), "alice");
    write_and_read(&hdfs, "/user/alice/by-keytab").await;
}

async fn tokens_alone_suffice() {
    let config = config();
    let identity = Identity::from_config(&config).expect("an identity");
    for (system, path) in systems().iter().zip(["/user/alice/by-token", "/"]) {
        // Tokens contain addresses, URLs names of the same server.
        let port = system.rsplit(':').next().expect("a port");
        for host in ["localhost", "127.0.0.1"] {
            let url = format!("hdfs://{host}:{port}");
            let hdfs = Hdfs::connect(&config, Some(&url), &identity, soon()).await;
            let hdfs = hdfs.expect("a file system");
            assert_eq!(hdfs.user(soon()).await.expect("a user"), "alice");
            match path {
                "/" => drop(hdfs.list(path, soon()).await.expect("a listing")),
                path => write_and_read(&hdfs, path).await,
            }
        }
    }
}

async fn missing_credentials_are_reported() {
    let config = config();
    let identity = Identity::from_config(&config).expect("an identity");
    let hdfs = Hdfs::connect(&config, None, &identity, soon()).await.expect("nothing was asked");
    let error = hdfs.list("/", soon()).await.expect_err("no proof");
    println!("{error}");
    assert_eq!(error.kind, Kind::Unauthenticated, "{error}");
    assert!(error.hint.expect("a hint").contains("kinit"));
    let error = hdfs.home(soon()).await.expect_err("no proof");
    println!("{error}");
    assert_eq!(error.kind, Kind::Unauthenticated, "{error}");
}
