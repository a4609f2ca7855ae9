//! XGBoost's library with this crate's trackers, with a failover after every event.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{
    Sockets, peers,
    programs::{Programs, python},
};
use ydl_core::TaskId;
use ydl_rendezvous::{Protocol, tracker::Tracker};

const NEW: &str = "examples/xgboost-digits/requirements.txt";
const OLD: &str =
    "crates/ydl-rendezvous/tests/real_frameworks/xgboost/xgboost-0.81/requirements.txt";

fn sockets(workers: u32) -> Sockets {
    let all = peers("worker", workers);
    let tasks: Vec<TaskId> = all.iter().map(|peer| peer.task.clone()).collect();
    let new_protocol = move || -> Box<dyn Protocol> { Box::new(Tracker::new(tasks.clone())) };
    Sockets::serve(Box::new(new_protocol), &all, 1)
}

/// Returns a function that creates the command of a worker.
fn program<'a>(
    requirements: &str,
    script: &str,
    sockets: &'a Sockets,
) -> impl Fn(u32) -> Command + use<'a> {
    let python = python(requirements);
    let script = format!("{}/tests/real_frameworks/xgboost/{script}", env!("CARGO_MANIFEST_DIR"));
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

/// Checks that all programs succeeded with their index as rank, and returns their distinct lines.
fn common_output(programs: Programs) -> Vec<String> {
    let mut output_lines = Vec::new();
    for (task, status, output) in programs.outputs() {
        assert!(status.success(), "{task}: {status} {output}");
        let (_, index) = task.split_once(':').unwrap();
        // Skip the lines of XGBoost itself.
        for line in output.lines().filter(|line| line.starts_with("rank ")) {
            let rest = line.strip_prefix(&format!("rank {index} ")).unwrap();
            output_lines.push(rest.to_owned());
        }
    }
    output_lines.dedup();
    output_lines
}

#[test]
fn workers_rendezvous_twice_and_train_the_same_model() {
    let sockets = sockets(3);
    let worker = program(NEW, "three.py", &sockets);
    let mut programs = Programs::default();
    for index in 0..3 {
        programs.start(&format!("worker:{index}"), &mut worker(index));
    }
    let output_lines = common_output(programs);
    assert!(
        matches!(&output_lines[..], [all] if all.starts_with("sum 6.0 model ")),
        "{output_lines:?}"
    );
    let status = sockets.status();
    assert!(status.rejected.is_empty() && status.failovers > 30, "{status:?}");
}

#[test]
fn a_failed_worker_stops_the_others_at_once() {
    const SLEEP: Duration = Duration::from_secs(300);
    let sockets = sockets(3);
    let worker = program(NEW, "three.py", &sockets);
    let mut programs = Programs::default();
    for index in 0..3 {
        let mut command = worker(index);
        command.env("KILLED", "1").env("SLEEP", SLEEP.as_secs().to_string());
        programs.start(&format!("worker:{index}"), &mut command);
    }
    assert!(!programs.end_of("worker:1").success());
    let failed_at = Instant::now();
    sockets.attempt_ended(&peers("worker", 3)[1]);
    for (task, status, _) in programs.outputs() {
        assert_eq!(status.code(), Some(255), "{task}");
    }
    assert!(failed_at.elapsed() < SLEEP, "they were stopped before they woke up");
}

#[test]
fn a_restarted_rabit_worker_keeps_its_rank_and_training_continues() {
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
        // A restarted worker recomputes its predictions, so runs differ in rounding.
        let output_lines = common_output(programs);
        assert_eq!(output_lines.len(), 1, "{output_lines:?}");
        assert!(output_lines[0].starts_with("of 5 has a good model "), "{output_lines:?}");
        let status = sockets.status();
        assert!(status.rejected.is_empty() && status.failovers > 30, "{status:?}");
        assert_eq!(status.log.len(), 5, "{status:?}");
    }
}
