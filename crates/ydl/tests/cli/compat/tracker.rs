//! The stand-alone tracker, and XGBoost 1.7's own Rabit client as its workers.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};
use ydl_testkit::{example_environment, finish};

/// A tracker process that is killed at the end of the test.
struct Tracker(Child);

impl Drop for Tracker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the variables that a tracker prints. Other programs parse this format line by line.
fn block(tracker: &mut Child) -> Vec<(String, String)> {
    let out = tracker.stdout.take().expect("a pipe");
    let lines: Vec<_> = BufReader::new(out)
        .lines()
        .map(|line| line.expect("a line"))
        .take_while(|line| line != "DMLC_TRACKER_ENV_END")
        .collect();
    assert_eq!(lines[0], "DMLC_TRACKER_ENV_START");
    let pairs = lines[1..].iter().map(|line| line.split_once('='));
    let pairs = pairs.map(|pair| pair.expect("`=`"));
    pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[test]
fn rabit_workers_connect_to_the_stand_alone_tracker_despite_invalid_clients() {
    let mut tracker = Command::new(ydl_testkit::ydl());
    tracker
        .args(["dmlc-tracker", "--num-workers", "3"])
        .args(["--host-ip", "127.0.0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut tracker = Tracker(tracker.spawn().expect("ydl can be started"));
    let variables = block(&mut tracker.0);
    let names: Vec<_> = variables.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT"];
    assert_eq!(names, expected);
    assert_eq!(variables[0].1, "3");
    assert_eq!(variables[1].1, "0");
    // Invalid clients: a port scan, another protocol, and an incomplete message.
    let address = format!("{}:{}", variables[2].1, variables[3].1);
    drop(TcpStream::connect(&address).expect("a connection"));
    let mut invalid = TcpStream::connect(&address).expect("a connection");
    let _ = invalid.write_all(b"GET / HTTP/1.1\r\n\r\n");
    let mut incomplete = TcpStream::connect(&address).expect("a connection");
    let _ = incomplete.write_all(&[0x99, 0xff]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/xgboost1-digits");
    let python = example_environment("xgboost1").join("bin/python");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let worker = |index: u32| {
        let own = dir.path().join(index.to_string());
        std::fs::create_dir(&own).expect("a directory");
        let mut command = Command::new(&python);
        command
            .arg(example.join("train.py"))
            .args(["--rounds", "3"])
            .current_dir(own)
            .envs(variables.iter().cloned())
            .env("DMLC_TASK_ID", index.to_string())
            .env("OMP_NUM_THREADS", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("python can be started")
    };
    let workers: Vec<_> = (0..3).map(worker).collect();
    for (index, worker) in workers.into_iter().enumerate() {
        let ran = finish(worker);
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert!(ran.stdout.contains(&format!("rank {index} of 3")), "{ran:#?}");
    }
    let ended = tracker.0.wait().expect("an exit status");
    assert_eq!(ended.code(), Some(0), "the tracker runs after the shutdown of all workers");
}
