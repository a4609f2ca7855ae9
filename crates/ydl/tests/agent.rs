//! One real agent, and a master that a test plays: answers late, lost, repeated, or none at all.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use yarn_native::credentials::{Credentials, Format};
use ydl::{
    agent::setting::{DELIVERED, Delivered, Setting},
    jobfile,
    jobs::{Content, JobDir, Offer, Place, Staged, Submitted},
    talk::{AgentReport, Sync, Synced},
    wire::{
        request::{Head, Reply, Request},
        secret::{Scope, Secret, Token},
        server::{Limits, listen, serve},
        tls::Identity,
    },
};
use ydl_core::{
    Cluster, ContainerId, JobSpec, Order, Run, Span, TaskId, Time,
    spec::{Draft, Environment},
};

/// Far more than anything here takes; reached only when something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A question of the agent, and where its answer goes.
struct Asked {
    sync: Sync,
    /// How long a master without news keeps it.
    hold: Duration,
    answer: oneshot::Sender<Reply>,
}

impl Asked {
    fn answer(self, reply: Reply) {
        // It asks anew when something happens meanwhile, and then nobody waits for this any more.
        drop(self.answer.send(reply));
    }

    fn order(self, number: u64, order: &Order) {
        let order = order.clone();
        self.answer(Reply::json(&Synced { number, order }));
    }
}

/// An agent of a job of one task that runs this script.
struct Scene {
    dir: TempDir,
    agent: Child,
    questions: mpsc::Receiver<Asked>,
}

impl Scene {
    /// On this machine.
    fn new(script: &str, more: &str) -> Scene {
        let place = Place::Local(Offer {
            memory_mib: 1024,
            vcores: 1,
            gpus: Vec::new(),
        });
        Scene::at(script, more, place)
    }

    /// As a NodeManager starts it.
    fn in_container(script: &str, more: &str) -> Scene {
        let content = Content {
            url: "hdfs://127.0.0.1:1/ydl".to_owned(),
            bytes: 1,
            modified_ms: 1,
            unpack: false,
            own: false,
        };
        // Nobody listens at port 1.
        let place = Place::Yarn(Staged {
            dir: "hdfs://127.0.0.1:1/user/me/.ydl/jobs/t-aaaaaa".to_owned(),
            home: "hdfs://127.0.0.1:1/user/me".to_owned(),
            binary: content,
            files: BTreeMap::new(),
            environment: None,
        });
        Scene::at(script, more, place)
    }

    fn at(script: &str, more: &str, runs: Place) -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let job = JobDir::at(dir.path());
        let file = dir.path().join("job.yaml");
        let script = serde_json::to_string(script).expect("a string");
        let yaml = format!("name: t\nroles: {{worker: {{shell: {script}}}}}\n{more}\n");
        std::fs::write(&file, yaml).expect("a job file");
        let job_file = jobfile::load(&file).and_then(|file| file.job());
        let mut draft = Draft::from(job_file.expect("a job"));
        if matches!(runs, Place::Yarn(_)) {
            draft.environment = Environment::Archive("env.tar.gz".to_owned());
        }
        let submitted = Submitted {
            id: "t-aaaaaa".to_owned(),
            at: Time(0),
            from: dir.path().to_owned(),
            spec: JobSpec::new(draft).expect("a job"),
            place: runs.clone(),
        };
        let json = serde_json::to_vec(&submitted).expect("json");
        std::fs::write(job.submitted_file(), json).expect("job.json");

