//! The cluster, and what all who are measured have in common: the same script, the same eyes.

use crate::figures::{now_ns, pause, seconds};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use testbed::{Cluster, File, Options, Scheduling, Version};
use yarn_native::{
    client::Client,
    config::{Config, Environment},
    security::Identity,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(20);
/// Nodes collect the logs of what has ended for a while, which must not be measured.
const SETTLE: Duration = Duration::from_millis(2500);

pub struct Scene {
    pub cluster: Cluster,
    pub config: Config,
    pub client: Client,
    runtime: tokio::runtime::Runtime,
    desk: tempfile::TempDir,
}

/// When a task came to user code, and as which process.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at_ns: u128,
    pub pid: u32,
}

impl Scene {
    /// Three nodes that beat once a second, as clusters do; room for everybody.
    pub fn set(version: Version, scheduling: Scheduling) -> Scene {
        let options = Options {
            nodes: 3,
            node_memory_mib: 16384,
            node_vcores: 64,
            heartbeat: Duration::from_secs(1),
            // A JVM that is a master may be silent for long where others work beside it.
            expiry: Duration::from_secs(120),
            scheduling,
            ..Options::new(version)
        };
        let options =
            options.set(File::Queues, "yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
        let environment = Environment::of_process();
        let environment = environment.with_variable("HADOOP_USER_NAME", cluster.own_user());
        let config = Config::from_directories(&[cluster.configuration()], environment);
        let config = config.expect("its configuration");
        let identity = Identity::from_config(&config).expect("an identity");
        let client = Client::from_config(&config, identity).expect("a client");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Scene {
            cluster,
            config,
            client,
            runtime: runtime.expect("a runtime"),
            desk: tempfile::tempdir().expect("a directory"),
        }
    }

    pub fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// `ydl` with the cluster's configuration; `state` is what this user has on the machine from earlier jobs.
    pub fn ydl(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        for name in ["YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER"] {
            command.env_remove(name);
        }
        command
            .current_dir(self.desk.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("HADOOP_CONF_DIR", self.cluster.configuration())
            .env("HADOOP_USER_NAME", self.cluster.own_user())
            .stdin(Stdio::null());
        command
    }

    /// What every task does: it says when it runs, and stays.
    pub fn script(&self) -> String {
        let file = self.path("arrivals");
        // The one before is gone, and so is its file.
        let _ = fs::remove_file(&file);
        format!("echo $(date +%s%N) $$ >> {}; exec sleep 1000", file.display())
    }

    /// Who is in user code.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let text = fs::read_to_string(self.path("arrivals")).unwrap_or_default();
        let read = |line: &str| {
            let (at, pid) = line.split_once(' ')?;
            let (at_ns, pid) = (at.parse().ok()?, pid.parse().ok()?);
            Some(Arrival { at_ns, pid })
        };
        text.lines().filter_map(read).collect()
    }

    /// Waits for so many; seconds from `began` to the last of them.
    pub fn wait_arrivals(&self, count: usize, began: u128) -> f64 {
        let all = self.wait("all tasks in user code", || {
            let all = self.arrivals();
            (all.len() >= count).then_some(all)
        });
        let last = all.iter().map(|arrival| arrival.at_ns).max();
        seconds(began, last.unwrap_or(began))
    }

    pub fn wait<T>(&self, what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = fact() {
                return found;
            }
            assert!(Instant::now() < end, "{what}: did not happen");
            std::thread::park_timeout(LOOK);
        }
    }

    /// Ends an application and waits until nothing is left of it, then a random while.
    pub fn end(&self, id: &str) {
        let parsed = id.parse().expect("an id");
        let soon = || tokio::time::Instant::now() + PATIENCE;
        let ended =
            self.block_on(async { self.client.kill_and_wait(parsed, "measured", soon()).await });
        ended.expect("it ends");
        self.wait("the end of all processes", || {
            (!crate::figures::Process::all().any(|process| process.is_of(id))).then_some(())
        });
        self.wait("that the cluster is free", || {
            let said = self.cluster.rest("/ws/v1/cluster/metrics").ok()?;
            said.contains("\"containersAllocated\":0").then_some(())
        });
        std::thread::sleep(SETTLE);
        pause();
    }

    /// The replacement of what was killed at that time: when it came, in seconds.
    pub fn wait_replacement(&self, had: usize, killed: u128) -> f64 {
        self.wait_arrivals(had + 1, killed)
    }
}

/// Kills, and waits for what comes in its place: so often, after a while each time.
pub fn replacements(scene: &Scene, times: usize, whom: impl Fn(u32) -> u32) -> Vec<f64> {
    let one = |_| {
        std::thread::sleep(Duration::from_millis(1500));
        pause();
        let all = scene.arrivals();
        let newest = all.iter().max_by_key(|arrival| arrival.at_ns);
        let victim = whom(newest.expect("somebody").pid);
        let killed = now_ns();
        crate::figures::Process(victim).kill();
        scene.wait_replacement(all.len(), killed)
    };
    (0..times).map(one).collect()
}
