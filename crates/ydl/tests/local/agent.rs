//! One real agent, and a master that a test plays: answers late, lost, repeated, or none at all.

use crate::agent_harness::{Scene, Store, run, stop, task, wait};
use std::{
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use ydl::client::live_logs;
use ydl_net::{client::Client, request::Reply, secret::Token, tls::Pin};
use ydl_proto::{
    files::{JobDir, MasterAddress},
    messages::{AgentReport, AgentRequest, LogAttempt, LogRequest, NumberedRequest},
};
use ydl_testkit::local::Home;

#[tokio::test]
async fn what_was_said_is_said_again_until_it_was_heard() {
    let mut scene = Scene::new("exit 3", "timeouts: {heartbeat: 30s}");
    scene.next().await.order(1, &wait(1));
    for lost in [true, false] {
        let asked = scene.report().await;
        let said = &asked.sync.reports;
        assert!(matches!(said[..], [AgentReport::Ready { round: 1, .. }]), "{said:?}");
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
    assert!(matches!(said[..], [AgentReport::OutputsUploaded { error: None }]), "{said:?}");
    asked.answer(Reply::empty());
    assert!(scene.left().await.success());
}

#[tokio::test]
async fn an_agent_whose_master_hangs_stops_its_program_in_time() {
    let script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done";
    let mut scene = Scene::new(script, "timeouts: {heartbeat: 2s, grace: 5s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.order(2, &run(1));
    scene.report().await.answer(Reply::empty());
    while !std::fs::read_to_string(scene.log()).is_ok_and(|log| log.contains("up")) {
        // Poll, since there is no notification of a written file.
        scene.next().await.answer(Reply::empty());
    }
    // From here on questions are taken, and never answered.
    let began = Instant::now();
    let status = scene.left().await;
    assert!(!status.success(), "its end is not its program's");
    // The timeouts `heartbeat`, `grace` and `stop` of this job: after that its master may have replaced the container.
    assert!(began.elapsed() < Duration::from_secs(2 + 5 + 20), "{:?}", began.elapsed());
    let log = std::fs::read_to_string(scene.log()).expect("a log");
    assert!(log.ends_with("bye\n"), "{log}");
}

#[tokio::test]
async fn an_agent_with_a_short_silence_asks_often_enough() {
    let mut scene = Scene::new("true", "timeouts: {heartbeat: 1s}");
    // Its first request contains the interval. No timeout applies before its response, so that slow machines pass.
    let asked = scene.next().await;
    assert!(asked.hold * 4 <= Duration::from_secs(1), "{:?}", asked.hold);
}

#[tokio::test]
async fn a_master_without_news_is_not_asked_in_circles() {
    let mut scene = Scene::new("true", "");
    let asked = scene.next().await;
    let began = Instant::now();
    asked.order(u64::MAX, &wait(1));
    scene.report().await.order(u64::MAX, &wait(1));
    for _ in 0..2 {
        scene.next().await.order(u64::MAX, &wait(1));
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_agent_that_is_not_wanted_stops_its_program_and_leaves() {
    let mut scene = Scene::new("sleep 1000", "timeouts: {grace: 5s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.order(2, &run(1));
    scene.report().await.answer(Reply::error(410, "the job is over", None));
    let status = scene.left().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn an_agent_whose_container_is_ended_says_so() {
    let mut scene = Scene::new("sleep 1000", "timeouts: {grace: 5s}");
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
    // A NodeManager keeps its own diagnostics only for containers with this exit code.
    assert_eq!(scene.left().await.code(), Some(143));
}

#[tokio::test]
async fn a_late_answer_counts_from_when_it_was_asked_for() {
    let silence = Duration::from_secs(6);
    let mut scene = Scene::new("true", "timeouts: {heartbeat: 6s}");
    scene.next().await.order(1, &wait(1));
    scene.report().await.answer(Reply::empty());
    let asked = scene.next().await;
    sleep(Duration::from_secs(4)).await;
    let answered = Instant::now();
    asked.answer(Reply::empty());
    scene.left().await;
    // Counted from its answer, it would have been all of the silence.
    let after = answered.elapsed();
    assert!(after < silence, "{after:?}");
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

fn read(id: u64, file: &str, offset: u64, wait_ms: u64) -> NumberedRequest {
    let file = file.to_owned();
    NumberedRequest {
        id,
        task: task(),
        request: AgentRequest::Log(LogRequest::Read {
            attempt: 1,
            file,
            offset,
            bytes_max: 1 << 20,
            wait_ms,
        }),
    }
}

#[tokio::test]
async fn an_agent_shows_what_its_program_prints_while_it_runs_and_until_it_leaves() {
    let script = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; \
                  until [ -e end ]; do sleep 0.02; done";
    let mut scene = Scene::new(script, "");
    scene.start().await;
    // A question is dropped for one that says that it runs, and what is wished in answer to the first is not heard.
    scene.report().await.answer(Reply::empty());
    scene
        .until("line", async |scene| std::fs::metadata(scene.log()).is_ok_and(|log| log.len() == 4))
        .await;
    let list =
        NumberedRequest { id: 7, task: task(), request: AgentRequest::Log(LogRequest::List) };
    let wishes = [
        list,
        read(8, "stdout.0", 0, 0),
        read(9, "../../../../job.json", 0, 0),
        read(10, "none.0", 0, 0),
        read(11, "stdout.0", 4, 20_000),
    ];
    scene.next().await.wish(&wishes);
    for _ in 0..4 {
        let (id, query, body) = scene.found().await;
        match id {
            7 => {
                let list: Vec<LogAttempt> = serde_json::from_slice(&body).expect("a list");
                assert_eq!(list[0].attempt, 1);
                let names: Vec<_> = list[0].files.iter().map(|file| file.name.as_str()).collect();
                assert_eq!(names, ["stderr.0", "stdout.0"]);
            }
            8 => assert_eq!((&body[..], query["length"].as_str()), (&b"one\n"[..], "4")),
            9 | 10 => assert!(query.contains_key("not-found"), "{query:?}"),
            other => panic!("{other} was not waited for"),
        }
    }
    let work = scene.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (id, _, body) = scene.found().await;
    assert_eq!((id, &body[..]), (11, &b"two\n"[..]));
    // It stays to be asked after its program has ended, from the question on that says so.
    std::fs::write(work.join("end"), "").expect("a file");
    let ended = |it: &AgentReport| matches!(it, AgentReport::Exited { .. });
    let asked = loop {
        let asked = scene.report().await;
        if asked.sync.reports.iter().any(ended) {
            break asked;
        }
        asked.answer(Reply::empty());
    };
    asked.wish(&[read(12, "stdout.0", 8, 20_000)]);
    let (id, query, body) = scene.found().await;
    assert_eq!((id, body.len()), (12, 0));
    assert!(query.contains_key("ended"), "{query:?}");
}

#[tokio::test]
async fn a_master_lets_people_see_what_tasks_print() {
    let home = Home::new();
    let script =
        "echo hello $YDL_INDEX; until [ -e $YDL_CHECKPOINT/go ]; do sleep 0.05; done; echo bye";
    let yaml = format!(
        "name: t\nroles: {{worker: {{instances: 2, memory: 100 MiB, shell: '{script}'}}}}\n"
    );
    home.detach(&yaml);
    let job = JobDir::at(home.job());
    let log = |home: &Home| home.job().join("logs/worker/1/1/stdout.0");
    home.wait_for_text(log, "hello 1");
    let place = std::fs::read(job.master_file()).expect("a place");
    let place: MasterAddress = serde_json::from_slice(&place).expect("json");
    let pin = Pin::of_pem(&std::fs::read(job.certificate_file()).expect("a file")).expect("a pin");
    let token = Token::read(&job.token_file()).expect("a token");
    let client = Client::new(place.address, pin, &token).expect("a client");
    let task = "worker:1".parse().expect("a task");
    let list = live_logs::attempts(&client, &task).await.expect("an answer");
    let list = list.expect("an agent");
    assert_eq!((list.len(), list[0].attempt), (1, 1));
    // The longest wait of one read: without new output, the answer comes at its end.
    let wait = Duration::from_secs(30);
    let piece = live_logs::read(&client, &task, 1, "stdout.0", 0, wait).await;
    let piece = piece.expect("an answer").expect("an agent");
    assert_eq!(&piece.bytes[..], b"hello 1\n");
    assert!(!piece.ended);
    for (task, file) in [("worker:1", "stdout.9"), ("worker:7", "stdout.0"), ("ps:0", "stdout.0")] {
        let task = task.parse().expect("a task");
        let piece = live_logs::read(&client, &task, 1, file, 0, Duration::ZERO).await;
        assert_eq!(piece.expect("an answer"), None, "{task} {file}");
    }
    // What is waited for is shown when it is printed.
    let go = job.checkpoint().join("go");
    let began = Instant::now();
    let (piece, ()) =
        tokio::join!(live_logs::read(&client, &task, 1, "stdout.0", 8, wait), async {
            sleep(Duration::from_millis(300)).await;
            std::fs::write(go, "").expect("a file");
        });
    let piece = piece.expect("an answer").expect("an agent");
    assert_eq!(&piece.bytes[..], b"bye\n");
    assert!(began.elapsed() < wait, "{:?}", began.elapsed());
}
