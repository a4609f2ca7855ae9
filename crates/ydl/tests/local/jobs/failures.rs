//! Jobs whose programs, agents or masters fail, are killed or do not respond.

use super::{assert_failed, script};
use std::{fs, time::Instant};
use ydl_testkit::{
    finish,
    local::{Home, WAIT_TIMEOUT, kill},
};

#[test]
fn a_killed_program_starts_a_new_round_with_its_cause_in_the_history() {
    let home = Home::new();
    let text = script(
        3,
        "test $YDL_ROUND = 2 && exit 0; echo up; sleep 1000",
        "gang: true\nrestart: {scope: job, limit: 1, backoff: {initial: 10ms, max: 10ms}}",
    );
    let child = home.start(&text);
    home.wait_for("three programs", |home| (home.find("sleep 1000").len() >= 6).then_some(()));
    let victim = home.find("/bin/sh -c test")[0].pid;
    kill(victim, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let history = home.history();
    assert!(history.contains(r#""round-restarted":{"round":2"#), "{history}");
    assert!(history.contains(r#""ending":{"signalled":{"signal":9}}"#), "{history}");
    assert!(history.contains(r#""round-started":{"round":2,"tasks":3}"#), "{history}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn without_restarts_a_killed_program_fails_the_job_at_once() {
    let home = Home::new();
    let more = "gang: true\ntimeouts: {grace: 1h}";
    let child = home.start(&script(3, "sleep 1000", more));
    home.wait_for("three programs", |home| (home.find("sleep 1000").len() >= 6).then_some(()));
    let victim = home.find("/bin/sh -c sleep")[0].pid;
    let began = Instant::now();
    kill(victim, 9);
    let ran = finish(child);
    // The master does not wait for the grace period of the others, which is an hour.
    assert!(began.elapsed() < WAIT_TIMEOUT, "it took {:?}", began.elapsed());
    assert_failed(&ran, 137, "was killed by SIGKILL on `");
    assert!(ran.stderr.contains("worker:"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn the_death_of_the_master_ends_the_job_and_status_reports_it() {
    let home = Home::new();
    // With this timeout the agents would not exit by themselves.
    let more = "timeouts: {heartbeat: 1h}";
    let id = home.detach(&script(2, "trap '' HUP; sleep 1000 & wait", more));
    home.wait_for("the programs", |home| (home.find("sleep 1000").len() >= 4).then_some(()));
    kill(home.find(" master ")[0].pid, 9);
    home.wait_until_empty();
    let ran = home.run(&["status", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!((ran.stdout + &ran.stderr).contains("master"), "status does not report the failure");
    let ran = home.run(&["ls"]);
    assert!(ran.stdout.contains("lost"), "{ran:#?}");
}

#[test]
fn a_killed_agent_leaves_no_orphan_and_its_task_restarts() {
    let home = Home::new();
    let text = script(
        1,
        "test $YDL_ATTEMPT = 2 && exit 0; setsid sleep 1000 & sleep 1000",
        "restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for("the programs", |home| (home.find("sleep 1000").len() >= 3).then_some(()));
    kill(home.find(" agent ")[0].pid, 9);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.history().contains(r#""agent-died":{"status":137}"#), "{}", home.history());
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn orphans_of_a_killed_agent_and_shim_are_killed() {
    let home = Home::new();
    let text = script(
        1,
        "daemon=$YDL_CHECKPOINT/daemon; \
         if test $YDL_ATTEMPT = 2; then ! kill -0 $(cat $daemon); exit; fi; \
         setsid sleep 1000 & echo $! > $daemon; echo up; sleep 1000",
        "restart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    home.wait_for("the daemon", |home| (home.find("sleep 1000").len() >= 3).then_some(()));
    let agent = home.find(" agent ")[0].pid;
    let shims = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"));
    let shim = shims.expect("a list").trim().parse().expect("one shim");
    // Neither agent nor shim can clean up after the other.
    for (pid, signal) in [(agent, 19), (shim, 9), (agent, 9)] {
        kill(pid, signal);
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn daemons_of_a_program_end_with_its_task() {
    let home = Home::new();
    let ran = home.submit(&script(1, "(setsid sh -c 'setsid sleep 1000 &' &); echo gone", ""));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_hanging_agent_is_detected_and_its_task_restarts() {
    let home = Home::new();
    let stopped = home.path().join("stopped");
    // On a busy machine an agent may miss this short timeout, so many restarts are allowed.
    let text = script(
        1,
        &format!("test -e {} && exit 0; sleep 1000", stopped.display()),
        "timeouts: {heartbeat: 1s, run: 10m}\nrestart: {limit: 100, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for("the program", |home| (home.find("sleep 1000").len() >= 2).then_some(()));
    fs::write(stopped, "").expect("a file");
    for agent in home.find(" agent ") {
        kill(agent.pid, 19);
    }
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.history().contains(r#""heartbeat-timeout":"#), "{}", home.history());
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn an_agent_that_missed_a_few_heartbeats_is_kept() {
    let home = Home::new();
    // The program runs longer than the heartbeat timeout.
    let text = script(1, "echo up; sleep 14", "timeouts: {heartbeat: 8s}");
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    let agent = home.find(" agent ")[0].pid;
    kill(agent, 19);
    home.wait_for_text(|home| home.job().join("master.log"), "missed heartbeats of an agent");
    kill(agent, 18);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn a_program_stopped_by_sigstop_is_killed_and_restarts() {
    let home = Home::new();
    let text = script(
        1,
        "test $YDL_ATTEMPT = 2 && exit 0; echo up; exec sleep 1000",
        "timeouts: {heartbeat: 6s}\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    );
    let child = home.start(&text);
    home.wait_for_job();
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    kill(home.find("sleep 1000")[0].pid, 19);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let history = home.history();
    assert!(history.contains("was stopped (SIGSTOP) for "), "{history}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn a_client_that_dies_changes_nothing() {
    let home = Home::new();
    let go = home.path().join("go");
    let text = format!("until test -e {}; do sleep 0.1; done", go.display());
    let mut child = home.start(&script(1, &text, ""));
    home.wait_for("the program", |home| (!home.find("/bin/sh -c until").is_empty()).then_some(()));
    kill(child.id(), 9);
    child.wait().expect("a child");
    fs::write(go, "").expect("a file");
    home.wait_for_text(history_file, r#""job-finished":{"outcome":"succeeded"}"#);
    home.wait_until_empty();
}

#[test]
fn a_signal_to_the_master_stops_the_job_gracefully() {
    let home = Home::new();
    let text = script(2, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done", "");
    let id = home.detach(&text);
    for index in 0..2 {
        let log = |home: &Home| home.job().join(format!("logs/worker/{index}/1/stdout.0"));
        home.wait_for_text(log, "up");
    }
    kill(home.find(" master ")[0].pid, 15);
    home.wait_until_empty();
    let log = fs::read_to_string(home.job().join("logs/worker/1/1/stdout.0"));
    assert!(log.is_ok_and(|log| log.ends_with("bye\n")));
    let ran = home.run(&["status", &id]);
    assert!(ran.stdout.contains("killed"), "{ran:#?}");
    let history = home.history();
    assert!(history.contains("SIGTERM to the master"), "{history}");
}

#[test]
fn a_second_master_of_a_job_changes_nothing() {
    let home = Home::new();
    let id = home.detach(&script(1, "echo up; sleep 1000", ""));
    home.wait_for_text(|home| home.job().join("logs/worker/0/1/stdout.0"), "up");
    // The master leads its own session, so that it outlives its terminal.
    let master = home.find(" master ")[0].pid;
    let stat = fs::read_to_string(format!("/proc/{master}/stat")).expect("a process");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(4));
    assert_eq!(session, Some(master.to_string().as_str()));
    let job = home.job();
    let ran = home.run(&["master", job.to_str().expect("a path")]);
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("journal"), "{ran:#?}");
    let ran = home.run(&["kill", &id]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn one_interrupt_stops_the_job_and_waits() {
    let home = Home::new();
    let child = home.start(&script(
        2,
        "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        "",
    ));
    let log = |home: &Home| home.job().join("logs/worker/1/1/stdout.0");
    home.wait_for_job();
    home.wait_for_text(log, "up");
    kill(child.id(), 2);
    let ran = finish(child);
    assert_eq!(ran.code, 121, "{ran:#?}");
    assert!(ran.stdout.contains("bye"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

fn history_file(home: &Home) -> std::path::PathBuf {
    home.job().join("history.jsonl")
}
