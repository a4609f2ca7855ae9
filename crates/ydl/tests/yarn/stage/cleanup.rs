//! Cleanup of the staging directory: unused files are deleted, used files are kept.

use super::{StageFixture, soon};
use std::time::Duration;
use tokio::time::Instant;
use ydl::client::stage::{self, AGE, CleanupStats};
use ydl_storage::hdfs::layout;

#[tokio::test(flavor = "multi_thread")]
async fn partial_uploads_are_not_used_and_are_cleaned_up() {
    let fixture = StageFixture::new("half").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let hdfs = &alice.staging_dir.hdfs;
    // A submitter that was killed during its upload.
    let temporary = alice.staging_dir.layout.temporary("application_1_0009");
    let temporary = temporary.expect("a name");
    let mut writer = hdfs.create(&temporary, layout::PRIVATE, soon()).await.expect("a file");
    writer.write(vec![7; 1 << 20], soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    drop(writer);
    alice.write("ydl", &[8; 1 << 20]);
    let upload = alice.submit("application_1_0002", &spec).await.expect("staged");
    assert_eq!((upload.sent.files, upload.sent.bytes), (1, 1 << 20));
    assert_ne!(upload.staged.binary.url, temporary);
    assert_eq!(
        stage::clean(&alice.staging_dir, AGE, |_| true, soon()).await.expect("cleaned"),
        Some(CleanupStats::default())
    );
    hdfs.recover(&temporary, soon()).await.expect("closed");
    fixture.make_old(std::slice::from_ref(&temporary)).await;
    let cleaned = stage::clean(&alice.staging_dir, AGE, |_| true, soon()).await.expect("cleaned");
    assert_eq!(cleaned, Some(CleanupStats { contents: 1, jobs: 0 }));
    assert_eq!(hdfs.stat(&temporary, soon()).await.expect("a response"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn cleanup_keeps_files_in_use() {
    let fixture = StageFixture::new("clean").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = alice.submit("application_1_0001", &spec).await.expect("staged");
    alice.write("train.py", b"print('second')");
    let second = alice.submit("application_1_0002", &spec).await.expect("staged");
    let hdfs = &alice.staging_dir.hdfs;
    let mut all: Vec<String> = alice.contents().await.into_iter().map(|entry| entry.url).collect();
    for id in ["application_1_0001", "application_1_0002"] {
        all.push(alice.staging_dir.job(id).uses());
        all.push(alice.staging_dir.job(id).dir().to_owned());
    }
    fixture.make_old(&all).await;
    // All are old, and the first job still runs.
    let running = |id: &str| id == "application_1_0001";
    let due = async || stage::is_due(&alice.staging_dir, soon()).await.expect("a response");
    assert!(due().await, "no cleanup ran yet");
    let cleaned = stage::clean(&alice.staging_dir, AGE, running, soon()).await.expect("cleaned");
    assert_eq!(cleaned, Some(CleanupStats { contents: 1, jobs: 1 }));
    let exists = async |url: &str| hdfs.stat(url, soon()).await.expect("a response").is_some();
    assert!(exists(&first.staged.files["train.py"].url).await);
    assert!(exists(&first.staged.binary.url).await);
    assert!(exists(alice.staging_dir.job("application_1_0001").dir()).await);
    assert!(!exists(&second.staged.files["train.py"].url).await);
    assert!(!exists(alice.staging_dir.job("application_1_0002").dir()).await);
    assert!(!exists(&alice.staging_dir.layout.cleaning()).await, "the lock remains");
    assert!(!due().await, "due again at once");

    // Another process holds the cleanup lock: no second cleanup runs, and a submit waits for the lock.
    let lock = alice.staging_dir.layout.cleaning();
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await.expect("a lock");
    writer.close(soon()).await.expect("closed");
    assert_eq!(
        stage::clean(&alice.staging_dir, AGE, running, soon()).await.expect("a response"),
        None
    );
    let waiting = alice.submit("application_1_0003", &spec);
    let ending = async {
        let uses = alice.staging_dir.job("application_1_0003").uses();
        while !exists(&uses).await {
            tokio::task::yield_now().await;
        }
        hdfs.delete(&lock, soon()).await.expect("deleted");
    };
    let (waited, ()) = tokio::join!(waiting, ending);
    waited.expect("staged");
    // The lock of a process that died long ago is taken over.
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await.expect("a lock");
    writer.close(soon()).await.expect("closed");
    fixture.make_old(std::slice::from_ref(&lock)).await;
    alice.submit("application_1_0004", &spec).await.expect("staged");
    let cleaned = stage::clean(&alice.staging_dir, AGE, |_| true, soon()).await.expect("cleaned");
    assert!(cleaned.is_some());
    assert!(!exists(&lock).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overdue_or_dead_cleanup_does_not_block_submissions() {
    let fixture = StageFixture::new("late").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = alice.submit("application_1_0001", &spec).await;
    first.expect("staged");
    let (hdfs, lock) = (&alice.staging_dir.hdfs, alice.staging_dir.layout.cleaning());
    let job = alice.staging_dir.job("application_1_0001");
    fixture.make_old(&[job.uses(), job.dir().to_owned()]).await;

    // A cleanup that exceeds its deadline fails.
    // Long enough to get the lock on a busy machine.
    let late = Instant::now() + Duration::from_secs(15);
    // Timers are coarse: a call that starts at the deadline may still succeed.
    let slow = |_: &str| {
        while Instant::now() < late + Duration::from_millis(50) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        true
    };
    let ended = stage::clean(&alice.staging_dir, AGE, slow, late).await;
    assert!(ended.is_err(), "{ended:?}");
    let left = hdfs.stat(&lock, soon()).await.expect("a response");
    assert_eq!(left, None, "the lock remains");

    // The lock of a process that died recently expires after the time limit of a cleanup.
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await;
    let writer = writer.expect("a lock");
    writer.close(soon()).await.expect("closed");
    let made = hdfs.stat(&lock, soon()).await.expect("a response");
    let made_ms = made.expect("a lock").modified_ms;
    fixture.touch(std::slice::from_ref(&lock), made_ms - 80_000).await;
    let waited = alice.submit("application_1_0002", &spec).await;
    waited.expect("staged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_upload_leaves_nothing() {
    let fixture = StageFixture::new("broken-off").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = "application_1_0001";
    alice.submit(first, &spec).await.expect("staged");
    let (layout, hdfs) = (&alice.staging_dir.layout, &alice.staging_dir.hdfs);
    let before = alice.contents().await;
    let temporaries = ["application_1_0002", "application_1_00021"].map(|id| {
        let name = layout.temporary(id);
        name.expect("a name")
    });
    for temporary in &temporaries {
        let writer = hdfs.create(temporary, layout::PRIVATE, soon()).await;
        writer.expect("a file").close(soon()).await.expect("closed");
    }
    let removed =
        stage::remove_partial_uploads(&alice.staging_dir, "application_1_0002", soon()).await;
    removed.expect("removed");
    let remaining = alice.contents().await;
    assert_eq!(remaining.len(), before.len() + 1, "{remaining:?}");
    assert!(
        remaining.iter().any(|entry| entry.url == temporaries[1]),
        "the upload of another job was removed: {remaining:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_during_cleanup_keeps_its_files() {
    let fixture = StageFixture::new("race").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    for round in 0..3_u64 {
        let id = format!("application_{round}_0001");
        alice.submit(&id, &spec).await.expect("staged");
        let hdfs = &alice.staging_dir.hdfs;
        for job in hdfs.list(&alice.staging_dir.layout.jobs(), soon()).await.expect("jobs") {
            hdfs.delete(&job.url, soon()).await.expect("deleted");
        }
        let all: Vec<_> = alice.contents().await.into_iter().map(|entry| entry.url).collect();
        fixture.make_old(&all).await;
        // These files are old and unused until now.
        let next = format!("application_{round}_0002");
        let submitting = alice.submit(&next, &spec);
        let cleaning = stage::clean(&alice.staging_dir, AGE, |_| true, soon());
        let (upload, cleaned) = tokio::join!(submitting, cleaning);
        let (staged, cleaned) = (upload.expect("staged").staged, cleaned.expect("cleaned"));
        println!("round {round}: {cleaned:?}");
        for content in staged.files.values().chain([&staged.binary]) {
            let entry = hdfs.stat(&content.url, soon()).await.expect("a response");
            let entry = entry.unwrap_or_else(|| panic!("{} was deleted", content.url));
            assert_eq!(entry.modified_ms, content.modified_ms, "{} was replaced", content.url);
        }
    }
}
