//! A user of a real cluster: the binary with its configuration, and eyes for what it does there.
#![allow(dead_code)] // Each test binary uses its own part of this.

pub mod attached;
pub mod example;
pub mod job;
pub mod processes;
pub mod training;
#[path = "../user/mod.rs"]
mod user;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};
use testbed::{Cluster, Options, Version};
pub use user::*;
use yarn_native::{
    client::{ApplicationFilter, Client},
    config::{Config, Environment},
    security::Identity,
    types::{ApplicationReport, ApplicationState},
};

/// How long a fact may take to become true before a test fails: more than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The Hadoop to test with.
pub fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().unwrap_or_else(|failure| panic!("{failure}")),
        Err(_) => Version::NEWEST,
    }
}

/// Most tests disturb nobody; some take something away from everybody.
static QUIET: RwLock<()> = RwLock::new(());

/// A cluster for a test that disturbs nobody.
pub type Together = (&'static Cluster, RwLockReadGuard<'static, ()>);

/// A cluster for one test alone. What it takes away it brings back.
pub type Alone = (&'static Cluster, RwLockWriteGuard<'static, ()>);

pub fn together(cluster: fn() -> &'static Cluster) -> Together {
    let guard = QUIET.read().unwrap_or_else(PoisonError::into_inner);
    (cluster(), guard)
}

pub fn alone(cluster: fn() -> &'static Cluster) -> Alone {
    let guard = QUIET.write().unwrap_or_else(PoisonError::into_inner);
    (cluster(), guard)
}

/// The cluster that the tests of a binary share.
pub fn shared(options: Options) -> &'static Cluster {
    Cluster::shared(options).unwrap_or_else(|failure| panic!("{failure}"))
}

pub fn config(cluster: &Cluster) -> Config {
    let environment = Environment::of_process();
    let environment = environment.with_variable("HADOOP_USER_NAME", cluster.own_user());
    Config::from_directories(&[cluster.configuration()], environment).expect("a configuration")
}

pub fn client(cluster: &Cluster) -> Client {
    let config = config(cluster);
    let identity = Identity::from_config(&config).expect("an identity");
    Client::from_config(&config, identity).expect("a client")
}

/// Runs something that waits for others.
pub fn block_on<T>(what: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(what)
}

/// When a call comes too late.
pub fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

/// Every application the ResourceManager knows.
pub fn applications(cluster: &Cluster) -> Vec<ApplicationReport> {
    block_on(async {
        let client = client(cluster);
        let all = ApplicationFilter::default();
        client.applications(&all, soon()).await.expect("a list")
    })
}

/// The application of that id.
pub fn application(cluster: &Cluster, id: &str) -> ApplicationReport {
    let id = id.parse().expect("an application's id");
    block_on(async { client(cluster).application(id, soon()).await.expect("a report") })
}

/// Waits until the application is over; its last report.
pub fn wait_over(cluster: &Cluster, id: &str) -> ApplicationReport {
    wait_for(&format!("the end of {id}"), || {
        let report = application(cluster, id);
        report.state.is_over().then_some(report)
    })
}

/// Waits until the application's master has registered.
pub fn wait_running(cluster: &Cluster, id: &str) -> ApplicationReport {
    wait_for(&format!("the master of {id}"), || {
        let report = application(cluster, id);
        assert!(!report.state.is_over(), "{report:?}");
        (report.state == ApplicationState::Running).then_some(report)
    })
}

/// Every file and directory below that place in HDFS, as `FsShell` lists them.
pub fn hdfs_files(cluster: &Cluster, place: &str) -> Vec<String> {
    let listed = cluster.fs(&["-ls", "-R", place]).unwrap_or_default();
    let paths = listed.lines().filter_map(|line| line.split_whitespace().nth(7));
    paths.map(str::to_owned).collect()
}

/// Waits until this is true, and fails with the words if it never is.
pub fn wait_for<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not happen");
        // Looked at again and again: nobody tells us when something happens on a cluster.
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// A user's directory on the machine from which jobs are submitted.
pub struct Desk<'a> {
    dir: tempfile::TempDir,
    pub cluster: &'a Cluster,
    /// Who sits there, as the binary is told.
    variables: Vec<(&'static str, OsString)>,
}

impl<'a> Desk<'a> {
    /// The desk of the user the daemons run as.
    pub fn at(cluster: &'a Cluster) -> Desk<'a> {
        Desk::of(cluster, &cluster.own_user())
    }

    /// The desk of that user: by name, or with a fresh ticket where the cluster asks for proof.
    pub fn of(cluster: &'a Cluster, user: &str) -> Desk<'a> {
        let variables = match cluster.kerberos() {
            None => vec![("HADOOP_USER_NAME", user.into())],
            Some(kerberos) => {
                let ticket = kerberos.kinit(user, None).expect("a ticket");
                let libraries = kerberos.libraries().unwrap_or(Path::new("/usr/lib"));
                vec![
                    ("KRB5_CONFIG", kerberos.configuration().into()),
                    ("KRB5CCNAME", ticket.into()),
                    ("LD_LIBRARY_PATH", libraries.into()),
                ]
            }
        };
        Desk { dir: tempfile::tempdir().expect("a temporary directory"), cluster, variables }
    }

    /// The ticket of this desk is destroyed.
    pub fn forget(&self) {
        let ticket = self.variables.iter().find(|(name, _)| *name == "KRB5CCNAME");
        let (_, ticket) = ticket.expect("a ticket");
        fs::remove_file(ticket).expect("it was there");
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// The binary with the cluster's configuration, as the user of this desk.
    pub fn ydl(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ydl"));
        let others = ["YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER"];
        for name in others.into_iter().chain(["HADOOP_USER_NAME"]) {
            command.env_remove(name);
        }
        command
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("HADOOP_CONF_DIR", self.cluster.configuration())
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs `ydl` with these words to its end.
    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::from(self.ydl().args(words).output().expect("ydl can be started"))
    }

    /// Submits this job file and waits for its end.
    pub fn submit(&self, yaml: &str) -> Ran {
        self.write("job.yaml", yaml);
        self.run(&["submit", "job.yaml"])
    }

    /// Submits this job file and leaves it running; the id comes back.
    pub fn detach(&self, yaml: &str) -> String {
        self.write("job.yaml", yaml);
        let ran = self.run(&["submit", "--detach", "job.yaml"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.trim().to_owned()
    }

    /// Starts `ydl` with these words and comes back at once.
    pub fn start(&self, words: &[&str]) -> Child {
        let mut command = self.ydl();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ydl can be started")
    }
}
