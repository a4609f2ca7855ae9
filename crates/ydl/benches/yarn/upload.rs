//! Uploads of 500 MB to HDFS: by Hadoop's shell, by the library call, and by a whole submit.

use crate::{
    bench_cluster::BenchCluster,
    figures::{line, now_ns, ratio, seconds},
};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;
use yarn_native::security::Identity;
use ydl_storage::hdfs::Hdfs;

const BYTES: usize = 500_000_000;

/// Creates a file with new content, in the page cache, so that no disk is measured.
fn fresh(bench: &BenchCluster, name: &str) -> PathBuf {
    let path = bench.path(name);
    let mut random = File::open("/dev/urandom").expect("random bytes");
    let mut piece = vec![0; 1 << 20];
    random.read_exact(&mut piece).expect("random bytes");
    let mut file = File::create(&path).expect("a file");
    let mut left = BYTES;
    while left > 0 {
        let most = left.min(piece.len());
        file.write_all(&piece[..most]).expect("room on the disk");
        left -= most;
    }
    // Pending writes would be measured, too.
    file.sync_all().expect("a disk");
    path
}

fn timed(bench: &BenchCluster, upload: impl FnOnce(&Path)) -> f64 {
    let path = fresh(bench, "large");
    let began = now_ns();
    upload(&path);
    let took = seconds(began, now_ns());
    rustix::fs::sync();
    took
}

pub fn measure(bench: &BenchCluster, binary: &Path, runs: usize) {
    let (mut shell, mut call, mut submit) = (Vec::new(), Vec::new(), Vec::new());
    let identity = Identity::simple(bench.cluster.own_user());
    let deadline = || Instant::now() + Duration::from_secs(300);
    let yaml = "files: [large]\nroles: {worker: {memory: 128 MiB, run: \"true\"}}\n";
    std::fs::write(bench.path("large.yaml"), yaml).expect("a job file");
    for run in 0..runs {
        shell.push(timed(bench, |path| {
            let mut put = bench.cluster.hadoop("org.apache.hadoop.fs.FsShell").expect("a command");
            put.arg("-put").arg(path).arg(format!("/put-{run}"));
            assert!(put.status().expect("it runs").success());
        }));
        call.push(timed(bench, |path| {
            bench.block_on(async {
                let hdfs = Hdfs::connect(&bench.config, None, &identity, deadline()).await;
                let hdfs = hdfs.expect("a file system");
                let place = format!("/call-{run}");
                let sent = hdfs.upload_file(path, &place, 0o600, &|_| {}, deadline()).await;
                sent.expect("sent");
            });
        }));
        let mut id = String::new();
        submit.push(timed(bench, |_| {
            let mut command = bench.ydl(binary);
            let command = command.args(["submit", "--detach", "large.yaml"]);
            let output = command.output().expect("ydl");
            assert!(output.status.success(), "{output:?}");
            id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        }));
        bench.end(&id);
        bench
            .cluster
            .fs(&["-rm", "-r", "-skipTrash", "/put-*", "/call-*", "/user/*/.ydl/content/*"])
            .expect("room in HDFS");
    }
    let shell = line("500 MB by `FsShell -put`", "s", &shell);
    let call = line("500 MB by the library call `upload_file`", "s", &call);
    let submit = line("500 MB by `ydl submit --detach`, hashing included", "s", &submit);
    ratio("speedup of `upload_file`", shell, call);
    ratio("speedup of `ydl submit`", shell, submit);
}
