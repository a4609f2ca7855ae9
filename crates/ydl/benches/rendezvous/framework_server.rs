//! The frameworks' own servers, in their own environments.

use super::{client::Kind, steps::Coordinator};
use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// A server and its clients. Dropping it kills them.
pub struct FrameworkServer(Vec<Child>);

impl Drop for FrameworkServer {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const STORE: &str = "
import sys, torch.distributed as dist
store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
";

const RABIT: &str = "
import sys
from dmlc_tracker.tracker import RabitTracker
tracker = RabitTracker('127.0.0.1', int(sys.argv[1]))
tracker.start(int(sys.argv[1]))
print(tracker.port, flush=True)
sys.stdin.read()
";

const XGBOOST: &str = "
import sys
from xgboost.tracker import RabitTracker
tracker = RabitTracker(n_workers=int(sys.argv[1]), host_ip='127.0.0.1')
tracker.start()
print(tracker.worker_args()['dmlc_tracker_port'], flush=True)
sys.stdin.read()
";

pub fn start(kind: Kind, count: usize, coordinator: &Coordinator) -> FrameworkServer {
    let (framework, script) = match kind {
        Kind::C10d => ("pytorch", STORE),
        Kind::Rabit => ("mxnet", RABIT),
        Kind::Xgboost => ("xgboost", XGBOOST),
        Kind::Pslite => ("mxnet", "import mxnet"),
    };
    let mut server = Command::new(python(framework));
    server
        .args(["-c", script, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env("OMP_NUM_THREADS", "1");
    let port = if kind == Kind::Pslite {
        let port = free_port();
        server
            .env("DMLC_ROLE", "scheduler")
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_PS_ROOT_PORT", port.to_string())
            .env("DMLC_NODE_HOST", "127.0.0.1")
            .env("DMLC_NUM_WORKER", (count - 1).to_string())
            .env("DMLC_NUM_SERVER", "1");
        port.to_string()
    } else {
        String::new()
    };
    let mut all = FrameworkServer(vec![server.spawn().expect("a Python")]);
    let port = if port.is_empty() {
        let out = all.0[0].stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "the server of {framework} printed no port");
        line.trim().to_owned()
    } else {
        port
    };
    let program = std::env::current_exe().expect("this program");
    for rank in 0..count {
        let mut client = Command::new(&program);
        client
            .args(["client", kind.name(), &coordinator.address().to_string()])
            .env("PORT_OF_SERVER", &port)
            .env("YDL_RANK", rank.to_string())
            .env("YDL_ROLE", if rank + 1 == count { "server" } else { "worker" })
            .env("YDL_WORLD_SIZE", count.to_string());
        all.0.push(client.spawn().expect("a client"));
    }
    all
}

fn free_port() -> u16 {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    held.local_addr().expect("an address").port()
}

fn python(framework: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let made = Command::new(format!("{root}/scripts/python-env"))
        .arg(format!("{root}/examples/{framework}-digits/requirements.txt"))
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/python-env");
    assert!(made.status.success(), "{made:?}");
    let path = String::from_utf8(made.stdout).expect("a path");
    PathBuf::from(path.trim()).join("bin/python")
}
