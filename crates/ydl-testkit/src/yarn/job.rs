//! A job on a cluster: its programs, its history, and the cluster's reports.

use super::{
    AttemptEnd, AttemptStart, WAIT_TIMEOUT, Workspace, application, block_on, client, config,
    deadline, is_event,
    processes::{self, is_alive, processes_in, signal},
    reports::event,
    wait_finished, wait_for,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use testbed::Cluster;
use yarn_native::{
    security::Identity,
    types::{ApplicationState, AttemptReport, AttemptState, FinalStatus},
};
use ydl_storage::hdfs::{Hdfs, JobLayout, StagingLayout};

/// A script that writes its process and container to `$SHARED/pids`, and waits for the file `go`. Two
/// programs of one task at the same time write the file `twice`.
pub const WAIT_SCRIPT: &str = "exec 9>$SHARED/lock.$YDL_INDEX; flock -n 9 || echo $YDL_INDEX >> $SHARED/twice; \
     echo $YDL_INDEX $YDL_ATTEMPT $$ $(cut -d ' ' -f 22 /proc/$$/stat) $YDL_CONTAINER >> $SHARED/pids; \
     until [ -e $SHARED/go ] || [ -e $SHARED/go.$YDL_INDEX ]; do sleep 0.1; done";

/// A program that ran [`WAIT_SCRIPT`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    pub index: u32,
    pub attempt: u32,
    pub pid: i32,
    /// Start time of the process, which tells processes with the same pid apart.
    pub start_time: u64,
    pub container: String,
}

/// A job, and a directory that its programs share with the test. If the test fails, dropping it kills
/// the job, whose programs would outlive the cluster.
#[derive(Debug)]
pub struct ClusterJob<'a> {
    pub cluster: &'a Cluster,
    pub id: String,
    /// The user's home directory in HDFS.
    pub home: String,
    pub place: JobLayout,
    pub workspace: Workspace<'a>,
}

