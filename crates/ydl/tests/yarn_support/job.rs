//! A job on the cluster, what it said, what the cluster says of it, and its processes.

use super::{
    Desk, PATIENCE, application, block_on, client, config,
    processes::{self, lives, processes_in, signal},
    soon, wait_for, wait_over,
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

/// Says which process it is, in which container, and waits for the file `go`. Two programs of one task at the same time
/// would be told by the file `twice`.
pub const WAITS: &str = "exec 9>$SHARED/lock.$YDL_INDEX; flock -n 9 || echo $YDL_INDEX >> $SHARED/twice; \
     echo $YDL_INDEX $YDL_ATTEMPT $$ $(cut -d ' ' -f 22 /proc/$$/stat) $YDL_CONTAINER >> $SHARED/pids; \
     until [ -e $SHARED/go ] || [ -e $SHARED/go.$YDL_INDEX ]; do sleep 0.1; done";

/// One program that was started, as it said itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    pub index: u32,
    pub attempt: u32,
    pub pid: i32,
    /// When the process began, which no other of that number did.
    pub began: u64,
    pub container: String,
}

/// Where an attempt was started, and when.
#[derive(Clone, Debug)]
pub struct Started {
    pub task: String,
    pub attempt: u64,
    pub container: String,
    pub node: String,
    pub at: u64,
}

/// What the job said about the end of an attempt.
#[derive(Clone, Debug)]
pub struct Ended {
    pub task: String,
    pub attempt: u64,
    pub node: String,
    pub ending: Value,
    pub next: Value,
}

/// A job, and a directory that its programs share with the test.
pub struct Job<'a> {
    pub cluster: &'a Cluster,
    pub id: String,
    /// The user's directory in HDFS.
    pub home: String,
    pub place: JobLayout,
    pub desk: Desk<'a>,
}

