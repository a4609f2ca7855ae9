//! A job on the cluster, what it said, and its processes.

use crate::yarn_support::{Desk, PATIENCE, block_on, config, soon, wait_for, wait_over};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};
use testbed::Cluster;
use yarn_native::{security::Identity, types::FinalStatus};
use ydl::hdfs::{Hdfs, JobPlace, Layout};

/// Says which process it is and waits for the file `go`.
pub const WAITS: &str =
    "echo $YDL_INDEX $YDL_ATTEMPT $$ >> $SHARED/pids; until [ -e $SHARED/go ]; do sleep 0.1; done";

/// One program that was started, as it said itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ran {
    pub index: u32,
    pub attempt: u32,
    pub pid: i32,
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
    place: JobPlace,
    desk: Desk<'a>,
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
        let home = block_on(async { hdfs(cluster).await.home(soon()).await });
        let place = Layout::in_home(&home.expect("a home")).job(&id);
        Job {
            cluster,
            id,
            place,
            desk,
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// Programs that wait come to their end.
    pub fn go(&self) {
        fs::write(self.file("go"), "").expect("a file");
    }

    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The programs that were ever started, once there are so many.
    pub fn programs(&self, count: usize) -> Vec<Ran> {
        wait_for(&format!("{count} programs of {}", self.words()), || {
            let mut all: Vec<_> = self.lines("pids").iter().map(|line| ran(line)).collect();
            all.sort();
            (all.len() >= count).then_some(all)
        })
    }

    /// The newest program of that task, once it is that attempt.
    pub fn program(&self, index: u32, attempt: u32) -> i32 {
        let what = format!("attempt {attempt} of worker:{index} of {}", self.words());
        wait_for(&what, || {
            let all = self.programs(0);
            let mut mine = all
                .iter()
                .filter(|ran| (ran.index, ran.attempt) == (index, attempt));
            mine.next().map(|ran| ran.pid)
        })
    }

    fn read(&self, place: &str) -> Option<String> {
        block_on(async {
            let hdfs = hdfs(self.cluster).await;
            let read = hdfs.read_if_there(place, 64 << 20, soon()).await;
            let bytes = read.expect("an answer")?;
            Some(String::from_utf8(bytes.to_vec()).expect("text"))
        })
    }

    /// Every fact that people are told, with its time.
    pub fn facts(&self) -> Vec<(u64, Value)> {
        let ran = self
            .desk
            .run(&["status", "--json", "--facts", "10000", &self.id]);
        let status: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        let facts = status["facts"].as_array().cloned().unwrap_or_default();
        facts.into_iter().map(fact).collect()
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
                next: what["next"].clone(),
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
        let report = crate::yarn_support::application(self.cluster, &self.id);
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

    /// Waits for the job's good end; nothing of it is left on this machine.
    pub fn succeeded(&self) {
        let report = wait_over(self.cluster, &self.id);
        let succeeded = report.final_status == FinalStatus::Succeeded;
        assert!(
            succeeded,
            "{}: {report:?}\n{:#?}",
            self.words(),
            self.facts()
        );
        let kept = self.read(&self.place.events()).expect("facts in HDFS");
        let kept = kept.lines().map(serde_json::from_str);
        let kept: Vec<_> = kept.map(|it| fact(it.expect("JSON"))).collect();
        assert_eq!(kept, self.facts());
        assert_eq!(self.count("job-started"), 1, "{:#?}", self.facts());
        assert_eq!(self.count("job-finished"), 1, "{:#?}", self.facts());
        wait_for(&format!("no process of {}", self.words()), || {
            let left = self.programs(0).iter().any(|ran| lives(ran.pid));
            (!left && processes_in(&self.digits()).is_empty()).then_some(())
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
    fn digits(&self) -> String {
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
    (at, fact["what"].clone())
}

fn ran(line: &str) -> Ran {
    let mut words = line.split(' ');
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let [index, attempt, pid] =
        [number(), number(), number()].map(|it: Option<i32>| it.expect("a number"));
    Ran {
        index: index as u32,
        attempt: attempt as u32,
        pid,
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Whether a fact is of that name, with or without more to say.
pub fn is(what: &Value, name: &str) -> bool {
    what == name || what.get(name).is_some()
}

/// Sends a signal to processes of this test's jobs.
pub fn signal(name: &str, pids: &[i32]) {
    for pid in pids {
        let sent = Command::new("kill").args([name, &pid.to_string()]).status();
        assert!(sent.expect("it can be sent").success(), "{name} {pid}");
    }
}

/// Whether the process lives; one that has ended and is not waited for yet does not.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn pids() -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// The live processes that YARN started in containers with this in their names.
pub fn processes_in(container: &str) -> Vec<i32> {
    let inside = |pid: &i32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = variables.split(|byte| *byte == 0);
        let name = |variable: &[u8]| {
            let variable = String::from_utf8_lossy(variable);
            variable
                .strip_prefix("CONTAINER_ID=")
                .is_some_and(|it| it.contains(container))
        };
        variables.any(name)
    };
    let found = pids().into_iter().filter(inside).filter(|pid| lives(*pid));
    found.collect()
}

/// Everything that runs in a container, its programs included, children first.
pub fn tree(container: &str) -> Vec<i32> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let rest = stat.rsplit(')').next()?;
        rest.split_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let all: Vec<_> = pids()
        .into_iter()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut tree = processes_in(container);
    let mut seen = 0;
    while seen < tree.len() {
        let of = tree[seen];
        seen += 1;
        for (pid, parent) in &all {
            if *parent == of && !tree.contains(pid) {
                tree.push(*pid);
            }
        }
    }
    tree.reverse();
    tree
}

/// How long it takes until this is true.
pub fn time_until(what: &str, fact: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    wait_for(what, || fact().then_some(()));
    assert!(began.elapsed() < PATIENCE, "{what}");
    began.elapsed()
}
