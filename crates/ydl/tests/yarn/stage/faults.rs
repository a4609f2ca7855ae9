//! HDFS on bad days.

use super::{Playground, soon};
use std::{path::Path, process::Command, time::Duration};
use tokio::time::Instant;
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl_os::report::Report;
use ydl_storage::hdfs::{Hdfs, HdfsError, Kind};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_said_with_its_numbers_and_leaves_nothing() {
    let playground = Playground::new("quota").await;
    let staging = &playground.path;
    let place = format!("{staging}/.ydl");
    let alice = playground.submitter("alice", &place).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let before = alice.contents().await;
    playground.admin(&["-setSpaceQuota", "9m", staging]);
    alice.write("ydl", &[9; 8 << 20]);
    let report = alice.submit("application_1_0002", &spec).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("quota"), "{report}");
    assert!(report.hint.as_deref().is_some_and(|hint| hint.contains("larger quota")), "{report}");
    assert_eq!(alice.contents().await, before, "nothing is left aside");

    // A quota of names: there is no room for one more file.
    playground.admin(&["-clrSpaceQuota", staging]);
    playground.admin(&["-setQuota", "10", staging]);
    let report = alice.submit("application_1_0003", &spec).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("quota") && report.what.contains("10"), "{report}");
    let hint = report.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("larger quota"), "{report}");
    assert_eq!(alice.contents().await, before, "nothing is left aside");
}

