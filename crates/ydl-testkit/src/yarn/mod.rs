//! Jobs on real clusters.

pub mod attached;
pub mod digits;
mod job;
pub mod processes;
mod reports;
pub mod training;
mod workspace;

pub use job::{ClusterJob, Program, WAIT_SCRIPT, time_until};
pub use reports::{AttemptEnd, AttemptStart, is_event};
pub use workspace::Workspace;

use crate::wait_until;
use std::time::Duration;
use testbed::{Cluster, Lease, Options, Version};
use tokio::time::Instant;
use yarn_native::{
    client::{ApplicationFilter, Client},
    config::{Config, Environment},
    security::Identity,
    types::{ApplicationReport, ApplicationState},
};

/// Timeout of every wait: more than anything takes on a busy machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the version of Hadoop to test with: `HADOOP_VERSION`, or the newest.
pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|error| panic!("{error}")),
        Err(_) => Version::NEWEST,
    }
}

/// Leases the cluster with these options for a test that disturbs no other.
pub fn shared(options: Options) -> Lease {
    Cluster::lease(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Leases the cluster with these options for one test alone, which restores what it takes away.
pub fn exclusive(options: Options) -> Lease {
    Cluster::lease_exclusive(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the client configuration of the daemons' user.
pub fn config(cluster: &Cluster) -> Config {
    let environment = Environment::of_process();
    let environment = environment.with_variable("HADOOP_USER_NAME", cluster.own_user());
    Config::from_directories(&[cluster.configuration()], environment).expect("a configuration")
}

/// Returns a YARN client of the daemons' user.
pub fn client(cluster: &Cluster) -> Client {
    let config = config(cluster);
    let identity = Identity::from_config(&config).expect("an identity");
    Client::from_config(&config, identity).expect("a client")
}

/// Runs a future to its end.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Returns the deadline of one call.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Returns all applications of the ResourceManager.
pub fn applications(cluster: &Cluster) -> Vec<ApplicationReport> {
    block_on(async {
        let client = client(cluster);
        let all = ApplicationFilter::default();
        client.applications(&all, deadline()).await.expect("a list")
    })
}

/// Returns the ResourceManager's report of an application.
pub fn application(cluster: &Cluster, id: &str) -> ApplicationReport {
    let id = id.parse().expect("an application's id");
    block_on(async { client(cluster).application(id, deadline()).await.expect("a report") })
}

/// Waits for the end of an application and returns its last report.
pub fn wait_finished(cluster: &Cluster, id: &str) -> ApplicationReport {
    wait_for(&format!("the end of {id}"), || {
        let report = application(cluster, id);
        report.state.is_over().then_some(report)
    })
}

/// Waits until the master of an application has registered.
pub fn wait_running(cluster: &Cluster, id: &str) -> ApplicationReport {
    wait_for(&format!("the master of {id}"), || {
        let report = application(cluster, id);
        assert!(!report.state.is_over(), "{report:?}");
        (report.state == ApplicationState::Running).then_some(report)
    })
}

/// Returns the paths of all files and directories below a directory in HDFS, as `FsShell` lists them.
pub fn hdfs_files(cluster: &Cluster, directory: &str) -> Vec<String> {
    let listed = cluster.fs(&["-ls", "-R", directory]).unwrap_or_default();
    let paths = listed.lines().filter_map(|line| line.split_whitespace().nth(7));
    paths.map(str::to_owned).collect()
}

/// Polls until `condition` returns a value; panics after [`WAIT_TIMEOUT`].
pub fn wait_for<T>(event: &str, condition: impl FnMut() -> Option<T>) -> T {
    let interval = Duration::from_millis(100);
    wait_until(event, WAIT_TIMEOUT, interval, String::new, condition)
}
