//! XGBoost's own library against our trackers, with masters that die whenever anything has happened.

mod support_sockets;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use support_sockets::{
    Sockets, peers,
    programs::{Programs, python},
};
use ydl_core::TaskId;
use ydl_rendezvous::{Protocol, tracker::Tracker};

const NEW: &str = "examples/xgboost-digits/requirements.txt";
const OLD: &str = "crates/ydl-rendezvous/tests/real_xgboost/xgboost-0.81/requirements.txt";

fn sockets(workers: u32) -> Sockets {
    let all = peers("worker", workers);
    let tasks: Vec<TaskId> = all.iter().map(|peer| peer.task.clone()).collect();
    let fresh = move || -> Box<dyn Protocol> { Box::new(Tracker::new(tasks.clone())) };
    Sockets::serve(Box::new(fresh), &all, 1)
}

/// What starts a worker of one kind of program.
fn program<'a>(
    requirements: &str,
    script: &str,
    sockets: &'a Sockets,
) -> impl Fn(u32) -> Command + use<'a> {
    let python = python(requirements);
    let script = format!("{}/tests/real_xgboost/{script}", env!("CARGO_MANIFEST_DIR"));
    move |index| {
        let port = sockets.port(&format!("worker:{index}"));
        let mut command = Command::new(&python);
        command
            .arg(&script)
            .env("TRACKER_PORT", port.to_string())
            .env("INDEX", index.to_string())
            .env("OMP_NUM_THREADS", "1");
        command
    }
}

/// Everybody has ended well and says the same, but for its rank, which is its index.
fn agree(programs: Programs) -> Vec<String> {
    let mut said = Vec::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status} {output}");
        let (_, index) = task.split_once(':').unwrap();
        // XGBoost prints lines of its own.
        for line in output.lines().filter(|line| line.starts_with("rank ")) {
            let rest = line.strip_prefix(&format!("rank {index} ")).unwrap();
            said.push(rest.to_owned());
        }
    }
    said.dedup();
    said
}

#[test]
fn workers_meet_twice_and_train_the_same_model() {
    let sockets = sockets(3);
    let worker = program(NEW, "three.py", &sockets);
    let mut programs = Programs::default();
    for index in 0..3 {
        programs.start(&format!("worker:{index}"), &mut worker(index));
    }
    let said = agree(programs);
    assert!(matches!(&said[..], [all] if all.starts_with("sum 6.0 model ")), "{said:?}");
    let asked = sockets.status();
    assert!(asked.rejected.is_empty() && asked.failovers > 30, "{asked:?}");
}

#[test]
fn a_worker_that_dies_takes_the_others_with_it_at_once() {
    let sockets = sockets(3);
    let worker = program(NEW, "three.py", &sockets);
    let mut programs = Programs::default();
    for index in 0..3 {
        programs.start(&format!("worker:{index}"), worker(index).env("KILLED", "1"));
    }
    assert!(!programs.end_of("worker:1").success());
    let died = Instant::now();
    sockets.attempt_ended(&peers("worker", 3)[1]);
    for (task, status, _) in programs.outputs() {
        assert_eq!(status.code(), Some(255), "{task}");
    }
    assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());
}

#[test]
fn a_worker_of_rabit_comes_again_with_its_rank_and_training_goes_on() {
    for killed in [None, Some(0), Some(3)] {
        let sockets = sockets(5);
        let worker = program(OLD, "rabit.py", &sockets);
        let mut programs = Programs::default();
        for index in 0..5 {
            let mut command = worker(index);
            if let Some(killed) = killed {
                command.env("KILLED", killed.to_string());
            }
            programs.start(&format!("worker:{index}"), &mut command);
        }
        if let Some(killed) = killed {
            let task = format!("worker:{killed}");
            assert!(!programs.end_of(&task).success());
            sockets.attempt_ended(&peers("worker", 5)[killed as usize]);
            programs.start(&task, &mut worker(killed));
        }
        // A worker that comes again adds up its predictions anew, so what differs between runs is how they are rounded.
        let said = agree(programs);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("of 5 has a good model "), "{said:?}");
        let asked = sockets.status();
        assert!(asked.rejected.is_empty() && asked.failovers > 30, "{asked:?}");
        assert_eq!(asked.log.len(), 5, "{asked:?}");
    }
}
