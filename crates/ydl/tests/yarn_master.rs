//! The master in a container of a real cluster, and its death at any moment: the same containers and the same programs
//! afterwards, and the job ends right.

mod yarn_support;

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};
use testbed::{Cluster, File, Options};
use yarn_native::{
    security::Identity,
    types::{ApplicationReport, ApplicationState, FinalStatus},
};
use yarn_support::{Desk, block_on, config, shared, soon, version, wait_for, wait_over};
use ydl::hdfs::{Hdfs, JobPlace, Layout};

fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 2,
        ..Options::new(version())
    };
    // Masters die often here.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

/// Held for writing by whoever disturbs the cluster.
static PEACE: RwLock<()> = RwLock::new(());

fn among_others() -> RwLockReadGuard<'static, ()> {
    PEACE.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    PEACE.write().unwrap_or_else(PoisonError::into_inner)
}

async fn hdfs(cluster: &Cluster) -> Hdfs {
    let identity = Identity::simple(cluster.own_user());
    let hdfs = Hdfs::connect(&config(cluster), None, &identity, soon()).await;
    hdfs.expect("a file system")
}

/// A job on the cluster, and a directory that its programs share with the test.
struct Job {
    cluster: &'static Cluster,
    id: String,
    place: JobPlace,
    desk: Desk<'static>,
}

