//! Download of inputs from HDFS, compared with Hadoop's `FsShell -get`, alternately in one run.
//!
//! Both sides are whole processes: a job of one task on this machine whose program does nothing, from `ydl submit` to its
//! end, and a JVM of the test bed, which starts from a class archive and so faster than usual.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use testbed::{Cluster, Options, Version};
use tokio::task::JoinSet;
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl_storage::hdfs::Hdfs;

const RUNS: usize = 3;
const LARGE_MIB: u64 = 500;
const SMALL_FILES: usize = 1000;
const SMALL_BYTES: usize = 20 << 10;
/// Concurrent uploads of small files, and the timeout of the preparation.
const CONCURRENT: usize = 16;
const PREPARE_TIMEOUT: Duration = Duration::from_secs(120);

/// The argument `tiny` only checks that the benchmark works.
fn main() {
    let tiny = std::env::args().any(|word| word == "tiny");
    let (runs, large_mib, small_files) = match tiny {
        true => (1, 20, 20),
        false => (RUNS, LARGE_MIB, SMALL_FILES),
    };
    let options = Options { nodes: 1, ..Options::new(Version::NEWEST) };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let home = tempfile::tempdir().expect("a directory");
    prepare(&cluster, home.path(), large_mib, small_files);
    for (what, place) in [
        (format!("one file of {large_mib} MiB"), "large"),
        (format!("{small_files} files of 20 KiB"), "small"),
    ] {
        let (mut ydl, mut fs_shell) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            ydl.push(job(&cluster, home.path(), place));
            let got = home.path().join("got");
            let began = Instant::now();
            let (from, to) = (format!("/bench/{place}"), got.to_string_lossy());
            cluster.fs(&["-get", &from, &to]).expect("get");
            fs_shell.push(began.elapsed().as_secs_f64());
            // `got` is a file or a directory.
            let _ = fs::remove_file(&got).or_else(|_| fs::remove_dir_all(&got));
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[runs / 2]
        };
        let (ydl, fs_shell) = (median(&mut ydl), median(&mut fs_shell));
        println!(
            "{what:<24} ydl {ydl:.2} s   FsShell -get {fs_shell:.2} s   {:.1} times",
            fs_shell / ydl
        );
    }
}

/// Writes one large file and many small ones to HDFS by library calls: Hadoop's shell takes minutes for the small ones.
fn prepare(cluster: &Cluster, home: &Path, large_mib: u64, small_files: usize) {
    let mut noise: Vec<u8> =
        (0..1 << 20).map(|n: u32| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
    let large = home.join("large");
    let mut file = fs::File::create(&large).expect("a file");
    for _ in 0..large_mib {
        noise.rotate_left(7);
        std::io::Write::write_all(&mut file, &noise).expect("bytes");
    }
    let environment = Environment::of_process();
    let config = Config::from_directories(&[cluster.configuration()], environment);
    let config = config.expect("its configuration");
    let identity = Identity::simple(cluster.own_user());
    let until = tokio::time::Instant::now() + PREPARE_TIMEOUT;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let hdfs = Hdfs::connect(&config, None, &identity, until).await;
        let hdfs = hdfs.expect("a file system");
        hdfs.mkdirs("/bench/small", 0o755, until).await.expect("a directory");
        let put = hdfs.upload_file(&large, "/bench/large", 0o644, &|_| {}, until);
        put.await.expect("a file");
        let mut left = 0..small_files;
        let mut writing = JoinSet::new();
        loop {
            while let Some(n) = left.next().filter(|_| writing.len() < CONCURRENT) {
                let hdfs = hdfs.clone();
                let bytes = noise[n..n + SMALL_BYTES].to_vec();
                writing.spawn(async move {
                    let place = format!("/bench/small/part-{n:04}");
                    hdfs.write_if_absent(&place, bytes, 0o644, until).await
                });
            }
            match writing.join_next().await {
                Some(written) => drop(written.expect("no panic").expect("a file")),
                None => break,
            }
        }
    });
    fs::remove_file(large).expect("a file");
}

/// Returns the seconds of a job that only downloads its inputs.
fn job(cluster: &Cluster, home: &Path, place: &str) -> f64 {
    let file = home.join("job.yaml");
    let text = format!(
        "{{name: b, inputs: {{x: 'hdfs:///bench/{place}'}}, roles: {{worker: {{run: 'true'}}}}}}"
    );
    fs::write(&file, text).expect("a job file");
    let state = home.join("state");
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_ydl"))
        .args(["submit", "--cluster", "local", "job.yaml"])
        .current_dir(home)
        .env("HADOOP_CONF_DIR", cluster.configuration())
        .env("HADOOP_USER_NAME", cluster.own_user())
        .env("XDG_STATE_HOME", &state)
        .stdin(Stdio::null())
        .output()
        .expect("ydl can be started");
    let took = began.elapsed().as_secs_f64();
    assert!(output.status.success(), "{output:?}");
    let _ = fs::remove_dir_all(state);
    took
}
