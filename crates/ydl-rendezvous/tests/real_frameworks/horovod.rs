//! Horovod's library with this crate's store, with a failover after every event.

use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    HOST, Sockets, peers,
    programs::{Programs, python},
};
use ydl_core::Cluster;
use ydl_rendezvous::{
    Peer, Protocol,
    gloo::{GlooDriver, GlooLimits, GlooMember, GlooStore, World},
};

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real_frameworks/horovod").join(name)
}

/// Returns the command of a process, with the environment that ydl sets.
fn horovod(sockets: &Sockets, world: &World, member: &GlooMember) -> Command {
    let slot = world.rank_info(&member.slot).unwrap();
    let mut command = Command::new(python("examples/horovod-digits/requirements.txt"));
    for (name, number) in [
        ("RANK", slot.rank),
        ("SIZE", slot.size),
        ("LOCAL_RANK", slot.local_rank),
        ("LOCAL_SIZE", slot.local_size),
        ("CROSS_RANK", slot.cross_rank),
        ("CROSS_SIZE", slot.cross_size),
        ("GLOO_RENDEZVOUS_PORT", sockets.port(&member.task.to_string()).into()),
    ] {
        command.env(format!("HOROVOD_{name}"), number.to_string());
    }
    command
        .env("HOROVOD_HOSTNAME", &member.slot.host)
        .env("HOROVOD_CONTROLLER", "gloo")
        .env("HOROVOD_CPU_OPERATIONS", "gloo")
        .env("HOROVOD_GLOO_RENDEZVOUS_ADDR", HOST)
        // All processes are on this machine.
        .env("HOROVOD_GLOO_IFACE", "lo")
        .env("HOROVOD_GLOO_TIMEOUT_SECONDS", "120")
        .env("OMP_NUM_THREADS", "1")
        .env("TF_CPP_MIN_LOG_LEVEL", "2");
    command
}

fn world(peers: &[Peer], processes: u32) -> World {
    World::of_tasks(peers.iter().map(|peer| peer.task.clone()), processes)
}

/// Runs three rendezvous of all processes, with a failover after every event.
fn run_rendezvous(framework: &str, tasks: u32, processes: u32) {
    let all = peers("worker", tasks);
    let world = world(&all, processes);
    let begins = world.clone();
    let new_protocol = move || -> Box<dyn Protocol> {
        Box::new(GlooStore::new(begins.clone(), GlooLimits::default()))
    };
    let sockets = Sockets::serve(Box::new(new_protocol), &all, 1);
    let mut programs = Programs::default();
    for member in world.members() {
        let mut command = horovod(&sockets, &world, member);
        command.arg(script("three.py")).arg(framework);
        programs.start(&member.slot.to_string(), &mut command);
    }
    let size = tasks * processes;
    let sum = f64::from(size * (size + 1) / 2);
    let ranks: Vec<u32> = (0..size).collect();
    for (rank, (task, status, output)) in (0..).zip(programs.outputs()) {
        assert!(status.success(), "{task}: {status}\n{output}");
        let (task, local) = (rank / processes, rank % processes);
        let line = format!(
            "rank {rank} {size} {local} {processes} {task} {tasks} sum {sum:?} all {ranks:?}"
        );
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines, [line.as_str(); 3], "{task}");
    }
    let status = sockets.status();
    assert!(status.rejected.is_empty() && status.log.is_empty(), "{status:?}");
    assert!(status.failovers > 100, "{status:?}");
}

#[test]
fn pytorch_processes_rendezvous_repeatedly() {
    run_rendezvous("torch", 2, 1);
}

#[test]
fn tensorflow_processes_rendezvous_repeatedly() {
    run_rendezvous("tensorflow", 2, 1);
}

#[test]
fn processes_of_a_task_have_local_ranks() {
    run_rendezvous("torch", 2, 2);
}

/// Creates a round with these workers, by rank.
fn members(indexes: &[u32]) -> Cluster {
    Cluster {
        round: 1,
        roles: vec![ydl_core::RoleMembers {
            role: "worker".into(),
            instances: indexes.len() as u32,
            processes: 1,
            indexes: indexes.to_vec(),
            endpoints: Vec::new(),
        }],
    }
}

#[test]
fn a_world_grows_and_continues_without_rank_0() {
    let all = peers("worker", 3);
    let (two, three, rest) = (members(&[0, 1]), members(&[0, 1, 2]), members(&[1, 2]));
    let begins = two.clone();
    let new_protocol =
        move || -> Box<dyn Protocol> { Box::new(GlooDriver::new(&begins, GlooLimits::default())) };
    let sockets = Sockets::serve(Box::new(new_protocol), &all, 1);
    let folder = tempfile::tempdir().unwrap();
    let mut programs = Programs::default();
    let start = |programs: &mut Programs, world: &World, index: usize| {
        let member = &world.members()[index];
        let task = member.task.to_string();
        let mut command = horovod(&sockets, world, member);
        command
            .arg(script("elastic.py"))
            .env("HOROVOD_ELASTIC", "1")
            .env("HOROVOD_GLOO_TIMEOUT_SECONDS", "20")
            .env("WORLDS", "3")
            .env("DROP_FIRST_NOTIFICATION", "1")
            .env("MARK", folder.path().join(&task));
        programs.start(&task, &mut command);
    };
    let trained = |mark: &str| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !folder.path().join(mark).exists() {
            assert!(Instant::now() < deadline, "{mark}: {:?}", sockets.status());
            thread::sleep(Duration::from_millis(5));
        }
    };
    for index in 0..2 {
        start(&mut programs, &World::of(&two), index);
    }
    sockets.members_changed(&three);
    start(&mut programs, &World::of(&three), 2);
    trained("worker:2-3");
    programs.kill("worker:0");
    assert!(!programs.end_of("worker:0").success());
    sockets.attempt_ended(&all[0]);
    sockets.members_changed(&rest);
    let mut output_lines = Vec::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status}\n{output}");
        let here = match task.as_str() {
            "worker:2" => "here [3, 2]",
            _ => "here [2, 3, 2]",
        };
        let lines: Vec<&str> = output.lines().rev().collect();
        assert_eq!(lines[1], here, "{task}: {output}");
        // The new worker has the state of the others.
        let rest = lines[0].strip_prefix("worlds [2, 3, 2] ");
        let rest = rest.unwrap_or_else(|| panic!("{task}: {output}"));
        output_lines.push(rest.to_owned());
    }
    assert_eq!(output_lines.len(), 2);
    assert_eq!(output_lines[0], output_lines[1]);
    let status = sockets.status();
    assert!(status.rejected.is_empty() && status.failovers > 100, "{status:?}");
    assert!(status.retries > 0, "{status:?}");
    let worlds = ["world of size 3 started", "world of size 2 started"];
    assert_eq!(status.log, worlds, "{status:?}");
}
