//! Files of an agent in a real HDFS: growing logs, exit records and outputs. Also the search for a master that has
//! moved.

use crate::agent_harness::{AgentHarness, ClusterSetup, TIMEOUT};
use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use testbed::{Lease, Options};
use tokio::time::{Instant, timeout};
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl::agent::UNSYNCED_BYTES_MAX;
use ydl_net::request::Reply;
use ydl_proto::{files::MasterAddress, version::to_json};
use ydl_storage::hdfs::{self, Hdfs};
use ydl_testkit::yarn::{exclusive, shared, version};

/// A NameNode and a ResourceManager, without nodes.
fn options() -> Options {
    Options { nodes: 0, ..Options::new(version()) }
}

struct HdfsFixture {
    cluster: Arc<Lease>,
    hdfs: Hdfs,
    config: BTreeMap<String, String>,
    user: String,
    /// Directory of the job.
    dir: String,
    home: String,
}

fn deadline() -> Instant {
    Instant::now() + TIMEOUT
}

impl HdfsFixture {
    async fn new() -> HdfsFixture {
        HdfsFixture::with(shared(options())).await
    }

    /// Leases the cluster exclusively.
    async fn exclusive() -> HdfsFixture {
        HdfsFixture::with(exclusive(options())).await
    }

    async fn with(cluster: Lease) -> HdfsFixture {
        let config = Config::from_directories(&[cluster.configuration()], Environment::default());
        let config = config.expect("a configuration");
        let user = cluster.own_user();
        let identity = Identity::simple(&user);
        let hdfs = Hdfs::connect(&config, None, &identity, deadline()).await;
        let hdfs = hdfs.expect("a file system");
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = hdfs.url(&format!("/user/{user}/home-{number}"));
        let dir = format!("{home}/.ydl/jobs/application_1_{number}");
        hdfs.mkdirs(&dir, 0o700, deadline()).await.expect("a directory");
        HdfsFixture {
            cluster: Arc::new(cluster),
            hdfs,
            config: hdfs::pairs(&config),
            user,
            dir,
            home,
        }
    }

    fn setup(&self) -> ClusterSetup {
        ClusterSetup {
            dir: self.dir.clone(),
            home: self.home.clone(),
            config: self.config.clone(),
            user: self.user.clone(),
            outputs: Vec::new(),
        }
    }

    fn log(&self, name: &str) -> String {
        format!("{}/logs/worker/0/1/{name}", self.dir)
    }

    /// Returns the visible length of a file.
    async fn bytes(&self, path: &str) -> u64 {
        let entry = self.hdfs.stat(path, deadline()).await.expect("a response");
        entry.map_or(0, |entry| entry.bytes)
    }

    async fn read(&self, path: &str) -> String {
        let bytes = self.hdfs.read_file(path, 64 << 20, deadline()).await;
        String::from_utf8(bytes.expect("a file").to_vec()).expect("text")
    }

    /// Returns all files below a directory, each with its content.
    async fn found(&self, dir: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![dir.to_owned()];
        while let Some(next) = dirs.pop() {
            for entry in self.hdfs.list(&next, deadline()).await.expect("a list") {
                if entry.directory {
                    dirs.push(entry.url);
                } else {
                    let text = self.read(&entry.url).await;
                    let name = entry.url.strip_prefix(dir).expect("a path below");
                    found.push(format!("{}={text}", name.trim_start_matches('/')));
                }
            }
        }
        found.sort();
        found
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

#[tokio::test]
async fn output_is_in_hdfs_while_a_program_runs_and_then_its_exit_record() {
    let fixture = HdfsFixture::new().await;
    let script = "echo one; echo oops >&2; until [ -e go ]; do sleep 0.05; done; echo two; exit 3";
    let mut harness = AgentHarness::in_container(script, "", fixture.setup());
    harness.start().await;
    // The program runs until the file `go` exists.
    let (out, err) = (fixture.log("stdout.0"), fixture.log("stderr.0"));
    harness
        .wait_until("line in HDFS", async |_| {
            fixture.bytes(&out).await == 4 && fixture.bytes(&err).await == 5
        })
        .await;
    let work = harness.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (exit, error) = harness.finish().await;
    assert_eq!((exit.code, error), (Some(3), None));
    assert_eq!(fixture.read(&out).await, "one\ntwo\n");
    assert_eq!(fixture.read(&err).await, "oops\n");
    let record = fixture.read(&fixture.log("exit.json")).await;
    let record: serde_json::Value = serde_json::from_str(&record).expect("json");
    assert_eq!(record["exit"]["code"], 3);
    assert_eq!(record["container"], "container_1");
    let local = std::fs::read(harness.dir.path().join("logs/worker/0/1/exit.json"));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&local.unwrap()).unwrap(), record);
}

