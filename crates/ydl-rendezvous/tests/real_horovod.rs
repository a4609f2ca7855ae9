//! Horovod's own library against our store, with masters that die whenever anything has happened.

mod support_sockets;

use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use support_sockets::{
    HOST, Sockets, peers,
    programs::{Programs, python},
};
use ydl_core::Cluster;
use ydl_rendezvous::{
    Peer, Protocol,
    gloo::{GlooDriver, GlooLimits, GlooMember, GlooStore, World},
};

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real_horovod").join(name)
}

/// A process with that place in a world, as ydl starts it.
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
        // Nobody else is on this machine for them to find.
        .env("HOROVOD_GLOO_IFACE", "lo")
        .env("HOROVOD_GLOO_TIMEOUT_SECONDS", "120")
        .env("OMP_NUM_THREADS", "1")
        .env("TF_CPP_MIN_LOG_LEVEL", "2");
    command
}

fn world(peers: &[Peer], processes: u32) -> World {
    World::of_tasks(peers.iter().map(|peer| peer.task.clone()), processes)
}

/// So many processes of so many tasks meet three times, while the master dies after everything that happens.
fn meet(framework: &str, tasks: u32, processes: u32) {
    let all = peers("worker", tasks);
    let world = world(&all, processes);
    let begins = world.clone();
    let fresh = move || -> Box<dyn Protocol> {
        Box::new(GlooStore::new(begins.clone(), GlooLimits::default()))
    };
    let sockets = Sockets::serve(Box::new(fresh), &all, 1);
    let mut programs = Programs::default();
    for member in world.members() {
        let mut command = horovod(&sockets, &world, member);
        command.arg(script("three.py")).arg(framework);
        programs.start(&member.slot.to_string(), &mut command);
    }
    let size = tasks * processes;
    let sum = f64::from(size * (size + 1) / 2);
    let ranks: Vec<u32> = (0..size).collect();
    for (rank, (place, status, output)) in (0..).zip(programs.outputs()) {
        assert!(status.success(), "{place}: {status}\n{output}");
        let (task, local) = (rank / processes, rank % processes);
        let line = format!(
            "rank {rank} {size} {local} {processes} {task} {tasks} sum {sum:?} all {ranks:?}"
        );
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines, [line.as_str(); 3], "{place}");
    }
    let asked = sockets.status();
    assert!(asked.rejected.is_empty() && asked.log.is_empty(), "{asked:?}");
    assert!(asked.failovers > 100, "{asked:?}");
}

#[test]
fn processes_with_pytorch_meet_and_meet_again() {
    meet("torch", 2, 1);
}

#[test]
fn processes_with_tensorflow_meet_and_meet_again() {
    meet("tensorflow", 2, 1);
}

#[test]
fn several_processes_of_a_task_have_local_ranks() {
    meet("torch", 2, 2);
}

/// A round with these workers, in the order of their ranks.
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
fn a_world_grows_and_goes_on_without_its_first_process() {
    let all = peers("worker", 3);
    let (two, three, rest) = (members(&[0, 1]), members(&[0, 1, 2]), members(&[1, 2]));
    let begins = two.clone();
    let fresh =
        move || -> Box<dyn Protocol> { Box::new(GlooDriver::new(&begins, GlooLimits::default())) };
    let sockets = Sockets::serve(Box::new(fresh), &all, 1);
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
            .env("HEEDS", "later")
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
    let mut said = Vec::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status}\n{output}");
        let here = match task.as_str() {
            "worker:2" => "here [3, 2]",
            _ => "here [2, 3, 2]",
        };
        let lines: Vec<&str> = output.lines().rev().collect();
        assert_eq!(lines[1], here, "{task}: {output}");
        // A newcomer has the state of those who were there.
        let rest = lines[0].strip_prefix("worlds [2, 3, 2] ");
        let rest = rest.unwrap_or_else(|| panic!("{task}: {output}"));
        said.push(rest.to_owned());
    }
    assert_eq!(said.len(), 2);
    assert_eq!(said[0], said[1]);
    let asked = sockets.status();
    assert!(asked.rejected.is_empty() && asked.failovers > 100, "{asked:?}");
    assert!(asked.retries > 0, "{asked:?}");
    let worlds = ["world started with 3 processes", "world started with 2 processes"];
    assert_eq!(asked.log, worlds, "{asked:?}");
}
