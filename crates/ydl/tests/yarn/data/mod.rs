//! Inputs from HDFS, outputs to it, its file store and fetched results, on a real cluster.

mod inputs;
mod locations;
mod outputs;
mod proxy;
mod store;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use testbed::{Cluster, File, Lease, Options};
use yarn_native::security::Identity;
use ydl_storage::hdfs::Hdfs;
use ydl_testkit::yarn::{block_on, config, deadline, exclusive, shared, version};

/// Configured host name of the DataNode, which is a node of the cluster.
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

async fn exists(hdfs: &Hdfs, path: &str) -> bool {
    let entry = hdfs.stat(path, deadline()).await;
    entry.expect("a response").is_some()
}

async fn text_at(hdfs: &Hdfs, path: &str) -> Option<String> {
    let found = hdfs.read_if_exists(path, 1 << 20, deadline()).await;
    let bytes = found.expect("a response")?;
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

/// Creates ten files of different lengths in `/data/ten`, and Hadoop's `_SUCCESS`.
fn ten_files(cluster: &Cluster) {
    // Cluster in which they exist. It may have been replaced since.
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
            let path = format!("/data/ten/part-{n}");
            let written = hdfs.write_atomic(&path, bytes, 0o644, deadline()).await;
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

/// Returns the pid of the agent of the only job below that directory.
fn agent_below(dir: &Path) -> Option<String> {
    let mark = dir.join("state").to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    pids.find(|pid| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args = String::from_utf8_lossy(&args);
        args.contains("\0agent\0") && args.contains(&mark)
    })
}
