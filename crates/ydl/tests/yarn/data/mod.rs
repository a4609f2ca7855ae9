//! Data in and out on a real cluster: inputs from HDFS, outputs to it, and results back.

mod inputs;
mod locations;
mod outputs;
mod proxy;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use testbed::{Cluster, File, Lease, Options};
use yarn_native::security::Identity;
use ydl_storage::hdfs::Hdfs;
use ydl_testkit::yarn::{block_on, config, deadline, exclusive, shared, version};

/// The node that is said to hold all blocks.
const HOLDER: &str = "127.0.0.12";

/// Leases the cluster for a test that disturbs no other.
fn shared_cluster() -> Lease {
    shared(options())
}

/// Leases the cluster for one test alone, which restores what it takes away.
fn exclusive_cluster() -> Lease {
    exclusive(options())
}

/// Two nodes with room for four small containers each.
fn options() -> Options {
    let options =
        Options { nodes: 2, node_memory_mib: 2048, node_vcores: 8, ..Options::new(version()) };
    options.set(File::Hdfs, "dfs.datanode.hostname", HOLDER)
}

async fn connect(cluster: &Cluster) -> Hdfs {
    let config = config(cluster);
    let identity = Identity::from_config(&config).expect("an identity");
    let hdfs = Hdfs::connect(&config, None, &identity, deadline()).await;
    hdfs.expect("a file system")
}

async fn exists(hdfs: &Hdfs, place: &str) -> bool {
    let there = hdfs.stat(place, deadline()).await;
    there.expect("an answer").is_some()
}

async fn text_at(hdfs: &Hdfs, place: &str) -> Option<String> {
    let found = hdfs.read_if_exists(place, 1 << 20, deadline()).await;
    let bytes = found.expect("an answer")?;
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

/// Ten files of different lengths at `/data/ten`, and what Hadoop itself leaves beside data.
fn ten_files(cluster: &Cluster) {
    // The cluster that has them. It may have been replaced since another test created them.
    static CREATED: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
    if created.as_deref() == Some(cluster.directory()) {
        return;
    }
    block_on(async {
        let hdfs = connect(cluster).await;
        hdfs.mkdirs("/data/ten", 0o755, deadline()).await.expect("made");
        for n in 0..10_usize {
            let bytes = vec![b'a' + n as u8; 300_000 * (n + 1)];
            let place = format!("/data/ten/part-{n}");
            let written = hdfs.write_atomic(&place, bytes, 0o644, deadline()).await;
            written.expect("written");
        }
        let done = hdfs.write_atomic("/data/ten/_SUCCESS", "", 0o644, deadline());
        done.await.expect("written");
    });
    *created = Some(cluster.directory().to_owned());
}

fn job(instances: u32, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).expect("a string");
    format!(
        "name: data\nmaster: {{memory: 128 MiB}}\nroles: {{worker: {{instances: {instances}, memory: 256 MiB, shell: {script}}}}}\n{more}\n"
    )
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_default()
}

/// The agent of the only job below that directory.
fn agent_below(dir: &Path) -> Option<String> {
    let mark = dir.join("state").to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    pids.find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        words.contains("\0agent\0") && words.contains(&mark)
    })
}
