//! MXNet's own library against our scheduler.

mod support_sockets;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use expect_test::expect;
use support_sockets::{HOST, Sockets, peers};
use ydl_rendezvous::pslite::Scheduler;

/// Each worker adds its rank + 1 and reads the sum back. One that is told to stops before it has added anything.
const PROGRAM: &str = r#"
import os, sys, time
import mxnet as mx
kv = mx.kv.create("dist_sync")
kv.init("x", mx.nd.zeros((2, 3)))
if "STOP_AT" in os.environ:
    open(os.environ["STOP_AT"], "w").close()
    time.sleep(300)
kv.push("x", mx.nd.ones((2, 3)) * (kv.rank + 1))
out = mx.nd.zeros((2, 3))
kv.pull("x", out=out)
print("rank", kv.rank, "of", kv.num_workers, "sum", out.asnumpy().sum())
"#;

fn python() -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let made = Command::new(format!("{root}/scripts/python-env"))
        .arg(format!("{root}/examples/mxnet-digits/requirements.txt"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let path = String::from_utf8(made.stdout).unwrap();
    PathBuf::from(path.trim()).join("bin/python")
}

/// Descending, because MXNet's own scheduler would rank by them, ascending.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count)
        .map(|_| std::net::TcpListener::bind((HOST, 0)).unwrap())
        .collect();
    let mut ports: Vec<u16> = held
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    ports.sort_unstable();
    ports.reverse();
    ports
}

struct Running(Vec<(String, Child)>);

impl Running {
    fn start(&mut self, python: &Path, sockets: &Sockets, task: &str, env: &[(&str, String)]) {
        let (role, _) = task.split_once(':').unwrap();
        let child = Command::new(python)
            .args(["-c", PROGRAM])
            .env("DMLC_ROLE", role)
            .env("DMLC_NUM_WORKER", "2")
            .env("DMLC_NUM_SERVER", "1")
            .env("DMLC_PS_ROOT_URI", HOST)
            .env("DMLC_PS_ROOT_PORT", sockets.port(task).to_string())
            .env("DMLC_NODE_HOST", HOST)
            .env("OMP_NUM_THREADS", "1")
            .envs(env.iter().map(|(name, value)| (*name, value.as_str())))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.0.push((task.to_owned(), child));
    }

    /// What each has printed, once all have ended well.
    fn outputs(mut self) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        for (task, child) in &mut self.0 {
            while child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "{task} does not end");
                thread::sleep(Duration::from_millis(20));
            }
        }
        let mut outputs = String::new();
        for (task, child) in std::mem::take(&mut self.0) {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{task}: {output:?}");
            let said = String::from_utf8(output.stdout).unwrap();
            outputs += format!("{task} {said}").trim_end();
            outputs.push('\n');
        }
        outputs
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn sockets() -> Sockets {
    let mut all = peers("server", 1);
    all.extend(peers("worker", 2));
    Sockets::serve(Box::new(Scheduler::new(2, 1)), &all)
}

#[test]
fn workers_add_up_and_ranks_are_indexes_against_the_order_of_ports() {
    let python = python();
    for beats in ["0", "1"] {
        let sockets = sockets();
        let mut running = Running(Vec::new());
        for (task, port) in ["server:0", "worker:0", "worker:1"]
            .into_iter()
            .zip(free_ports(3))
        {
            let env = [
                ("PORT", port.to_string()),
                ("PS_HEARTBEAT_INTERVAL", beats.to_owned()),
            ];
            running.start(&python, &sockets, task, &env);
        }
        expect![[r#"
            server:0
            worker:0 rank 0 of 2 sum 18.0
            worker:1 rank 1 of 2 sum 18.0
        "#]]
        .assert_eq(&running.outputs());
        let asked = sockets.ask();
        assert!(
            asked.refused.is_empty() && asked.said.is_empty(),
            "{asked:?}"
        );
    }
}

#[test]
fn a_worker_killed_before_it_has_added_anything_is_replaced_alone() {
    let python = python();
    let sockets = sockets();
    let stopped = tempfile::tempdir().unwrap();
    let mark = stopped.path().join("stopped");
    let mut running = Running(Vec::new());
    let stop = [("STOP_AT", mark.to_str().unwrap().to_owned())];
    running.start(&python, &sockets, "worker:1", &stop);
    running.start(&python, &sockets, "server:0", &[]);
    running.start(&python, &sockets, "worker:0", &[]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !mark.exists() {
        assert!(Instant::now() < deadline, "{:?}", sockets.ask());
        thread::sleep(Duration::from_millis(5));
    }
    let (_, mut killed) = running.0.remove(0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    sockets.ended(&peers("worker", 2)[1]);
    running.start(&python, &sockets, "worker:1", &[]);
    expect![[r#"
        server:0
        worker:0 rank 0 of 2 sum 18.0
        worker:1 rank 1 of 2 sum 18.0
    "#]]
    .assert_eq(&running.outputs());
}
