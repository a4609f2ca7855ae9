//! Inputs from HDFS: the same after every restart, whatever goes away meanwhile.

use super::{
    HOLDER, connect, exclusive_cluster, job,
    outputs::contains,
    proxy,
    proxy::{Keeper, Passing},
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
fn a_worker_that_is_killed_gets_the_same_files_again_and_results_come_back() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    // The first attempt of the second worker is killed, the second dies with its agent and so with its container.
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
    // Other tests have jobs on the same cluster: it is found again by a name of its own.
    let ran = workspace.submit(&job(3, script, more).replace("name: data", "name: shares"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let id = digits::job_id(&ran);
    let ran = workspace.run(&["fetch", "shares", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let got = workspace.path().join("got");
    let mut all = Vec::new();
    for index in 0..3 {
        let share = read(got.join(format!("outputs/shares/{index}")));
        assert!(!share.is_empty(), "worker {index} has files");
        all.extend(share.lines().map(str::to_owned));
    }
    let expected: BTreeSet<String> = (0..10).map(|n| format!("part-{n}")).collect();
    let names = all.iter().filter_map(|line| line.split(' ').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert_eq!(names.len(), 10, "none is there twice: {all:?}");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    let mut attempts = BTreeMap::new();
    for attempt in 1..=3 {
        let log = read(got.join(format!("logs/worker/1/{attempt}/stdout.0")));
        let seen = log.lines().filter_map(|line| line.strip_prefix("seen "));
        let seen: Vec<_> = seen.map(str::to_owned).collect();
        attempts.insert(attempt, seen);
    }
    assert_eq!(attempts[&1], attempts[&3], "the same files, the same bytes");
    // What was printed in the moment before its agent was killed may not be there.
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
        // Its containers were wished for where the files are.
        let about = text_at(&hdfs, &format!("{home}/.ydl/jobs/{id}/job.json")).await;
        let about = about.expect("what was submitted");
        let about: serde_json::Value = serde_json::from_str(&about).expect("JSON");
        let nodes = &about["spec"]["roles"][0]["placement"]["nodes"];
        assert_eq!(*nodes, serde_json::json!([HOLDER]), "{about:#}");
    });
}

#[test]
fn inputs_of_the_submitters_machine_travel_and_lists_name_whole_urls() {
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
fn inputs_in_hdfs_that_make_no_sense_are_refused_before_anything_is_submitted() {
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
        "`hdfs:///data/ten/part-0`, where the output `a` goes, is there already",
        "existing: number",
    );
}

#[test]
fn one_machine_reads_and_writes_hdfs_too_and_a_changed_input_is_named() {
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
        let kept = hdfs.read_file("/data/ckpt/1", 100, deadline()).await;
        assert_eq!(&kept.expect("a file")[..], b"first\n");
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
struct Watch {
    rule: Mutex<Rule>,
    changed: Condvar,
    /// Questions for that file.
    asked: AtomicUsize,
    /// Number of rejected connections.
    turned_away: AtomicUsize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rule {
    #[default]
    Hold,
    Open,
    Closed,
}

/// The file that comes last.
const HELD: &[u8] = b"/data/ten/part-7";

impl Watch {
    fn set(&self, rule: Rule) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = rule;
        self.changed.notify_all();
    }
}

impl Keeper for Watch {
    fn lets_in(&self) -> bool {
        let rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        if *rule == Rule::Closed {
            self.turned_away.fetch_add(1, Ordering::SeqCst);
        }
        *rule != Rule::Closed
    }

    fn asked(&self, question: &[u8]) -> Passing {
        let is_held = contains(question, HELD);
        self.asked.fetch_add(usize::from(is_held), Ordering::SeqCst);
        match *self.rule.lock().unwrap_or_else(PoisonError::into_inner) {
            Rule::Closed => Passing::Cut,
            Rule::Hold if is_held => Passing::Held,
            Rule::Hold | Rule::Open => Passing::Through,
        }
    }

    fn holds(&self) {
        let rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.changed.wait_while(rule, |rule| *rule == Rule::Hold);
        drop(held.unwrap_or_else(PoisonError::into_inner));
    }
}

#[test]
fn inputs_come_though_hdfs_goes_away_meanwhile_and_status_says_how_far_they_are() {
    let cluster = &*exclusive_cluster();
    ten_files(cluster);
    let workspace = Workspace::new(cluster);
    let watch = Arc::new(Watch::default());
    let gate = proxy::open(cluster.namenodes()[0].rpc, Arc::clone(&watch));
    proxy::configure(cluster, gate, &workspace.path().join("conf"));
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
    // All but 2.4 of 16.5 MB have come.
    wait_for("how far its inputs are", || {
        let ran = workspace.run(&["status", "--cluster", "local", "slow"]);
        ran.stdout.contains("fetching 85% of 15.7 MiB").then_some(())
    });
    cluster.kill("dn").expect("a DataNode");
    let asked = watch.asked.load(Ordering::SeqCst);
    watch.set(Rule::Open);
    wait_for("that it is tried again", || {
        (watch.asked.load(Ordering::SeqCst) > asked + 2).then_some(())
    });
    watch.set(Rule::Closed);
    wait_for("that nobody is there", || {
        (watch.turned_away.load(Ordering::SeqCst) > 1).then_some(())
    });
    cluster.start_daemon("dn").expect("a DataNode");
    watch.set(Rule::Open);
    let ran = ydl_testkit::finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("| 16500000\n"), "{ran:#?}");
    assert!(ran.stdout.contains("| 0\n"), "its very bytes: {ran:#?}");
}

#[test]
fn a_download_goes_on_where_it_ended_and_what_is_there_is_not_read_again() {
    let cluster = &*shared_cluster();
    ten_files(cluster);
    let dir = tempfile::tempdir().expect("a directory");
    block_on(async {
        let entry = connect(cluster).await.stat("/data/ten/part-3", deadline()).await;
        let entry = entry.expect("an answer").expect("a file");
        let item = DownloadItem {
            url: "hdfs:///data/ten/part-3".to_owned(),
            to: dir.path().join("got/part-3"),
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
        };
        let part = item.part();
        fs::create_dir(dir.path().join("got")).expect("a directory");
        let bring = async || {
            let ways = FileSystems::of(config(cluster)).expect("a way");
            let progress = Arc::new(Progress::default());
            let bring =
                Downloader::new(Some(ways), LocalMode::Copy, Arc::clone(&progress), deadline());
            let brought = bring.all(vec![item.clone()]).await;
            assert_eq!(brought, Ok(()));
            assert_eq!(progress.bytes(), (entry.bytes, entry.bytes));
            fs::read(&item.to).expect("a file")
        };
        // What it has is told apart from what comes.
        fs::write(&part, vec![b'X'; 500_000]).expect("a file");
        let got = bring().await;
        assert_eq!(got.len() as u64, entry.bytes);
        assert!(got[..500_000].iter().all(|byte| *byte == b'X'));
        assert!(got[500_000..].iter().all(|byte| *byte == b'd'));
        assert!(!part.exists());
        assert_eq!(bring().await, got, "it is there");
        fs::remove_file(&item.to).expect("a file");
        fs::write(&part, vec![b'X'; 2_000_000]).expect("a file");
        assert!(bring().await.iter().all(|byte| *byte == b'd'), "it was too long");
    });
}
