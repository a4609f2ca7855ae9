//! Outputs in HDFS: atomic, continuous, and without replacing other files.

use super::{
    agent_below, connect, exists, job, proxy,
    proxy::{Decision, ProxyPolicy},
    read, shared_cluster, text_at,
};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;
use ydl_storage::hdfs::Hdfs;
use ydl_testkit::{
    finish,
    yarn::{Workspace, deadline, wait_for},
};

/// More than one packet, so that a kill can interrupt a file.
const BYTES: usize = 600_000;

/// Kills the agent at one of its requests to the NameNode.
#[derive(Debug)]
struct KillingProxy {
    workspace: PathBuf,
    state: Mutex<KillState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KillState {
    /// Number of requests so far.
    requests: usize,
    /// Request at which the agent is killed, and whether the NameNode answers it first.
    kill_at: usize,
    drop_response: bool,
    /// True if the agent was killed.
    dead: bool,
}

impl KillingProxy {
    fn state(&self) -> std::sync::MutexGuard<'_, KillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        if let Some(agent) = agent_below(&self.workspace) {
            let killed = Command::new("kill").args(["-9", &agent]).status();
            assert!(killed.is_ok_and(|status| status.success()));
        }
        self.state().dead = true;
    }
}

impl ProxyPolicy for KillingProxy {
    fn on_request(&self, request: &[u8]) -> Decision {
        // Lease renewals come at any time and are not counted.
        if contains(request, b"renewLease") {
            return Decision::Forward;
        }
        let mut state = self.state();
        // Requests of the killed agent are not forwarded.
        if state.dead {
            return Decision::Disconnect;
        }
        state.requests += 1;
        let KillState { requests, kill_at, drop_response, .. } = *state;
        drop(state);
        match requests == kill_at {
            false => Decision::Forward,
            true if drop_response => Decision::DropResponse,
            true => {
                self.kill();
                Decision::Disconnect
            }
        }
    }

    fn on_dropped_response(&self) {
        self.kill();
    }
}

pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn hdfs_outputs_are_replaced_atomically_whenever_the_agent_is_killed() {
    let cluster = &*shared_cluster();
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    let workspace = Workspace::new(cluster);
    let policy =
        Arc::new(KillingProxy { workspace: workspace.path().to_owned(), state: Mutex::default() });
    let address = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&policy));
    proxy::configure(cluster, address, &workspace.path().join("conf"));
    runtime.block_on(async {
        hdfs.mkdirs("/kill/merged", 0o755, deadline()).await.expect("made");
        for name in ["single", "merged/a"] {
            let path = format!("/kill/{name}");
            let written = hdfs.write_atomic(&path, vec![b'o'; BYTES], 0o644, deadline());
            written.await.expect("written");
        }
    });
    // Each attempt writes its own letter, and waits for the test.
    let script = format!(
        "touch {0}/up; until test -e {0}/go-$YDL_ATTEMPT; do sleep 0.02; done; \
         letter=$(printf \"\\\\$(printf %03o $((97 + YDL_ATTEMPT % 26)))\"); mkdir m n; \
         head -c {BYTES} /dev/zero | tr '\\0' $letter > s; for f in m/a m/b n/a; do cp s $f; done",
        workspace.path().display()
    );
    let more = "outputs: {s: 'hdfs:///kill/single', m/: 'hdfs:///kill/merged', n/: 'hdfs:///kill/fresh'}\n\
         restart: {limit: 1000, backoff: {initial: 1ms, max: 1ms}}";
    workspace.write("job.yaml", &job(1, &script, more));
    let mut child = workspace
        .ydl()
        .env("HADOOP_CONF_DIR", workspace.path().join("conf"))
        .args(["submit", "--cluster", "local", "job.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ydl can be started");
    // Requests of the submission are not counted.
    wait_for("the program", || workspace.path().join("up").exists().then_some(()));
    let mut kills = 0;
    loop {
        let deleted = runtime.block_on(hdfs.delete("/kill/fresh", deadline()));
        deleted.expect("a response");
        *policy.state() = KillState {
            kill_at: kills / 2 + 1,
            drop_response: kills % 2 == 1,
            ..KillState::default()
        };
        workspace.write(&format!("go-{}", kills + 1), "");
        let what = format!("a kill, or the end of the job, after {kills} kills");
        let ended = wait_for(&what, || {
            let ended = child.try_wait().expect("a child").is_some();
            (ended || policy.state().dead).then_some(ended)
        });
        let what = format!("{:?}", policy.state());
        runtime.block_on(check(&hdfs, &what, ended));
        if ended {
            break;
        }
        kills += 1;
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    println!("killed at {kills} requests");
    assert!(kills >= 50, "killed at {kills} requests");
}

/// Checks that all files are complete, and at the end that exactly the expected files exist.
async fn check(hdfs: &Hdfs, what: &str, ended: bool) {
    let letter = async |name: &str| {
        let path = format!("/kill/{name}");
        let found = hdfs.read_if_exists(&path, 2 * BYTES as u64, deadline()).await;
        let bytes = found.expect("a response")?;
        assert_eq!(bytes.len(), BYTES, "{name}: {what}");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{name}: {what}");
        Some(bytes[0])
    };
    let single = letter("single").await;
    assert!(single.is_some(), "single is missing: {what}");
    assert!(letter("merged/a").await.is_some(), "merged/a is missing: {what}");
    let (last, new) = (letter("merged/b").await, letter("fresh/a").await);
    let directory_exists = exists(hdfs, "/kill/fresh").await;
    assert_eq!(directory_exists, new.is_some(), "an incomplete directory: {what}");
    if !ended {
        return;
    }
    assert_eq!((last, new), (single, single), "not all of the last attempt");
    for dir in ["/kill", "/kill/merged", "/kill/fresh"] {
        let all = hdfs.list(dir, deadline()).await.expect("a list");
        let mut names: Vec<_> = all.iter().map(|entry| entry.name()).collect();
        names.sort_unstable();
        let expected: &[&str] = match dir {
            "/kill" => &["fresh", "merged", "single"],
            "/kill/merged" => &["a", "b"],
            _ => &["a"],
        };
        assert_eq!(names, expected, "{dir}");
    }
}

#[test]
fn fetch_works_on_a_running_job_and_other_files_are_not_replaced() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let script = format!(
        "echo hello; mkdir ckpt; echo one > ckpt/1; until test -e {}/go; do sleep 0.1; done; \
         echo new > m",
        workspace.path().display()
    );
    let more =
        "outputs: {ckpt/: {to: live/ckpt, every: 1s}, m: {to: live-model, existing: number}}";
    let yaml = job(1, &script, more).replace("name: data", "name: live");
    workspace.write("job.yaml", &yaml);
    let child = workspace.start(&["submit", "job.yaml"]);
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    let home = runtime.block_on(hdfs.home(deadline())).expect("a home");
    let text_of = |name: &str| runtime.block_on(text_at(&hdfs, &format!("{home}/{name}")));
    wait_for("a checkpoint", || (text_of("live/ckpt/1").as_deref() == Some("one\n")).then_some(()));
    let ran = workspace.run(&["fetch", "live", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read(workspace.path().join("got/outputs/ckpt/1")), "one\n");
    assert_eq!(read(workspace.path().join("got/logs/worker/0/1/stdout.0")), "hello\n");
    assert!(!workspace.path().join("got/outputs/live-model").exists());
    runtime.block_on(async {
        let path = format!("{home}/live-model");
        let written = hdfs.write_atomic(&path, "theirs\n", 0o644, deadline()).await;
        written.expect("written");
    });
    let time = |name: &str| {
        let found = runtime.block_on(hdfs.stat(&format!("{home}/{name}"), deadline()));
        found.expect("a response").map(|entry| entry.modified_ms)
    };
    let sent = time("live/ckpt/1");
    fs::write(workspace.path().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(time("live/ckpt/1"), sent, "an unchanged file was sent again");
    assert_eq!(text_of("live-model").as_deref(), Some("theirs\n"));
    assert_eq!(text_of("live-model-2").as_deref(), Some("new\n"));
    let ran = workspace.run(&["fetch", "live", "outputs/*", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read(workspace.path().join("got/outputs/live-model")), "new\n");
}

/// Rejects connections while HDFS is unavailable.
#[derive(Debug, Default)]
struct Outage {
    active: AtomicBool,
    refused: AtomicUsize,
}

impl Outage {
    fn refuses(&self) -> bool {
        let active = self.active.load(Ordering::SeqCst);
        if active {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        active
    }
}

impl ProxyPolicy for Outage {
    fn accepts(&self) -> bool {
        !self.refuses()
    }

    fn on_request(&self, _: &[u8]) -> Decision {
        match self.refuses() {
            true => Decision::Disconnect,
            false => Decision::Forward,
        }
    }
}

#[test]
fn the_last_checkpoint_of_a_failed_program_is_retried_during_an_outage() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let outage = Arc::new(Outage::default());
    let address = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&outage));
    proxy::configure(cluster, address, &workspace.path().join("conf"));
    let script = format!(
        "test $YDL_ATTEMPT = 1 || exit 0; mkdir ckpt; echo one > ckpt/1; \
         until test -e {}/go; do sleep 0.1; done; echo last > ckpt/last; exit 1",
        workspace.path().display()
    );
    let more = "outputs: {ckpt/: {to: 'hdfs:///outage/ckpt', every: 1s}}\n\
         restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}";
    workspace.write("job.yaml", &job(1, &script, more));
    let child = workspace
        .ydl()
        .env("HADOOP_CONF_DIR", workspace.path().join("conf"))
        .args(["submit", "--cluster", "local", "job.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ydl can be started");
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    let text_of = |name: &str| runtime.block_on(text_at(&hdfs, &format!("/outage/ckpt/{name}")));
    wait_for("a checkpoint", || (text_of("1").as_deref() == Some("one\n")).then_some(()));
    outage.active.store(true, Ordering::SeqCst);
    workspace.write("go", "");
    wait_for("a rejected request", || (outage.refused.load(Ordering::SeqCst) > 0).then_some(()));
    // Longer than the agent waits for logs after a failure.
    let resume_at = Instant::now() + Duration::from_secs(13);
    wait_for("the delay", || (Instant::now() > resume_at).then_some(()));
    assert_eq!(text_of("last"), None);
    outage.active.store(false, Ordering::SeqCst);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(text_of("last").as_deref(), Some("last\n"));
}

#[test]
fn a_file_created_in_hdfs_during_the_job_is_not_replaced() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let script = format!(
        "echo new > m; touch {0}/up; until test -e {0}/go; do sleep 0.1; done",
        workspace.path().display()
    );
    let more = "outputs: {m: {to: 'hdfs:///refused/model', existing: fail}}\nrestart: {limit: 0}";
    workspace.write("job.yaml", &job(1, &script, more));
    let child = workspace.start(&["submit", "--cluster", "local", "job.yaml"]);
    wait_for("the program", || workspace.path().join("up").exists().then_some(()));
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    runtime.block_on(async {
        hdfs.mkdirs("/refused", 0o755, deadline()).await.expect("made");
        let written = hdfs.write_atomic("/refused/model", "theirs\n", 0o644, deadline());
        written.await.expect("written");
    });
    workspace.write("go", "");
    let ran = finish(child);
    assert_ne!(ran.code, 0, "{ran:#?}");
    let sentence = "/refused/model` was created by another process after the job was submitted";
    assert!(ran.stderr.contains(sentence), "{ran:#?}");
    let text = runtime.block_on(text_at(&hdfs, "/refused/model"));
    assert_eq!(text.as_deref(), Some("theirs\n"));
}