impl<'a> Job<'a> {
    /// Submits a job of so many workers that run this script, in which `$SHARED` is the shared directory; `role` are
    /// more keys of the role and `more` of the job.
    pub fn submit(
        cluster: &'a Cluster,
        instances: u32,
        script: &str,
        role: &str,
        more: &str,
    ) -> Job<'a> {
        let desk = Desk::at(cluster);
        let script = format!("SHARED={}; {script}", desk.path().display());
        let script = serde_json::to_string(&script).expect("a string");
        let yaml = format!(
            "{more}\nroles: {{worker: {{instances: {instances}, {role}, shell: {script}}}}}\n"
        );
        let id = desk.detach(&yaml);
        Job::of(desk, id)
    }

    /// A job that was submitted from there.
    pub fn of(desk: Desk<'a>, id: String) -> Job<'a> {
        let cluster = desk.cluster;
        let home = block_on(async { hdfs(cluster).await.home(soon()).await });
        let home = home.expect("a home");
        let place = StagingLayout::in_home(&home).job(&id);
        Job { cluster, id, home, place, desk }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// Programs that wait come to their end.
    pub fn go(&self) {
        fs::write(self.file("go"), "").expect("a file");
    }

    /// That one alone does.
    pub fn go_one(&self, index: u32) {
        fs::write(self.file(&format!("go.{index}")), "").expect("a file");
    }

    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The programs that were ever started, once there are so many.
    pub fn programs(&self, count: usize) -> Vec<Program> {
        wait_for(&format!("{count} programs of {}", self.words()), || {
            let mut all: Vec<_> = self.lines("pids").iter().map(|it| program(it)).collect();
            all.sort();
            (all.len() >= count).then_some(all)
        })
    }

    /// The newest program of that task, once it is that attempt.
    pub fn program(&self, index: u32, attempt: u32) -> i32 {
        let what = format!("attempt {attempt} of worker:{index} of {}", self.words());
        wait_for(&what, || {
            let all = self.programs(0);
            let mut mine = all.iter().filter(|ran| (ran.index, ran.attempt) == (index, attempt));
            mine.next().map(|ran| ran.pid)
        })
    }

    /// A file in HDFS, if it is there.
    pub fn read(&self, place: &str) -> Option<String> {
        block_on(async {
            let hdfs = hdfs(self.cluster).await;
            let read = hdfs.read_if_exists(place, 64 << 20, soon()).await;
            let bytes = read.expect("an answer")?;
            Some(String::from_utf8(bytes.to_vec()).expect("text"))
        })
    }

    /// Every fact that people are told, with its time.
    pub fn facts(&self) -> Vec<(u64, Value)> {
        let ran = self.desk.run(&["status", "--json", "--events", "10000", &self.id]);
        let status: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        let facts = status["events"].as_array().cloned().unwrap_or_default();
        facts.into_iter().map(fact).collect()
    }

    /// The facts that are kept in HDFS.
    pub fn kept(&self) -> Vec<(u64, Value)> {
        let kept = self.read(&self.place.events()).unwrap_or_default();
        let kept = kept.lines().map(serde_json::from_str);
        kept.map(|it| fact(it.expect("JSON"))).collect()
    }

    /// The names in a directory in HDFS, if it is there.
    pub fn names_in(&self, place: &str) -> Vec<String> {
        block_on(async {
            let listed = hdfs(self.cluster).await.list(place, soon()).await;
            let listed = listed.unwrap_or_default();
            listed.iter().map(|it| it.name().to_owned()).collect()
        })
    }

    /// The process of that attempt's master, as soon as there is one.
    pub fn master(&self, attempt: u32) -> i32 {
        let what = format!("the process of master {attempt} of {}", self.words());
        wait_for(&what, || processes::master(&self.digits(), attempt))
    }

    /// Whether the master of that attempt has said where it is.
    pub fn is_announced(&self, attempt: u32) -> bool {
        let said = self.read(&self.place.master()).unwrap_or_default();
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        said["attempt"] == attempt
    }

    /// Whether the ResourceManager knows the master of that attempt.
    pub fn is_registered(&self, attempt: u32) -> bool {
        let report = application(self.cluster, &self.id);
        let current = report.attempt.is_some_and(|it| it.number == attempt as i32);
        current && report.state == ApplicationState::Running
    }

    /// Waits until the master of that attempt leads the job.
    pub fn led_by(&self, attempt: u32) {
        let words = self.words();
        wait_for(&format!("master {attempt} of {words}"), || {
            let report = application(self.cluster, &self.id);
            assert!(!report.state.is_over(), "{words}: {report:#?}\n{:#?}", self.kept());
            (self.is_announced(attempt) && self.is_registered(attempt)).then_some(())
        });
    }

    pub fn kill_master(&self, attempt: u32) {
        signal("-9", &[self.master(attempt)]);
    }

    /// What the ResourceManager says of its masters.
    pub fn attempts(&self) -> Vec<AttemptReport> {
        let id = self.id.parse().expect("an application's id");
        let attempts = block_on(async { client(self.cluster).attempts(id, soon()).await });
        attempts.expect("a list")
    }

    /// How its masters have ended, once the ResourceManager has seen the end of each: a job is over when its master
    /// says so, which is a moment earlier.
    pub fn ends_of_masters(&self) -> Vec<AttemptState> {
        let what = format!("the end of all masters of {}", self.words());
        wait_for(&what, || {
            let attempts = self.attempts();
            let states: Vec<_> = attempts.iter().map(|it| it.state).collect();
            let ends = [AttemptState::Failed, AttemptState::Finished, AttemptState::Killed];
            states.iter().all(|it| ends.contains(it)).then_some(states)
        })
    }

    /// The containers that the ResourceManager says are the job's now, the master's left out.
    pub fn containers(&self) -> BTreeSet<String> {
        let Some(attempt) = application(self.cluster, &self.id).attempt else {
            return BTreeSet::new();
        };
        let held = block_on(async { client(self.cluster).containers(attempt, soon()).await });
        let held = held.expect("a list");
        let held = held.iter().map(|report| report.id.to_string());
        held.filter(|id| !is_masters(id)).collect()
    }

    /// Every container that the ResourceManager has ever given to the job, the masters' left out, as its log tells.
    pub fn given(&self) -> BTreeSet<String> {
        self.became("ALLOCATED")
    }

    /// Waits until the ResourceManager has heard from their nodes that these containers run. Those that it has not
    /// heard of it drops with a master that dies, whatever runs in them.
    pub fn heard_of<'c>(&self, containers: impl IntoIterator<Item = &'c String>) {
        let containers: BTreeSet<_> = containers.into_iter().cloned().collect();
        let what = format!("word of {containers:?} of {}", self.words());
        wait_for(&what, || self.became("RUNNING").is_superset(&containers).then_some(()));
    }

    /// Every container of the job that was ever in that state, the masters' left out, as the ResourceManager's log
    /// tells.
    fn became(&self, state: &str) -> BTreeSet<String> {
        let log = self.cluster.directory().join("logs/rm.log");
        let log = fs::read_to_string(log).expect("a log");
        let state = format!(" to {state}");
        let told = log.lines().filter(|line| line.contains(&state));
        let words = told.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        let ours = words.filter(|it| it.starts_with("container_") && it.contains(&self.digits()));
        ours.filter(|id| !is_masters(id)).map(str::to_owned).collect()
    }

    pub fn count(&self, name: &str) -> usize {
        let facts = self.facts();
        facts.iter().filter(|(_, what)| is(what, name)).count()
    }

    pub fn started(&self) -> Vec<Started> {
        let all = self.facts().into_iter();
        let started = all.filter_map(|(at, what)| Some((at, what.get("attempt-started")?.clone())));
        started
            .map(|(at, what)| Started {
                task: text(&what["task"]),
                attempt: what["attempt"].as_u64().expect("a number"),
                container: text(&what["container"]),
                node: text(&what["node"]),
                at,
            })
            .collect()
    }

    /// The same, once there are so many.
    pub fn all_started(&self, count: usize) -> Vec<Started> {
        wait_for(&format!("{count} starts of {}", self.words()), || {
            let all = self.started();
            (all.len() >= count).then_some(all)
        })
    }

    pub fn ended(&self) -> Vec<Ended> {
        let all = self.facts().into_iter();
        let ended = all.filter_map(|(_, what)| what.get("attempt-ended").cloned());
        ended
            .map(|what| Ended {
                task: text(&what["task"]),
                attempt: what["attempt"].as_u64().expect("a number"),
                node: text(&what["node"]),
                ending: what["ending"].clone(),
                next: what["disposition"].clone(),
            })
            .collect()
    }

    /// How that attempt ended, once it has.
    pub fn end_of(&self, task: &str, attempt: u64) -> Ended {
        wait_for(&format!("the end of {task} of {}", self.words()), || {
            let all = self.ended().into_iter();
            let mut mine = all.filter(|it| it.task == task && it.attempt == attempt);
            mine.next()
        })
    }

    /// What `ydl status --json` shows.
    pub fn status(&self) -> Value {
        let ran = self.desk.run(&["status", "--json", &self.id]);
        assert_eq!(ran.code, 0, "{}: {ran:?}", self.words());
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out))
    }

    pub fn scale(&self, instances: u32) {
        let words = format!("worker={instances}");
        let ran = self.desk.run(&["scale", &self.id, &words]);
        assert_eq!(ran.code, 0, "{}: {ran:?}", self.words());
    }

    /// A node where this job has at least so many tasks and not its master, and their starts.
    pub fn crowded(&self, least: usize, started: &[Started]) -> (usize, Vec<Started>) {
        let report = application(self.cluster, &self.id);
        let nodes = self.cluster.nodes().iter().enumerate();
        let found = nodes.filter_map(|(index, node)| {
            let host = node.address.ip().to_string();
            let there = started.iter().filter(|started| started.node == host);
            let there: Vec<_> = there.cloned().collect();
            (there.len() >= least && host != report.host).then_some((index + 1, there))
        });
        let mut found: Vec<_> = found.collect();
        assert!(!found.is_empty(), "{started:?}, master on {}", report.host);
        found.remove(0)
    }

    /// Waits for the job's good end; no task had two programs at a time, and nothing of it is left on this machine or
    /// in the ResourceManager's books.
    pub fn succeeded(&self) {
        let report = wait_over(self.cluster, &self.id);
        let succeeded = report.final_status == FinalStatus::Succeeded;
        assert!(succeeded, "{}: {report:?}\n{:#?}", self.words(), self.facts());
        assert_eq!(self.kept(), self.facts());
        assert_eq!(self.count("job-started"), 1, "{:#?}", self.facts());
        assert_eq!(self.count("job-finished"), 1, "{:#?}", self.facts());
        assert!(!self.file("twice").exists(), "{:?}", self.lines("twice"));
        wait_for(&format!("no process of {}", self.words()), || {
            let left = self.programs(0).iter().any(|ran| lives(ran.pid));
            (!left && processes_in(&self.digits()).is_empty()).then_some(())
        });
        wait_for(&format!("no container of {}", self.words()), || {
            let usage = application(self.cluster, &self.id).usage;
            (usage.map_or(0, |usage| usage.containers) <= 0).then_some(())
        });
    }

    /// The same for the last job there: the cluster has no container left in its books.
    pub fn succeeded_last(&self) {
        self.succeeded();
        let books = "/ws/v1/cluster/metrics";
        wait_for(&format!("no container of {}", self.words()), || {
            let metrics: Value = serde_json::from_str(&self.cluster.rest(books).ok()?).ok()?;
            (metrics["clusterMetrics"]["containersAllocated"] == 0).then_some(())
        });
    }

    /// What the names of its containers have in common.
    pub fn digits(&self) -> String {
        let digits = self.id.strip_prefix("application_").expect("an id");
        format!("_{digits}_")
    }

    /// Where to look when something is wrong.
    pub fn words(&self) -> String {
        format!("{} in {}", self.id, self.cluster.directory().display())
    }
}

