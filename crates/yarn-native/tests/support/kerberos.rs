//! Test support for clusters with their own Kerberos realm.
//!
//! The Kerberos library reads its configuration from the environment, which must be set when a
//! process starts. A test therefore starts the cluster and then runs itself as a child process for
//! each of its parts.

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

/// Variable with the part of the test that a child process runs.
const PART: &str = "YARN_NATIVE_TEST_PART";
const KEYTAB: &str = "YARN_NATIVE_TEST_KEYTAB";
const SCRATCH: &str = "YARN_NATIVE_TEST_SCRATCH";

/// Principal of the submitting user.
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

/// Starts a small cluster with a realm.
pub fn realm(protection: Protection, hdfs: Hdfs) -> Cluster {
    let options = Options {
        kerberos: Some(protection),
        users: vec!["alice".into()],
        hdfs,
        ..Options::new(version())
    };
    Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the part this process runs; `None` in the parent.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// Returns this program as a child process that runs a part of the test `name`.
pub fn child(name: &str, part: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", name, "--nocapture"]);
    child.env(PART, part);
    child
}

/// Returns a child process of Alice with a ticket and a keytab of the cluster's realm.
pub fn alice(cluster: &Cluster, name: &str, part: &str) -> Command {
    let kerberos = cluster.kerberos().expect("a realm");
    let ticket = kerberos.kinit("alice", None).expect("a ticket");
    let scratch = cluster.directory().join("scratch");
    std::fs::create_dir_all(&scratch).expect("a directory");
    let mut alice = child(name, part);
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

/// Runs a child process and requires its success.
pub fn run_child(child: &mut Command) {
    let status = child.status().expect("a process");
    assert!(status.success(), "{child:?} ended with {status}");
}

/// Runs a future to completion.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn variable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("a variable"))
}

/// Returns a file shared by all parts of a test.
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

/// Waits for the end of an application and returns its report.
pub async fn wait_until_finished(client: &Client, id: ApplicationId) -> ApplicationReport {
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

/// Submits as an ordinary user with a keytab and with the ticket from `kinit`.
pub async fn check_submission_with_keytab_and_ticket(config: &Config) {
    let submit = async |tickets: TicketSource, code: i32| {
        let client = client(config, tickets);
        let id = client.new_application(soon()).await.expect("an id").id;
        let submission = Submission {
            attempts_max: Some(1),
            launch: LaunchContext::command(format!("exit {code}")),
            ..Submission::new(id, "both ways")
        };
        client.submit(&submission, soon()).await.expect("submitted");
        let report = wait_until_finished(&client, id).await;
        assert_eq!(report.user, "alice");
        assert_eq!(report.state, ApplicationState::Failed, "it never registers");
        let end = format!("exitCode: {code}");
        assert!(report.diagnostics.contains(&end), "{report:?}");
    };
    tokio::join!(submit(with_keytab(), 41), submit(TicketSource::Default, 42));
}
