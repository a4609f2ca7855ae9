//! Cleanup of the staging directory: unused files are deleted, used files are kept.

use super::{Playground, soon};
use std::time::Duration;
use tokio::time::Instant;
use ydl::client::stage::{self, AGE, CleanupStats};
use ydl_storage::hdfs::layout;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_half_sent_is_not_taken_for_whole_and_is_cleaned_up() {
    let playground = Playground::new("half").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    alice.submit("application_1_0001", &spec).await.expect("staged");
    let hdfs = &alice.place.hdfs;
    // A submitter that died while it sent.
    let aside = alice.place.layout.temporary("application_1_0009");
    let aside = aside.expect("a name");
    let mut writer = hdfs.create(&aside, layout::PRIVATE, soon()).await.expect("a file");
    writer.write(vec![7; 1 << 20], soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    drop(writer);
    alice.write("ydl", &[8; 1 << 20]);
    let upload = alice.submit("application_1_0002", &spec).await.expect("staged");
    assert_eq!((upload.sent.files, upload.sent.bytes), (1, 1 << 20));
    assert_ne!(upload.staged.binary.url, aside);
    assert_eq!(
        stage::clean(&alice.place, AGE, |_| true, soon()).await.expect("cleaned"),
        Some(CleanupStats::default())
    );
    hdfs.recover(&aside, soon()).await.expect("closed");
    playground.make_old(std::slice::from_ref(&aside)).await;
    let cleaned = stage::clean(&alice.place, AGE, |_| true, soon()).await.expect("cleaned");
    assert_eq!(cleaned, Some(CleanupStats { contents: 1, jobs: 0 }));
    assert_eq!(hdfs.stat(&aside, soon()).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn cleaning_leaves_what_jobs_use() {
    let playground = Playground::new("clean").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = alice.submit("application_1_0001", &spec).await.expect("staged");
    alice.write("train.py", b"print('second')");
    let second = alice.submit("application_1_0002", &spec).await.expect("staged");
    let hdfs = &alice.place.hdfs;
    let mut all: Vec<String> = alice.contents().await.into_iter().map(|entry| entry.url).collect();
    for id in ["application_1_0001", "application_1_0002"] {
        all.push(alice.place.job(id).uses());
        all.push(alice.place.job(id).dir().to_owned());
    }
    playground.make_old(&all).await;
    // All are old; the first runs still.
    let running = |id: &str| id == "application_1_0001";
    let due = async || stage::is_due(&alice.place, soon()).await.expect("an answer");
    assert!(due().await, "nobody has cleaned yet");
    let cleaned = stage::clean(&alice.place, AGE, running, soon()).await.expect("cleaned");
    assert_eq!(cleaned, Some(CleanupStats { contents: 1, jobs: 1 }));
    let there = async |url: &str| hdfs.stat(url, soon()).await.expect("an answer").is_some();
    assert!(there(&first.staged.files["train.py"].url).await);
    assert!(there(&first.staged.binary.url).await);
    assert!(there(alice.place.job("application_1_0001").dir()).await);
    assert!(!there(&second.staged.files["train.py"].url).await);
    assert!(!there(alice.place.job("application_1_0002").dir()).await);
    assert!(!there(&alice.place.layout.cleaning()).await, "the lock is gone");
    assert!(!due().await, "once a day is enough");

    // Another process holds the cleanup lock: no second cleanup runs, and a submit waits for the lock.
    let lock = alice.place.layout.cleaning();
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await.expect("a lock");
    writer.close(soon()).await.expect("closed");
    assert_eq!(stage::clean(&alice.place, AGE, running, soon()).await.expect("an answer"), None);
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
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await.expect("a lock");
    writer.close(soon()).await.expect("closed");
    playground.make_old(std::slice::from_ref(&lock)).await;
    alice.submit("application_1_0004", &spec).await.expect("nobody waits for the dead");
    let cleaned = stage::clean(&alice.place, AGE, |_| true, soon()).await.expect("cleaned");
    assert!(cleaned.is_some());
    assert!(!there(&lock).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleaner_that_is_late_or_dead_holds_nobody_up() {
    let playground = Playground::new("late").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = alice.submit("application_1_0001", &spec).await;
    first.expect("staged");
    let (hdfs, lock) = (&alice.place.hdfs, alice.place.layout.cleaning());
    let job = alice.place.job("application_1_0001");
    playground.make_old(&[job.uses(), job.dir().to_owned()]).await;

    // One that runs out of time ends without a result.
    // Long enough for it to have its lock by then, on a machine that has much else to do.
    let late = Instant::now() + Duration::from_secs(15);
    // Timers are coarse: a call that begins in the deadline's own moment may still be answered.
    let slow = |_: &str| {
        while Instant::now() < late + Duration::from_millis(50) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        true
    };
    let ended = stage::clean(&alice.place, AGE, slow, late).await;
    assert!(ended.is_err(), "{ended:?}");
    let left = hdfs.stat(&lock, soon()).await.expect("an answer");
    assert_eq!(left, None, "the lock is gone");

    // One that died a little while ago is waited for no longer than one that lives may take.
    let writer = hdfs.create(&lock, layout::PRIVATE, soon()).await;
    let writer = writer.expect("a lock");
    writer.close(soon()).await.expect("closed");
    let made = hdfs.stat(&lock, soon()).await.expect("an answer");
    let made_ms = made.expect("a lock").modified_ms;
    playground.touch(std::slice::from_ref(&lock), made_ms - 80_000).await;
    let waited = alice.submit("application_1_0002", &spec).await;
    waited.expect("nobody waits for the dead");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_broken_off_leaves_nothing() {
    let playground = Playground::new("broken-off").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    let first = "application_1_0001";
    alice.submit(first, &spec).await.expect("staged");
    let (layout, hdfs) = (&alice.place.layout, &alice.place.hdfs);
    let before = alice.contents().await;
    let asides = ["application_1_0002", "application_1_00021"].map(|id| {
        let name = layout.temporary(id);
        name.expect("a name")
    });
    for aside in &asides {
        let writer = hdfs.create(aside, layout::PRIVATE, soon()).await;
        writer.expect("a file").close(soon()).await.expect("closed");
    }
    let given_up = stage::remove_partial_uploads(&alice.place, "application_1_0002", soon()).await;
    given_up.expect("given up");
    let left = alice.contents().await;
    assert_eq!(left.len(), before.len() + 1, "{left:?}");
    assert!(left.iter().any(|entry| entry.url == asides[1]), "another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_races_with_cleaning_finds_all_it_needs() {
    let playground = Playground::new("race").await;
    let staging = &playground.path;
    let alice = playground.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("");
    for round in 0..3_u64 {
        let id = format!("application_{round}_0001");
        alice.submit(&id, &spec).await.expect("staged");
        let hdfs = &alice.place.hdfs;
        for job in hdfs.list(&alice.place.layout.jobs(), soon()).await.expect("jobs") {
            hdfs.delete(&job.url, soon()).await.expect("deleted");
        }
        let all: Vec<_> = alice.contents().await.into_iter().map(|entry| entry.url).collect();
        playground.make_old(&all).await;
        // Old, and unused until this moment.
        let next = format!("application_{round}_0002");
        let submitting = alice.submit(&next, &spec);
        let cleaning = stage::clean(&alice.place, AGE, |_| true, soon());
        let (upload, cleaned) = tokio::join!(submitting, cleaning);
        let (staged, cleaned) = (upload.expect("staged").staged, cleaned.expect("cleaned"));
        println!("round {round}: {cleaned:?}");
        for content in staged.files.values().chain([&staged.binary]) {
            let entry = hdfs.stat(&content.url, soon()).await.expect("an answer");
            let entry = entry.unwrap_or_else(|| panic!("{} was cleaned away", content.url));
            assert_eq!(entry.modified_ms, content.modified_ms, "and is the one that was named");
        }
    }
}