#[tokio::test]
async fn synced_logs_survive_a_killed_agent() {
    let fixture = HdfsFixture::new().await;
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done";
    let mut harness = AgentHarness::in_container(script, "", fixture.setup());
    harness.start().await;
    let out = fixture.log("stdout.0");
    let mut synced = 0;
    harness
        .wait_until("some lines in HDFS", async |_| {
            synced = fixture.bytes(&out).await;
            synced > 200
        })
        .await;
    signal("-9", harness.agent.id());
    fixture.hdfs.recover(&out, deadline()).await.expect("an end");
    let text = fixture.read(&out).await;
    assert!(text.len() as u64 >= synced, "{} of {synced}", text.len());
    assert!(text.starts_with("line 1\nline 2\n"), "{text}");
}

#[tokio::test]
async fn output_after_sigterm_is_in_hdfs_before_the_container_is_killed() {
    let fixture = HdfsFixture::new().await;
    let script = "trap 'echo goodbye; sleep 100' TERM; echo up; while :; do sleep 0.02; done";
    let mut harness = AgentHarness::in_container(script, "", fixture.setup());
    harness.start().await;
    let out = fixture.log("stdout.0");
    harness.wait_until("line", async |_| fixture.bytes(&out).await == 3).await;
    // Like a NodeManager, but with more time before SIGKILL: this machine may be busy.
    signal("-15", harness.agent.id());
    harness.wait_until("last words", async |_| fixture.bytes(&out).await == 11).await;
    signal("-9", harness.agent.id());
    fixture.hdfs.recover(&out, deadline()).await.expect("an end");
    assert_eq!(fixture.read(&out).await, "up\ngoodbye\n");
}

#[tokio::test]
async fn logs_are_complete_after_a_namenode_outage() {
    let fixture = HdfsFixture::exclusive().await;
    let script = "i=0; until [ -e go ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo end $i";
    let mut harness = AgentHarness::in_container(script, "", fixture.setup());
    harness.start().await;
    let out = fixture.log("stdout.0");
    harness.wait_until("lines", async |_| fixture.bytes(&out).await > 50).await;
    // A hanging NameNode delays only the shipping.
    fixture.cluster.pause("nn").expect("a pause");
    let mut heartbeats = 0;
    while heartbeats < 4 {
        harness.next_sync().await.respond(Reply::empty());
        heartbeats += 1;
    }
    fixture.cluster.resume("nn").expect("an end of it");
    let before = fixture.bytes(&out).await;
    harness.wait_until("more lines", async |_| fixture.bytes(&out).await > before).await;
    let began = Instant::now();
    let cluster = Arc::clone(&fixture.cluster);
    let restarting = tokio::task::spawn_blocking(move || {
        cluster.kill("nn")?;
        cluster.start_daemon("nn")?;
        cluster.wait_hdfs()
    });
    // Keep answering the agent's heartbeats. The test bed limits the time of the restart.
    while !restarting.is_finished() {
        let pending = timeout(Duration::from_millis(50), harness.syncs.recv()).await;
        if let Ok(Some(pending)) = pending {
            pending.respond(Reply::empty());
        }
    }
    restarting.await.expect("a thread").expect("a NameNode");
    println!("the NameNode was away for {:?}", began.elapsed());
    let work = harness.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (exit, error) = harness.finish().await;
    assert_eq!((exit.code, error), (Some(0), None), "{}", harness.agent_log());
    let text = fixture.read(&out).await;
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len() - 1;
    assert_eq!(lines[count], format!("end {count}"));
    assert!(
        lines.iter().take(count).enumerate().all(|(at, line)| *line == format!("line {}", at + 1))
    );
}

