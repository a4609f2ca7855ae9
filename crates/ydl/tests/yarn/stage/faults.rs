//! Uploads to a faulty or full HDFS.

use super::{StageFixture, soon};
use std::{path::Path, process::Command, time::Duration};
use tokio::time::Instant;
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl_os::report::Report;
use ydl_storage::hdfs::{Hdfs, HdfsError, Kind};

#[tokio::test(flavor = "multi_thread")]
async fn an_exceeded_quota_is_reported_with_its_numbers_and_leaves_nothing() {
    let fixture = StageFixture::new("quota").await;
    let staging = &fixture.path;
    let staging_dir = format!("{staging}/.ydl");
    let alice = fixture.submitter("alice", &staging_dir).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let before = alice.contents().await;
    fixture.admin(&["-setSpaceQuota", "9m", staging]);
    alice.write("ydl", &[9; 8 << 20]);
    let report = alice.submit("application_1_0002", &spec).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("quota"), "{report}");
    assert!(report.hint.as_deref().is_some_and(|hint| hint.contains("larger quota")), "{report}");
    assert_eq!(alice.contents().await, before, "a partial file is left");

    // A quota of names that allows no further file.
    fixture.admin(&["-clrSpaceQuota", staging]);
    fixture.admin(&["-setQuota", "10", staging]);
    let report = alice.submit("application_1_0003", &spec).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("quota") && report.what.contains("10"), "{report}");
    let hint = report.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("larger quota"), "{report}");
    assert_eq!(alice.contents().await, before, "a partial file is left");
}