        let (identity, secret) = (Identity::generate().unwrap(), Secret::random().unwrap());
        std::fs::write(job.certificate_file(), identity.certificate_pem()).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).expect("a socket");
        let container = ContainerId::from("container_1");
        let place = job.container(&container);
        let setting = Setting {
            job: dir.path().to_owned(),
            container,
            master: listener.local_addr().unwrap().to_string(),
            host: "127.0.0.1".to_owned(),
            staging: None,
        };
        let mut agent = Command::new(env!("CARGO_BIN_EXE_ydl"));
        agent
            .arg("agent")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        match runs {
            Place::Local(_) => {
                let token = |scope: Scope| secret.token(&scope);
                setting.write(&place, token).expect("a setting");
                agent.arg(&place);
            }
            Place::Yarn(staged) => {
                deliver(dir.path(), setting, staged, &secret);
                agent
                    .current_dir(dir.path())
                    .env(
                        "HADOOP_TOKEN_FILE_LOCATION",
                        dir.path().join("container_tokens"),
                    )
                    .env("NM_HOST", "127.0.0.1")
                    .env("USER", "me")
                    .env("CUDA_VISIBLE_DEVICES", "3,5");
            }
        }

        let (ask, questions) = mpsc::channel::<Asked>(16);
        let admit = move |head: &Head| {
            let bearer = head.bearer.as_ref().map_or("", Token::as_str);
            secret.verify(bearer).ok_or_else(Reply::empty)
        };
        let answer = move |_: Scope, request: Request| {
            let ask = ask.clone();
            async move {
                let sync = serde_json::from_slice(&request.body).expect("a question");
                let hold = request.head.query["wait_ms"].parse().expect("a number");
                let hold = Duration::from_millis(hold);
                let (answer, answered) = oneshot::channel();
                ask.send(Asked { sync, hold, answer })
                    .await
                    .expect("the test");
                match answered.await {
                    Ok(reply) => reply,
                    // Thrown away: it is never answered.
                    Err(_) => std::future::pending().await,
                }
            }
        };
        let tls = identity.server().unwrap();
        let never = std::future::pending();
        tokio::spawn(serve(
            listener,
            tls,
            Limits::default(),
            never,
            admit,
            answer,
        ));
        let agent = agent.spawn().expect("an agent");
        Scene {
            dir,
            agent,
            questions,
        }
    }

    async fn next(&mut self) -> Asked {
        let next = timeout(PATIENCE, self.questions.recv()).await;
        next.expect("the agent asks").expect("the server lives")
    }

    /// The first question that says something; others are told that nothing is new, after a while.
    async fn report(&mut self) -> Asked {
        loop {
            let asked = self.next().await;
            if !asked.sync.reports.is_empty() {
                return asked;
            }
            asked.answer(Reply::empty());
        }
    }

    async fn left(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            // Questions that nobody will answer are thrown away.
            while self.questions.try_recv().is_ok() {}
            if let Some(status) = self.agent.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < end, "the agent does not leave");
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("logs/worker/0/1/stdout.0")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// What an agent on a cluster finds: credentials with its setting in them, and the client's configuration.
fn deliver(dir: &Path, setting: Setting, staged: Staged, secret: &Secret) {
    let name = setting.container.as_str().to_owned();
    let token = |scope: Scope| secret.token(&scope).expect("a token").as_str().to_owned();
    let delivered = Delivered {
        agent_token: token(Scope::Agent(name.clone())),
        program_token: token(Scope::Program(name)),
        setting: Setting {
            job: PathBuf::new(),
            host: String::new(),
            staging: Some(staged.dir),
            ..setting
        },
    };
    let mut credentials = Credentials::default();
    let json = serde_json::to_vec(&delivered).expect("json");
    credentials.set_secret(DELIVERED, json);
    let file = dir.join("container_tokens");
    credentials.write(&file, Format::Writable).expect("a file");
    let config = r#"{"fs.defaultFS": "hdfs://127.0.0.1:1"}"#;
    std::fs::write(dir.join("hadoop.json"), config).expect("a configuration");
}

fn wait(round: u32) -> Order {
    Order::Wait {
        round,
        task: task(),
        ports: Vec::new(),
        slot: (0, 1),
        grace: Span::seconds(1),
    }
}

fn run(round: u32) -> Order {
    Order::Run(Run {
        task: task(),
        round,
        attempt: 1,
        cluster: Arc::new(Cluster::default()),
    })
}

fn stop() -> Order {
    Order::Stop {
        grace: Span::seconds(1),
        save: true,
    }
}

fn task() -> TaskId {
    "worker:0".parse().expect("a task")
}

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
    let mut scene = Scene::in_container(script, "");
    let bin = scene.dir.path().join("environment/venv/bin");
    std::fs::create_dir_all(&bin).expect("an environment");
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