/// A small disk instead of a directory, while its user is away.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(dir: &Path) -> Option<Small<'_>> {
        let words = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"];
        let ran = Command::new("mount").args(words).arg(dir).output();
        let mounted = ran.is_ok_and(|ran| ran.status.success());
        mounted.then_some(Small(dir))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_in_mid_upload_is_said_to_be_and_leaves_nothing() {
    let playground = Playground::exclusive("full").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    // More than the disk, in blocks of 1 MiB.
    alice.write("ydl", &vec![9; 60 << 20]);
    playground.cluster.stop("dn").expect("stopped");
    let data = playground.cluster.directory().join("dn/data");
    let small = Small::mount(&data);
    playground.cluster.start_daemon("dn").expect("started");
    playground.cluster.wait_hdfs().expect("ready");
    let result = match &small {
        Some(_) => {
            let result = alice.submit("application_1_0001", &spec).await;
            let left = alice.contents().await;
            playground.cluster.stop("dn").expect("stopped");
            Some((result, left))
        }
        None => None,
    };
    let mounted = small.is_some();
    drop(small);
    if mounted {
        playground.cluster.start_daemon("dn").expect("started");
        playground.cluster.wait_hdfs().expect("ready");
    }
    let Some((result, left)) = result else {
        println!("this user may not mount: a full disk is left out");
        return;
    };
    let report = result.expect_err("there is no room");
    println!("{report}");
    // The DataNode that runs out of room goes away without a word; the NameNode that finds none says so.
    let what = &report.what;
    assert!(
        what.contains("a DataNode failed: ") || what.contains("no DataNode takes it: "),
        "{report}"
    );
    let hint = report.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("full") && hint.contains("`hdfs dfsadmin -report` tells"), "{report}");
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_somebody_else_is_not_used() {
    let playground = Playground::new("denied").await;
    let staging = &playground.path;
    let place = format!("{staging}/.ydl");
    let alice = playground.submitter("alice", &place).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let mallory = playground.submitter("mallory", &place).await;
    let report =
        mallory.submit("application_1_0002", &mallory.spec("")).await.expect_err("refused");
    assert!(report.what.contains("belongs to `alice`, not to `mallory`"), "{report}");
    let below = playground.submitter("mallory", &format!("{place}/jobs/x")).await;
    let report = below.submit("application_1_0002", &below.spec("")).await.expect_err("refused");
    println!("{report}");
    assert!(report.what.contains("user `mallory` has no execute access to"), "{report}");
    assert!(report.hint.as_deref().is_some_and(|hint| hint.contains("staging:")), "{report}");
    alice.place.hdfs.set_permission(&place, 0o777, soon()).await.expect("a permission");
    let report = alice.submit("application_1_0002", &spec).await.expect_err("refused");
    assert!(report.what.contains("can be written by others"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_in_safe_mode_is_said_to_be() {
    let playground = Playground::exclusive("safe").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    playground.admin(&["-safemode", "enter"]);
    let result = alice.submit("application_1_0001", &spec).await;
    playground.admin(&["-safemode", "leave"]);
    let report = result.expect_err("refused");
    println!("{report}");
    assert!(report.what.ends_with("is in safe mode"), "{report}");
    assert!(report.what.contains(&playground.cluster.default_fs()), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namenode_that_is_not_there_is_named() {
    let mut config = Config::defaults(Environment::default());
    config.set("fs.defaultFS", "hdfs://127.0.0.1:1", "core-site.xml, line 7");
    let hdfs = Hdfs::connect(&config, None, &Identity::simple("alice"), soon()).await;
    let hdfs = hdfs.expect("nothing was asked yet");
    let error: HdfsError = hdfs.stat("/x", soon()).await.expect_err("nobody is there");
    println!("{}", Report::from(error.clone()));
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.what.contains("`127.0.0.1:1` does not answer: connection refused"), "{error}");
    let hint = error.hint.expect("a hint");
    assert!(hint.contains("`fs.defaultFS` (core-site.xml, line 7)"), "{hint}");
    // One that accepts and says nothing.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = deaf.local_addr().expect("its address");
    let url = format!("hdfs://{address}");
    let identity = Identity::simple("alice");
    let hdfs = Hdfs::connect(&config, Some(&url), &identity, soon()).await.expect("a client");
    let deadline = Instant::now() + Duration::from_millis(300);
    let error = hdfs.stat("/x", deadline).await.expect_err("nobody answers");
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.what.contains("no answer in time"), "{error}");
    let elsewhere = hdfs.stat("hdfs://other:1/x", soon()).await.expect_err("not there");
    assert_eq!(elsewhere.kind, Kind::BadInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_synced_survives_its_writer_and_shuts_it_out() {
    let playground = Playground::new("fence").await;
    let place = &playground.path;
    let (old, new) = (playground.hdfs("alice").await, playground.hdfs("alice").await);
    let file = format!("{place}/journal");
    let mut writer = old.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    let entry = old.stat(&file, soon()).await.expect("an answer").expect("a file");
    assert_eq!(entry.bytes, 4);
    new.recover(&file, soon()).await.expect("taken over");
    let read = async || new.read_file(&file, 100, soon()).await.expect("read");
    assert_eq!(read().await, "one\n");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("the old writer is shut out");
    assert_eq!(error.kind, Kind::LeaseLost, "{error}");
    new.recover(&file, soon()).await.expect("a closed file stays as it is");
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
    assert_eq!(
        new.create(&file, 0o600, soon()).await.expect_err("there is one").kind,
        Kind::Exists
    );
    assert_eq!(new.open("/nowhere", soon()).await.expect_err("there is none").kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datanode_that_is_away_is_not_mistaken_for_a_newer_writer() {
    let playground = Playground::exclusive("away").await;
    let place = &playground.path;
    let hdfs = playground.hdfs("alice").await;
    let file = format!("{place}/journal.1");
    let mut writer = hdfs.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    playground.cluster.kill("dn").expect("killed");
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("nobody takes it");
    assert_eq!(error.kind, Kind::Unreachable, "{error}");
    let again = writer.write("three\n", soon()).await.expect_err("broken for good");
    assert!(again.what.contains("an earlier write"), "{again}");
    playground.cluster.start_daemon("dn").expect("started");
    playground.cluster.wait_hdfs().expect("ready");
    hdfs.recover(&file, soon()).await.expect("closed");
    let kept = hdfs.read_file(&file, 100, soon()).await.expect("read");
    assert!(kept.starts_with(b"one\n"), "what was synced is there: {kept:?}");
    let next = format!("{place}/journal.1.1");
    hdfs.write_atomic(&next, "two\n", 0o600, soon()).await.expect("written");
}