impl<'a> ClusterJob<'a> {
    /// Submits a job of workers that run this script, in which `$SHARED` is the shared directory. `role` has
    /// further keys of the role, and `keys` of the job.
    pub fn submit(
        cluster: &'a Cluster,
        instances: u32,
        script: &str,
        role: &str,
        keys: &str,
    ) -> ClusterJob<'a> {
        let workspace = Workspace::new(cluster);
        let script = format!("SHARED={}; {script}", workspace.path().display());
        let script = serde_json::to_string(&script).expect("a string");
        let yaml = format!(
            "{keys}\nroles: {{worker: {{instances: {instances}, {role}, shell: {script}}}}}\n"
        );
        let id = workspace.detach(&yaml);
        ClusterJob::of(workspace, id)
    }

    /// Returns a job that was submitted from this workspace.
    pub fn of(workspace: Workspace<'a>, id: String) -> ClusterJob<'a> {
        let cluster = workspace.cluster;
        let home = block_on(async { hdfs(cluster).await.home(deadline()).await });
        let home = home.expect("a home");
        let place = StagingLayout::in_home(&home).job(&id);
        ClusterJob { cluster, id, home, place, workspace }
    }

    /// Returns the path of a file in the shared directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.workspace.path().join(name)
    }

    /// Lets all programs that wait end.
    pub fn release(&self) {
        fs::write(self.file("go"), "").expect("a file");
    }

    /// Lets the program of one task end.
    pub fn release_task(&self, index: u32) {
        fs::write(self.file(&format!("go.{index}")), "").expect("a file");
    }

    /// Returns the lines of a file in the shared directory.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until this many programs were started, and returns all of them.
    pub fn programs(&self, count: usize) -> Vec<Program> {
        wait_for(&format!("{count} programs of {}", self.describe()), || {
            let mut all: Vec<_> = self.lines("pids").iter().map(|it| program(it)).collect();
            all.sort();
            (all.len() >= count).then_some(all)
        })
    }

    /// Waits for the program of an attempt, and returns its pid.
    pub fn program(&self, index: u32, attempt: u32) -> i32 {
        let event = format!("attempt {attempt} of worker:{index} of {}", self.describe());
        wait_for(&event, || {
            let all = self.programs(0);
            let mut matching =
                all.iter().filter(|program| (program.index, program.attempt) == (index, attempt));
            matching.next().map(|program| program.pid)
        })
    }

    /// Returns the text of a file in HDFS, if it exists.
    pub fn read(&self, path: &str) -> Option<String> {
        block_on(async {
            let hdfs = hdfs(self.cluster).await;
            let read = hdfs.read_if_exists(path, 64 << 20, deadline()).await;
            let bytes = read.expect("an answer")?;
            Some(String::from_utf8(bytes.to_vec()).expect("text"))
        })
    }

    /// Returns the events that `ydl status` shows, with their times.
    pub fn history(&self) -> Vec<(u64, Value)> {
        let output = self.workspace.run(&["status", "--json", "--events", "10000", &self.id]);
        let status: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        let events = status["events"].as_array().cloned().unwrap_or_default();
        events.into_iter().map(event).collect()
    }

    /// Returns the events in HDFS, with their times.
    pub fn stored_history(&self) -> Vec<(u64, Value)> {
        let text = self.read(&self.place.events()).unwrap_or_default();
        let events = text.lines().map(serde_json::from_str);
        events.map(|it| event(it.expect("JSON"))).collect()
    }

    /// Returns the names in a directory in HDFS; none if it does not exist.
    pub fn names_in(&self, directory: &str) -> Vec<String> {
        block_on(async {
            let listed = hdfs(self.cluster).await.list(directory, deadline()).await;
            let listed = listed.unwrap_or_default();
            listed.iter().map(|it| it.name().to_owned()).collect()
        })
    }

    /// Waits for the master process of an attempt of the application.
    pub fn master(&self, attempt: u32) -> i32 {
        let event = format!("the process of master {attempt} of {}", self.describe());
        wait_for(&event, || processes::master(&self.id_suffix(), attempt))
    }

    /// Returns true once the master of that attempt has published its address.
    pub fn is_announced(&self, attempt: u32) -> bool {
        let text = self.read(&self.place.master()).unwrap_or_default();
        let published: Value = serde_json::from_str(&text).unwrap_or_default();
        published["attempt"] == attempt
    }

    /// Returns true once the master of that attempt has registered with the ResourceManager.
    pub fn is_registered(&self, attempt: u32) -> bool {
        let report = application(self.cluster, &self.id);
        let current = report.attempt.is_some_and(|it| it.number == attempt as i32);
        current && report.state == ApplicationState::Running
    }

    /// Waits until the master of that attempt runs the job.
    pub fn wait_led_by(&self, attempt: u32) {
        let job = self.describe();
        wait_for(&format!("master {attempt} of {job}"), || {
            let report = application(self.cluster, &self.id);
            assert!(!report.state.is_over(), "{job}: {report:#?}\n{:#?}", self.stored_history());
            (self.is_announced(attempt) && self.is_registered(attempt)).then_some(())
        });
    }

    pub fn kill_master(&self, attempt: u32) {
        signal("-9", &[self.master(attempt)]);
    }

    /// Returns the ResourceManager's reports of the attempts of the application.
    pub fn master_attempts(&self) -> Vec<AttemptReport> {
        let id = self.id.parse().expect("an application's id");
        let attempts = block_on(async { client(self.cluster).attempts(id, deadline()).await });
        attempts.expect("a list")
    }

    /// Waits until all attempts of the application have ended, and returns their states. The application
    /// itself ends a moment earlier.
    pub fn wait_masters_ended(&self) -> Vec<AttemptState> {
        let event = format!("the end of all masters of {}", self.describe());
        wait_for(&event, || {
            let attempts = self.master_attempts();
            let states: Vec<_> = attempts.iter().map(|it| it.state).collect();
            let ends = [AttemptState::Failed, AttemptState::Finished, AttemptState::Killed];
            states.iter().all(|it| ends.contains(it)).then_some(states)
        })
    }

    /// Returns the job's current containers without the master's, as the ResourceManager reports them.
    pub fn containers(&self) -> BTreeSet<String> {
        let Some(attempt) = application(self.cluster, &self.id).attempt else {
            return BTreeSet::new();
        };
        let held = block_on(async { client(self.cluster).containers(attempt, deadline()).await });
        let held = held.expect("a list");
        let held = held.iter().map(|report| report.id.to_string());
        held.filter(|id| !is_master(id)).collect()
    }

    /// Returns all containers that the ResourceManager ever allocated to the job, without the masters'.
    pub fn allocated_containers(&self) -> BTreeSet<String> {
        self.containers_ever("ALLOCATED")
    }

    /// Waits until nodes have reported to the ResourceManager that these containers run. When a master dies,
    /// the ResourceManager drops containers that were not reported, even if they run.
    pub fn wait_reported_running<'c>(&self, containers: impl IntoIterator<Item = &'c String>) {
        let containers: BTreeSet<_> = containers.into_iter().cloned().collect();
        let event = format!("reports of {containers:?} of {}", self.describe());
        wait_for(&event, || self.containers_ever("RUNNING").is_superset(&containers).then_some(()));
    }

    /// Returns the job's containers that were ever in a state according to the ResourceManager's log, without
    /// the masters'.
    fn containers_ever(&self, state: &str) -> BTreeSet<String> {
        let log = self.cluster.directory().join("logs/rm.log");
        let log = fs::read_to_string(log).expect("a log");
        let state = format!(" to {state}");
        let transitions = log.lines().filter(|line| line.contains(&state));
        let words =
            transitions.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let ours =
            words.filter(|it| it.starts_with("container_") && it.contains(&self.id_suffix()));
        ours.filter(|id| !is_master(id)).map(str::to_owned).collect()
    }

    /// Counts the events with this name.
    pub fn count(&self, name: &str) -> usize {
        self.history().iter().filter(|(_, event)| is_event(event, name)).count()
    }

    /// Returns the starts of attempts so far.
    pub fn starts(&self) -> Vec<AttemptStart> {
        self.history().into_iter().filter_map(AttemptStart::of).collect()
    }

    /// Waits until this many attempts have started, and returns all starts.
    pub fn wait_starts(&self, count: usize) -> Vec<AttemptStart> {
        wait_for(&format!("{count} starts of {}", self.describe()), || {
            let all = self.starts();
            (all.len() >= count).then_some(all)
        })
    }

    /// Returns the ends of attempts so far.
    pub fn ends(&self) -> Vec<AttemptEnd> {
        self.history().into_iter().filter_map(AttemptEnd::of).collect()
    }

    /// Waits for the end of an attempt.
    pub fn wait_end(&self, task: &str, attempt: u64) -> AttemptEnd {
        wait_for(&format!("the end of {task} of {}", self.describe()), || {
            let mut ends = self.ends().into_iter();
            ends.find(|it| it.task == task && it.attempt == attempt)
        })
    }

    /// Returns the output of `ydl status --json`.
    pub fn status(&self) -> Value {
        let output = self.workspace.run(&["status", "--json", &self.id]);
        assert_eq!(output.code, 0, "{}: {output:?}", self.describe());
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stdout))
    }

    /// Runs `ydl scale`.
    pub fn scale(&self, instances: u32) {
        let target = format!("worker={instances}");
        let output = self.workspace.run(&["scale", &self.id, &target]);
        assert_eq!(output.code, 0, "{}: {output:?}", self.describe());
    }

    /// Returns the number of a node that has at least this many tasks and not the master, with the starts of
    /// its tasks.
    pub fn node_with_tasks(
        &self,
        least: usize,
        starts: &[AttemptStart],
    ) -> (usize, Vec<AttemptStart>) {
        let report = application(self.cluster, &self.id);
        let nodes = self.cluster.nodes().iter().enumerate();
        let found = nodes.filter_map(|(index, node)| {
            let host = node.address.ip().to_string();
            let there = starts.iter().filter(|start| start.node == host);
            let there: Vec<_> = there.cloned().collect();
            (there.len() >= least && host != report.host).then_some((index + 1, there))
        });
        let mut found: Vec<_> = found.collect();
        assert!(!found.is_empty(), "{starts:?}, master on {}", report.host);
        found.remove(0)
    }

    /// Waits for the end of the job. Asserts that it succeeded, that no task had two programs at a time, and
    /// that no process and no container is left.
    pub fn assert_succeeded(&self) {
        let report = wait_finished(self.cluster, &self.id);
        let succeeded = report.final_status == FinalStatus::Succeeded;
        assert!(succeeded, "{}: {report:?}\n{:#?}", self.describe(), self.history());
        assert_eq!(self.stored_history(), self.history());
        assert_eq!(self.count("job-started"), 1, "{:#?}", self.history());
        assert_eq!(self.count("job-finished"), 1, "{:#?}", self.history());
        assert!(!self.file("twice").exists(), "{:?}", self.lines("twice"));
        wait_for(&format!("the end of all processes of {}", self.describe()), || {
            let left = self.programs(0).iter().any(|program| is_alive(program.pid));
            (!left && processes_in(&self.id_suffix()).is_empty()).then_some(())
        });
        wait_for(&format!("the end of all containers of {}", self.describe()), || {
            let usage = application(self.cluster, &self.id).usage;
            (usage.map_or(0, |usage| usage.containers) <= 0).then_some(())
        });
    }

    /// Like [`ClusterJob::assert_succeeded`], for the only job of the cluster: the cluster has no containers
    /// afterwards.
    pub fn assert_succeeded_alone(&self) {
        self.assert_succeeded();
        let metrics = "/ws/v1/cluster/metrics";
        wait_for(&format!("a cluster without containers after {}", self.describe()), || {
            let metrics: Value = serde_json::from_str(&self.cluster.rest(metrics).ok()?).ok()?;
            (metrics["clusterMetrics"]["containersAllocated"] == 0).then_some(())
        });
    }

    /// Returns the common part of the ids of the job's containers.
    pub fn id_suffix(&self) -> String {
        let digits = self.id.strip_prefix("application_").expect("an id");
        format!("_{digits}_")
    }

    /// Returns the id of the job and the directory of the cluster, for messages.
    pub fn describe(&self) -> String {
        format!("{} in {}", self.id, self.cluster.directory().display())
    }
}

impl Drop for ClusterJob<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output = self.workspace.run(&["kill", "--now", &self.id]);
            eprintln!("{} was killed: {output:?}", self.describe());
        }
    }
}

async fn hdfs(cluster: &Cluster) -> Hdfs {
    let identity = Identity::simple(cluster.own_user());
    let hdfs = Hdfs::connect(&config(cluster), None, &identity, deadline()).await;
    hdfs.expect("a file system")
}

/// Parses a line of [`WAIT_SCRIPT`].
fn program(line: &str) -> Program {
    let words: Vec<_> = line.split(' ').collect();
    let [index, attempt, pid, start_time, container] = words[..] else {
        panic!("`{line}`");
    };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    Program {
        index: number(index) as u32,
        attempt: number(attempt) as u32,
        pid: number(pid) as i32,
        start_time: number(start_time),
        container: container.to_owned(),
    }
}

/// Returns true for the first container of an attempt, which is the master's.
fn is_master(container: &str) -> bool {
    container.ends_with("_000001")
}

/// Returns the time until `condition` is true.
pub fn time_until(event: &str, condition: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    wait_for(event, || condition().then_some(()));
    assert!(began.elapsed() < WAIT_TIMEOUT, "{event}");
    began.elapsed()
}
