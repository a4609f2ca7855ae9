//! A real agent whose master responds late, repeatedly or not at all.

use crate::agent_harness::{AgentHarness, ClusterSetup, run, stop, task, wait};
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
async fn reports_are_repeated_until_acknowledged() {
    let mut harness = AgentHarness::new("exit 3", "timeouts: {heartbeat: 30s}");
    harness.next_sync().await.order(1, &wait(1));
    for lost in [true, false] {
        let pending = harness.next_report().await;
        let reports = &pending.sync.reports;
        assert!(matches!(reports[..], [AgentReport::Ready { round: 1, .. }]), "{reports:?}");
        match lost {
            true => pending.respond(Reply::error(503, "not now", None)),
            false => pending.order(2, &run(1)),
        }
    }
    let mut exits = 0;
    while exits == 0 {
        let pending = harness.next_report().await;
        let exited = |it: &&AgentReport| match it {
            AgentReport::Exited { round: 1, exit } => exit.code == Some(3),
            _ => false,
        };
        exits = pending.sync.reports.iter().filter(exited).count();
        // The same order with another number, as from a restarted master.
        pending.order(3, &run(1));
    }
    let pending = harness.next_sync().await;
    assert!(pending.sync.reports.is_empty(), "the program ran twice");
    pending.order(4, &stop());
    let pending = harness.next_report().await;
    let reports = &pending.sync.reports;
    assert!(matches!(reports[..], [AgentReport::Stopped { upload_error: None }]), "{reports:?}");
    pending.respond(Reply::empty());
    assert!(harness.wait_for_exit().await.success());
}

#[tokio::test]
async fn an_agent_without_a_responding_master_stops_its_program_in_time() {
    let script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done";
    let mut harness = AgentHarness::new(script, "timeouts: {heartbeat: 2s, grace: 5s}");
    harness.next_sync().await.order(1, &wait(1));
    harness.next_report().await.order(2, &run(1));
    harness.next_report().await.respond(Reply::empty());
    while !std::fs::read_to_string(harness.log()).is_ok_and(|log| log.contains("up")) {
        // Poll, since there is no notification of a written file.
        harness.next_sync().await.respond(Reply::empty());
    }
    // From here on the master accepts requests without responding.
    let began = Instant::now();
    let status = harness.wait_for_exit().await;
    assert!(!status.success(), "the agent was cut off from its master");
    // The timeouts `heartbeat`, `grace` and `stop` of this job: after that its master may have replaced the container.
    assert!(began.elapsed() < Duration::from_secs(2 + 5 + 20), "{:?}", began.elapsed());
    let log = std::fs::read_to_string(harness.log()).expect("a log");
    assert!(log.ends_with("bye\n"), "{log}");
}

#[tokio::test]
async fn a_short_heartbeat_timeout_shortens_the_polls() {
    let mut harness = AgentHarness::new("true", "timeouts: {heartbeat: 1s}");
    // The first request contains the interval. No timeout applies before its response, so the test passes on slow machines.
    let pending = harness.next_sync().await;
    assert!(pending.hold * 4 <= Duration::from_secs(1), "{:?}", pending.hold);
}

