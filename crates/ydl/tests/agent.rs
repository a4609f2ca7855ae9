//! One real agent, and a master that a test plays: answers late, lost, repeated, or none at all.

mod scene;

use scene::{Scene, Store, run, stop, wait};
use std::{
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use ydl::{talk::AgentReport, wire::request::Reply};

#[tokio::test]
async fn what_was_said_is_said_again_until_it_was_heard() {
    let mut scene = Scene::new("exit 3", "deadlines: {silence: 30s}");
    scene.next().await.order(1, &wait(1));
    for lost in [true, false] {
        let asked = scene.report().await;
        let said = &asked.sync.reports;
        assert!(
            matches!(said[..], [AgentReport::Ready { round: 1, .. }]),
            "{said:?}"
        );
        match lost {
            true => asked.answer(Reply::error(503, "not now", None)),
            false => asked.order(2, &run(1)),
        }
    }
    let mut exits = 0;
    while exits == 0 {
        let asked = scene.report().await;
        let exited = |it: &&AgentReport| match it {
            AgentReport::Exited { round: 1, exit } => exit.code == Some(3),
            _ => false,
        };
        exits = asked.sync.reports.iter().filter(exited).count();
        // The same order under another number, as from a master that has forgotten what it said.
        asked.order(3, &run(1));
    }
    let asked = scene.next().await;
    assert!(asked.sync.reports.is_empty(), "it ran twice");
    asked.order(4, &stop());
    let asked = scene.report().await;
    let said = &asked.sync.reports;
    assert!(
        matches!(said[..], [AgentReport::Saved { error: None }]),
        "{said:?}"
    );
    asked.answer(Reply::empty());
    assert!(scene.left().await.success());
}

#[tokio::test]
async fn an_agent_whose_master_hangs_stops_its_program_in_time() {
    let script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done";
    let mut scene = Scene::new(script, "deadlines: {silence: 2s, grace: 1s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.order(2, &run(1));
    scene.report().await.answer(Reply::empty());
    while !std::fs::read_to_string(scene.log()).is_ok_and(|log| log.contains("up")) {
        // Nobody tells when a file is written.
        scene.next().await.answer(Reply::empty());
    }
    // From here on questions are taken, and never answered.
    let began = Instant::now();
    let status = scene.left().await;
    assert!(!status.success(), "its end is not its program's");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let log = std::fs::read_to_string(scene.log()).expect("a log");
    assert!(log.ends_with("bye\n"), "{log}");
}

#[tokio::test]
async fn an_agent_with_a_short_silence_asks_often_enough() {
    let mut scene = Scene::new("true", "deadlines: {silence: 1s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.answer(Reply::empty());
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        let asked = scene.next().await;
        sleep(asked.hold).await;
        asked.answer(Reply::empty());
    }
    assert!(scene.agent.try_wait().expect("a child").is_none());
}

#[tokio::test]
async fn a_master_without_news_is_not_asked_in_circles() {
    let mut scene = Scene::new("true", "");
    scene.next().await.order(u64::MAX, &wait(1));
    scene.report().await.order(u64::MAX, &wait(1));
    let began = Instant::now();
    for _ in 0..2 {
        scene.next().await.order(u64::MAX, &wait(1));
    }
    assert!(
        began.elapsed() > Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_agent_that_is_not_wanted_stops_its_program_and_leaves() {
    let mut scene = Scene::new("sleep 1000", "deadlines: {grace: 5s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.order(2, &run(1));
    scene
        .report()
        .await
        .answer(Reply::error(410, "the job is over", None));
    let status = scene.left().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn an_agent_whose_container_is_ended_says_so() {
    let mut scene = Scene::new("sleep 1000", "deadlines: {grace: 5s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.order(2, &run(1));
    scene.report().await.answer(Reply::empty());
    let pid = scene.agent.id().to_string();
    let sent = Command::new("kill").args(["-15", &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let ended = |it: &AgentReport| match it {
        AgentReport::Exited { exit, .. } => Some((exit.container_signalled, exit.signal)),
        _ => None,
    };
    let said = loop {
        let asked = scene.report().await;
        let said = asked.sync.reports.iter().find_map(ended);
        asked.answer(Reply::empty());
        if let Some(said) = said {
            break said;
        }
    };
    assert_eq!(said, (true, Some(15)));
    assert!(scene.left().await.success());
}

#[tokio::test]
async fn a_late_answer_counts_from_when_it_was_asked_for() {
    let mut scene = Scene::new("true", "deadlines: {silence: 4s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.answer(Reply::empty());
    let asked = scene.next().await;
    sleep(Duration::from_secs(2)).await;
    asked.answer(Reply::empty());
    let answered = Instant::now();
    scene.left().await;
    let after = answered.elapsed();
    assert!(after < Duration::from_secs(3), "{after:?}");
}

#[tokio::test]
async fn a_program_in_a_container_finds_the_clusters_tokens_and_none_of_its_agents() {
    let script =
        "env | grep -E '^(CUDA|HADOOP|YDL)_'; cat $HADOOP_TOKEN_FILE_LOCATION; echo; python";
    let mut scene = Scene::in_container(script, "", Store::none());
    let bin = scene.dir.path().join("environment/venv/bin");
    let python = bin.join("python");
    std::fs::write(&python, "#!/bin/sh\necho this is python").expect("a program");
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).expect("a mode");
    scene.next().await.order(1, &wait(1));
    let asked = scene.report().await;
    let [AgentReport::Ready { endpoint, .. }] = &asked.sync.reports[..] else {
        panic!("{:?}", asked.sync.reports)
    };
    assert_eq!(endpoint.host, "127.0.0.1");
    asked.order(2, &run(1));
    loop {
        let asked = scene.report().await;
        let ended = |it: &AgentReport| matches!(it, AgentReport::Exited { exit, .. } if exit.code == Some(0));
        let over = asked.sync.reports.iter().any(ended);
        asked.answer(Reply::empty());
        if over {
            break;
        }
    }
    let log = std::fs::read(scene.log()).expect("a log");
    let log = String::from_utf8_lossy(&log);
    let has = |line: &str| log.lines().any(|one| one == line);
    assert!(has("CUDA_VISIBLE_DEVICES=3,5"), "{log}");
    assert!(has("HADOOP_USER_NAME=me"), "{log}");
    assert!(has("this is python"), "{log}");
    assert!(log.contains("HDTS"), "its tokens: {log}");
    assert!(!log.contains("agent_token"), "{log}");
    assert!(!log.contains("agent.container_1."), "{log}");
}