/// A test that has failed leaves no programs behind, which would outlive their cluster.
impl Drop for Job<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ran = self.desk.run(&["kill", "--now", &self.id]);
            eprintln!("{} is ended: {ran:?}", self.words());
        }
    }
}

async fn hdfs(cluster: &Cluster) -> Hdfs {
    let identity = Identity::simple(cluster.own_user());
    let hdfs = Hdfs::connect(&config(cluster), None, &identity, soon()).await;
    hdfs.expect("a file system")
}

fn fact(fact: Value) -> (u64, Value) {
    let at = fact["at"].as_u64().expect("a time");
    (at, fact["kind"].clone())
}

fn program(line: &str) -> Program {
    let words: Vec<_> = line.split(' ').collect();
    let [index, attempt, pid, began, container] = words[..] else {
        panic!("`{line}`");
    };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    Program {
        index: number(index) as u32,
        attempt: number(attempt) as u32,
        pid: number(pid) as i32,
        began: number(began),
        container: container.to_owned(),
    }
}

/// The first container of an attempt is its master's.
fn is_masters(container: &str) -> bool {
    container.ends_with("_000001")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Whether a fact is of that name, with or without more to say.
pub fn is(what: &Value, name: &str) -> bool {
    what == name || what.get(name).is_some()
}

/// How long it takes until this is true.
pub fn time_until(what: &str, fact: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    wait_for(what, || fact().then_some(()));
    assert!(began.elapsed() < PATIENCE, "{what}");
    began.elapsed()
}
