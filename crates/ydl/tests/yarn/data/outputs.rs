//! Outputs in HDFS: always complete, visible while their programs run, and separate from other users' files.

use super::{
    agent_below, connect, exists, job, proxy,
    proxy::{Keeper, Passing},
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

/// More than one piece, so that there is a middle.
const BYTES: usize = 600_000;

/// Ends the agent at one question of those it asks from a certain moment on.
#[derive(Debug)]
struct Death {
    workspace: PathBuf,
    state: Mutex<Counted>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Questions that were asked.
    asked: usize,
    /// At which of them the agent dies, and whether it is answered first.
    at: usize,
    answered: bool,
    /// True if the agent was killed.
    dead: bool,
}

impl Death {
    fn state(&self) -> std::sync::MutexGuard<'_, Counted> {
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

impl Keeper for Death {
    fn asked(&self, question: &[u8]) -> Passing {
        // It asks nothing else, but goes on to say that it lives.
        if contains(question, b"renewLease") {
            return Passing::Through;
        }
        let mut state = self.state();
        // Nothing that was on its way when it died gets there.
        if state.dead {
            return Passing::Cut;
        }
        state.asked += 1;
        let Counted { asked, at, answered, .. } = *state;
        drop(state);
        match asked == at {
            false => Passing::Through,
            true if answered => Passing::Unanswered,
            true => {
                self.kill();
                Passing::Cut
            }
        }
    }

    fn answered(&self) {
        self.kill();
    }
}

pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn outputs_in_hdfs_are_old_or_new_and_whole_wherever_their_agent_is_killed() {
    let cluster = &*shared_cluster();
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    let workspace = Workspace::new(cluster);
    let death = Arc::new(Death { workspace: workspace.path().to_owned(), state: Mutex::default() });
    let gate = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&death));
    proxy::configure(cluster, gate, &workspace.path().join("conf"));
    runtime.block_on(async {
        hdfs.mkdirs("/kill/merged", 0o755, deadline()).await.expect("made");
        for name in ["single", "merged/a"] {
            let place = format!("/kill/{name}");
            let written = hdfs.write_atomic(&place, vec![b'o'; BYTES], 0o644, deadline());
            written.await.expect("written");
        }
    });
    // Each attempt has a letter of its own, and begins when the test says so.
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
    // What is asked at submit counts for nothing.
    wait_for("the program", || workspace.path().join("up").exists().then_some(()));
    let mut moments = 0;
    loop {
        let deleted = runtime.block_on(hdfs.delete("/kill/fresh", deadline()));
        deleted.expect("an answer");
        *death.state() =
            Counted { at: moments / 2 + 1, answered: moments % 2 == 1, ..Counted::default() };
        workspace.write(&format!("go-{}", moments + 1), "");
        let what = format!("a death, or the end of the job, at moment {moments}");
        let over = wait_for(&what, || {
            let over = child.try_wait().expect("a child").is_some();
            (over || death.state().dead).then_some(over)
        });
        let what = format!("{:?}", death.state());
        runtime.block_on(check(&hdfs, &what, over));
        if over {
            break;
        }
        moments += 1;
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    println!("killed at {moments} moments");
    assert!(moments >= 50, "killed at {moments} moments");
}

/// Checks that all files are complete, and at the end that exactly the expected files exist.
async fn check(hdfs: &Hdfs, what: &str, over: bool) {
    let letter = async |name: &str| {
        let place = format!("/kill/{name}");
        let found = hdfs.read_if_exists(&place, 2 * BYTES as u64, deadline()).await;
        let bytes = found.expect("an answer")?;
        assert_eq!(bytes.len(), BYTES, "{name}: {what}");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{name}: {what}");
        Some(bytes[0])
    };
    let single = letter("single").await;
    assert!(single.is_some(), "the old one is never gone: {what}");
    assert!(letter("merged/a").await.is_some(), "nor here: {what}");
    let (last, fresh) = (letter("merged/b").await, letter("fresh/a").await);
    let is_there = exists(hdfs, "/kill/fresh").await;
    assert_eq!(is_there, fresh.is_some(), "a directory comes whole: {what}");
    if !over {
        return;
    }
    assert_eq!((last, fresh), (single, single), "all of the last attempt");
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
fn a_running_job_is_fetched_from_and_what_somebody_else_made_meanwhile_is_not_touched() {
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
    let there = |name: &str| runtime.block_on(text_at(&hdfs, &format!("{home}/{name}")));
    wait_for("a checkpoint", || (there("live/ckpt/1").as_deref() == Some("one\n")).then_some(()));
    let ran = workspace.run(&["fetch", "live", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read(workspace.path().join("got/outputs/ckpt/1")), "one\n");
    assert_eq!(read(workspace.path().join("got/logs/worker/0/1/stdout.0")), "hello\n");
    assert!(!workspace.path().join("got/outputs/live-model").exists());
    runtime.block_on(async {
        let place = format!("{home}/live-model");
        let theirs = hdfs.write_atomic(&place, "theirs\n", 0o644, deadline()).await;
        theirs.expect("written");
    });
    let time = |name: &str| {
        let found = runtime.block_on(hdfs.stat(&format!("{home}/{name}"), deadline()));
        found.expect("an answer").map(|entry| entry.modified_ms)
    };
    let sent = time("live/ckpt/1");
    fs::write(workspace.path().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(time("live/ckpt/1"), sent, "what was sent is not sent again");
    assert_eq!(there("live-model").as_deref(), Some("theirs\n"));
    assert_eq!(there("live-model-2").as_deref(), Some("new\n"));
    let ran = workspace.run(&["fetch", "live", "outputs/*", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read(workspace.path().join("got/outputs/live-model")), "new\n");
}

/// Rejects connections while HDFS is unavailable.
#[derive(Debug, Default)]
struct Away {
    is_away: AtomicBool,
    refused: AtomicUsize,
}

impl Away {
    fn refuses(&self) -> bool {
        let is_away = self.is_away.load(Ordering::SeqCst);
        if is_away {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        is_away
    }
}

impl Keeper for Away {
    fn lets_in(&self) -> bool {
        !self.refuses()
    }

    fn asked(&self, _: &[u8]) -> Passing {
        match self.refuses() {
            true => Passing::Cut,
            false => Passing::Through,
        }
    }
}

#[test]
fn the_last_checkpoint_of_a_program_that_failed_is_tried_again_as_long_as_the_grace_allows() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let away = Arc::new(Away::default());
    let gate = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&away));
    proxy::configure(cluster, gate, &workspace.path().join("conf"));
    let script = format!(
        "test $YDL_ATTEMPT = 1 || exit 0; mkdir ckpt; echo one > ckpt/1; \
         until test -e {}/go; do sleep 0.1; done; echo last > ckpt/last; exit 1",
        workspace.path().display()
    );
    let more = "outputs: {ckpt/: {to: 'hdfs:///away/ckpt', every: 1s}}\n\
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
    let there = |name: &str| runtime.block_on(text_at(&hdfs, &format!("/away/ckpt/{name}")));
    wait_for("a checkpoint", || (there("1").as_deref() == Some("one\n")).then_some(()));
    away.is_away.store(true, Ordering::SeqCst);
    workspace.write("go", "");
    wait_for("the agent at the gate", || (away.refused.load(Ordering::SeqCst) > 0).then_some(()));
    // Longer than logs are waited for after a failure.
    let until = Instant::now() + Duration::from_secs(13);
    wait_for("some time", || (Instant::now() > until).then_some(()));
    assert_eq!(there("last"), None);
    away.is_away.store(false, Ordering::SeqCst);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(there("last").as_deref(), Some("last\n"));
}

#[test]
fn what_somebody_else_has_made_in_hdfs_meanwhile_is_refused_by_name() {
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
        let theirs = hdfs.write_atomic("/refused/model", "theirs\n", 0o644, deadline());
        theirs.await.expect("written");
    });
    workspace.write("go", "");
    let ran = finish(child);
    assert_ne!(ran.code, 0, "{ran:#?}");
    let sentence = "/refused/model` was created by another process after the job was submitted";
    assert!(ran.stderr.contains(sentence), "{ran:#?}");
    let text = runtime.block_on(text_at(&hdfs, "/refused/model"));
    assert_eq!(text.as_deref(), Some("theirs\n"));
}