/// A small file system mounted over a directory while it is unused.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(dir: &Path) -> Option<SmallDisk<'_>> {
        let args = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"];
        let ran = Command::new("mount").args(args).arg(dir).output();
        let mounted = ran.is_ok_and(|ran| ran.status.success());
        mounted.then_some(SmallDisk(dir))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_during_an_upload_is_reported_and_leaves_nothing() {
    let fixture = StageFixture::exclusive("full").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    // Larger than the disk.
    alice.write("ydl", &vec![9; 60 << 20]);
    fixture.cluster.stop("dn").expect("stopped");
    let data = fixture.cluster.directory().join("dn/data");
    let small_disk = SmallDisk::mount(&data);
    fixture.cluster.start_daemon("dn").expect("started");
    fixture.cluster.wait_hdfs().expect("ready");
    let result = match &small_disk {
        Some(_) => {
            let result = alice.submit("application_1_0001", &spec).await;
            let left = alice.contents().await;
            fixture.cluster.stop("dn").expect("stopped");
            Some((result, left))
        }
        None => None,
    };
    let mounted = small_disk.is_some();
    drop(small_disk);
    if mounted {
        fixture.cluster.start_daemon("dn").expect("started");
        fixture.cluster.wait_hdfs().expect("ready");
    }
    let Some((result, left)) = result else {
        println!("skipped: this user cannot mount a file system");
        return;
    };
    let report = result.expect_err("no space");
    println!("{report}");
    // A DataNode without space closes the connection; the NameNode reports that no DataNode has space.
    let what = &report.what;
    assert!(
        what.contains("a DataNode failed: ") || what.contains("no DataNode accepts the data: "),
        "{report}"
    );
    let hint = report.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("full") && hint.contains("`hdfs dfsadmin -report`"), "{report}");
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staging_directory_of_another_user_is_rejected() {
    let fixture = StageFixture::new("denied").await;
    let staging = &fixture.path;
    let staging_dir = format!("{staging}/.ydl");
    let alice = fixture.submitter("alice", &staging_dir).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let mallory = fixture.submitter("mallory", &staging_dir).await;
    let report =
        mallory.submit("application_1_0002", &mallory.spec("")).await.expect_err("refused");
    assert!(report.what.contains("belongs to `alice`, not to `mallory`"), "{report}");
    let below = fixture.submitter("mallory", &format!("{staging_dir}/jobs/x")).await;
    let report = below.submit("application_1_0002", &below.spec("")).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("user `mallory` has no execute access to"), "{report}");
    assert!(report.hint.as_deref().is_some_and(|hint| hint.contains("staging:")), "{report}");
    alice.staging_dir.hdfs.set_permission(&staging_dir, 0o777, soon()).await.expect("a permission");
    let report = alice.submit("application_1_0002", &spec).await.expect_err("refused");
    assert!(report.what.contains("is writable by other users"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_in_safe_mode_is_reported() {
    let fixture = StageFixture::exclusive("safe").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    fixture.admin(&["-safemode", "enter"]);
    let result = alice.submit("application_1_0001", &spec).await;
    fixture.admin(&["-safemode", "leave"]);
    let report = result.expect_err("refused");
    println!("{report}");
    assert!(report.what.ends_with("is in safe mode"), "{report}");
    assert!(report.what.contains(&fixture.cluster.default_fs()), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_namenode_is_named() {
    let mut config = Config::defaults(Environment::default());
    config.set("fs.defaultFS", "hdfs://127.0.0.1:1", "core-site.xml, line 7");
    let hdfs = Hdfs::connect(&config, None, &Identity::simple("alice"), soon()).await;
    let hdfs = hdfs.expect("a client");
    let error: HdfsError = hdfs.stat("/x", soon()).await.expect_err("unreachable");
    println!("{}", Report::from(error.clone()));
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.what.contains("`127.0.0.1:1` does not answer: connection refused"), "{error}");
    let hint = error.hint.expect("a hint");
    assert!(hint.contains("`fs.defaultFS` (core-site.xml, line 7)"), "{hint}");
    // A server that accepts connections and does not respond.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("hdfs://{address}");
    let identity = Identity::simple("alice");
    let hdfs = Hdfs::connect(&config, Some(&url), &identity, soon()).await.expect("a client");
    let deadline = Instant::now() + Duration::from_millis(300);
    let error = hdfs.stat("/x", deadline).await.expect_err("no response");
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.what.contains("no answer in time"), "{error}");
    let elsewhere = hdfs.stat("hdfs://other:1/x", soon()).await.expect_err("not there");
    assert_eq!(elsewhere.kind, Kind::BadInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_recovery_keeps_synced_data_and_fences_the_writer() {
    let fixture = StageFixture::new("fence").await;
    let staging_dir = &fixture.path;
    let (old, new) = (fixture.hdfs("alice").await, fixture.hdfs("alice").await);
    let file = format!("{staging_dir}/journal");
    let mut writer = old.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    let entry = old.stat(&file, soon()).await.expect("a response").expect("a file");
    assert_eq!(entry.bytes, 4);
    new.recover(&file, soon()).await.expect("taken over");
    let read = async || new.read_file(&file, 100, soon()).await.expect("read");
    assert_eq!(read().await, "one\n");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("the old writer is fenced");
    assert_eq!(error.kind, Kind::LeaseLost, "{error}");
    new.recover(&file, soon()).await.expect("recovered again");
    assert_eq!(read().await, "one\n");
    let mut more = new.append(&file, soon()).await.expect("appended");
    more.write("three\n", soon()).await.expect("written");
    more.close(soon()).await.expect("closed");
    assert_eq!(read().await, "one\nthree\n");
    let error = new.read_file(&file, 3, soon()).await.expect_err("too long");
    assert!(error.what.contains("it has 10 bytes"), "{error}");
    let reader = new.open(&file, soon()).await.expect("opened");
    assert_eq!(reader.read_at(4, 100, soon()).await.expect("read"), "three\n");
    assert!(reader.read_at(99, 1, soon()).await.expect("beyond the end").is_empty());
    assert_eq!(new.create(&file, 0o600, soon()).await.expect_err("exists").kind, Kind::Exists);
    assert_eq!(new.open("/nowhere", soon()).await.expect_err("missing").kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_datanode_is_not_mistaken_for_a_newer_writer() {
    let fixture = StageFixture::exclusive("outage").await;
    let staging_dir = &fixture.path;
    let hdfs = fixture.hdfs("alice").await;
    let file = format!("{staging_dir}/journal.1");
    let mut writer = hdfs.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    fixture.cluster.kill("dn").expect("killed");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("no DataNode");
    assert_eq!(error.kind, Kind::Unreachable, "{error}");
    let again = writer.write("three\n", soon()).await.expect_err("the writer has failed");
    assert!(again.what.contains("an earlier write"), "{again}");
    fixture.cluster.start_daemon("dn").expect("started");
    fixture.cluster.wait_hdfs().expect("ready");
    hdfs.recover(&file, soon()).await.expect("closed");
    let content = hdfs.read_file(&file, 100, soon()).await.expect("read");
    assert!(content.starts_with(b"one\n"), "synced data is lost: {content:?}");
    let next = format!("{staging_dir}/journal.1.1");
    hdfs.write_atomic(&next, "two\n", 0o600, soon()).await.expect("written");
}
