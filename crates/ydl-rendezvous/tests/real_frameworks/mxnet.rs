//! MXNet's library with this crate's scheduler.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    HOST, Sockets, peers,
    programs::{Programs, python},
};
use expect_test::expect;
use ydl_rendezvous::{Protocol, pslite::PsScheduler};

/// Each worker adds its rank + 1 and reads the sum. With STOP_AT, it stops before it adds anything.
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

/// Returns ports in descending order: MXNet's scheduler would assign ranks in ascending order.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> =
        (0..count).map(|_| std::net::TcpListener::bind((HOST, 0)).unwrap()).collect();
    let mut ports: Vec<u16> =
        held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    ports.reverse();
    ports
}

const REQUIREMENTS: &str = "examples/mxnet-digits/requirements.txt";

/// Serves a scheduler for one server and two workers.
fn sockets(failover_every: usize) -> Sockets {
    let mut all = peers("server", 1);
    all.extend(peers("worker", 2));
    let new_protocol = || -> Box<dyn Protocol> { Box::new(PsScheduler::new(2, 1)) };
    Sockets::serve(Box::new(new_protocol), &all, failover_every)
}

fn program(python: &Path, sockets: &Sockets, task: &str) -> Command {
    let (role, _) = task.split_once(':').unwrap();
    let mut command = Command::new(python);
    command
        .args(["-c", PROGRAM])
        .env("DMLC_ROLE", role)
        .env("DMLC_NUM_WORKER", "2")
        .env("DMLC_NUM_SERVER", "1")
        .env("DMLC_PS_ROOT_URI", HOST)
        .env("DMLC_PS_ROOT_PORT", sockets.port(task).to_string())
        .env("DMLC_NODE_HOST", HOST)
        .env("OMP_NUM_THREADS", "1");
    command
}

fn check(programs: Programs) {
    let mut outputs = String::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status} {output}");
        outputs += format!("{task} {output}").trim_end();
        outputs.push('\n');
    }
    expect![[r#"
        server:0
        worker:0 rank 0 of 2 sum 18.0
        worker:1 rank 1 of 2 sum 18.0
    "#]]
    .assert_eq(&outputs);
}

#[test]
fn workers_sum_values_and_ranks_are_task_indexes() {
    let python = python(REQUIREMENTS);
    // Without heartbeats, with heartbeats, and with a failover after every event.
    for (heartbeats, failover_every) in [("0", 0), ("1", 0), ("1", 1)] {
        let sockets = sockets(failover_every);
        let mut programs = Programs::default();
        for (task, port) in ["server:0", "worker:0", "worker:1"].into_iter().zip(free_ports(3)) {
            let mut command = program(&python, &sockets, task);
            command.env("PORT", port.to_string()).env("PS_HEARTBEAT_INTERVAL", heartbeats);
            programs.start(task, &mut command);
        }
        check(programs);
        let status = sockets.status();
        assert!(failover_every == 0 || status.failovers > 10, "{status:?}");
        assert!(status.rejected.is_empty() && status.log.is_empty(), "{status:?}");
    }
}

#[test]
fn a_worker_killed_before_its_first_push_is_replaced() {
    let python = python(REQUIREMENTS);
    let sockets = sockets(1);
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("stopped");
    let mut programs = Programs::default();
    let mut stopping = program(&python, &sockets, "worker:1");
    programs.start("worker:1", stopping.env("STOP_AT", &mark));
    for task in ["server:0", "worker:0"] {
        programs.start(task, &mut program(&python, &sockets, task));
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while !mark.exists() {
        assert!(Instant::now() < deadline, "{:?}", sockets.status());
        thread::sleep(Duration::from_millis(5));
    }
    programs.kill("worker:1");
    assert!(!programs.end_of("worker:1").success());
    sockets.attempt_ended(&peers("worker", 2)[1]);
    programs.start("worker:1", &mut program(&python, &sockets, "worker:1"));
    check(programs);
}