#[tokio::test]
async fn hdfs_outputs_follow_the_rules_of_local_outputs() {
    let fixture = HdfsFixture::new().await;
    let script = "mkdir -p model/deep; echo a > model/a; echo b > model/deep/b; ln -s deep model/latest; \
                  echo 1 > ck-1; echo 2 > ck-2; echo h > .ck-3; echo f > final; echo n > near";
    let home = &fixture.home;
    let local = tempfile::tempdir().expect("a directory");
    let pair = |from: &str, to: String| (from.to_owned(), to);
    let mut setup = fixture.setup();
    setup.outputs = vec![
        pair("model/", "results/{role}-{index}".to_owned()),
        pair("ck-*", format!("{home}/merged")),
        pair("final", format!("{home}/merged/")),
        pair("near", local.path().join("{job}-near").display().to_string()),
        pair("absent", "nowhere".to_owned()),
    ];
    let merged = format!("{home}/merged");
    fixture.hdfs.mkdirs(&merged, 0o755, deadline()).await.expect("a directory");
    // The last file is a partial upload of an earlier attempt that was killed.
    let abandoned = ".aside-t-aaaaaa-worker=0-0123456789abcdef";
    for (name, text) in [("ck-1", "old"), ("kept", "k"), (abandoned, "half")] {
        let path = format!("{merged}/{name}");
        let written = fixture.hdfs.write_atomic(&path, text, 0o644, deadline());
        written.await.expect("a file");
    }
    let mut harness = AgentHarness::in_container(script, "", setup);
    harness.start().await;
    let (exit, error) = harness.finish().await;
    assert_eq!((exit.code, error), (Some(0), None));
    assert_eq!(
        fixture.found(&format!("{home}/results")).await,
        ["worker-0/a=a\n", "worker-0/deep/b=b\n", "worker-0/latest/b=b\n"]
    );
    assert_eq!(fixture.found(&merged).await, ["ck-1=1\n", "ck-2=2\n", "final=f\n", "kept=k"]);
    let local = std::fs::read_to_string(local.path().join("t-aaaaaa-near"));
    assert_eq!(local.expect("a file"), "n\n");
    assert_eq!(fixture.bytes(&format!("{home}/nowhere")).await, 0);
}

#[tokio::test]
async fn outputs_beyond_a_quota_are_reported_and_leave_no_partial_file() {
    let fixture = HdfsFixture::new().await;
    let script = "mkdir model; echo small > model/a; head -c 3000000 /dev/zero > model/big";
    let small = format!("{}/small", fixture.home);
    fixture.hdfs.mkdirs(&small, 0o755, deadline()).await.expect("a directory");
    let path = small.split_once("//").and_then(|(_, rest)| rest.split_once('/'));
    let path = format!("/{}", path.expect("a path").1);
    let cluster = Arc::clone(&fixture.cluster);
    let quota = tokio::task::spawn_blocking(move || {
        let mut admin = cluster.hadoop("org.apache.hadoop.hdfs.tools.DFSAdmin")?;
        // The names of two directories and a file, no more.
        admin.args(["-setQuota", "3", &path]);
        testbed::run(&mut admin, Duration::from_secs(60))
    });
    quota.await.expect("a thread").expect("a quota");
    let mut setup = fixture.setup();
    setup.outputs = vec![("model/".to_owned(), format!("{small}/model"))];
    let mut harness = AgentHarness::in_container(script, "", setup);
    harness.start().await;
    let (_, error) = harness.finish().await;
    let error = error.expect("a failure");
    assert!(error.contains("to `hdfs://"), "{error}");
    assert!(error.contains("quota"), "{error}");
    assert!(error.starts_with("cannot copy `"), "{error}");
    assert_eq!(fixture.hdfs.list(&small, deadline()).await.expect("a list"), []);
}