#[tokio::test]
async fn early_replies_without_news_delay_the_next_sync() {
    let mut harness = AgentHarness::new("true", "");
    let pending = harness.next_sync().await;
    let began = Instant::now();
    pending.order(u64::MAX, &wait(1));
    harness.next_report().await.order(u64::MAX, &wait(1));
    for _ in 0..2 {
        harness.next_sync().await.order(u64::MAX, &wait(1));
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_rejected_agent_stops_its_program_and_exits() {
    let mut harness = AgentHarness::new("sleep 1000", "timeouts: {grace: 5s}");
    harness.next_sync().await.order(1, &wait(1));
    harness.next_report().await.order(2, &run(1));
    harness.next_report().await.respond(Reply::error(410, "the job is over", None));
    let status = harness.wait_for_exit().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_terminated_agent_reports_the_signal() {
    let mut harness = AgentHarness::new("sleep 1000", "timeouts: {grace: 5s}");
    harness.next_sync().await.order(1, &wait(1));
    harness.next_report().await.order(2, &run(1));
    harness.next_report().await.respond(Reply::empty());
    let pid = harness.agent.id().to_string();
    let sent = Command::new("kill").args(["-15", &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let ended = |it: &AgentReport| match it {
        AgentReport::Exited { exit, .. } => Some((exit.container_signalled, exit.signal)),
        _ => None,
    };
    let exit = loop {
        let pending = harness.next_report().await;
        let exit = pending.sync.reports.iter().find_map(ended);
        pending.respond(Reply::empty());
        if let Some(exit) = exit {
            break exit;
        }
    };
    assert_eq!(exit, (true, Some(15)));
    // A NodeManager keeps its own diagnostics only for containers with this exit code.
    assert_eq!(harness.wait_for_exit().await.code(), Some(143));
}

#[tokio::test]
async fn the_heartbeat_timeout_counts_from_the_request_not_from_the_reply() {
    let timeout = Duration::from_secs(6);
    let mut harness = AgentHarness::new("true", "timeouts: {heartbeat: 6s}");
    harness.next_sync().await.order(1, &wait(1));
    harness.next_report().await.respond(Reply::empty());
    let pending = harness.next_sync().await;
    sleep(Duration::from_secs(4)).await;
    let replied_at = Instant::now();
    pending.respond(Reply::empty());
    harness.wait_for_exit().await;
    // Counted from the reply, the agent would have stayed for the whole timeout.
    let elapsed = replied_at.elapsed();
    assert!(elapsed < timeout, "{elapsed:?}");
}

#[tokio::test]
async fn a_program_in_a_container_gets_the_tokens_of_the_cluster_but_not_of_its_agent() {
    let script =
        "env | grep -E '^(CUDA|HADOOP|YDL)_'; cat $HADOOP_TOKEN_FILE_LOCATION; echo; python";
    let mut harness = AgentHarness::in_container(script, "", ClusterSetup::unreachable());
    let bin = harness.dir.path().join("environment/venv/bin");
    let python = bin.join("python");
    std::fs::write(&python, "#!/bin/sh\necho this is python").expect("a program");
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).expect("a mode");
    harness.next_sync().await.order(1, &wait(1));
    let pending = harness.next_report().await;
    let [AgentReport::Ready { endpoint, .. }] = &pending.sync.reports[..] else {
        panic!("{:?}", pending.sync.reports)
    };
    assert_eq!(endpoint.host, "127.0.0.1");
    pending.order(2, &run(1));
    loop {
        let pending = harness.next_report().await;
        let succeeded = |it: &AgentReport| matches!(it, AgentReport::Exited { exit, .. } if exit.code == Some(0));
        let has_exited = pending.sync.reports.iter().any(succeeded);
        pending.respond(Reply::empty());
        if has_exited {
            break;
        }
    }
    let log = std::fs::read(harness.log()).expect("a log");
    let log = String::from_utf8_lossy(&log);
    let has = |line: &str| log.lines().any(|one| one == line);
    assert!(has("CUDA_VISIBLE_DEVICES=3,5"), "{log}");
    assert!(has("HADOOP_USER_NAME=me"), "{log}");
    assert!(has("this is python"), "{log}");
    assert!(log.contains("HDTS"), "wrong tokens: {log}");
    assert!(!log.contains("agent_token"), "{log}");
    assert!(!log.contains("agent.container_1."), "{log}");
}

fn read(id: u64, file: &str, offset: u64, wait_ms: u64) -> NumberedRequest {
    let file = file.to_owned();
    NumberedRequest {
        id,
        task: task(),
        request: AgentRequest::ReadLog(LogRequest::Read {
            attempt: 1,
            file,
            offset,
            bytes_max: 1 << 20,
            wait_ms,
        }),
    }
}

#[tokio::test]
async fn an_agent_serves_logs_while_and_after_its_program_runs() {
    let script = "echo one; until [ -e go ]; do sleep 0.02; done; echo two; \
                  until [ -e end ]; do sleep 0.02; done";
    let mut harness = AgentHarness::new(script, "");
    harness.start().await;
    // The agent drops a pending sync to report the start, and with it requests in the response.
    harness.next_report().await.respond(Reply::empty());
    harness
        .wait_until("line", async |harness| {
            std::fs::metadata(harness.log()).is_ok_and(|log| log.len() == 4)
        })
        .await;
    let list =
        NumberedRequest { id: 7, task: task(), request: AgentRequest::ReadLog(LogRequest::List) };
    let requests = [
        list,
        read(8, "stdout.0", 0, 0),
        read(9, "../../../../job.json", 0, 0),
        read(10, "none.0", 0, 0),
        read(11, "stdout.0", 4, 20_000),
    ];
    harness.next_sync().await.send_requests(&requests);
    for _ in 0..4 {
        let (id, query, body) = harness.next_log_reply().await;
        match id {
            7 => {
                let list: Vec<LogAttempt> = serde_json::from_slice(&body).expect("a list");
                assert_eq!(list[0].attempt, 1);
                let names: Vec<_> = list[0].files.iter().map(|file| file.name.as_str()).collect();
                assert_eq!(names, ["stderr.0", "stdout.0"]);
            }
            8 => assert_eq!((&body[..], query["length"].as_str()), (&b"one\n"[..], "4")),
            9 | 10 => assert!(query.contains_key("not-found"), "{query:?}"),
            other => panic!("unexpected reply to request {other}"),
        }
    }
    let work = harness.dir.path().join("containers/container_1/work");
    std::fs::write(work.join("go"), "").expect("a file");
    let (id, _, body) = harness.next_log_reply().await;
    assert_eq!((id, &body[..]), (11, &b"two\n"[..]));
    // The agent serves logs after its program has exited, too.
    std::fs::write(work.join("end"), "").expect("a file");
    let ended = |it: &AgentReport| matches!(it, AgentReport::Exited { .. });
    let pending = loop {
        let pending = harness.next_report().await;
        if pending.sync.reports.iter().any(ended) {
            break pending;
        }
        pending.respond(Reply::empty());
    };
    pending.send_requests(&[read(12, "stdout.0", 8, 20_000)]);
    let (id, query, body) = harness.next_log_reply().await;
    assert_eq!((id, body.len()), (12, 0));
    assert!(query.contains_key("ended"), "{query:?}");
}

#[tokio::test]
async fn live_logs_are_read_through_the_master() {
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
    let address = std::fs::read(job.master_file()).expect("a place");
    let address: MasterAddress = serde_json::from_slice(&address).expect("json");
    let pin = Pin::of_pem(&std::fs::read(job.certificate_file()).expect("a file")).expect("a pin");
    let token = Token::read(&job.token_file()).expect("a token");
    let client = Client::new(address.address, pin, &token).expect("a client");
    let task = "worker:1".parse().expect("a task");
    let list = live_logs::attempts(&client, &task).await.expect("a response");
    let list = list.expect("an agent");
    assert_eq!((list.len(), list[0].attempt), (1, 1));
    // The maximum wait of one read: without new output, the response comes after it.
    let wait = Duration::from_secs(30);
    let chunk = live_logs::read(&client, &task, 1, "stdout.0", 0, wait).await;
    let chunk = chunk.expect("a response").expect("an agent");
    assert_eq!(&chunk.bytes[..], b"hello 1\n");
    assert!(!chunk.ended);
    for (task, file) in [("worker:1", "stdout.9"), ("worker:7", "stdout.0"), ("ps:0", "stdout.0")] {
        let task = task.parse().expect("a task");
        let chunk = live_logs::read(&client, &task, 1, file, 0, Duration::ZERO).await;
        assert_eq!(chunk.expect("a response"), None, "{task} {file}");
    }
    // A waiting read returns as soon as there is new output.
    let go = job.checkpoint().join("go");
    let began = Instant::now();
    let (chunk, ()) =
        tokio::join!(live_logs::read(&client, &task, 1, "stdout.0", 8, wait), async {
            sleep(Duration::from_millis(300)).await;
            std::fs::write(go, "").expect("a file");
        });
    let chunk = chunk.expect("a response").expect("an agent");
    assert_eq!(&chunk.bytes[..], b"bye\n");
    assert!(began.elapsed() < wait, "{:?}", began.elapsed());
}
