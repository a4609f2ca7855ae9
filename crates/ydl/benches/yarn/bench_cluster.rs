//! The cluster and the script that all measured systems share, and the observation of their tasks.

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

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Interval between checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which nodes collect the logs of ended containers; not measured.
const LOG_COLLECTION: Duration = Duration::from_millis(2500);

pub struct BenchCluster {
    pub cluster: Cluster,
    pub config: Config,
    pub client: Client,
    runtime: tokio::runtime::Runtime,
    work_dir: tempfile::TempDir,
}

/// Time and process of a task that has reached user code.
#[derive(Clone, Copy, Debug)]
pub struct TaskStart {
    pub at_ns: u128,
    pub pid: u32,
}

impl BenchCluster {
    /// Starts three nodes with heartbeats of one second, as usual, and room for all tasks.
    pub fn start(version: Version, scheduling: Scheduling) -> BenchCluster {
        let options = Options {
            nodes: 3,
            node_memory_mib: 16384,
            node_vcores: 64,
            heartbeat: Duration::from_secs(1),
            // A JVM as master may miss heartbeats for long on a busy machine.
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
        BenchCluster {
            cluster,
            config,
            client,
            runtime: runtime.expect("a runtime"),
            work_dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.work_dir.path().join(name)
    }

    /// Returns `ydl` with the cluster's configuration; `state` has the user's files of earlier jobs.
    pub fn ydl(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        for name in ["YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER"] {
            command.env_remove(name);
        }
        command
            .current_dir(self.work_dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("HADOOP_CONF_DIR", self.cluster.configuration())
            .env("HADOOP_USER_NAME", self.cluster.own_user())
            .stdin(Stdio::null());
        command
    }

    /// Returns the script of every task: it records its start and keeps running.
    pub fn script(&self) -> String {
        let file = self.path("task_starts");
        // Left by the previous job, which has ended.
        let _ = fs::remove_file(&file);
        format!("echo $(date +%s%N) $$ >> {}; exec sleep 1000", file.display())
    }

    /// Returns the tasks that have reached user code.
    pub fn task_starts(&self) -> Vec<TaskStart> {
        let text = fs::read_to_string(self.path("task_starts")).unwrap_or_default();
        let read = |line: &str| {
            let (at, pid) = line.split_once(' ')?;
            let (at_ns, pid) = (at.parse().ok()?, pid.parse().ok()?);
            Some(TaskStart { at_ns, pid })
        };
        text.lines().filter_map(read).collect()
    }

    /// Waits for `count` tasks; returns the seconds from `began` to the last of them.
    pub fn wait_for_tasks(&self, count: usize, began: u128) -> f64 {
        let all = self.wait("all tasks in user code", || {
            let all = self.task_starts();
            (all.len() >= count).then_some(all)
        });
        let last = all.iter().map(|arrival| arrival.at_ns).max();
        seconds(began, last.unwrap_or(began))
    }

    pub fn wait<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = check() {
                return found;
            }
            assert!(Instant::now() < end, "timed out waiting for {what}");
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Kills an application, waits until none of its processes is left, then pauses randomly.
    pub fn end(&self, id: &str) {
        let parsed = id.parse().expect("an id");
        let deadline = || tokio::time::Instant::now() + TIMEOUT;
        let ended = self
            .block_on(async { self.client.kill_and_wait(parsed, "measured", deadline()).await });
        ended.expect("it ends");
        self.wait("the end of all processes", || {
            (!crate::figures::Process::all().any(|process| process.is_in_application(id)))
                .then_some(())
        });
        self.wait("a cluster without containers", || {
            let metrics = self.cluster.rest("/ws/v1/cluster/metrics").ok()?;
            metrics.contains("\"containersAllocated\":0").then_some(())
        });
        std::thread::sleep(LOG_COLLECTION);
        pause();
    }

    /// Waits for the replacement of a killed process; returns the seconds since the kill.
    pub fn wait_for_replacement(&self, before_kill: usize, killed: u128) -> f64 {
        self.wait_for_tasks(before_kill + 1, killed)
    }
}

/// Kills a process and waits for its replacement, `times` times with pauses.
pub fn replacements(
    bench: &BenchCluster,
    times: usize,
    victim_of: impl Fn(u32) -> u32,
) -> Vec<f64> {
    let measure = |_| {
        std::thread::sleep(Duration::from_millis(1500));
        pause();
        let all = bench.task_starts();
        let newest = all.iter().max_by_key(|arrival| arrival.at_ns);
        let victim = victim_of(newest.expect("a task").pid);
        let killed = now_ns();
        crate::figures::Process(victim).kill();
        bench.wait_for_replacement(all.len(), killed)
    };
    (0..times).map(measure).collect()
}
