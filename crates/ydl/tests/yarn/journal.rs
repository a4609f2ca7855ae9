//! The master's journal in a real HDFS: recovery by later masters, and fencing of earlier ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testbed::{Lease, Options};
use tokio::time::timeout;
use yarn_native::security::Identity;
use ydl::{
    master::journal::HdfsJournal, master::journal::Journal, master::journal::JournalRecord,
    master::journal::RecoverError, master::journal::recover, master::kv::Op,
    master::recovered::Replay,
};
use ydl_core::{JobSpec, Time};
use ydl_jobfile as jobfile;
use ydl_proto::kv::Blob;
use ydl_storage::hdfs::{Hdfs, JobLayout};
use ydl_testkit::yarn::{block_on, config, deadline, exclusive, shared, version};

/// A NameNode and a ResourceManager, without nodes.
fn options() -> Options {
    Options { nodes: 0, ..Options::new(version()) }
}

struct Fixture {
    cluster: Arc<Lease>,
    hdfs: Hdfs,
    layout: JobLayout,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::with(shared(options())).await
    }

    /// Leases the cluster exclusively.
    async fn exclusive() -> Fixture {
        Fixture::with(exclusive(options())).await
    }

    async fn with(cluster: Lease) -> Fixture {
        let identity = Identity::simple(cluster.own_user());
        let hdfs = Hdfs::connect(&config(&cluster), None, &identity, deadline()).await;
        let hdfs = hdfs.expect("a file system");
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let layout = JobLayout::at(hdfs.url(&format!("/journal/{number}")));
        let made = hdfs.mkdirs(layout.dir(), 0o700, deadline()).await;
        made.expect("a directory");
        Fixture { cluster: Arc::new(cluster), hdfs, layout }
    }

    /// Starts a master. Returns its journal and the number of recovered records.
    async fn master(&self, attempt: u32) -> (HdfsJournal, u64) {
        let mut reading = Replay::new(spec(), None);
        let journal = recover(&self.hdfs, &self.layout, attempt, &mut reading).await;
        let journal = journal.unwrap_or_else(|unreadable| panic!("{unreadable}"));
        (journal, reading.finish().records())
    }
}

fn spec() -> JobSpec {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("job.yaml");
    std::fs::write(&file, "roles: {worker: {shell: 'true'}}\n").expect("a file");
    let job = jobfile::load(&file).and_then(|file| file.job());
    job.expect("a job")
}

fn record(n: usize) -> JournalRecord {
    JournalRecord::Kv(Op::Put {
        key: format!("key {n}"),
        value: Blob::from(vec![7; 100].as_slice()),
        owner: None,
        only_if: None,
    })
}

#[test]
fn a_new_master_reads_and_fences_the_journals_of_earlier_masters() {
    block_on(async {
        let fixture = Fixture::new().await;
        let (mut first, read) = fixture.master(1).await;
        assert_eq!(read, 0);
        first.append(&JournalRecord::Started(Time(1)));
        first.flush().await.expect("written");
        for n in 0..5 {
            first.append(&record(n));
            first.flush().await.expect("written");
        }

        let (mut second, read) = fixture.master(2).await;
        assert_eq!(read, 5);
        first.append(&record(5));
        let fenced = first.flush().await.unwrap_err();
        assert_eq!(fenced.why, "another master has taken over");
        for n in 5..8 {
            second.append(&record(n));
        }
        second.flush().await.expect("written");

        // Later writes of the first master are not part of the journal.
        let (_, read) = fixture.master(3).await;
        assert_eq!(read, 8);
        // A stale master is rejected at once.
        let mut reading = Replay::new(spec(), None);
        let rejected = recover(&fixture.hdfs, &fixture.layout, 2, &mut reading).await;
        assert!(matches!(rejected, Err(RecoverError::Fenced)), "{rejected:?}");
    });
}

#[test]
fn a_successor_of_a_master_without_records_starts_the_journal() {
    block_on(async {
        let fixture = Fixture::new().await;
        let _ = fixture.master(1).await;
        let (mut second, read) = fixture.master(2).await;
        assert_eq!(read, 0);
        second.append(&JournalRecord::Started(Time(1)));
        second.append(&record(0));
        second.flush().await.expect("written");
        let (_, read) = fixture.master(3).await;
        assert_eq!(read, 1);
    });
}

#[test]
fn a_journal_survives_an_hdfs_outage() {
    block_on(async {
        let fixture = Fixture::exclusive().await;
        let (mut first, _) = fixture.master(1).await;
        first.append(&JournalRecord::Started(Time(1)));
        first.append(&record(0));
        first.flush().await.expect("written");

        let cluster = Arc::clone(&fixture.cluster);
        let kill = move || {
            cluster.kill("dn").expect("killed");
            cluster.kill("nn").expect("killed");
        };
        tokio::task::spawn_blocking(kill).await.expect("both are dead");
        first.append(&record(1));
        let waits = timeout(Duration::from_secs(5), first.flush()).await;
        assert!(waits.is_err(), "a record was stored without a DataNode");

        let cluster = Arc::clone(&fixture.cluster);
        let start = move || {
            cluster.start_daemon("nn").expect("started");
            cluster.start_daemon("dn").expect("started");
            cluster.wait_hdfs().expect("files can be written");
        };
        let (flushed, started) = tokio::join!(first.flush(), tokio::task::spawn_blocking(start));
        started.expect("both are back");
        flushed.expect("written");
        first.append(&record(2));
        first.flush().await.expect("written");
        let (_, read) = fixture.master(2).await;
        assert_eq!(read, 3, "a record was read twice");
    });
}
