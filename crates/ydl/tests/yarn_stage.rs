//! A job's files in a real HDFS: sent once, never half, cleaned when nobody needs them, and bad days have sentences.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use testbed::{Cluster, File, Options, Version};
use tokio::{
    sync::{RwLock, RwLockReadGuard},
    time::Instant,
};
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl::{
    hdfs::{Entry, Hdfs, HdfsError, Kind, layout},
    jobfile,
    jobs::{self, Submitted},
    report::Report,
    stage::{self, AGE, Cleaned, JobFiles, Place, Request, Upload},
};
use ydl_core::{JobSpec, Time};

/// Most tests disturb nobody; some change the mood of the NameNode.
static QUIET: RwLock<()> = RwLock::const_new(());

const DFS_ADMIN: &str = "org.apache.hadoop.hdfs.tools.DFSAdmin";

/// The Hadoop to test with: all tests pass on every one the test bed has.
fn version() -> Version {
    match std::env::var("HADOOP_VERSION") {
        Ok(name) => name.parse().expect("a version of Hadoop"),
        Err(_) => Version::NEWEST,
    }
}

fn cluster() -> &'static Cluster {
    // Small blocks, so that small files have several.
    let options = Options::new(version())
        .set(File::Hdfs, "dfs.blocksize", "1048576")
        .set(File::Hdfs, "dfs.namenode.acls.enabled", "true");
    Cluster::shared(options).expect("a cluster")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(90)
}

fn config() -> Config {
    let environment = Environment::default().with_variable("USER", "alice");
    Config::from_directories(&[cluster().configuration()], environment).expect("its configuration")
}

async fn hdfs(user: &str) -> Hdfs {
    let identity = Identity::simple(user);
    let hdfs = Hdfs::connect(&config(), None, &identity, soon()).await;
    hdfs.expect("a file system")
}

fn admin(words: &[&str]) {
    let mut command = cluster().hadoop(DFS_ADMIN).expect("a program");
    let said = testbed::run(command.args(words), Duration::from_secs(60)).expect("it runs");
    println!("{words:?}: {said:?}");
}

/// Makes files look as if they had not been touched for years.
async fn make_old(urls: &[String]) {
    let builder = hdfs_native::ClientBuilder::new().with_url(cluster().default_fs());
    let client = builder.with_user(cluster().own_user()).build();
    let client = client.expect("a client");
    for url in urls {
        let path = url.trim_start_matches(&cluster().default_fs());
        let year_2020 = 1_577_836_800_000;
        let touched = client.set_times(path, year_2020, year_2020).await;
        touched.expect("touched");
    }
}

/// A directory that everybody may write to.
async fn playground(name: &str) -> (String, RwLockReadGuard<'static, ()>) {
    let quiet = QUIET.read().await;
    let path = format!("/test/{name}");
    let root = hdfs(&cluster().own_user()).await;
    root.mkdirs(&path, 0o777, soon())
        .await
        .expect("a directory");
    root.set_permission(&path, 0o777, soon())
        .await
        .expect("its permission");
    (path, quiet)
}

/// A submitter with a folder of files and a directory in HDFS.
struct Submitter {
    folder: TempDir,
    place: Place,
    identity: Identity,
}

impl Submitter {
    async fn new(user: &str, staging: &str) -> Submitter {
        let identity = Identity::simple(user);
        let place = Place::find(&config(), &identity, Some(staging), soon()).await;
        let folder = tempfile::tempdir().expect("a folder");
        let submitter = Submitter {
            folder,
            place: place.expect("a place"),
            identity,
        };
        submitter.write("ydl", &[7; 3 << 20]);
        submitter.write("train.py", b"print(1)");
        submitter.write("code/model.py", b"layers = 3");
        submitter.write("code/deep/data.bin", &[1; 100_000]);
        submitter.write("venv/bin/python", b"#!/bin/sh");
        submitter
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }

    fn spec(&self, more: &str) -> JobSpec {
        let text = format!(
            "name: digits\nframework: none\nfiles: [train.py, code]\nroles:\n  worker:\n    instances: 1\n    run: python3 train.py\n{more}"
        );
        self.write("job.yaml", text.as_bytes());
        let mut source = jobfile::load(&self.path("job.yaml")).expect("a job file");
        source.for_cluster();
        source
            .job()
            .map_err(|wrongs| wrongs.to_string())
            .expect("a job")
    }