#[tokio::test]
async fn an_agent_finds_a_new_master_while_its_program_keeps_running() {
    let fixture = HdfsFixture::new().await;
    let script = "echo $$; until [ -e go ]; do sleep 0.05; done; exit 4";
    let mut harness =
        AgentHarness::in_container(script, "timeouts: {heartbeat: 60s}", fixture.setup());
    harness.start().await;
    harness
        .wait_until("program", async |harness| {
            std::fs::metadata(harness.log()).is_ok_and(|log| log.len() > 0)
        })
        .await;
    let path = format!("{}/master.json", fixture.dir);
    let moved = harness.replace_master();
    // The program exits while there is no master; the next master gets the report.
    let work = harness.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let json = MasterAddress { address: moved, attempt: 2, pid: 1, pid_started: 1 };
    let json = to_json(&json).expect("json");
    let written = fixture.hdfs.write_atomic(&path, json, 0o644, deadline());
    written.await.expect("a file");
    let (exit, error) = harness.finish().await;
    assert_eq!((exit.code, error), (Some(4), None));
    let args = harness.agent_log();
    assert!(args.contains("the master has moved to `127.0.0.1:"), "{args}");
}

#[tokio::test]
async fn unsynced_logs_take_bounded_memory_while_hdfs_stalls() {
    // Between two syncs the agent writes at most `UNSYNCED_BYTES_MAX` and one read of a stream, which the HDFS client keeps
    // until they are acknowledged. The factor allows for memory that the allocator keeps after it was freed.
    const GROWTH_MAX: u64 = 2 * (UNSYNCED_BYTES_MAX >> 10);
    let fixture = HdfsFixture::exclusive().await;
    let script = "echo; until [ -e print ]; do sleep 0.05; done; head -c 39999999 /dev/zero | tr '\\0' 'x'; \
                  until [ -e go ]; do sleep 0.05; done";
    let mut harness = AgentHarness::in_container(script, "", fixture.setup());
    harness.start().await;
    let first = fixture.log("stdout.0");
    harness.wait_until("first line in HDFS", async |_| fixture.bytes(&first).await == 1).await;
    // Includes the connections to HDFS, but no pending output.
    let connected = memory_kib(harness.agent.id());

    fixture.cluster.pause("dn").expect("a DataNode");
    let work = harness.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("print"), "").expect("a file");
    let grown = |harness: &AgentHarness| memory_kib(harness.agent.id()).saturating_sub(connected);
    harness
        .wait_until("unacknowledged output", async |harness| grown(harness) > GROWTH_MAX / 4)
        .await;
    // An agent without a limit would read all output in this time.
    let stalled_until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < stalled_until {
        assert!(grown(&harness) < GROWTH_MAX, "{} KiB over {connected} KiB", grown(&harness));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.cluster.resume("dn").expect("a DataNode");

    let last = fixture.log("stdout.2");
    let bytes = 40_000_000 - 2 * (16 << 20);
    harness.wait_until("all output in HDFS", async |_| fixture.bytes(&last).await == bytes).await;
    assert!(grown(&harness) < GROWTH_MAX, "{} KiB over {connected} KiB", grown(&harness));
    let segments = fixture.hdfs.list(&fixture.log(""), deadline()).await.expect("a list");
    assert_eq!(segments.len(), 3, "{segments:?}");
}

fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}
