//! Data in and out on a real cluster: inputs from HDFS, outputs to it, and results back.

mod inputs;
mod locations;
mod outputs;
mod proxy;

use crate::yarn_support::{
    Alone, Together, assert_refused, block_on, config, shared, soon, version,
};
use std::{fs, path::Path, sync::OnceLock};
use testbed::{Cluster, File, Options};
use yarn_native::security::Identity;
use ydl_storage::hdfs::Hdfs;

/// The node that is said to hold all blocks.
const HOLDER: &str = "127.0.0.12";

/// The cluster for a test that disturbs nobody.
fn together() -> Together {
    crate::yarn_support::together(cluster)
}

/// The cluster for one test alone. What it takes away it brings back.
fn alone() -> Alone {
    crate::yarn_support::alone(cluster)
}

/// Two nodes with room for four small containers each.
fn cluster() -> &'static Cluster {
    let options =
        Options { nodes: 2, node_memory_mib: 2048, node_vcores: 8, ..Options::new(version()) };
    shared(options.set(File::Hdfs, "dfs.datanode.hostname", HOLDER))
}

async fn connect(cluster: &Cluster) -> Hdfs {
    let config = config(cluster);
    let identity = Identity::from_config(&config).expect("an identity");
    let hdfs = Hdfs::connect(&config, None, &identity, soon()).await;
    hdfs.expect("a file system")
}

async fn exists(hdfs: &Hdfs, place: &str) -> bool {
    let there = hdfs.stat(place, soon()).await;
    there.expect("an answer").is_some()
}

async fn text_at(hdfs: &Hdfs, place: &str) -> Option<String> {
    let found = hdfs.read_if_exists(place, 1 << 20, soon()).await;
    let bytes = found.expect("an answer")?;
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

/// Ten files of different lengths at `/data/ten`, and what Hadoop itself leaves beside data.
fn ten_files() {
    static THERE: OnceLock<()> = OnceLock::new();
    THERE.get_or_init(|| {
        block_on(async {
            let hdfs = connect(cluster()).await;
            hdfs.mkdirs("/data/ten", 0o755, soon()).await.expect("made");
            for n in 0..10_usize {
                let bytes = vec![b'a' + n as u8; 300_000 * (n + 1)];
                let place = format!("/data/ten/part-{n}");
                let written = hdfs.write_atomic(&place, bytes, 0o644, soon()).await;
                written.expect("written");
            }
            let done = hdfs.write_atomic("/data/ten/_SUCCESS", "", 0o644, soon());
            done.await.expect("written");
        });
    });
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
