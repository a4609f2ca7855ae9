//! Tests that live in a realm of their own.
//!
//! The Kerberos library reads its configuration from the environment, which a process has to be
//! started with: a test starts the cluster, and then runs itself again for each part it plays.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testbed::{Cluster, Hdfs, Options, Protection, Version};
use tokio::time::{Instant, sleep};
use yarn_native::client::{Client, Submission};
use yarn_native::config::{Config, Environment};
use yarn_native::security::{Identity, TicketSource};
use yarn_native::types::{ApplicationId, ApplicationReport, ApplicationState, LaunchContext};

/// Which part of its test a process plays.
const PART: &str = "YARN_NATIVE_TEST_PART";
const KEYTAB: &str = "YARN_NATIVE_TEST_KEYTAB";
const SCRATCH: &str = "YARN_NATIVE_TEST_SCRATCH";

/// Whose applications these are.
pub const ALICE: &str = "alice@TESTBED.LOCAL";

pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("{failure}")),
        Err(_) => Version::NEWEST,
    }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A small cluster in a realm, started.
pub fn realm(protection: Protection, hdfs: Hdfs) -> Cluster {
    let options = Options {
        kerberos: Some(protection),
        users: vec!["alice".into()],
        hdfs,
        ..Options::new(version())
    };
    Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The part this process plays; none where it is the one that begins.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// This program, to play a part of the test `name`.
pub fn player(name: &str, part: &str) -> Command {
    let mut player = Command::new(std::env::current_exe().expect("a path"));
    player.args(["--exact", name, "--nocapture"]);
    player.env(PART, part);
    player
}

/// The same, as Alice with a ticket and a keytab in the cluster's realm.
pub fn alice(cluster: &Cluster, name: &str, part: &str) -> Command {
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let scratch = cluster.directory().join("scratch");
    std::fs::create_dir_all(&scratch).expect("a directory");
    let mut alice = player(name, part);
    alice
        .env("HADOOP_CONF_DIR", cluster.configuration())
        .env("KRB5_CONFIG", kerberos.configuration())
        .env("KRB5CCNAME", ticket)
        .env(KEYTAB, kerberos.keytab("alice"))
        .env(SCRATCH, scratch);
    if let Some(libraries) = kerberos.libraries() {
        alice.env("LD_LIBRARY_PATH", libraries);
    }
    alice
}

/// Has a part played to its end.
pub fn play(player: &mut Command) {
    let status = player.status().expect("a process");
    assert!(status.success(), "{player:?} ended with {status}");
}

/// Runs to the end whatever a part has to do.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn variable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("a variable"))
}

/// A file that all parts of a test know.
pub fn scratch(name: impl AsRef<OsStr>) -> PathBuf {
    variable(SCRATCH).join(name.as_ref())
}

pub fn config() -> Config {
    Config::load(Environment::of_process()).expect("a configuration")
}

pub fn client(config: &Config, tickets: TicketSource) -> Client {
    Client::from_config(config, Identity::kerberos(tickets)).expect("a client")
}

pub fn with_keytab() -> TicketSource {
    TicketSource::Keytab { path: variable(KEYTAB), principal: ALICE.to_owned() }
}

/// The report of an application once it is over.
pub async fn over(client: &Client, id: ApplicationId) -> ApplicationReport {
    let deadline = soon();
    loop {
        let report = client.application(id, deadline).await.expect("a report");
        if report.state.is_over() {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// An ordinary user submits with a keytab, and with the ticket that `kinit` left.
pub async fn alice_submits_both_ways(config: &Config) {
    let submit = async |tickets: TicketSource, code: i32| {
        let client = client(config, tickets);
        let id = client.new_application(soon()).await.expect("an id").id;
        let submission = Submission {
            attempts_max: Some(1),
            launch: LaunchContext::command(format!("exit {code}")),
            ..Submission::new(id, "both ways")
        };
        client.submit(&submission, soon()).await.expect("submitted");
        let report = over(&client, id).await;
        assert_eq!(report.user, "alice");
        assert_eq!(report.state, ApplicationState::Failed, "it never registers");
        let end = format!("exitCode: {code}");
        assert!(report.diagnostics.contains(&end), "{report:?}");
    };
    tokio::join!(submit(with_keytab(), 41), submit(TicketSource::Default, 42));
}
