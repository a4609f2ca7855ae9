//! Files of an agent in a real HDFS: growing logs, exit records and outputs. Also the search for a master that has
//! moved.

use crate::agent_harness::{PATIENCE, Scene, Store};
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

struct World {
    cluster: Arc<Lease>,
    hdfs: Hdfs,
    config: BTreeMap<String, String>,
    user: String,
    /// The directory of the job.
    dir: String,
    home: String,
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

impl World {
    async fn new() -> World {
        World::with(shared(options())).await
    }

    /// Without other tests on the cluster.
    async fn exclusive() -> World {
        World::with(exclusive(options())).await
    }

    async fn with(cluster: Lease) -> World {
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
        World { cluster: Arc::new(cluster), hdfs, config: hdfs::pairs(&config), user, dir, home }
    }

    fn store(&self) -> Store {
        Store {
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
    async fn bytes(&self, place: &str) -> u64 {
        let entry = self.hdfs.stat(place, deadline()).await.expect("an answer");
        entry.map_or(0, |entry| entry.bytes)
    }

    async fn read(&self, place: &str) -> String {
        let bytes = self.hdfs.read_file(place, 64 << 20, deadline()).await;
        String::from_utf8(bytes.expect("a file").to_vec()).expect("text")
    }

    /// Everything below a directory, each with its content.
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
async fn what_a_program_prints_is_in_hdfs_while_it_runs_and_then_how_it_ended() {
    let world = World::new().await;
    let script = "echo one; echo oops >&2; until [ -e go ]; do sleep 0.05; done; echo two; exit 3";
    let mut scene = Scene::in_container(script, "", world.store());
    scene.start().await;
    // The program is not allowed to end before that.
    let (out, err) = (world.log("stdout.0"), world.log("stderr.0"));
    scene
        .until("line in HDFS", async |_| {
            world.bytes(&out).await == 4 && world.bytes(&err).await == 5
        })
        .await;
    let work = scene.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (exit, error) = scene.end().await;
    assert_eq!((exit.code, error), (Some(3), None));
    assert_eq!(world.read(&out).await, "one\ntwo\n");
    assert_eq!(world.read(&err).await, "oops\n");
    let record = world.read(&world.log("exit.json")).await;
    let record: serde_json::Value = serde_json::from_str(&record).expect("json");
    assert_eq!(record["exit"]["code"], 3);
    assert_eq!(record["container"], "container_1");
    let near = std::fs::read(scene.dir.path().join("logs/worker/0/1/exit.json"));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&near.unwrap()).unwrap(), record);
}

#[tokio::test]
async fn an_agent_killed_outright_leaves_what_was_synced() {
    let world = World::new().await;
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done";
    let mut scene = Scene::in_container(script, "", world.store());
    scene.start().await;
    let out = world.log("stdout.0");
    let mut sure = 0;
    scene
        .until("some lines in HDFS", async |_| {
            sure = world.bytes(&out).await;
            sure > 200
        })
        .await;
    signal("-9", scene.agent.id());
    world.hdfs.recover(&out, deadline()).await.expect("an end");
    let text = world.read(&out).await;
    assert!(text.len() as u64 >= sure, "{} of {sure}", text.len());
    assert!(text.starts_with("line 1\nline 2\n"), "{text}");
}

#[tokio::test]
async fn the_last_words_of_a_container_are_in_hdfs_before_it_is_killed() {
    let world = World::new().await;
    let script = "trap 'echo goodbye; sleep 100' TERM; echo up; while :; do sleep 0.02; done";
    let mut scene = Scene::in_container(script, "", world.store());
    scene.start().await;
    let out = world.log("stdout.0");
    scene.until("line", async |_| world.bytes(&out).await == 3).await;
    // As a NodeManager does it, with more time than it gives: this machine has other things to do.
    signal("-15", scene.agent.id());
    scene.until("last words", async |_| world.bytes(&out).await == 11).await;
    signal("-9", scene.agent.id());
    world.hdfs.recover(&out, deadline()).await.expect("an end");
    assert_eq!(world.read(&out).await, "up\ngoodbye\n");
}

#[tokio::test]
async fn logs_are_whole_though_the_namenode_was_away() {
    let world = World::exclusive().await;
    let script = "i=0; until [ -e go ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo end $i";
    let mut scene = Scene::in_container(script, "", world.store());
    scene.start().await;
    let out = world.log("stdout.0");
    scene.until("lines", async |_| world.bytes(&out).await > 50).await;
    // One that hangs holds up nothing but the carrying.
    world.cluster.pause("nn").expect("a pause");
    let mut beats = 0;
    while beats < 4 {
        scene.next().await.answer(Reply::empty());
        beats += 1;
    }
    world.cluster.resume("nn").expect("an end of it");
    let before = world.bytes(&out).await;
    scene.until("more lines", async |_| world.bytes(&out).await > before).await;
    let began = Instant::now();
    let cluster = Arc::clone(&world.cluster);
    let away = tokio::task::spawn_blocking(move || {
        cluster.kill("nn")?;
        cluster.start_daemon("nn")?;
        cluster.wait_hdfs()
    });
    // The agent is answered all the while, so it beats. How long a daemon may take to start is the test bed's affair.
    while !away.is_finished() {
        let asked = timeout(Duration::from_millis(50), scene.questions.recv()).await;
        if let Ok(Some(asked)) = asked {
            asked.answer(Reply::empty());
        }
    }
    away.await.expect("a thread").expect("a NameNode");
    println!("the NameNode was away for {:?}", began.elapsed());
    let work = scene.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (exit, error) = scene.end().await;
    assert_eq!((exit.code, error), (Some(0), None), "{}", scene.words());
    let text = world.read(&out).await;
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len() - 1;
    assert_eq!(lines[count], format!("end {count}"));
    assert!(
        lines.iter().take(count).enumerate().all(|(at, line)| *line == format!("line {}", at + 1))
    );
}

#[tokio::test]
async fn outputs_go_to_hdfs_by_the_rules_of_local_ones() {
    let world = World::new().await;
    let script = "mkdir -p model/deep; echo a > model/a; echo b > model/deep/b; ln -s deep model/latest; \
                  echo 1 > ck-1; echo 2 > ck-2; echo h > .ck-3; echo f > final; echo n > near";
    let home = &world.home;
    let near = tempfile::tempdir().expect("a directory");
    let pair = |from: &str, to: String| (from.to_owned(), to);
    let mut store = world.store();
    store.outputs = vec![
        pair("model/", "results/{role}-{index}".to_owned()),
        pair("ck-*", format!("{home}/merged")),
        pair("final", format!("{home}/merged/")),
        pair("near", near.path().join("{job}-near").display().to_string()),
        pair("absent", "nowhere".to_owned()),
    ];
    let merged = format!("{home}/merged");
    world.hdfs.mkdirs(&merged, 0o755, deadline()).await.expect("a directory");
    // The last is what an earlier attempt was killed at.
    let left = ".aside-t-aaaaaa-worker=0-0123456789abcdef";
    for (name, text) in [("ck-1", "old"), ("kept", "k"), (left, "half")] {
        let place = format!("{merged}/{name}");
        let written = world.hdfs.write_atomic(&place, text, 0o644, deadline());
        written.await.expect("a file");
    }
    let mut scene = Scene::in_container(script, "", store);
    scene.start().await;
    let (exit, error) = scene.end().await;
    assert_eq!((exit.code, error), (Some(0), None));
    assert_eq!(
        world.found(&format!("{home}/results")).await,
        ["worker-0/a=a\n", "worker-0/deep/b=b\n", "worker-0/latest/b=b\n"]
    );
    assert_eq!(world.found(&merged).await, ["ck-1=1\n", "ck-2=2\n", "final=f\n", "kept=k"]);
    let near = std::fs::read_to_string(near.path().join("t-aaaaaa-near"));
    assert_eq!(near.expect("a file"), "n\n");
    assert_eq!(world.bytes(&format!("{home}/nowhere")).await, 0);
}

#[tokio::test]
async fn outputs_beyond_a_quota_are_told_with_file_and_cause_and_nothing_half_is_left() {
    let world = World::new().await;
    let script = "mkdir model; echo small > model/a; head -c 3000000 /dev/zero > model/big";
    let small = format!("{}/small", world.home);
    world.hdfs.mkdirs(&small, 0o755, deadline()).await.expect("a directory");
    let path = small.split_once("//").and_then(|(_, rest)| rest.split_once('/'));
    let path = format!("/{}", path.expect("a path").1);
    let cluster = Arc::clone(&world.cluster);
    let quota = tokio::task::spawn_blocking(move || {
        let mut admin = cluster.hadoop("org.apache.hadoop.hdfs.tools.DFSAdmin")?;
        // The names of two directories and a file, no more.
        admin.args(["-setQuota", "3", &path]);
        testbed::run(&mut admin, Duration::from_secs(60))
    });
    quota.await.expect("a thread").expect("a quota");
    let mut store = world.store();
    store.outputs = vec![("model/".to_owned(), format!("{small}/model"))];
    let mut scene = Scene::in_container(script, "", store);
    scene.start().await;
    let (_, error) = scene.end().await;
    let error = error.expect("a failure");
    assert!(error.contains("to `hdfs://"), "{error}");
    assert!(error.contains("quota"), "{error}");
    assert!(error.starts_with("cannot copy `"), "{error}");
    assert_eq!(world.hdfs.list(&small, deadline()).await.expect("a list"), []);
}

#[tokio::test]
async fn an_agent_finds_the_master_that_took_over_and_its_program_does_not_notice() {
    let world = World::new().await;
    let script = "echo $$; until [ -e go ]; do sleep 0.05; done; exit 4";
    let mut scene = Scene::in_container(script, "timeouts: {heartbeat: 60s}", world.store());
    scene.start().await;
    scene
        .until("program", async |scene| {
            std::fs::metadata(scene.log()).is_ok_and(|log| log.len() > 0)
        })
        .await;
    let place = format!("{}/master.json", world.dir);
    let moved = scene.another_master();
    // The program ends while there is no master; that is told to the next one.
    let work = scene.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let json = MasterAddress { address: moved, attempt: 2, pid: 1, pid_started: 1 };
    let json = to_json(&json).expect("json");
    let written = world.hdfs.write_atomic(&place, json, 0o644, deadline());
    written.await.expect("a file");
    let (exit, error) = scene.end().await;
    assert_eq!((exit.code, error), (Some(4), None));
    let words = scene.words();
    assert!(words.contains("the master has moved to `127.0.0.1:"), "{words}");
}

#[tokio::test]
async fn unsynced_logs_take_bounded_memory_while_hdfs_stalls() {
    // The agent sends that many bytes of a stream ahead of a sync. The allocator keeps some freed memory besides.
    const GROWTH_MAX: u64 = 2 * (UNSYNCED_BYTES_MAX >> 10);
    let world = World::exclusive().await;
    let script = "echo; until [ -e print ]; do sleep 0.05; done; head -c 39999999 /dev/zero | tr '\\0' 'x'; \
                  until [ -e go ]; do sleep 0.05; done";
    let mut scene = Scene::in_container(script, "", world.store());
    scene.start().await;
    let first = world.log("stdout.0");
    scene.until("first line in HDFS", async |_| world.bytes(&first).await == 1).await;
    // Includes the connections to HDFS, but no pending output.
    let connected = memory_kib(scene.agent.id());

    world.cluster.pause("dn").expect("a DataNode");
    let work = scene.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("print"), "").expect("a file");
    let grown = |scene: &Scene| memory_kib(scene.agent.id()).saturating_sub(connected);
    scene.until("unacknowledged output", async |scene| grown(scene) > GROWTH_MAX / 4).await;
    // An agent without a limit reads on meanwhile.
    let stalled_until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < stalled_until {
        assert!(grown(&scene) < GROWTH_MAX, "{} KiB over {connected} KiB", grown(&scene));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.cluster.resume("dn").expect("a DataNode");

    let last = world.log("stdout.2");
    let bytes = 40_000_000 - 2 * (16 << 20);
    scene.until("all output in HDFS", async |_| world.bytes(&last).await == bytes).await;
    assert!(grown(&scene) < GROWTH_MAX, "{} KiB over {connected} KiB", grown(&scene));
    let segments = world.hdfs.list(&world.log(""), deadline()).await.expect("a list");
    assert_eq!(segments.len(), 3, "{segments:?}");
}

fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("a number")
}
