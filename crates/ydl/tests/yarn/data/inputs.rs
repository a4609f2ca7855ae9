//! Inputs from HDFS, also after restarts and outages.

use super::{
    HOLDER, connect, exclusive_cluster, job,
    outputs::contains,
    proxy,
    proxy::{Decision, ProxyPolicy},
    read, shared_cluster, ten_files, text_at,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use ydl_storage::{
    data::{DownloadItem, Downloader, LocalMode, Progress},
    hdfs::FileSystems,
};
use ydl_testkit::assert_rejected;
use ydl_testkit::yarn::{Workspace, block_on, config, deadline, digits, wait_for};

#[test]
fn a_killed_worker_gets_the_same_inputs_and_results_are_fetched() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    // The first attempt of the second worker is killed; the second attempt is lost with its agent and container.
    let script = "for f in train/*; do echo \"$(basename $f) $(md5sum < $f)\"; done > files; \
         mkdir out; cp files out/$YDL_ATTEMPT; cp files mine; \
         if test $YDL_INDEX = 1; then \
           if test $YDL_ATTEMPT = 1; then sed 's/^/seen /' files; kill -9 $$; fi; \
           if test $YDL_ATTEMPT = 2; then sed 's/^/seen /' files; \
             kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60; fi; \
         fi; sed 's/^/seen /' files";
    let more = "inputs: {train: {source: 'hdfs:///data/ten', as: split}}\n\
         restart: {limit: 3, backoff: {initial: 1ms, max: 1ms}}\n\
         outputs: {mine: {to: 'shares/{index}', existing: number}}";
    // A unique name, because other tests submit jobs to the same cluster.
    let ran = workspace.submit(&job(3, script, more).replace("name: data", "name: shares"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let id = digits::job_id(&ran);
    let ran = workspace.run(&["fetch", "shares", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let got = workspace.path().join("got");
    let mut all = Vec::new();
    for index in 0..3 {
        let share = read(got.join(format!("outputs/shares/{index}")));
        assert!(!share.is_empty(), "worker {index} has no files");
        all.extend(share.lines().map(str::to_owned));
    }
    let expected: BTreeSet<String> = (0..10).map(|n| format!("part-{n}")).collect();
    let names = all.iter().filter_map(|line| line.split(' ').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert_eq!(names.len(), 10, "a file was given to two workers: {all:?}");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    let mut attempts = BTreeMap::new();
    for attempt in 1..=3 {
        let log = read(got.join(format!("logs/worker/1/{attempt}/stdout.0")));
        let seen = log.lines().filter_map(|line| line.strip_prefix("seen "));
        let seen: Vec<_> = seen.map(str::to_owned).collect();
        attempts.insert(attempt, seen);
    }
    assert_eq!(attempts[&1], attempts[&3], "other files after a restart");
    // Output just before the agent was killed may be lost.
    let second = &attempts[&2];
    assert!(second.is_empty() || *second == attempts[&3], "{attempts:?}");
    let again = workspace.submit(&job(
        1,
        "echo again > mine",
        "outputs: {mine: {to: 'shares', existing: number}}",
    ));
    assert_eq!(again.code, 0, "{again:#?}");
    block_on(async {
        let hdfs = connect(cluster).await;
        let home = hdfs.home(deadline()).await.expect("a home");
        let text = text_at(&hdfs, &format!("{home}/shares-2")).await;
        assert_eq!(text.as_deref(), Some("again\n"));
        // Containers are requested on the nodes with the data.
        let submitted = text_at(&hdfs, &format!("{home}/.ydl/jobs/{id}/job.json")).await;
        let submitted = submitted.expect("the submitted job");
        let submitted: serde_json::Value = serde_json::from_str(&submitted).expect("JSON");
        let nodes = &submitted["spec"]["roles"][0]["placement"]["nodes"];
        assert_eq!(*nodes, serde_json::json!([HOLDER]), "{submitted:#}");
    });
}

#[test]
fn local_inputs_are_uploaded_and_lists_contain_urls() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    fs::create_dir(workspace.path().join("mine")).expect("a directory");
    workspace.write("mine/a", "one\n");
    workspace.write("mine/b", "two\n");
    let more = "inputs:\n  own: mine\n  list: {source: 'hdfs:///data/ten/part-*', as: list}\n  \
         one: 'hdfs:///data/ten/part-0'";
    let script = "cat own/a own/b; wc -l < $YDL_INPUT_LIST; head -1 $YDL_INPUT_LIST; wc -c < one";
    let ran = workspace.submit(&job(1, script, more));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let url = "| 10\nworker:0 | hdfs://";
    for part in ["| one", "| two", url, "/data/ten/part-0\n", "| 300000"] {
        assert!(ran.stdout.contains(part), "`{part}` is not in {ran:#?}");
    }
}

#[test]
fn invalid_hdfs_inputs_are_rejected_before_submission() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    let dry = |instances: u32, more: &str| {
        workspace.write("job.yaml", &job(instances, "true", more));
        workspace.run(&["submit", "--dry-run", "job.yaml"])
    };
    assert_rejected(
        &dry(1, "inputs: {a: 'hdfs:///data/none/*'}"),
        "no files match `hdfs:///data/none/*`",
        "hint: check the pattern",
    );
    assert_rejected(
        &dry(2, "inputs: {a: {source: 'hdfs:///data/ten/part-0', as: split}}"),
        "has only 1 files to divide over them",
        "hint: have at most 1 instances",
    );
    let ran = workspace.submit(&job(
        1,
        "true",
        "outputs: {a: {to: 'hdfs:///data/ten/part-0', existing: fail}}",
    ));
    assert_rejected(
        &ran,
        "the destination `hdfs:///data/ten/part-0` of the output `a` already exists",
        "existing: number",
    );
}

#[test]
fn a_local_job_reads_and_writes_hdfs_and_names_a_changed_input() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    let more = "inputs: {all: 'hdfs:///data/ten'}\n\
         outputs: {sum: 'hdfs:///data/sum', 'ckpt/': {to: 'hdfs:///data/ckpt', every: 1s}}";
    let script = "mkdir ckpt; echo first > ckpt/1; cat all/part-* | wc -c > sum";
    workspace.write("job.yaml", &job(1, script, more));
    let ran = workspace.run(&["submit", "--cluster", "local", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    block_on(async {
        let hdfs = connect(cluster).await;
        let sum = hdfs.read_file("/data/sum", 100, deadline()).await;
        assert_eq!(&sum.expect("a file")[..], b"16500000\n");
        let checkpoint = hdfs.read_file("/data/ckpt/1", 100, deadline()).await;
        assert_eq!(&checkpoint.expect("a file")[..], b"first\n");
        let written = hdfs.write_atomic("/data/one", "old", 0o644, deadline()).await;
        written.expect("written");
    });
    // The second attempt starts after the file has changed.
    let script = "test $YDL_ATTEMPT = 1; touch ../../../gone; while ! test -e ../../../go; do sleep 0.1; done; exit 1";
    let more =
        "inputs: {one: 'hdfs:///data/one'}\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}";
    workspace.write("job.yaml", &job(1, script, more));
    let child = workspace.start(&["submit", "--cluster", "local", "job.yaml"]);
    let jobs = workspace.path().join("state/ydl/jobs");
    let dir = wait_for("the first attempt", || {
        let all = fs::read_dir(&jobs).ok()?.flatten();
        let mut all = all.map(|job| job.path());
        all.find(|job| job.join("gone").exists())
    });
    block_on(async {
        let hdfs = connect(cluster).await;
        let written = hdfs.write_atomic("/data/one", "newer", 0o644, deadline()).await;
        written.expect("written");
    });
    fs::write(dir.join("go"), "").expect("a file");
    let ran = ydl_testkit::finish(child);
    assert_ne!(ran.code, 0, "{ran:#?}");
    let sentence = "/data/one` was changed after it was listed";
    assert!(ran.stderr.contains(sentence), "{ran:#?}");
}

/// Delays requests for one file, or rejects connections, as configured.
#[derive(Debug, Default)]
struct DelayingProxy {
    rule: Mutex<Rule>,
    changed: Condvar,
    /// Number of requests for that file.
    requests: AtomicUsize,
    /// Number of rejected connections.
    rejected: AtomicUsize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rule {
    #[default]
    Hold,
    Open,
    Closed,
}

/// The file whose requests are held.
const HELD: &[u8] = b"/data/ten/part-7";

impl DelayingProxy {
    fn set(&self, rule: Rule) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = rule;
        self.changed.notify_all();
    }
}

impl ProxyPolicy for DelayingProxy {
    fn accepts(&self) -> bool {
        let rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        if *rule == Rule::Closed {
            self.rejected.fetch_add(1, Ordering::SeqCst);
        }
        *rule != Rule::Closed
    }

    fn on_request(&self, request: &[u8]) -> Decision {
        let is_held = contains(request, HELD);
        self.requests.fetch_add(usize::from(is_held), Ordering::SeqCst);
        match *self.rule.lock().unwrap_or_else(PoisonError::into_inner) {
            Rule::Closed => Decision::Disconnect,
            Rule::Hold if is_held => Decision::Hold,
            Rule::Hold | Rule::Open => Decision::Forward,
        }
    }

    fn wait_release(&self) {
        let rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.changed.wait_while(rule, |rule| *rule == Rule::Hold);
        drop(held.unwrap_or_else(PoisonError::into_inner));
    }
}

#[test]
fn inputs_are_fetched_despite_an_hdfs_outage_and_status_shows_progress() {
    let cluster = &*exclusive_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    let policy = Arc::new(DelayingProxy::default());
    let address = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&policy));
    proxy::configure(cluster, address, &workspace.path().join("conf"));
    let script = "cat all/part-* | wc -c; tr -d h < all/part-7 | wc -c";
    let yaml = job(1, script, "inputs: {all: 'hdfs:///data/ten'}");
    workspace.write("job.yaml", &yaml.replace("name: data", "name: slow"));
    let child = workspace
        .ydl()
        .env("HADOOP_CONF_DIR", workspace.path().join("conf"))
        .args(["submit", "--cluster", "local", "job.yaml"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("ydl can be started");
    // 14.1 of 16.5 MB are fetched.
    wait_for("the progress of its inputs", || {
        let ran = workspace.run(&["status", "--cluster", "local", "slow"]);
        ran.stdout.contains("fetching 85% of 15.7 MiB").then_some(())
    });
    cluster.kill("dn").expect("a DataNode");
    let requests = policy.requests.load(Ordering::SeqCst);
    policy.set(Rule::Open);
    wait_for("retried requests", || {
        (policy.requests.load(Ordering::SeqCst) > requests + 2).then_some(())
    });
    policy.set(Rule::Closed);
    wait_for("rejected connections", || (policy.rejected.load(Ordering::SeqCst) > 1).then_some(()));
    cluster.start_daemon("dn").expect("a DataNode");
    policy.set(Rule::Open);
    let ran = ydl_testkit::finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("| 16500000\n"), "{ran:#?}");
    assert!(ran.stdout.contains("| 0\n"), "{ran:#?}");
}

#[test]
fn downloads_resume_and_complete_files_are_not_read_again() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let entry = connect(cluster).await.stat("/data/ten/part-3", deadline()).await;
        let entry = entry.expect("a response").expect("a file");
        let item = DownloadItem {
            url: "hdfs:///data/ten/part-3".to_owned(),
            to: dir.path().join("got/part-3"),
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
        };
        let part = item.part();
        fs::create_dir(dir.path().join("got")).expect("a directory");
        let download = async || {
            let file_systems = FileSystems::of(config(cluster)).expect("file systems");
            let progress = Arc::new(Progress::default());
            let downloader = Downloader::new(
                Some(file_systems),
                LocalMode::Copy,
                Arc::clone(&progress),
                deadline(),
            );
            let result = downloader.all(vec![item.clone()]).await;
            assert_eq!(result, Ok(()));
            assert_eq!(progress.bytes(), (entry.bytes, entry.bytes));
            fs::read(&item.to).expect("a file")
        };
        // The partial file differs from the source, so that resumed bytes are recognizable.
        fs::write(&part, vec![b'X'; 500_000]).expect("a file");
        let got = download().await;
        assert_eq!(got.len() as u64, entry.bytes);
        assert!(got[..500_000].iter().all(|byte| *byte == b'X'));
        assert!(got[500_000..].iter().all(|byte| *byte == b'd'));
        assert!(!part.exists());
        assert_eq!(download().await, got, "downloaded again");
        fs::remove_file(&item.to).expect("a file");
        fs::write(&part, vec![b'X'; 2_000_000]).expect("a file");
        assert!(
            download().await.iter().all(|byte| *byte == b'd'),
            "a too long partial file was kept"
        );
    });
}
