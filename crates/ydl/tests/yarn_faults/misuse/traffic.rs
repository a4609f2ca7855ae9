//! Traffic of a submission, measured at the DataNode.

use super::{exclusive_cluster, expect_ok};
use std::{collections::BTreeMap, fs, path::Path};
use testbed::Cluster;
use yarn_native::security::Identity;
use ydl_storage::hdfs::{Entry, Hdfs, StagingLayout};
use ydl_testkit::yarn::{
    Workspace, application, block_on, config, deadline, wait_finished, wait_for,
};

/// Finds the blocks on the disk of the DataNode, by number, and their sizes. Numbers are consecutive, so a deleted
/// block leaves a gap.
fn blocks(dir: &Path, found: &mut BTreeMap<u64, u64>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("blk_"));
        if entry.file_type().expect("its kind").is_dir() {
            blocks(&entry.path(), found);
        } else if let Some(number) = number.and_then(|number| number.parse().ok()) {
            let bytes = entry.metadata().expect("its size").len();
            found.insert(number, bytes);
        }
    }
}

/// Blocks and bytes that a DataNode has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    bytes: u64,
    blocks: u64,
}

/// Returns the traffic after the block `last`, and the number of the newest block.
fn received(cluster: &Cluster, last: u64) -> (Received, u64) {
    let mut found = BTreeMap::new();
    blocks(&cluster.directory().join("dn"), &mut found);
    let newest = found.keys().next_back().copied().unwrap_or(last);
    let later = found.range(last + 1..).map(|(_, bytes)| bytes);
    let received = Received { bytes: later.sum(), blocks: newest - last };
    (received, newest)
}

/// Returns the files of a job's directory, and the contents that jobs share.
fn staged(cluster: &Cluster, id: &str) -> (Vec<Entry>, Vec<Entry>) {
    block_on(async {
        let identity = Identity::simple(cluster.own_user());
        let hdfs = Hdfs::connect(&config(cluster), None, &identity, deadline()).await;
        let hdfs = hdfs.expect("a file system");
        let layout = StagingLayout::in_home(&hdfs.home(deadline()).await.expect("a home"));
        let own = hdfs.list(layout.job(id).dir(), deadline()).await;
        let shared = hdfs.list(&layout.contents(), deadline()).await;
        (own.expect("a listing"), shared.expect("a listing"))
    })
}

const DATA: &str = "0123456789";
const DATA_REPEATS: usize = 100_000;

#[test]
fn a_second_submission_sends_only_changed_files_to_datanodes() {
    let cluster = &*exclusive_cluster();
    let workspace = Workspace::new(cluster);
    workspace.write("train.py", "print('one')\n");
    workspace.write("data.txt", &DATA.repeat(DATA_REPEATS));
    let yaml = "{files: [train.py, data.txt], roles: {worker: {memory: 128 MiB, run: 'true'}}}";
    let first = workspace.submit(yaml);
    assert_eq!(first.code, 0, "{first:#?}");
    wait_for("the log aggregation", || {
        let id = ydl_testkit::yarn::digits::job_id(&first);
        let logs = application(cluster, &id).logs;
        matches!(logs, Some(yarn_native::types::LogState::Succeeded)).then_some(())
    });
    // While the nodes are paused, only the client writes.
    for node in cluster.nodes() {
        expect_ok(cluster.pause(&node.daemon));
    }
    let (_, mut last) = received(cluster, 0);
    let mut counted = |yaml: &str| {
        let id = workspace.detach(yaml);
        let (sent, newest) = received(cluster, last);
        last = newest;
        (id, sent)
    };
    let again = counted(yaml);
    let (own, shared_before) = staged(cluster, &again.0);
    workspace.write("train.py", "print('second')\n");
    let changed = counted(yaml);
    let (own_changed, shared_after) = staged(cluster, &changed.0);
    for node in cluster.nodes() {
        expect_ok(cluster.resume(&node.daemon));
    }
    // A job's own files: specification, certificate, token, configuration. References to shared content are directory
    // entries without data.
    let sum = |entries: &[Entry]| Received {
        bytes: entries.iter().map(|entry| entry.bytes).sum(),
        blocks: entries.iter().filter(|entry| !entry.directory).count() as u64,
    };
    println!("a job's own files: {:?}", sum(&own));
    assert_eq!(again.1, sum(&own), "{own:?}");
    assert!(again.1.bytes < (DATA.len() * DATA_REPEATS) as u64, "{again:?}");
    let mut expected = sum(&own_changed);
    expected.bytes += "print('second')\n".len() as u64;
    expected.blocks += 1;
    assert_eq!(changed.1, expected, "{own_changed:?}");
    assert_eq!(shared_after.len(), shared_before.len() + 1);
    for (id, _) in [again, changed] {
        let report = wait_finished(cluster, &id);
        assert_eq!(report.final_status.to_string(), "SUCCEEDED", "{report:?}");
    }
}
