//! How long inputs take to come from HDFS, against Hadoop's own `FsShell -get`, in turn and in one run.
//!
//! Whole processes on both sides: a job of one task on this machine whose program does nothing, from `ydl submit` to the
//! end of everything, and a JVM of the test bed, which starts from an archive of its classes and so sooner than most.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};
use testbed::{Cluster, Options, Version};

const RUNS: usize = 3;
const LARGE_MIB: u64 = 500;
const SMALL_FILES: usize = 1000;
const SMALL_BYTES: usize = 20 << 10;

/// With the word `tiny` it only shows that it works.
fn main() {
    let tiny = std::env::args().any(|word| word == "tiny");
    let (runs, large_mib, small_files) = match tiny {
        true => (1, 20, 20),
        false => (RUNS, LARGE_MIB, SMALL_FILES),
    };
    let options = Options {
        nodes: 1,
        ..Options::new(Version::NEWEST)
    };
    let cluster = Cluster::start(options).unwrap_or_else(|failure| panic!("{failure}"));
    let home = tempfile::tempdir().expect("a directory");
    let source = home.path().join("source");
    fs::create_dir_all(source.join("small")).expect("a directory");
    let mut noise: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    let mut large = fs::File::create(source.join("large")).expect("a file");
    for _ in 0..large_mib {
        noise.rotate_left(7);
        std::io::Write::write_all(&mut large, &noise).expect("bytes");
    }
    for n in 0..small_files {
        let path = source.join(format!("small/part-{n:04}"));
        fs::write(path, &noise[n..n + SMALL_BYTES]).expect("a file");
    }
    let from = source.to_string_lossy().into_owned();
    cluster.fs(&["-put", &from, "/bench"]).expect("put");
    for (what, place) in [
        (format!("one file of {large_mib} MiB"), "large"),
        (format!("{small_files} files of 20 KiB"), "small"),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            ours.push(job(&cluster, home.path(), place));
            let got = home.path().join("got");
            let began = Instant::now();
            let (from, to) = (format!("/bench/{place}"), got.to_string_lossy());
            cluster.fs(&["-get", &from, &to]).expect("get");
            theirs.push(began.elapsed().as_secs_f64());
            // A file or a directory, whichever it is.
            let _ = fs::remove_file(&got).or_else(|_| fs::remove_dir_all(&got));
        }
        let middle = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[runs / 2]
        };
        let (ours, theirs) = (middle(&mut ours), middle(&mut theirs));
        println!(
            "{what:<24} ours {ours:.2} s   FsShell -get {theirs:.2} s   {:.1} times",
            theirs / ours
        );
    }
}

/// Seconds of a job that does nothing but fetch.
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