    async fn submit(&self, id: &str, spec: &JobSpec) -> Result<Upload, Report> {
        let config = config();
        let request = Request {
            place: &self.place,
            config: &config,
            identity: &self.identity,
            id,
            spec,
            binary: &self.path("ydl"),
        };
        stage::stage(request, |_| {}, soon()).await
    }

    async fn contents(&self) -> Vec<Entry> {
        let contents = self.place.layout.contents();
        let list = self.place.hdfs.list(&contents, soon()).await;
        list.expect("a listing")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_submit_sends_nothing_and_a_changed_script_only_itself() {
    let (staging, _quiet) = playground("twice").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("environment: venv\n");
    let told = Arc::new(AtomicU64::new(0));
    let first = alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    assert_eq!(first.sent.files, 4, "binary, script, code, environment");
    let there = alice.contents().await;
    assert_eq!(there.len(), 4, "{there:?}");
    assert_eq!(
        there.iter().map(|entry| entry.bytes).sum::<u64>(),
        first.sent.bytes
    );
    assert!(
        there.iter().all(|entry| entry.permission == 0o600),
        "{there:?}"
    );

    let again = told.clone();
    let config = config();
    let binary = alice.path("ydl");
    let request = Request {
        place: &alice.place,
        config: &config,
        identity: &alice.identity,
        id: "application_1_0002",
        spec: &spec,
        binary: &binary,
    };
    let tell = move |progress: stage::Progress| again.store(progress.sent, Ordering::Relaxed);
    let second = stage::stage(request, tell, soon()).await.expect("staged");
    assert_eq!(second.sent, ydl::hdfs::Sent::default());
    assert_eq!(told.load(Ordering::Relaxed), 0);
    assert_eq!(
        alice.contents().await,
        there,
        "the NameNode has seen no write either"
    );
    assert_eq!(second.staged.binary, first.staged.binary);
    assert_eq!(second.staged.files, first.staged.files);
    assert_eq!(second.staged.environment, first.staged.environment);

    alice.write("train.py", b"print(2)");
    let third = alice
        .submit("application_1_0003", &spec)
        .await
        .expect("staged");
    assert_eq!(
        (third.sent.files, third.sent.bytes),
        (1, 8),
        "of the same length, too"
    );
    alice.write("train.py", b"print(12345)");
    let fourth = alice
        .submit("application_1_0004", &spec)
        .await
        .expect("staged");
    assert_eq!((fourth.sent.files, fourth.sent.bytes), (1, 12));
    let files = &fourth.staged.files;
    assert!(files["code"].unpack && !files["train.py"].unpack && !fourth.staged.binary.unpack);
    assert_eq!(files["code"], first.staged.files["code"]);
    let hdfs = &alice.place.hdfs;
    let script = hdfs.read_whole(&files["train.py"].url, 100, soon()).await;
    assert_eq!(script.expect("the script"), "print(12345)");
    let packed = hdfs
        .read_whole(&files["code"].url, 1 << 20, soon())
        .await
        .expect("an archive");
    let out = alice.path("unpacked");
    tar::Archive::new(&packed[..])
        .unpack(&out)
        .expect("unpacked");
    assert_eq!(
        fs::read(out.join("model.py")).expect("a file"),
        b"layers = 3"
    );
    let whole = hdfs
        .read_whole(&first.staged.binary.url, 4 << 20, soon())
        .await;
    assert_eq!(
        whole.expect("the binary"),
        vec![7; 3 << 20],
        "over several blocks"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_half_sent_is_not_taken_for_whole_and_is_cleaned_up() {
    let (staging, _quiet) = playground("half").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    let hdfs = &alice.place.hdfs;
    // A submitter that died while it sent.
    let aside = alice.place.layout.aside().expect("a name");
    let mut writer = hdfs
        .create(&aside, layout::PRIVATE, soon())
        .await
        .expect("a file");
    writer
        .write(vec![7; 1 << 20], soon())
        .await
        .expect("written");
    writer.sync(soon()).await.expect("synced");
    drop(writer);
    alice.write("ydl", &[8; 1 << 20]);
    let upload = alice
        .submit("application_1_0002", &spec)
        .await
        .expect("staged");
    assert_eq!((upload.sent.files, upload.sent.bytes), (1, 1 << 20));
    assert_ne!(upload.staged.binary.url, aside);
    assert_eq!(
        stage::clean(&alice.place, AGE, |_| true, soon())
            .await
            .expect("cleaned"),
        Some(Cleaned::default())
    );
    hdfs.recover(&aside, soon()).await.expect("closed");
    make_old(std::slice::from_ref(&aside)).await;
    let cleaned = stage::clean(&alice.place, AGE, |_| true, soon())
        .await
        .expect("cleaned");
    assert_eq!(
        cleaned,
        Some(Cleaned {
            contents: 1,
            jobs: 0
        })
    );
    assert_eq!(hdfs.stat(&aside, soon()).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn cleaning_leaves_what_jobs_use() {
    let (staging, _quiet) = playground("clean").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    alice.write("train.py", b"print('second')");
    let second = alice
        .submit("application_1_0002", &spec)
        .await
        .expect("staged");
    let hdfs = &alice.place.hdfs;
    let mut all: Vec<String> = alice
        .contents()
        .await
        .into_iter()
        .map(|entry| entry.url)
        .collect();
    for id in ["application_1_0001", "application_1_0002"] {
        all.push(alice.place.job(id).uses());
        all.push(alice.place.job(id).dir().to_owned());
    }
    make_old(&all).await;
    // All are old; the first runs still.
    let running = |id: &str| id == "application_1_0001";
    let cleaned = stage::clean_if_due(&alice.place, AGE, running, soon())
        .await
        .expect("cleaned");
    assert_eq!(
        cleaned,
        Some(Cleaned {
            contents: 1,
            jobs: 1
        })
    );
    let there = async |url: &str| hdfs.stat(url, soon()).await.expect("an answer").is_some();
    assert!(there(&first.staged.files["train.py"].url).await);
    assert!(there(&first.staged.binary.url).await);
    assert!(there(alice.place.job("application_1_0001").dir()).await);
    assert!(!there(&second.staged.files["train.py"].url).await);
    assert!(!there(alice.place.job("application_1_0002").dir()).await);
    assert!(
        !there(&alice.place.layout.cleaning()).await,
        "the lock is gone"
    );
    let again = stage::clean_if_due(&alice.place, AGE, running, soon()).await;
    assert_eq!(again.expect("an answer"), None, "once a day is enough");

    // Somebody else cleans: we do not, and a submit waits until that one has ended.
    let lock = alice.place.layout.cleaning();
    let writer = hdfs
        .create(&lock, layout::PRIVATE, soon())
        .await
        .expect("a lock");
    writer.close(soon()).await.expect("closed");
    assert_eq!(
        stage::clean(&alice.place, AGE, running, soon())
            .await
            .expect("an answer"),
        None
    );
    let waiting = alice.submit("application_1_0003", &spec);
    let ending = async {
        let uses = alice.place.job("application_1_0003").uses();
        while !there(&uses).await {
            tokio::task::yield_now().await;
        }
        hdfs.delete(&lock, soon()).await.expect("deleted");
    };
    let (waited, ()) = tokio::join!(waiting, ending);
    waited.expect("staged");
    // That one died long ago: the next takes over.
    let writer = hdfs
        .create(&lock, layout::PRIVATE, soon())
        .await
        .expect("a lock");
    writer.close(soon()).await.expect("closed");
    make_old(std::slice::from_ref(&lock)).await;
    alice
        .submit("application_1_0004", &spec)
        .await
        .expect("nobody waits for the dead");
    let cleaned = stage::clean(&alice.place, AGE, |_| true, soon())
        .await
        .expect("cleaned");
    assert!(cleaned.is_some());
    assert!(!there(&lock).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_races_with_cleaning_finds_all_it_needs() {
    let (staging, _quiet) = playground("race").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    for round in 0..3_u64 {
        let id = format!("application_{round}_0001");
        alice.submit(&id, &spec).await.expect("staged");
        let hdfs = &alice.place.hdfs;
        for job in hdfs
            .list(&alice.place.layout.jobs(), soon())
            .await
            .expect("jobs")
        {
            hdfs.delete(&job.url, soon()).await.expect("deleted");
        }
        let all: Vec<_> = alice
            .contents()
            .await
            .into_iter()
            .map(|entry| entry.url)
            .collect();
        make_old(&all).await;
        // Old, and used by nobody until this very moment.
        let next = format!("application_{round}_0002");
        let submitting = alice.submit(&next, &spec);
        let cleaning = stage::clean(&alice.place, AGE, |_| true, soon());
        let (upload, cleaned) = tokio::join!(submitting, cleaning);
        let (staged, cleaned) = (upload.expect("staged").staged, cleaned.expect("cleaned"));
        println!("round {round}: {cleaned:?}");
        for content in staged.files.values().chain([&staged.binary]) {
            let entry = hdfs.stat(&content.url, soon()).await.expect("an answer");
            let entry = entry.unwrap_or_else(|| panic!("{} was cleaned away", content.url));
            assert_eq!(
                entry.modified_ms, content.modified_ms,
                "and is the one that was named"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_in_hdfs_stay_where_they_are() {
    let (staging, _quiet) = playground("remote").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let hdfs = &alice.place.hdfs;
    let big = hdfs.url(&format!("{staging}/big.tar.gz"));
    hdfs.write_whole(&big, "a big archive", 0o644, soon())
        .await
        .expect("written");
    let entry = hdfs
        .stat(&big, soon())
        .await
        .expect("an answer")
        .expect("a file");
    let spec = |source: &str| {
        let mut draft = ydl_core::spec::Draft::from(alice.spec(""));
        draft.files = vec![ydl_core::spec::File {
            name: "data".into(),
            source: source.into(),
            unpack: true,
        }];
        JobSpec::new(draft).expect("a job")
    };
    for source in [big.clone(), format!("hdfs://{staging}/big.tar.gz")] {
        let upload = alice
            .submit("application_1_0001", &spec(&source))
            .await
            .expect("staged");
        let data = &upload.staged.files["data"];
        assert_eq!(
            (data.url.as_str(), data.bytes),
            (big.as_str(), 13),
            "{source}"
        );
        assert_eq!(data.modified_ms, entry.modified_ms);
        assert!(data.unpack && !data.own);
        assert_eq!(alice.contents().await.len(), 1, "the binary alone");
    }
    let refused = async |source: String| {
        let report = alice.submit("application_1_0002", &spec(&source)).await;
        report.expect_err("refused").to_string()
    };
    let what = refused(format!("{big}.tar")).await;
    assert!(what.contains("there is no `hdfs://"), "{what}");
    let what = refused(hdfs.url(&format!("{staging}/odd"))).await;
    assert!(what.contains("is not an archive"), "{what}");
    hdfs.mkdirs(&format!("{staging}/dir.zip"), 0o755, soon())
        .await
        .expect("a directory");
    let what = refused(hdfs.url(&format!("{staging}/dir.zip"))).await;
    assert!(what.contains("is a directory"), "{what}");
}

fn submitted(spec: JobSpec, upload: &Upload) -> Submitted {
    Submitted {
        id: "application_1_0001".into(),
        at: Time(0),
        from: "/".into(),
        spec,
        place: jobs::Place::Yarn(upload.staged.clone()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_job_are_read_by_those_who_may() {
    let (staging, _quiet) = playground("own").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("acls: {view: bob, modify: carol}\n");
    let upload = alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    let submitted = submitted(spec, &upload);
    let files = JobFiles {
        submitted: &submitted,
        certificate: "a certificate",
        client_token: "a token",
        viewer_token: "another",
        config: &config(),
    };
    let (carried, notes) = stage::write_job(&alice.place, files, soon())
        .await
        .expect("written");
    assert_eq!(notes, Vec::<String>::new());
    let names: Vec<_> = carried.keys().map(String::as_str).collect();
    assert_eq!(names, ["certificate.pem", "hadoop.json", "job.json"]);
    let job = alice.place.job("application_1_0001");
    let may = async |user: &str, place: String| {
        let read = hdfs(user).await.read_whole(&place, 1 << 20, soon()).await;
        match read {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind == Kind::Denied => None,
            Err(error) => panic!("{error}"),
        }
    };
    for (user, job_file, token) in [
        ("alice", true, true),
        ("bob", true, false),
        ("carol", true, true),
        ("dave", false, false),
    ] {
        assert_eq!(
            may(user, job.submitted()).await.is_some(),
            job_file,
            "{user}"
        );
        assert_eq!(may(user, job.token()).await.is_some(), token, "{user}");
        let content = may(user, upload.staged.files["train.py"].url.clone()).await;
        assert_eq!(content.is_some(), user == "alice", "{user}");
    }
    let hadoop = may("alice", job.hadoop()).await.expect("a file");
    let pairs: BTreeMap<String, String> = serde_json::from_slice(&hadoop).expect("JSON");
    assert_eq!(pairs["fs.defaultFS"], cluster().default_fs());
    // What is written later is theirs to read, too.
    let events = job.events();
    let writer = alice.place.hdfs.create(&events, layout::FILE, soon()).await;
    writer.expect("a file").close(soon()).await.expect("closed");
    assert!(may("bob", events.clone()).await.is_some());
    assert!(may("dave", events).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_acts_for_somebody_writes_that_ones_files() {
    let (staging, _quiet) = playground("proxy").await;
    let identity = Identity::simple(cluster().own_user()).acting_for("erin");
    let hdfs = Hdfs::connect(&config(), None, &identity, soon())
        .await
        .expect("a file system");
    assert_eq!(
        hdfs.home(soon()).await.expect("a home"),
        hdfs.url("/user/erin")
    );
    let file = format!("{staging}/file");
    hdfs.write_whole(&file, "hers", 0o600, soon())
        .await
        .expect("written");
    let entry = hdfs
        .stat(&file, soon())
        .await
        .expect("an answer")
        .expect("a file");
    assert_eq!(entry.owner, "erin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_said_with_its_numbers_and_leaves_nothing() {
    let (staging, _quiet) = playground("quota").await;
    let place = format!("{staging}/.ydl");
    let alice = Submitter::new("alice", &place).await;
    let spec = alice.spec("");
    alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    let before = alice.contents().await;
    admin(&["-setSpaceQuota", "9m", &staging]);
    alice.write("ydl", &[9; 8 << 20]);
    let report = alice
        .submit("application_1_0002", &spec)
        .await
        .expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("quota"), "{report}");
    assert!(
        report
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("larger quota")),
        "{report}"
    );
    assert_eq!(alice.contents().await, before, "nothing is left aside");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_somebody_else_is_not_used() {
    let (staging, _quiet) = playground("denied").await;
    let place = format!("{staging}/.ydl");
    let alice = Submitter::new("alice", &place).await;
    let spec = alice.spec("");
    alice
        .submit("application_1_0001", &spec)
        .await
        .expect("staged");
    let mallory = Submitter::new("mallory", &place).await;
    let report = mallory
        .submit("application_1_0002", &mallory.spec(""))
        .await
        .expect_err("refused");
    assert!(
        report.what.contains("belongs to `alice`, not to `mallory`"),
        "{report}"
    );
    let below = Submitter::new("mallory", &format!("{place}/jobs/x")).await;
    let report = below
        .submit("application_1_0002", &below.spec(""))
        .await
        .expect_err("refused");
    println!("{report}");
    assert!(
        report
            .what
            .contains("user `mallory` has no execute access to"),
        "{report}"
    );
    assert!(
        report
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("staging:")),
        "{report}"
    );
    alice
        .place
        .hdfs
        .set_permission(&place, 0o777, soon())
        .await
        .expect("a permission");
    let report = alice
        .submit("application_1_0002", &spec)
        .await
        .expect_err("refused");
    assert!(report.what.contains("can be written by others"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_in_safe_mode_is_said_to_be() {
    let (staging, quiet) = playground("safe").await;
    let alice = Submitter::new("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    drop(quiet);
    let alone = QUIET.write().await;
    admin(&["-safemode", "enter"]);
    let result = alice.submit("application_1_0001", &spec).await;
    admin(&["-safemode", "leave"]);
    drop(alone);
    let report = result.expect_err("refused");
    println!("{report}");
    assert!(report.what.ends_with("is in safe mode"), "{report}");
    assert!(report.what.contains(&cluster().default_fs()), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_that_is_not_there_is_named() {
    let mut config = Config::defaults(Environment::default());
    config.set(
        "fs.defaultFS",
        "hdfs://127.0.0.1:1",
        "core-site.xml, line 7",
    );
    let hdfs = Hdfs::connect(&config, None, &Identity::simple("alice"), soon()).await;
    let hdfs = hdfs.expect("nothing was asked yet");
    let error: HdfsError = hdfs.stat("/x", soon()).await.expect_err("nobody is there");
    println!("{}", Report::from(error.clone()));
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(
        error
            .what
            .contains("`127.0.0.1:1` does not answer: connection refused"),
        "{error}"
    );
    let hint = error.hint.expect("a hint");
    assert!(
        hint.contains("`fs.defaultFS` (core-site.xml, line 7)"),
        "{hint}"
    );
    // One that accepts and says nothing.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = deaf.local_addr().expect("its address");
    let url = format!("hdfs://{address}");
    let identity = Identity::simple("alice");
    let hdfs = Hdfs::connect(&config, Some(&url), &identity, soon())
        .await
        .expect("a client");
    let deadline = Instant::now() + Duration::from_millis(300);
    let error = hdfs.stat("/x", deadline).await.expect_err("nobody answers");
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.what.contains("no answer in time"), "{error}");
    let elsewhere = hdfs
        .stat("hdfs://other:1/x", soon())
        .await
        .expect_err("not there");
    assert_eq!(elsewhere.kind, Kind::BadInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_synced_survives_its_writer_and_shuts_it_out() {
    let (place, _quiet) = playground("fence").await;
    let (old, new) = (hdfs("alice").await, hdfs("alice").await);
    let file = format!("{place}/journal");
    let mut writer = old.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    let entry = old
        .stat(&file, soon())
        .await
        .expect("an answer")
        .expect("a file");
    assert_eq!(entry.bytes, 4);
    new.recover(&file, soon()).await.expect("taken over");
    let read = async || new.read_whole(&file, 100, soon()).await.expect("read");
    assert_eq!(read().await, "one\n");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("the old writer is shut out");
    assert_eq!(error.kind, Kind::LeaseLost, "{error}");
    new.recover(&file, soon())
        .await
        .expect("a closed file stays as it is");
    assert_eq!(read().await, "one\n");
    let mut more = new.append(&file, soon()).await.expect("appended");
    more.write("three\n", soon()).await.expect("written");
    more.close(soon()).await.expect("closed");
    assert_eq!(read().await, "one\nthree\n");
    let error = new
        .read_whole(&file, 3, soon())
        .await
        .expect_err("too long");
    assert!(error.what.contains("it has 10 bytes"), "{error}");
    let reader = new.open(&file, soon()).await.expect("opened");
    assert_eq!(
        reader.read_at(4, 100, soon()).await.expect("read"),
        "three\n"
    );
    assert!(
        reader
            .read_at(99, 1, soon())
            .await
            .expect("beyond the end")
            .is_empty()
    );
    assert_eq!(
        new.create(&file, 0o600, soon())
            .await
            .expect_err("there is one")
            .kind,
        Kind::Exists
    );
    assert_eq!(
        new.open("/nowhere", soon())
            .await
            .expect_err("there is none")
            .kind,
        Kind::NotFound
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datanode_that_is_away_is_not_mistaken_for_a_newer_writer() {
    let (place, quiet) = playground("away").await;
    let hdfs = hdfs("alice").await;
    let file = format!("{place}/journal.1");
    let mut writer = hdfs.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    drop(quiet);
    let alone = QUIET.write().await;
    cluster().kill("dn").expect("killed");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("nobody takes it");
    assert_eq!(error.kind, Kind::Unreachable, "{error}");
    let again = writer
        .write("three\n", soon())
        .await
        .expect_err("broken for good");
    assert!(again.what.contains("an earlier write"), "{again}");
    cluster().start_daemon("dn").expect("started");
    cluster().wait_hdfs().expect("ready");
    hdfs.recover(&file, soon()).await.expect("closed");
    let kept = hdfs.read_whole(&file, 100, soon()).await.expect("read");
    assert!(
        kept.starts_with(b"one\n"),
        "what was synced is there: {kept:?}"
    );
    let next = format!("{place}/journal.1.1");
    hdfs.write_whole(&next, "two\n", 0o600, soon())
        .await
        .expect("written");
    drop(alone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_outputs_arrives_whole() {
    let (place, _quiet) = playground("outputs").await;
    let hdfs = hdfs("alice").await;
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("a/b")).expect("a directory");
    fs::write(folder.path().join("a/b/model"), vec![3; 5 << 20]).expect("a file");
    fs::write(folder.path().join("empty"), "").expect("a file");
    let to = format!("{place}/model");
    let sent = hdfs
        .put_directory(folder.path(), &to, &|_| {}, soon())
        .await
        .expect("sent");
    assert_eq!((sent.files, sent.bytes), (2, 5 << 20));
    let model = hdfs
        .read_whole(&format!("{to}/a/b/model"), 8 << 20, soon())
        .await;
    assert_eq!(model.expect("the model"), vec![3; 5 << 20]);
    let empty = hdfs.read_whole(&format!("{to}/empty"), 8, soon()).await;
    assert!(empty.expect("a file").is_empty());
    let names = hdfs.list(&to, soon()).await.expect("a listing");
    let names: Vec<_> = names.iter().map(Entry::name).collect();
    assert_eq!(names, ["a", "empty"]);
}
