//! PyTorch's library with this crate's store, with a failover after every event.

use std::{path::PathBuf, process::Command};

use crate::support::{
    HOST, Sockets, peers,
    programs::{Programs, python},
};
use ydl_rendezvous::{Protocol, c10d::C10dStore};

fn sockets() -> Sockets {
    let new_protocol = || -> Box<dyn Protocol> { Box::<C10dStore>::default() };
    Sockets::serve(Box::new(new_protocol), &peers("worker", 2), 1)
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real_frameworks/torch").join(name)
}

fn torch() -> Command {
    let python = python("examples/pytorch-digits/requirements.txt");
    let mut command = Command::new(python);
    // All processes are on this machine.
    command
        .env("GLOO_SOCKET_IFNAME", "lo")
        .env("OMP_NUM_THREADS", "1")
        .env("TORCH_CPP_LOG_LEVEL", "ERROR");
    command
}

/// Checks that all programs succeeded and returns their output, sorted.
fn printed(programs: Programs) -> Vec<String> {
    let mut lines = Vec::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status}\n{output}");
        lines.extend(output.lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

fn trained_together(lines: &[String]) {
    let weights: Vec<&str> = lines
        .iter()
        .enumerate()
        .map(|(rank, line)| {
            let rest = line.strip_prefix(&format!("rank {rank} of 2 sum 3.0 weights "));
            rest.unwrap_or_else(|| panic!("{lines:?}"))
        })
        .collect();
    assert!(matches!(weights[..], [one, other] if one == other), "{lines:?}");
}

#[test]
fn every_call_gets_the_response_of_torch() {
    let sockets = sockets();
    let ports = [0, 1].map(|index| sockets.port(&format!("worker:{index}")).to_string());
    let mut programs = Programs::default();
    let mut calls = torch();
    calls.arg(script("calls.py")).env("STORES", ports.join(","));
    programs.start("worker:0", &mut calls);
    assert_eq!(printed(programs), ["26 compared"]);
    let status = sockets.status();
    assert_eq!(status.rejected, ["cannot add to a value that is not a number"]);
    assert!(status.failovers > 100, "{status:?}");
}

#[test]
fn ranks_rendezvous_and_train_twice() {
    let sockets = sockets();
    let mut programs = Programs::default();
    for rank in 0..2 {
        let task = format!("worker:{rank}");
        let mut train = torch();
        train
            .arg(script("train.py"))
            .env("MASTER_ADDR", HOST)
            .env("MASTER_PORT", sockets.port(&task).to_string())
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("TORCHELASTIC_USE_AGENT_STORE", "True")
            .env("TORCHELASTIC_RESTART_COUNT", "0");
        programs.start(&task, &mut train);
    }
    trained_together(&printed(programs));
    let status = sockets.status();
    assert!(status.rejected.is_empty() && status.failovers > 30, "{status:?}");
}

#[test]
fn torchrun_agents_rendezvous_at_the_store() {
    let sockets = sockets();
    let mut programs = Programs::default();
    for node in 0..2 {
        let task = format!("worker:{node}");
        let mut agent = torch();
        agent
            .args(["-m", "torch.distributed.run", "--nnodes=2"])
            .args(["--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=job"])
            .arg(format!("--rdzv-endpoint={HOST}:{}", sockets.port(&task)))
            .arg("--rdzv-conf=is_host=0")
            .arg(script("train.py"));
        programs.start(&task, &mut agent);
    }
    trained_together(&printed(programs));
    let status = sockets.status();
    assert!(status.rejected.is_empty() && status.failovers > 30, "{status:?}");
}