impl Job {
    /// Submits a job of two workers that run this script; `$SHARED` is the shared directory.
    fn submit(script: &str, more: &str) -> Job {
        let cluster = cluster();
        let desk = Desk::at(cluster);
        let script = format!("SHARED={}; {script}", desk.path().display());
        let script = serde_json::to_string(&script).expect("a string");
        let yaml = format!(
            "roles: {{worker: {{instances: 2, memory: 128 MiB, shell: {script}}}}}\n{more}\n"
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

    fn file(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// What the programs have written to that file, one line each; waits for so many.
    fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let what = format!("{count} lines in `{name}`: {}", self.words());
        wait_for(&what, || {
            let text = fs::read_to_string(self.file(name)).unwrap_or_default();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (lines.len() >= count).then_some(lines)
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

    /// The process of the master of that attempt, once it has said where it is.
    fn master(&self, attempt: u64) -> i32 {
        wait_for(&format!("master {attempt} of {}", self.words()), || {
            let text = self.read(&self.place.master())?;
            let place: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let pid = place["pid"].as_i64()?;
            (place["attempt"] == attempt).then_some(pid as i32)
        })
    }

    fn kill_master(&self, attempt: u64) {
        assert!(kill(self.master(attempt)), "it was there");
    }

    fn end(&self) -> ApplicationReport {
        wait_over(self.cluster, &self.id)
    }

    /// Where to look when something is wrong.
    fn words(&self) -> String {
        format!("{} in {}", self.id, self.cluster.directory().display())
    }

    fn facts(&self) -> String {
        self.read(&self.place.events()).unwrap_or_default()
    }
}

/// Ends a process without asking it; whether it was there.
fn kill(pid: i32) -> bool {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    killed.expect("it can be tried").success()
}

/// Writes its pid down and waits for the file `go`.
const WAITS: &str =
    "echo $YDL_INDEX $$ >> $SHARED/pids; until [ -e $SHARED/go ]; do sleep 0.1; done";

#[test]
fn a_job_runs_to_its_end() {
    let _peace = among_others();
    let job = Job::submit("echo done >> $SHARED/done", "");
    let report = job.end();
    assert_eq!(
        report.final_status,
        FinalStatus::Succeeded,
        "{}: {report:?}",
        job.words()
    );
    assert_eq!(job.lines("done", 2).len(), 2);
    let result = job.read(&job.place.result()).expect("a result");
    assert!(result.contains("succeeded"), "{result}");
    let facts = job.facts();
    assert!(facts.contains("job-finished"), "{facts}");
    assert!(
        report.diagnostics.contains("succeeded"),
        "{}",
        report.diagnostics
    );
}

#[test]
fn a_masters_death_changes_nothing_for_its_programs() {
    let _peace = among_others();
    let job = Job::submit(WAITS, "");
    let before = job.lines("pids", 2);
    job.kill_master(1);
    job.master(2);
    job.kill_master(2);
    job.master(3);
    fs::write(job.file("go"), "").expect("a file");
    let report = job.end();
    assert_eq!(
        report.final_status,
        FinalStatus::Succeeded,
        "{}: {report:?}",
        job.words()
    );
    assert_eq!(job.lines("pids", 2), before, "the same programs");
    let facts = job.facts();
    // One that dies as soon as it has said where it is may have nothing written down.
    let recovered = facts.matches(r#""master-recovered":{"live":2}"#).count();
    assert!((1..=2).contains(&recovered), "{facts}");
    assert_eq!(facts.matches("attempt-started").count(), 2, "{facts}");
    assert_eq!(facts.matches("job-started").count(), 1, "{facts}");
}

/// The process of the job's first master, from the moment there is one.
fn first_master(id: &str) -> i32 {
    let digits = id.strip_prefix("application").expect("an id");
    let first = format!("CONTAINER_ID=container{digits}_01_000001");
    wait_for(&format!("the master of {id}"), || {
        let processes = fs::read_dir("/proc").expect("processes");
        processes.flatten().find_map(|process| {
            let pid: i32 = process.file_name().to_str()?.parse().ok()?;
            let words = fs::read(process.path().join("cmdline")).ok()?;
            let variables = fs::read(process.path().join("environ")).ok()?;
            let mut variables = variables.split(|byte| *byte == 0);
            let ours = words.starts_with(b"./ydl\0master")
                && variables.any(|variable| variable == first.as_bytes());
            ours.then_some(pid)
        })
    })
}

/// Runs a job whose first master is killed so long after its process began; whether it was still there.
fn with_a_death_after(moment: Duration) -> bool {
    let script = "echo $YDL_INDEX $$ >> $SHARED/pids; sleep 1.5; echo $YDL_INDEX >> $SHARED/ends";
    let job = Job::submit(script, "");
    let pid = first_master(&job.id);
    // Not to wait for anything: any moment will do, and each death has another.
    std::thread::sleep(moment);
    let killed = kill(pid);
    let report = job.end();
    let words = format!("killed after {moment:?}: {}: {report:?}", job.words());
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{words}");
    let facts = job.facts();
    let (pids, ends) = (job.lines("pids", 2), job.lines("ends", 2));
    // What YARN itself drops with a master that dies at such a moment is started again, and nothing else is.
    let dropped = facts.matches(r#""ending":"lost""#).count();
    assert!(pids.len() <= 2 + dropped, "{words}: {pids:?}\n{facts}");
    assert!(ends.len() <= 2 + dropped, "{words}: {ends:?}\n{facts}");
    assert_eq!(facts.matches("job-started").count(), 1, "{words}: {facts}");
    assert_eq!(facts.matches("job-finished").count(), 1, "{words}: {facts}");
    println!(
        "{moment:?}: killed {killed}, dropped {dropped}, ran {}",
        pids.len()
    );
    killed
}

#[test]
fn a_master_may_die_at_any_moment() {
    let _peace = among_others();
    let deaths = std::thread::scope(|scope| {
        // Four jobs at a time.
        let threads: Vec<_> = (0..4)
            .map(|one| {
                let mine = (0..20_u64).filter(move |n| n % 4 == one);
                let moments = mine.map(|n| Duration::from_millis(20 + n * 180));
                scope.spawn(move || moments.filter(|at| with_a_death_after(*at)).count())
            })
            .collect();
        let deaths = threads
            .into_iter()
            .map(|thread| thread.join().expect("no failure"));
        deaths.sum::<usize>()
    });
    assert!(deaths >= 10, "most of them lived: {deaths}");
}

#[test]
fn a_master_that_dies_with_the_resource_manager_is_followed_by_another() {
    let _alone = alone();
    let job = Job::submit(WAITS, "");
    let before = job.lines("pids", 2);
    job.master(1);
    job.cluster.kill("rm").expect("it can be killed");
    job.kill_master(1);
    job.cluster.start_daemon("rm").expect("it can be started");
    job.cluster.wait_nodes(2).expect("all nodes are back");
    job.master(2);
    fs::write(job.file("go"), "").expect("a file");
    let report = job.end();
    let words = job.words();
    assert_eq!(
        report.final_status,
        FinalStatus::Succeeded,
        "{words}: {report:?}"
    );
    assert_eq!(job.lines("pids", 2), before, "{words}: {}", job.facts());
}

#[test]
fn a_master_that_dies_while_there_is_no_file_system_is_followed_by_another() {
    let _alone = alone();
    let job = Job::submit(WAITS, "");
    let before = job.lines("pids", 2);
    let pid = job.master(1);
    job.cluster.kill("nn").expect("it can be killed");
    kill(pid);
    // The time that a NameNode is away, not one that is waited for.
    std::thread::sleep(Duration::from_secs(20));
    job.cluster.start_daemon("nn").expect("it can be started");
    job.cluster.wait_hdfs().expect("files can be written");
    wait_for(&format!("the second master of {}", job.words()), || {
        let report = yarn_support::application(job.cluster, &job.id);
        let attempt = report.attempt?.number;
        (attempt > 1 && report.state == ApplicationState::Running).then_some(())
    });
    fs::write(job.file("go"), "").expect("a file");
    let report = job.end();
    let words = job.words();
    assert_eq!(
        report.final_status,
        FinalStatus::Succeeded,
        "{words}: {report:?}"
    );
    assert_eq!(job.lines("pids", 2), before, "{words}: {}", job.facts());
}
